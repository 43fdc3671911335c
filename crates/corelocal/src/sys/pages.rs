//! Anonymous pages straight from the kernel: the only memory the library takes for itself.
//!
//! No heap: these pages are needed inside signal handlers and by the malloc.

use super::errno::Errno;
use super::syscall::syscall;

/// Maps `len` bytes of zeroed, lazily populated, private memory; `None` when the kernel refuses.
///
/// Huge pages are refused for the range: a region is sized for every possible id and only the
/// pages of ids in use may become resident.
pub(crate) fn map(len: usize) -> Option<*mut u8> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize;
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches nothing.
    let at = unsafe { syscall(libc::SYS_mmap, [0, len, protection, flags, usize::MAX, 0]) }.ok()?;
    let at = at as *mut u8;
    // A kernel without transparent huge pages refuses the advice, which is just as well.
    // SAFETY: the mapping just made.
    let _ = unsafe { advise(at, len, libc::MADV_NOHUGEPAGE) };
    Some(at)
}

/// Gives the kernel advice about pages.
///
/// # Safety
/// The range lies in one `map`, and the advice's effect on its contents is wanted.
pub(crate) unsafe fn advise(at: *mut u8, len: usize, advice: i32) -> Result<(), Errno> {
    let args = [at as usize, len, advice as usize, 0, 0, 0];
    // SAFETY: the caller's promise.
    unsafe { syscall(libc::SYS_madvise, args) }.map(|_| ())
}

/// Gives pages back.
///
/// # Safety
/// `at` and `len` are those of one `map`, and nobody refers to the memory.
pub(crate) unsafe fn unmap(at: *mut u8, len: usize) {
    // The only errors are those of wrong arguments.
    // SAFETY: the caller's promise.
    let _ = unsafe { syscall(libc::SYS_munmap, [at as usize, len, 0, 0, 0, 0]) };
}

/// Whether the page of this address is in memory. False also of one that was swapped out.
pub(crate) fn is_resident(at: *mut u8) -> bool {
    let mut state = 0u8;
    let page = at.map_addr(|addr| addr & !4095);
    let args = [page as usize, 1, &raw mut state as usize, 0, 0, 0];
    // SAFETY: the kernel writes a byte for the one page, and looks at no memory.
    unsafe { syscall(libc::SYS_mincore, args) }.is_ok() && state & 1 != 0
}

/// Calls `f` with each page of the range that is resident; with every page where the kernel does not say.
///
/// Pages may come and go meanwhile.
pub(crate) fn for_each_resident(at: *mut u8, len: usize, mut f: impl FnMut(*mut u8)) {
    const PAGE: usize = 4096;
    const AT_ONCE: usize = 512;
    let mut states = [1u8; AT_ONCE];
    for done in (0..len).step_by(AT_ONCE * PAGE) {
        let (start, len) = (at.wrapping_add(done), (len - done).min(AT_ONCE * PAGE));
        states.fill(1);
        let args = [start as usize, len, states.as_mut_ptr() as usize, 0, 0, 0];
        // SAFETY: the kernel writes a byte for each page of the range, of which there are AT_ONCE at
        // most; it looks at no memory.
        let _ = unsafe { syscall(libc::SYS_mincore, args) };
        for (page, state) in states.iter().enumerate().take(len.div_ceil(PAGE)) {
            if state & 1 != 0 {
                f(start.wrapping_add(page * PAGE));
            }
        }
    }
}
