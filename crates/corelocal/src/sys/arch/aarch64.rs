//! AArch64: access to the rseq area relative to the thread pointer, and the system call instruction.
//!
//! The thread pointer is `tpidr_el0`.

use core::arch::asm;

pub(crate) use super::atomic_words::{
    increment_own_word_pair, opaque, read_own_word_pair, take_lowest_bit, take_number_of_own_word,
    write_field,
};

/// Whether critical sections exist for this architecture.
pub(crate) const SECTIONS: bool = true;

/// The signature glibc registers with and the kernel demands before each abort handler: `brk #0x45e0`.
pub(crate) const SIGNATURE: u32 = 0xd428_bc00;

/// Reads one of several words that are written once, when the program is loaded.
///
/// `pure, nomem` lets the compiler read it once for a whole loop; an atomic load it would repeat.
macro_rules! load_settled {
    ($words:path [ $nth:expr ]) => {{
        let value: isize;
        // SAFETY: loads an aligned, initialised static. The compiler may reuse an earlier value or
        // mix values: the caller's invariant makes every value the word ever had a safe one.
        unsafe {
            core::arch::asm!(
                "adrp {value}, {words} + {at}",
                "ldr {value}, [{value}, :lo12:{words} + {at}]",
                value = out(reg) value,
                words = sym $words,
                at = const 8 * $nth,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        value
    }};
}
pub(crate) use load_settled;

/// [`load_settled`] of the first two words, the first one first: it acquires, which is the partner of the Release with
/// which they are settled. It is one block, so the compiler never combines the first word of one load with the second
/// word of an earlier one.
macro_rules! load_settled_pair {
    ($words:path) => {{
        let (first, second): (isize, isize);
        // SAFETY: as in `load_settled`.
        unsafe {
            core::arch::asm!(
                "adrp {second}, {words}",
                "add {second}, {second}, :lo12:{words}",
                "ldar {first}, [{second}]",
                "ldr {second}, [{second}, #8]",
                first = out(reg) first,
                second = out(reg) second,
                words = sym $words,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        (first, second)
    }};
}
pub(crate) use load_settled_pair;

/// Reads a word of this crate's, relaxed: without a look into the table of a shared object's addresses, which is where
/// the compiler finds a static of another unit.
macro_rules! load_here {
    ($word:path) => {{
        let _: &$crate::primitive::global::AtomicUsize = &$word;
        let value: usize;
        // SAFETY: loads an aligned, initialised static; as an atomic load is, the load is one instruction, and none
        // is left out.
        unsafe {
            core::arch::asm!(
                "adrp {value}, {word}",
                "ldr {value}, [{value}, :lo12:{word}]",
                value = out(reg) value,
                word = sym $word,
                options(readonly, nostack, preserves_flags),
            );
        }
        value
    }};
}
pub(crate) use load_here;

/// Returns the address of a static of this crate's: without a look into the table of a shared object's addresses.
macro_rules! address_here {
    ($word:path) => {{
        #[allow(unused_assignments)] // It has the type.
        let mut at = &raw const $word;
        // SAFETY: computes an address.
        #[allow(unused_unsafe)]
        unsafe {
            core::arch::asm!(
                "adrp {at}, {word}",
                "add {at}, {at}, :lo12:{word}",
                at = out(reg) at,
                word = sym $word,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        at
    }};
}
pub(crate) use address_here;

/// Returns the offset of this crate's own area from the thread pointer: a constant of the loaded program.
#[inline(always)]
pub(crate) fn own_area_offset() -> isize {
    let offset: isize;
    // SAFETY: loads the symbol's TLS offset from the GOT, which relocation wrote before any code ran and which never
    // changes: `pure, nomem` holds. The linker turns it into two immediates when it makes an executable.
    unsafe {
        asm!(
            "adrp {offset}, :gottprel:__corelocal_rseq_0_1",
            "ldr {offset}, [{offset}, :gottprel_lo12:__corelocal_rseq_0_1]",
            offset = out(reg) offset,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    offset
}

/// Returns the calling thread's thread pointer: another one in each thread that lives.
#[inline(always)]
pub(crate) fn thread_pointer() -> *mut u8 {
    let pointer: *mut u8;
    // SAFETY: reads a register, constant for a thread.
    unsafe {
        asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    pointer
}

/// Reads the 32-bit field at `offset` from the thread pointer.
///
/// # Safety
/// - `offset` lies in the rseq area of libc or in our own.
#[inline(always)]
pub(crate) unsafe fn read_field(offset: isize) -> u32 {
    let value: u32;
    // SAFETY: the caller names a readable, aligned field of this thread's TLS. The kernel may rewrite it at any
    // instruction, so the read is neither `pure` nor `nomem`. The thread pointer is read in the same block, so no other
    // thread's is used.
    unsafe {
        asm!(
            "mrs {value:x}, tpidr_el0",
            "ldr {value:w}, [{value:x}, {offset}]",
            value = out(reg) value,
            offset = in(reg) offset,
            options(readonly, nostack, preserves_flags),
        );
    }
    value
}

/// Returns the address of a symbol of libc's; null where libc has none.
macro_rules! weak_address {
    ($name:literal) => {{
        let address: usize;
        // SAFETY: reads a GOT entry; an undefined weak symbol resolves to 0.
        unsafe {
            asm!(
                concat!(".weak ", $name),
                concat!("adrp {address}, :got:", $name),
                concat!("ldr {address}, [{address}, :got_lo12:", $name, "]"),
                address = out(reg) address,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        address
    }};
}

/// Returns the addresses of libc's `__rseq_offset`, `__rseq_size`, `__rseq_flags`; null where libc has none.
pub(crate) fn libc_symbols() -> (*const isize, *const u32, *const u32) {
    let at = core::ptr::with_exposed_provenance::<u32>;
    (
        core::ptr::with_exposed_provenance(weak_address!("__rseq_offset")),
        at(weak_address!("__rseq_size")),
        at(weak_address!("__rseq_flags")),
    )
}

/// Returns the address of libc's `__libc_single_threaded`; null where libc has none.
#[cfg_attr(not(feature = "std"), allow(dead_code))] // `sys/thread/count.rs` uses it.
pub(crate) fn libc_single_threaded() -> *const u8 {
    core::ptr::with_exposed_provenance(weak_address!("__libc_single_threaded"))
}

/// Returns the dynamic linker's functions; none where there is none. `__rseq_stays` declares what they are for
/// (`sys/process/nodelete.rs`): `corelocal check` reads it.
pub(crate) fn loader() -> crate::sys::process::nodelete::Loader {
    // SAFETY: no instruction.
    unsafe {
        asm!(
            ".pushsection __rseq_stays, \"a\", %progbits",
            "40: .byte 0",
            ".popsection",
            ".reloc 0, R_AARCH64_NONE, 40b",
            options(nomem, nostack, preserves_flags),
        );
    }
    let (dladdr1, dlopen) = (weak_address!("dladdr1"), weak_address!("dlopen"));
    // SAFETY: null or the address of the function of that name, whose signature this is; a null
    // function pointer is `None`.
    unsafe {
        crate::sys::process::nodelete::Loader {
            dladdr1: core::mem::transmute::<usize, Option<_>>(dladdr1),
            dlopen: core::mem::transmute::<usize, Option<_>>(dlopen),
        }
    }
}

/// How [`spin_in_section`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spun {
    /// The word changed in the section.
    Saw,
    /// The kernel aborted the section.
    Aborted,
    /// The word was read as often as asked.
    Over,
}

/// Reads a word in a critical section until it changes, so many times at most.
///
/// # Safety
/// - `area` is the offset of the thread's area from the thread pointer, or of 64 bytes that can be written.
/// - The word can be read.
pub(crate) unsafe fn spin_in_section(area: isize, word: *const u64, rounds: u64) -> Spun {
    let how: u64;
    let mut saw = 0_u64;
    // SAFETY: the frame of `rseq/arch/aarch64/frame.rs`, without a slot. It reads the word, and its commit writes to a
    // word of this function's.
    unsafe {
        asm!(
            ".pushsection __rseq_cs, \"aw\", %progbits",
            ".balign 32",
            "30: .word 0, 0",
            ".xword 31f, 32f - 31f, 33f",
            ".popsection",
            ".pushsection __rseq_cs_ptr_array, \"aw\", %progbits",
            "35: .xword 30b",
            ".popsection",
            ".reloc 0, R_AARCH64_NONE, 35b",
            "adrp {how}, 30b",
            "add {how}, {how}, :lo12:30b",
            "mrs {seen}, tpidr_el0",
            "add {seen}, {seen}, {area}",
            "str {how}, [{seen}, #8]",
            "31:",
            "mov {left}, {rounds}",
            "ldr {first}, [{word}]",
            "37:",
            "ldr {seen}, [{word}]",
            "cmp {seen}, {first}",
            "b.ne 38f",
            "subs {left}, {left}, #1",
            "b.ne 37b",
            "b 34f",
            "38:",
            "mov {how}, #0",
            "str {seen}, [{saw}]",
            "32:",
            ".subsection 1",
            "34: mov {how}, #2",
            "b 32b",
            ".inst 0xd428bc00",
            "33: mov {how}, #1",
            "b 32b",
            ".previous",
            how = out(reg) how,
            seen = out(reg) _,
            left = out(reg) _,
            first = out(reg) _,
            area = in(reg) area,
            rounds = in(reg) rounds,
            word = in(reg) word,
            saw = in(reg) &raw mut saw,
            options(nostack),
        );
    }
    match how {
        0 => Spun::Saw,
        1 => Spun::Aborted,
        _ => Spun::Over,
    }
}

/// The body of a function `vfork`: calls `before`, makes the child, and goes on as `after`, with what the kernel
/// said and what `before` said.
///
/// Nothing is kept on the stack, which the child uses while the parent waits for it, from where `vfork` returned
/// to: not the return address either. The kernel keeps the registers of each.
///
/// The function must have no frame.
macro_rules! vfork {
    ($before:path, $after:path) => {
        core::arch::asm!(
            "str x30, [sp, #-16]!",
            "bl {before}",
            "ldr x30, [sp], #16",
            "mov x9, x0",
            "mov x0, {flags}",
            "mov x1, xzr", // the same stack
            "mov x2, xzr",
            "mov x3, xzr",
            "mov x4, xzr",
            "mov x8, {SYS_clone}",
            "svc #0",
            "mov x1, x9",
            "b {after}",
            before = sym $before,
            after = sym $after,
            flags = const libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            SYS_clone = const libc::SYS_clone,
            options(noreturn, nostack),
        )
    };
}
pub(crate) use vfork;

/// Copies this many words without assumptions about their content: the stack's memory belongs to frames that the
/// compiler does not know here.
///
/// # Safety
/// - The words can be read at `from` and written at `to`, which do not overlap.
/// - Both addresses are aligned to 8.
pub(crate) unsafe fn copy_words(to: *mut u8, from: usize, words: usize) {
    // SAFETY: the caller guarantees both ranges.
    unsafe {
        asm!(
            "cbz {words}, 38f",
            "37:",
            "ldr {word}, [{from}], #8",
            "str {word}, [{to}], #8",
            "subs {words}, {words}, #1",
            "b.ne 37b",
            "38:",
            to = inout(reg) to => _,
            from = inout(reg) from => _,
            words = inout(reg) words => _,
            word = out(reg) _,
            options(nostack),
        );
    }
}

/// Makes a system call; an error is its negated number.
///
/// # Safety
/// - The conditions of [`crate::sys::syscall::syscall`] hold.
#[inline(always)]
pub(crate) unsafe fn syscall(number: libc::c_long, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: this is the AArch64 system call convention: the number in x8, arguments in x0 to x5, and the result in
    // x0. The kernel keeps all other registers. The caller guarantees the memory that the call accesses; without
    // `nomem` the compiler assumes that any of it changes.
    unsafe {
        asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") args[0] as isize => result,
            in("x1") args[1],
            in("x2") args[2],
            in("x3") args[3],
            in("x4") args[4],
            in("x5") args[5],
            options(nostack),
        );
    }
    result
}
