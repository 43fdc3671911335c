//! Which store announces a section to the kernel: that of the address of its own descriptor.
//!
//! The address reaches `rseq_cs` through a register, or as an immediate. So what registers are known to hold is followed,
//! from instruction to instruction.
//!
//! # Invariant
//! 1. A register counts as known only if its value was computed from nothing else since the path began.

use super::machine::{Instruction, Value};

/// The relation of a store to the announcement of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announces {
    /// It stores the address of the descriptor.
    Yes,
    /// It stores a register that is not known to hold it, nor not to.
    Perhaps,
    /// It stores something else, or nothing.
    No,
}

/// The number of general registers that are followed.
const REGISTERS: usize = 32;

/// What registers are known to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holders {
    descriptor: u64,
    known: [Option<u64>; REGISTERS],
}

impl Holders {
    /// Creates an empty list, for the descriptor at this address.
    pub fn new(descriptor: u64) -> Holders {
        Holders { descriptor, known: [None; REGISTERS] }
    }

    /// Returns what both paths know.
    pub fn and(self, other: Holders) -> Holders {
        let both = |register: usize| {
            self.known[register].filter(|value| other.known[register] == Some(*value))
        };
        Holders { known: std::array::from_fn(both), ..self }
    }

    /// Goes on by an instruction.
    pub fn step(&mut self, instruction: &Instruction) -> Announces {
        let announces = match instruction.stores {
            None => Announces::No,
            Some(value) if self.value(value) == Some(self.descriptor) => Announces::Yes,
            Some(Value::Number(_)) => Announces::No,
            Some(Value::Sum(..)) => Announces::Perhaps,
        };
        let set = instruction.sets.map(|(register, value)| (register, self.value(value)));
        for (register, known) in self.known.iter_mut().enumerate() {
            if instruction.written & 1 << register != 0 {
                *known = None;
            }
        }
        if let Some((register, value)) = set {
            self.known[usize::from(register)] = value;
        }
        announces
    }

    fn value(&self, value: Value) -> Option<u64> {
        match value {
            Value::Number(number) => Some(number),
            Value::Sum(register, number) => {
                Some(self.known[usize::from(register)]?.wrapping_add(number))
            }
        }
    }
}
