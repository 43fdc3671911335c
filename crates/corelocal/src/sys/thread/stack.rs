//! A copy of the calling thread's stack, from which another process can recover the calling functions later.
//!
//! Walking the stack here would need the unwinder of the language's runtime, which may take the dynamic linker's
//! locks, allocate, or be absent. Copying the stack takes one system call. The copy is walked elsewhere, with the
//! unwind tables of the program's files.
//!
//! # Invariants
//! 1. No memory is read that may not be: beyond the page that the stack pointer is in, the kernel reads, and stops
//!    where nothing is mapped.
//! 2. Async-signal-safe, and nothing is allocated.

use crate::sys::arch;
use crate::sys::arch::stacks;
pub(crate) use crate::sys::arch::stacks::REGISTERS;
use crate::sys::syscall::syscall;

/// The length of a thread's name with its zero byte.
pub(crate) const NAME_BYTES: usize = 16;
/// The index of the stack pointer among the registers: it follows the program counter.
const STACK_POINTER: usize = 1;
const PAGE: usize = 4096;
/// The maximum length of a copied stack.
pub(crate) const MOST_BYTES: usize = 4 * PAGE;

/// Returns the registers of this function, and up to `len` bytes of stack from its stack pointer on, at most
/// [`MOST_BYTES`], copied to `into`. Returns the number of bytes. `None` on architectures without register access.
///
/// # Safety
/// - `into` is valid for writes of `len` bytes, and aligned to 8.
#[inline(never)]
pub(crate) unsafe fn copy(into: *mut u8, len: usize) -> Option<([u64; REGISTERS], usize)> {
    let registers = registers()?;
    // SAFETY: the caller guarantees room for `len` bytes; the registers are those of this function.
    let copied = unsafe { copy_of(&registers, into, len) };
    Some((registers, copied))
}

/// Returns the registers of the function that calls this.
#[inline(always)]
pub(crate) fn registers() -> Option<[u64; REGISTERS]> {
    stacks::registers()
}

/// Returns the stack of a function with these registers. See [`copy`].
///
/// # Safety
/// - As [`copy`].
/// - That function has called this one, directly or through others.
pub(crate) unsafe fn copy_of(registers: &[u64; REGISTERS], into: *mut u8, len: usize) -> usize {
    let len = len.min(MOST_BYTES);
    let from = registers[STACK_POINTER] as usize;
    // What is in one page needs no kernel.
    let is_near = len <= PAGE - from % PAGE;
    // SAFETY: the caller guarantees room for `len` bytes.
    let copied = if is_near { None } else { unsafe { copy_by_kernel(into, from, len) } };
    copied.unwrap_or_else(|| {
        let len = len.min(PAGE - from % PAGE);
        // SAFETY: the rest of a mapped page, in which that function's frame lies; the caller guarantees room for
        // `len` bytes.
        unsafe { arch::copy_words(into, from, len / size_of::<u64>()) };
        len
    })
}

/// Calls `gettid()` and `prctl(PR_GET_NAME, name)`, see gettid(2) and prctl(2).
///
/// The calling thread's number, and its name.
#[doc(alias = "gettid")]
pub(crate) fn this_thread() -> (u32, [u8; NAME_BYTES]) {
    let mut name = [0; NAME_BYTES];
    let args = [libc::PR_GET_NAME as usize, name.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: the kernel writes 16 bytes to the name; the other call has no arguments. No name is no harm.
    unsafe {
        let _ = syscall(libc::SYS_prctl, args);
        (syscall(libc::SYS_gettid, [0; 6]).unwrap_or(0) as u32, name)
    }
}

/// Calls `process_vm_readv(getpid(), &into, 1, &from, 1, 0)`, see process_vm_readv(2).
///
/// Copies what the kernel can read from `from` on, up to `len` bytes, [`MOST_BYTES`] at most; how many bytes. `None`
/// where it does not.
///
/// # Safety
/// - The conditions of [`copy`] hold.
#[doc(alias = "process_vm_readv")]
pub(crate) unsafe fn copy_by_kernel(into: *mut u8, from: usize, len: usize) -> Option<usize> {
    // SAFETY: no arguments.
    let me = unsafe { syscall(libc::SYS_getpid, [0; 6]) }.ok()?;
    let to = libc::iovec { iov_base: into.cast(), iov_len: len };
    // It stops before the first piece that cannot be read as a whole, so there is a piece for each page.
    let mut left =
        [libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 }; MOST_BYTES / PAGE + 1];
    let mut start = from;
    for piece in &mut left {
        let end = (from + len).min(start / PAGE * PAGE + PAGE);
        *piece = libc::iovec { iov_base: start as *mut _, iov_len: end - start };
        start = end;
    }
    let args = [me, &raw const to as usize, 1, left.as_ptr() as usize, left.len(), 0];
    // SAFETY: the kernel reads the descriptions of both, whatever can be read at `from`, and writes to `into`.
    unsafe { syscall(libc::SYS_process_vm_readv, args) }.ok().filter(|copied| *copied > 0)
}

#[cfg(all(
    test,
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(loom, miri, corelocal_model))
))]
mod tests {
    use super::*;

    const LEN: usize = 4 * PAGE;

    #[repr(C, align(8))]
    struct Copy([u8; LEN]);

    fn contains(copy: &[u8], mark: u64) -> bool {
        copy.chunks_exact(8).any(|word| word == mark.to_ne_bytes())
    }

    #[test]
    fn the_callers_frame_is_in_the_copy() {
        let mark = core::hint::black_box(0x1234_5678_9abc_def0_u64 ^ 0x55);
        let on_stack = [mark; 3];
        core::hint::black_box(&on_stack);
        let mut by_kernel = Copy([0; LEN]);
        // SAFETY: a buffer of that length.
        let (registers, len) = unsafe { copy(by_kernel.0.as_mut_ptr(), LEN) }.expect("registers");
        assert!(len > 0 && len <= LEN);
        assert!(registers[0] != 0 && registers[STACK_POINTER] % 8 == 0);
        // A sanitizer has locals elsewhere.
        let (at, pointer) = (&raw const on_stack as usize, registers[STACK_POINTER] as usize);
        let is_copied = (pointer..pointer + len - size_of_val(&on_stack)).contains(&at);
        assert!(!is_copied || contains(&by_kernel.0[..len], mark));
        // The other way reads the same, as far as it goes.
        let mut here = Copy([0; LEN]);
        // SAFETY: what is read is on this stack.
        unsafe { arch::copy_words(here.0.as_mut_ptr(), at, on_stack.len()) };
        assert!(contains(&here.0[..8], mark));
    }

    #[test]
    fn it_ends_where_the_stack_does() {
        // The first thread of a process has the arguments and nothing else above it; others have less.
        let copied = std::thread::spawn(|| {
            let mut copied = Copy([0; LEN]);
            // SAFETY: a buffer of that length.
            unsafe { copy(copied.0.as_mut_ptr(), LEN) }.expect("registers").1
        });
        assert!((1..=LEN).contains(&copied.join().unwrap()));
        let page = crate::sys::memory::page_size::page_size();
        let nothing = crate::sys::memory::pages::map(2 * page).unwrap() as usize;
        // SAFETY: the second of the two pages, to which no reference exists.
        unsafe { crate::sys::memory::pages::unmap((nothing + page) as *mut u8, page) };
        let mut copied = Copy([0; LEN]);
        // SAFETY: a buffer of that length; the kernel finds out about what is read.
        let len = unsafe { copy_by_kernel(copied.0.as_mut_ptr(), nothing + page - 16, LEN) };
        assert!(len.is_none_or(|len| len == 16), "{len:?}");
    }
}
