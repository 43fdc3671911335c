//! RISC-V of 64 bits: access to the rseq area relative to the thread pointer, and the system call instruction.
//!
//! The thread pointer is `tp`.

use core::arch::asm;

pub(crate) use super::atomic_words::{
    increment_own_word_pair, opaque, read_own_word_pair, take_lowest_bit, take_number_of_own_word,
    write_field,
};

/// Whether critical sections exist for this architecture.
pub(crate) const SECTIONS: bool = true;

/// The signature glibc registers with and the kernel demands before each abort handler: `csrw mhartid, x0`, which traps.
pub(crate) const SIGNATURE: u32 = 0xf140_1073;

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
                "ld {value}, {words} + {at}",
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
                "lla {second}, {words}",
                "ld {first}, 0({second})",
                "fence r, rw",
                "ld {second}, 8({second})",
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
                "ld {value}, {word}",
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
                "lla {at}, {word}",
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
    // changes: `pure, nomem` holds.
    unsafe {
        asm!(
            "la.tls.ie {offset}, __corelocal_rseq_0_1",
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
        asm!("mv {}, tp", out(reg) pointer, options(nomem, nostack, preserves_flags));
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
            "add {value}, tp, {offset}",
            "lw {value}, 0({value})",
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
                concat!("37: auipc {address}, %got_pcrel_hi(", $name, ")"),
                "ld {address}, %pcrel_lo(37b)({address})",
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
            ".pushsection __rseq_stays, \"a\", @progbits",
            "40: .byte 0",
            ".popsection",
            ".reloc 0, R_RISCV_NONE, 40b",
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
            "addi sp, sp, -16",
            "sd ra, 8(sp)",
            "call {before}",
            "ld ra, 8(sp)",
            "addi sp, sp, 16",
            "mv t0, a0",
            "li a0, {flags}",
            "li a1, 0", // the same stack
            "li a2, 0",
            "li a3, 0",
            "li a4, 0",
            "li a7, {SYS_clone}",
            "ecall",
            "mv a1, t0",
            "tail {after}",
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
            "beqz {words}, 38f",
            "37:",
            "ld {word}, 0({from})",
            "sd {word}, 0({to})",
            "addi {from}, {from}, 8",
            "addi {to}, {to}, 8",
            "addi {words}, {words}, -1",
            "bnez {words}, 37b",
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
    // SAFETY: this is the system call convention of RISC-V: the number in a7, arguments in a0 to a5, and the result in
    // a0. The kernel keeps all other registers but those of vectors, which `clobber_abi` names among others. The caller
    // guarantees the memory that the call accesses; without `nomem` the compiler assumes that any of it changes.
    unsafe {
        asm!(
            "ecall",
            in("a7") number,
            inlateout("a0") args[0] as isize => result,
            in("a1") args[1],
            in("a2") args[2],
            in("a3") args[3],
            in("a4") args[4],
            in("a5") args[5],
            clobber_abi("C"),
            options(nostack),
        );
    }
    result
}
