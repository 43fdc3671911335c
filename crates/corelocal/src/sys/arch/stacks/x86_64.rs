//! x86-64: what a copy of a stack is read by.

use core::arch::asm;
use core::ffi::c_void;

use super::REGISTERS;

/// The index of a register among these that may hold a return address: here they are on the stack.
pub(crate) const LINK: Option<usize> = None;

/// Returns the program counter, the stack pointer, rbp, rbx and r12 to r15: from these, the stack and the program's
/// tables follow those of all callers.
#[inline(always)]
pub(crate) fn registers() -> Option<[u64; REGISTERS]> {
    let mut registers = [0; REGISTERS];
    // SAFETY: stores eight registers in as many words.
    unsafe {
        asm!(
            "lea {pc}, [rip]",
            "mov qword ptr [{at}], {pc}",
            "mov qword ptr [{at} + 8], rsp",
            "mov qword ptr [{at} + 16], rbp",
            "mov qword ptr [{at} + 24], rbx",
            "mov qword ptr [{at} + 32], r12",
            "mov qword ptr [{at} + 40], r13",
            "mov qword ptr [{at} + 48], r14",
            "mov qword ptr [{at} + 56], r15",
            at = in(reg) &raw mut registers,
            pc = out(reg) _,
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
    // The kernel's ucontext: flags, link and stack, then the registers in this order.
    const FIRST: usize = 5;
    // rip, rsp, rbp, rbx, r12 to r15, and the fault's error code, which tells reads from writes.
    const IN_TRACES: [usize; REGISTERS] = [16, 15, 10, 11, 4, 5, 6, 7];
    const ERROR: usize = 19;
    // SAFETY: the kernel made this context.
    let register = |nth: usize| unsafe { context.cast::<u64>().add(FIRST + nth).read() };
    let what = if register(ERROR) & 2 != 0 { "a write" } else { "a read" };
    (Some(IN_TRACES.map(register)), what)
}

/// Returns `true` if these bytes end with a call instruction: relative, or through a register or memory.
pub(crate) fn ends_with_a_call(code: [u8; 7]) -> bool {
    let is_indirect = |at: usize| code[at] == 0xff && code[at + 1] & 0x38 == 0x10;
    code[2] == 0xe8 || [0, 1, 3, 4, 5].into_iter().any(is_indirect)
}

/// Returns the address that a return address means.
pub(crate) fn return_address(word: u64) -> usize {
    word as usize
}
