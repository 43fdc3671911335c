//! AArch64: what a copy of a stack is read by.

use core::arch::asm;
use core::ffi::c_void;

use super::REGISTERS;

/// The index of a register among these that may hold a return address: x30.
pub(crate) const LINK: Option<usize> = Some(3);

/// Returns the program counter, the stack pointer, x29, x30 and x19 to x22: from these, the stack and the program's
/// tables follow those of all callers.
#[inline(always)]
pub(crate) fn registers() -> Option<[u64; REGISTERS]> {
    let mut registers = [0; REGISTERS];
    // SAFETY: stores eight registers in as many words.
    unsafe {
        asm!(
            "adr {one}, .",
            "mov {other}, sp",
            "stp {one}, {other}, [{at}]",
            "stp x29, x30, [{at}, #16]",
            "stp x19, x20, [{at}, #32]",
            "stp x21, x22, [{at}, #48]",
            at = in(reg) &raw mut registers,
            one = out(reg) _,
            other = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
    Some(registers)
}

/// Returns the registers that a signal interrupted, in the same order, and the kind of access, by the context that the
/// handler was given.
///
/// # Safety
/// - It is such a context.
pub(crate) unsafe fn interrupted(
    context: *const c_void,
) -> (Option<[u64; REGISTERS]>, &'static str) {
    // The kernel's ucontext: 176 bytes, then the address of the fault, x0 to x30, sp and pc.
    const FIRST: usize = 23;
    const IN_TRACES: [usize; REGISTERS] = [32, 31, 29, 30, 19, 20, 21, 22];
    // Records behind it: a magic number and a length of 32 bits each, then what the record is for.
    const RECORDS: usize = 464;
    const LONGEST: usize = 4096;
    const SYNDROME: u32 = 0x4553_5201;
    const IS_WRITE: u64 = 1 << 6;
    // SAFETY: the kernel made this context.
    let register = |nth: usize| unsafe { context.cast::<u64>().add(FIRST + nth).read() };
    let (mut what, mut at) = ("an access", 0);
    while at + 16 <= LONGEST {
        // SAFETY: the records take up to so many bytes of the context.
        let (magic, len, content) = unsafe {
            let record = context.cast::<u8>().add(RECORDS + at);
            (
                record.cast::<u32>().read(),
                record.cast::<u32>().add(1).read(),
                record.cast::<u64>().add(1).read(),
            )
        };
        if magic == SYNDROME {
            what = if content & IS_WRITE != 0 { "a write" } else { "a read" };
        }
        if magic == 0 || len < 16 {
            break;
        }
        at += len as usize;
    }
    (Some(IN_TRACES.map(register)), what)
}

/// Returns `true` if these bytes end with a call instruction: `bl`, `blr` or one of its signed forms.
pub(crate) fn ends_with_a_call(code: [u8; 7]) -> bool {
    let word = u32::from_le_bytes([code[3], code[4], code[5], code[6]]);
    word >> 26 == 0b10_0101 || word & 0xfeff_f000 == 0xd63f_0000
}

/// Returns the address that a return address means: a signature may stand in its upper bits.
pub(crate) fn return_address(word: u64) -> usize {
    (word & ((1 << 48) - 1)) as usize
}
