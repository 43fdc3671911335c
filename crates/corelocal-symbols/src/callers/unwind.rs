//! One step from a function to its caller, by the file's unwind table or by frame pointers.
//!
//! Registers have their DWARF numbers on x86-64: rbx 3, rbp 6, rsp 7, r12 to r15 12 to 15, and 16 for the return
//! address.
//!
//! Invariants:
//! - Memory is read from the copy of the stack only. Other memory is unknown, and the walk ends where it is needed.
//! - Each step moves the stack pointer up, so a walk ends.

use gimli::{
    CfaRule, EhFrame, Encoding, EvaluationResult, Register, RegisterRule, UnwindExpression,
    UnwindTableRow, Value,
};

use super::module::Bytes;

const FRAME_POINTER: usize = 6;
const STACK_POINTER: usize = 7;
const PROGRAM_COUNTER: usize = 16;
const COUNT: usize = 17;
/// The order in which a program passes them.
const GIVEN: [usize; 8] = [PROGRAM_COUNTER, STACK_POINTER, FRAME_POINTER, 3, 12, 13, 14, 15];
/// Callee-saved registers.
const KEPT: [usize; 6] = [3, FRAME_POINTER, 12, 13, 14, 15];

/// The maximum number of operations of an expression.
const MOST_OPERATIONS: u32 = 1000;

/// The registers that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers([Option<u64>; COUNT]);

impl Registers {
    /// From program counter, stack pointer, rbp, rbx, r12, r13, r14 and r15.
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
    if frame <= registers.stack_pointer() {
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
    found[PROGRAM_COUNTER] = Some(value(PROGRAM_COUNTER)?);
    // A signal's frame says where the stack was. Otherwise it is above this frame.
    found[STACK_POINTER] = match row.register(Register(STACK_POINTER as u16)) {
        RegisterRule::Undefined | RegisterRule::SameValue => Some(frame),
        _ => value(STACK_POINTER),
    };
    let goes_up = found[STACK_POINTER] > registers.0[STACK_POINTER];
    goes_up.then_some(Registers(found))
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

/// Steps by rbp, in code without a table, if rbp points to a plausible frame.
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
        caller[PROGRAM_COUNTER] = Some(counter);
        Some(Registers(caller))
    };
    step().map_or(Step::End, Step::Call)
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
