//! Which store announces a section to the kernel: that of the address of its own descriptor.
//!
//! The address reaches `rseq_cs` through a register, or as an immediate. So the registers that hold it are followed, from
//! instruction to instruction.
//!
//! # Invariant
//! 1. A register counts as holding the address only if it was computed from nothing else since the path began.

use iced_x86::{Instruction, InstructionInfo, Mnemonic, OpKind, Register};

use super::decode;

/// The relation of a store to the announcement of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announces {
    /// It stores the address of the descriptor.
    Yes,
    /// It stores a register whose value is not known.
    Perhaps,
    /// It stores something else, or nothing.
    No,
}

/// The registers that hold the descriptor's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holders {
    descriptor: u64,
    /// The known registers, as a [`decode::mask`].
    registers: u64,
}

impl Holders {
    /// Creates an empty list, of the descriptor at this address.
    pub fn new(descriptor: u64) -> Holders {
        Holders { descriptor, registers: 0 }
    }

    /// Returns what both paths know.
    pub fn and(self, other: Holders) -> Holders {
        Holders { registers: self.registers & other.registers, ..self }
    }

    /// Goes on by an instruction.
    pub fn step(&mut self, instruction: &Instruction, info: &InstructionInfo) -> Announces {
        let announces = self.announces(instruction);
        let held = self.is_held(instruction);
        let written = decode::mask(decode::written(info));
        self.registers &= !written;
        if held {
            self.registers |= written;
        }
        announces
    }

    /// Returns `true` if the instruction computes the address, and nothing else.
    fn is_held(&self, instruction: &Instruction) -> bool {
        match (instruction.mnemonic(), instruction.op0_kind(), instruction.op1_kind()) {
            (Mnemonic::Lea, OpKind::Register, OpKind::Memory) => {
                instruction.is_ip_rel_memory_operand()
                    && instruction.ip_rel_memory_address() == self.descriptor
            }
            (Mnemonic::Mov, OpKind::Register, OpKind::Register) => {
                is_whole(instruction.op0_register()) && self.has(instruction.op1_register())
            }
            (Mnemonic::Mov, OpKind::Register, _) => self.is_immediate(instruction),
            _ => false,
        }
    }

    fn announces(&self, instruction: &Instruction) -> Announces {
        let is_plain = instruction.mnemonic() == Mnemonic::Mov
            && instruction.op0_kind() == OpKind::Memory
            && instruction.memory_size().size() == 8
            // A slot of the stack is not the area.
            && instruction.memory_base() != Register::RSP;
        match instruction.op1_kind() {
            _ if !is_plain => Announces::No,
            OpKind::Register if self.has(instruction.op1_register()) => Announces::Yes,
            OpKind::Register => Announces::Perhaps,
            _ if self.is_immediate(instruction) => Announces::Yes,
            _ => Announces::No,
        }
    }

    fn is_immediate(&self, instruction: &Instruction) -> bool {
        let is_one = matches!(
            instruction.op1_kind(),
            OpKind::Immediate32 | OpKind::Immediate64 | OpKind::Immediate32to64
        );
        is_one && instruction.immediate(1) == self.descriptor
    }

    fn has(&self, register: Register) -> bool {
        is_whole(register) && self.registers & decode::mask([register].into_iter()) != 0
    }
}

fn is_whole(register: Register) -> bool {
    register.is_gpr64()
}
