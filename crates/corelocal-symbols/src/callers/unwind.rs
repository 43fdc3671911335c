//! One step from a function to its caller, by the file's unwind table or by frame pointers.
//!
//! Registers have their DWARF numbers. Stacks are of this machine: what is known of processors is constants.
//!
//! Invariants:
//! - Memory is read from the copy of the stack only. Other memory is unknown, and the walk ends where it is needed.
//! - Each step moves the stack pointer up, so a walk ends. The first one of a function that has stored nothing need
//!   not, where calls leave the return address in a register; that register is unknown after it.

use gimli::{
    CfaRule, EhFrame, Encoding, EvaluationResult, Register, RegisterRule, UnwindExpression,
    UnwindTableRow, Value,
};

use super::module::Bytes;

#[cfg(not(target_arch = "aarch64"))]
mod machine {
    //! x86-64: rbx 3, rbp 6, rsp 7, r12 to r15 12 to 15, and 16 for the return address.

    pub const FRAME_POINTER: usize = 6;
    pub const STACK_POINTER: usize = 7;
    pub const PROGRAM_COUNTER: usize = 16;
    /// Where a row says how to find the caller's program counter.
    pub const RETURN_ADDRESS: usize = PROGRAM_COUNTER;
    pub const COUNT: usize = 17;
    /// The order in which a program passes them.
    pub const GIVEN: [usize; 8] =
        [PROGRAM_COUNTER, STACK_POINTER, FRAME_POINTER, 3, 12, 13, 14, 15];
    /// Callee-saved registers.
    pub const KEPT: [usize; 6] = [3, FRAME_POINTER, 12, 13, 14, 15];
    /// The bits of an address of code.
    pub const ADDRESS: u64 = u64::MAX;
    pub const VENDOR: gimli::Vendor = gimli::Vendor::Default;
}

#[cfg(target_arch = "aarch64")]
mod machine {
    //! AArch64: x0 to x30 0 to 30, sp 31, and 32 for the program counter.

    pub const FRAME_POINTER: usize = 29;
    pub const STACK_POINTER: usize = 31;
    pub const PROGRAM_COUNTER: usize = 32;
    /// Where a row says how to find the caller's program counter.
    pub const RETURN_ADDRESS: usize = 30;
    pub const COUNT: usize = 33;
    /// The order in which a program passes them.
    pub const GIVEN: [usize; 8] =
        [PROGRAM_COUNTER, STACK_POINTER, FRAME_POINTER, RETURN_ADDRESS, 19, 20, 21, 22];
    /// Callee-saved registers.
    pub const KEPT: [usize; 11] = [19, 20, 21, 22, 23, 24, 25, 26, 27, 28, FRAME_POINTER];
    /// The bits of an address of code: a signature may stand above them.
    pub const ADDRESS: u64 = (1 << 48) - 1;
    pub const VENDOR: gimli::Vendor = gimli::Vendor::AArch64;
}

pub use machine::VENDOR;
use machine::{
    ADDRESS, COUNT, FRAME_POINTER, GIVEN, KEPT, PROGRAM_COUNTER, RETURN_ADDRESS, STACK_POINTER,
};

/// The maximum number of operations of an expression.
const MOST_OPERATIONS: u32 = 1000;

/// The registers that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers([Option<u64>; COUNT]);

impl Registers {
    /// From program counter, stack pointer, rbp, rbx, r12, r13, r14 and r15; on aarch64 program counter, stack pointer,
    /// x29, x30, x19, x20, x21 and x22.
    pub fn new(values: [u64; 8]) -> Registers {
        let mut registers = [None; COUNT];
        for (place, value) in GIVEN.into_iter().zip(values) {
            registers[place] = Some(value);
        }
        Registers(registers)
    }

    pub(super) fn program_counter(&self) -> u64 {
        self.0[PROGRAM_COUNTER].unwrap_or(0)
    }

    pub(super) fn stack_pointer(&self) -> u64 {
        self.0[STACK_POINTER].unwrap_or(0)
    }

    fn get(&self, register: Register) -> Option<u64> {
        *self.0.get(usize::from(register.0))?
    }
}

/// A copy of a stack.
pub struct Stack<'a> {
    start: u64,
    words: &'a [u64],
}

impl<'a> Stack<'a> {
    /// Creates a copy that begins at address `start`.
    pub fn new(start: u64, words: &'a [u64]) -> Stack<'a> {
        Stack { start, words }
    }

    fn word(&self, address: u64) -> Option<u64> {
        let offset = address.checked_sub(self.start)?;
        let index = (offset % 8 == 0).then_some(offset / 8)?;
        self.words.get(usize::try_from(index).ok()?).copied()
    }
}

/// The result of a step.
pub enum Step {
    /// The caller, which continues at the program counter.
    Call(Registers),
    /// The code that a signal interrupted, at the program counter.
    Interrupted(Registers),
    /// There is no caller, or it is unknown.
    End,
}

/// Steps by the unwind table's row for the instruction.
pub fn by_row(
    row: &UnwindTableRow<usize>,
    table: &EhFrame<Bytes<'_>>,
    encoding: Encoding,
    is_signal: bool,
    registers: &Registers,
    stack: &Stack<'_>,
) -> Step {
    let Some(caller) = caller(row, table, encoding, registers, stack) else { return Step::End };
    if is_signal { Step::Interrupted(caller) } else { Step::Call(caller) }
}

fn caller(
    row: &UnwindTableRow<usize>,
    table: &EhFrame<Bytes<'_>>,
    encoding: Encoding,
    registers: &Registers,
    stack: &Stack<'_>,
) -> Option<Registers> {
    let compute = |expression: &UnwindExpression<usize>, first: Option<u64>| {
        evaluate(expression, table, encoding, first, registers, stack)
    };
    let frame = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            registers.get(*register)?.wrapping_add_signed(*offset)
        }
        CfaRule::Expression(expression) => compute(expression, None)?,
    };
    if frame < registers.stack_pointer() {
        return None;
    }
    let value = |place: usize| match row.register(Register(place as u16)) {
        // Registers that are not mentioned are unchanged if callee-saved. An undefined return address means: no
        // caller.
        RegisterRule::Undefined if place == PROGRAM_COUNTER => None,
        RegisterRule::Undefined | RegisterRule::SameValue => registers.0[place],
        RegisterRule::Offset(offset) => stack.word(frame.wrapping_add_signed(offset)),
        RegisterRule::ValOffset(offset) => Some(frame.wrapping_add_signed(offset)),
        RegisterRule::Register(other) => registers.get(other),
        RegisterRule::Expression(expression) => {
            compute(&expression, Some(frame)).and_then(|address| stack.word(address))
        }
        RegisterRule::ValExpression(expression) => compute(&expression, Some(frame)),
        RegisterRule::Constant(value) => Some(value),
        _ => None,
    };
    let mut found = [None; COUNT];
    for place in KEPT {
        found[place] = value(place);
    }
    found[PROGRAM_COUNTER] = Some(value(RETURN_ADDRESS)? & ADDRESS);
    // A signal's frame says where the stack was. Otherwise it is above this frame.
    found[STACK_POINTER] = match row.register(Register(STACK_POINTER as u16)) {
        RegisterRule::Undefined | RegisterRule::SameValue => Some(frame),
        _ => value(STACK_POINTER),
    };
    // A return address in a register of its own is unknown from then on.
    let is_in_register = RETURN_ADDRESS != PROGRAM_COUNTER && registers.0[RETURN_ADDRESS].is_some();
    let goes_up = found[STACK_POINTER] > registers.0[STACK_POINTER];
    (goes_up || is_in_register && found[STACK_POINTER] == registers.0[STACK_POINTER])
        .then_some(Registers(found))
}

/// Evaluates an expression, with `first` on its stack at the beginning.
fn evaluate(
    expression: &UnwindExpression<usize>,
    table: &EhFrame<Bytes<'_>>,
    encoding: Encoding,
    first: Option<u64>,
    registers: &Registers,
    stack: &Stack<'_>,
) -> Option<u64> {
    let mut evaluation = expression.get(table).ok()?.evaluation(encoding);
    evaluation.set_max_iterations(MOST_OPERATIONS);
    if let Some(first) = first {
        evaluation.set_initial_value(first);
    }
    let mut result = evaluation.evaluate().ok()?;
    loop {
        result = match result {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresMemory { address, size: 8, .. } => {
                evaluation.resume_with_memory(Value::Generic(stack.word(address)?)).ok()?
            }
            EvaluationResult::RequiresRegister { register, .. } => {
                let value = registers.get(register)?;
                evaluation.resume_with_register(Value::Generic(value)).ok()?
            }
            _ => return None,
        };
    }
    match evaluation.as_result().last()?.location {
        gimli::Location::Address { address } => Some(address),
        _ => None,
    }
}

/// Steps by the frame pointer, in code without a table, if it points to a plausible frame.
pub fn by_frame_pointer(registers: &Registers, stack: &Stack<'_>) -> Step {
    let step = || {
        let frame = registers.0[FRAME_POINTER]?;
        let (kept, counter) = (stack.word(frame)?, stack.word(frame.checked_add(8)?)?);
        let above = frame.checked_add(16)?;
        if above <= registers.stack_pointer() {
            return None;
        }
        let mut caller = [None; COUNT];
        caller[FRAME_POINTER] = Some(kept);
        caller[STACK_POINTER] = Some(above);
        caller[PROGRAM_COUNTER] = Some(counter & ADDRESS);
        Some(Registers(caller))
    };
    step().map_or(Step::End, Step::Call)
}

/// Steps from the return of a signal handler, which arm64's kernel keeps in its vDSO, to what the signal interrupted:
/// its registers are on the stack.
#[cfg(target_arch = "aarch64")]
pub fn interrupted_by_signal(registers: &Registers, stack: &Stack<'_>) -> Option<Step> {
    /// The bytes from the stack pointer to x0: the signal's information, what comes first in the context, and the
    /// address of a fault.
    const FIRST: u64 = 128 + 176 + 8;
    let word =
        |nth: usize| stack.word(registers.stack_pointer().checked_add(FIRST + 8 * nth as u64)?);
    let mut found = [None; COUNT];
    for place in KEPT.into_iter().chain([RETURN_ADDRESS, STACK_POINTER, PROGRAM_COUNTER]) {
        found[place] = Some(word(place)?);
    }
    let goes_up = found[STACK_POINTER] > registers.0[STACK_POINTER];
    goes_up.then_some(Step::Interrupted(Registers(found)))
}

/// Returns `None`: libc's function that returns from a handler has a row of its own.
#[cfg(not(target_arch = "aarch64"))]
pub fn interrupted_by_signal(_: &Registers, _: &Stack<'_>) -> Option<Step> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_pointers_lead_up_the_stack_and_end() {
        let words = [0, 0x1000 + 32, 77, 0, 0x1000 + 8, 88];
        let stack = Stack::new(0x1000, &words);
        let first = Registers::new([66, 0x1000, 0x1008, 0, 0, 0, 0, 0]);
        let Step::Call(second) = by_frame_pointer(&first, &stack) else { panic!("a caller") };
        assert_eq!((second.program_counter(), second.stack_pointer()), (77, 0x1018));
        let Step::Call(third) = by_frame_pointer(&second, &stack) else { panic!("a caller") };
        assert_eq!(third.program_counter(), 88);
        // A frame pointer that leads down ends the walk.
        assert!(matches!(by_frame_pointer(&third, &stack), Step::End));
        assert_eq!((stack.word(0x1001), stack.word(0xff8), stack.word(0x1030)), (None, None, None));
    }
}
