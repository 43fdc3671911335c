//! x86-64: access to the rseq area relative to the thread pointer, and the system call instruction.
//!
//! The thread pointer is `fs`.

use core::arch::asm;

use super::OWN_AREA_LEN;

/// Whether critical sections exist for this architecture.
pub(crate) const SECTIONS: bool = true;

/// The signature glibc registers with and the kernel demands before each abort handler.
pub(crate) const SIGNATURE: u32 = 0x5305_3053;

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
                "mov {}, qword ptr [rip + {words} + {at}]",
                out(reg) value,
                words = sym $words,
                at = const 8 * $nth,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        value
    }};
}
pub(crate) use load_settled;

/// [`load_settled`] of the first two words, the first one first: this processor loads in order, which is the partner
/// of the Release with which they are settled. It is one block, so the compiler never combines the first word of one
/// load with the second word of an earlier one.
macro_rules! load_settled_pair {
    ($words:path) => {{
        let (first, second): (isize, isize);
        // SAFETY: as in `load_settled`.
        unsafe {
            core::arch::asm!(
                "mov {first}, qword ptr [rip + {words}]",
                "mov {second}, qword ptr [rip + {words} + 8]",
                first = out(reg) first,
                second = lateout(reg) second,
                words = sym $words,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        (first, second)
    }};
}
pub(crate) use load_settled_pair;

/// Reads a word of this crate's, relaxed, in one instruction: without a look into the table of a shared object's
/// addresses, which is where the compiler finds a static of another unit.
macro_rules! load_here {
    ($word:path) => {{
        let _: &$crate::primitive::global::AtomicUsize = &$word;
        let value: usize;
        // SAFETY: loads an aligned, initialised static; as an atomic load is, the load is one instruction, and none
        // is left out.
        unsafe {
            core::arch::asm!(
                "mov {}, qword ptr [rip + {word}]",
                out(reg) value,
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
                "lea {}, [rip + {word}]",
                out(reg) at,
                word = sym $word,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        at
    }};
}
pub(crate) use address_here;

/// Returns the same number, of which the compiler knows nothing.
#[inline(always)]
pub(crate) fn opaque(mut number: usize) -> usize {
    // SAFETY: no instruction.
    unsafe {
        asm!("/* {} */", inout(reg) number, options(pure, nomem, nostack, preserves_flags));
    }
    number
}

/// Returns the offset of this crate's own area from the thread pointer: a constant of the loaded program.
#[inline(always)]
pub(crate) fn own_area_offset() -> isize {
    let offset: isize;
    // SAFETY: loads the symbol's TLS offset from the GOT, which relocation wrote before any code
    // ran and which never changes: `pure, nomem` holds. The linker turns it into an immediate
    // when it makes an executable.
    unsafe {
        asm!(
            "mov {}, qword ptr [rip + __corelocal_rseq_0_1@GOTTPOFF]",
            out(reg) offset,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    offset
}

/// Returns the calling thread's thread pointer: another one in each thread that lives. A load.
#[inline(always)]
pub(crate) fn thread_pointer() -> *mut u8 {
    let tp: *mut u8;
    // SAFETY: the psABI stores the thread pointer's own value at fs:0, constant for a thread.
    unsafe {
        asm!("mov {}, qword ptr fs:[0]", out(reg) tp, options(readonly, nostack, preserves_flags));
    }
    tp
}

/// Returns what such a pair holds: one load.
#[inline(always)]
pub(crate) fn read_own_word_pair<const AT: usize>() -> Option<u64> {
    const { assert!(AT % 2 == 0, "an aligned word of 64 bits") };
    let value;
    // SAFETY: the address is that of words behind our own area, in static TLS of the calling thread, whose signal
    // handlers may write it: neither `pure` nor `nomem`.
    unsafe {
        asm!(
            "mov {value}, qword ptr fs:[{area} + {word}]",
            value = out(reg) value,
            area = in(reg) own_area_offset(),
            word = const OWN_AREA_LEN + 4 * AT,
            options(readonly, nostack, preserves_flags),
        );
    }
    Some(value)
}

/// Adds 1 to such a pair. One instruction, so a signal handler that does the same is counted.
#[inline(always)]
pub(crate) fn increment_own_word_pair<const AT: usize>() {
    const { assert!(AT % 2 == 0, "an aligned word of 64 bits") };
    // SAFETY: the address is that of words behind our own area, in static TLS of the calling thread.
    unsafe {
        asm!(
            "inc qword ptr fs:[{area} + {word}]",
            area = in(reg) own_area_offset(),
            word = const OWN_AREA_LEN + 4 * AT,
            options(nostack),
        );
    }
}

/// Adds 1 to such a word, and returns what it held. One instruction, so a signal handler that does the same draws
/// another number.
#[inline(always)]
pub(crate) fn take_number_of_own_word<const AT: usize>() -> u32 {
    let mut number = 1_u32;
    // SAFETY: the address is that of a word behind our own area, in static TLS of the calling thread.
    unsafe {
        asm!(
            "xadd dword ptr fs:[{area} + {word}], {number:e}",
            area = in(reg) own_area_offset(),
            word = const OWN_AREA_LEN + 4 * AT,
            number = inout(reg) number,
            options(nostack),
        );
    }
    number
}

/// Reads the 32-bit field at `offset` from the thread pointer.
///
/// # Safety
/// - `offset` lies in the rseq area of libc or in our own.
#[inline(always)]
pub(crate) unsafe fn read_field(offset: isize) -> u32 {
    let value: u32;
    // SAFETY: the caller names a readable, aligned field of this thread's TLS. The kernel may
    // rewrite it at any instruction, so the read is neither `pure` nor `nomem`.
    unsafe {
        asm!(
            "mov {value:e}, dword ptr fs:[{offset}]",
            value = out(reg) value,
            offset = in(reg) offset,
            options(readonly, nostack, preserves_flags),
        );
    }
    value
}

/// Writes such a field.
///
/// # Safety
/// - `offset` is that of a field in the rseq area of libc or in our own, which the kernel lets the thread write.
#[inline(always)]
pub(crate) unsafe fn write_field(offset: isize, value: u32) {
    // SAFETY: the caller names a writable, aligned field of this thread's TLS.
    unsafe {
        asm!(
            "mov dword ptr fs:[{offset}], {value:e}",
            offset = in(reg) offset,
            value = in(reg) value,
            options(nostack, preserves_flags),
        );
    }
}

/// Clears the lowest bit of such a field; whether it was set. One instruction, so that an interrupt of this
/// cpu comes before it or after; no other thread has the field.
///
/// # Safety
/// - The conditions of [`write_field`] hold.
#[inline(always)]
pub(crate) unsafe fn take_lowest_bit(offset: isize) -> bool {
    let was: u8;
    // SAFETY: as in `write_field`; the flags are changed.
    unsafe {
        asm!(
            "btr dword ptr fs:[{offset}], 0",
            "setc {was}",
            offset = in(reg) offset,
            was = out(reg_byte) was,
            options(nostack),
        );
    }
    was != 0
}

/// Returns the addresses of libc's `__rseq_offset`, `__rseq_size`, `__rseq_flags`; null where libc has none.
pub(crate) fn libc_symbols() -> (*const isize, *const u32, *const u32) {
    let (offset, size, flags);
    // SAFETY: reads three GOT entries; an undefined weak symbol resolves to 0.
    unsafe {
        asm!(
            ".weak __rseq_offset",
            ".weak __rseq_size",
            ".weak __rseq_flags",
            "mov {offset}, qword ptr [rip + __rseq_offset@GOTPCREL]",
            "mov {size}, qword ptr [rip + __rseq_size@GOTPCREL]",
            "mov {flags}, qword ptr [rip + __rseq_flags@GOTPCREL]",
            offset = out(reg) offset,
            size = out(reg) size,
            flags = out(reg) flags,
            options(nomem, nostack, preserves_flags),
        );
    }
    (offset, size, flags)
}

/// Returns the address of libc's `__libc_single_threaded`; null where libc has none.
#[cfg_attr(any(loom, not(feature = "std")), allow(dead_code))] // `sys/thread/count.rs` uses it.
pub(crate) fn libc_single_threaded() -> *const u8 {
    let byte;
    // SAFETY: reads a GOT entry; an undefined weak symbol resolves to 0.
    unsafe {
        asm!(
            ".weak __libc_single_threaded",
            "mov {byte}, qword ptr [rip + __libc_single_threaded@GOTPCREL]",
            byte = out(reg) byte,
            options(nomem, nostack, preserves_flags, pure),
        );
    }
    byte
}

/// Returns the dynamic linker's functions; none where there is none. `__rseq_stays` declares what they are for
/// (`sys/process/nodelete.rs`): `corelocal check` reads it.
pub(crate) fn loader() -> crate::sys::process::nodelete::Loader {
    let (dladdr1, dlopen): (usize, usize);
    // SAFETY: reads two GOT entries; an undefined weak symbol resolves to 0.
    unsafe {
        asm!(
            ".pushsection __rseq_stays, \"a\", @progbits",
            "40: .byte 0",
            ".popsection",
            ".reloc 0, R_X86_64_NONE, 40b",
            ".weak dladdr1",
            ".weak dlopen",
            "mov {dladdr1}, qword ptr [rip + dladdr1@GOTPCREL]",
            "mov {dlopen}, qword ptr [rip + dlopen@GOTPCREL]",
            dladdr1 = out(reg) dladdr1,
            dlopen = out(reg) dlopen,
            options(nomem, nostack, preserves_flags),
        );
    }
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
/// to: not the return address either. The kernel keeps the registers of each. With shadow stacks switched on
/// (they are not, by default, on any system yet) the parent would return once too often.
///
/// The function must have no frame: the stack pointer is at its return address, 8 below a multiple of 16.
/// `nostack` is what keeps the compiler from making one for alignment's sake.
macro_rules! vfork {
    ($before:path, $after:path) => {
        core::arch::asm!(
            "sub rsp, 8",
            "call {before}",
            "add rsp, 8",
            "mov r9, rax",
            "pop r8",
            "mov eax, {SYS_vfork}",
            "syscall",
            "push r8",
            "mov rdi, rax",
            "mov rsi, r9",
            "jmp {after}",
            before = sym $before,
            after = sym $after,
            SYS_vfork = const libc::SYS_vfork,
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
    // SAFETY: the caller guarantees both ranges; the direction flag is clear, by the psABI.
    unsafe {
        asm!(
            "rep movsq",
            inout("rdi") to => _,
            inout("rsi") from => _,
            inout("rcx") words => _,
            options(nostack, preserves_flags),
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
    // SAFETY: this is the x86-64 system call convention: the number in rax, arguments in rdi, rsi, rdx, r10, r8, r9.
    // The instruction itself overwrites rcx and r11 only, and does not use the user stack. The caller guarantees the
    // memory that the call accesses; without `nomem` the compiler assumes that any of it changes.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}
