//! What the rules need to know of an instruction, and the processors whose instructions are decoded: one file each.

mod aarch64;
#[cfg_attr(not(any(feature = "riscv", target_arch = "riscv64")), path = "machine/no_riscv64.rs")]
pub mod riscv64;
mod x86_64;

use object::elf;

/// The way on after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// To the next one.
    Next,
    /// To this address.
    Jump(u64),
    /// To this address, or to the next one.
    Branch(u64),
    /// To an address that is computed, also by a return.
    Indirect,
    /// To another function, the kernel, or a trap. It is assumed to come back to the next one.
    Call,
}

/// The way in which an instruction writes to its memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    No,
    /// It stores without a load.
    Store,
    /// The stored value depends on the old one.
    Update,
    /// It stores again and again, and can be interrupted in between.
    InParts,
}

/// A value that is put into a register, or stored, as far as it is of interest where an address is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number in the instruction, or an address relative to it.
    Number(u64),
    /// What a register holds, and a number added.
    Sum(u8, u64),
}

/// An instruction, as the rules see it. Registers are bits of a mask, and numbers below 64.
#[derive(Clone, Copy, Debug)]
pub struct Instruction {
    pub address: u64,
    /// The address behind it.
    pub end: u64,
    pub flow: Flow,
    pub write: Write,
    /// Whether it excludes other cpus from the memory that it changes.
    pub locked: bool,
    /// Whether it moves the stack pointer.
    pub moves_stack: bool,
    /// Whether it accesses memory.
    pub touches_memory: bool,
    pub read: u64,
    pub written: u64,
    /// The register that it sets to a value of which more is known.
    pub sets: Option<(u8, Value)>,
    /// What it stores, if it is a word of 64 bits, and not to the stack.
    pub stores: Option<Value>,
    raw: Raw,
}

/// The instruction as its decoder gives it.
#[derive(Clone, Copy, Debug)]
enum Raw {
    X86(iced_x86::Instruction),
    Arm(yaxpeax_arm::armv8::a64::Instruction),
    #[cfg_attr(not(any(feature = "riscv", target_arch = "riscv64")), allow(dead_code))]
    RiscV(riscv64::Decoded),
}

impl Instruction {
    /// Returns the addresses of its possible successors. An unknown address is 0.
    pub fn successors(&self) -> Vec<u64> {
        match self.flow {
            Flow::Next | Flow::Call => vec![self.end],
            Flow::Jump(target) => vec![target],
            Flow::Branch(target) => vec![self.end, target],
            Flow::Indirect => vec![0],
        }
    }

    pub fn is_call(&self) -> bool {
        self.flow == Flow::Call
    }

    /// Returns its text. `target` gives the text of the address that it jumps to.
    pub fn text(&self, target: impl FnOnce(u64) -> String) -> String {
        match (&self.raw, self.flow) {
            (Raw::X86(raw), _) => x86_64::text(raw, target),
            (Raw::Arm(raw), Flow::Jump(to) | Flow::Branch(to)) => aarch64::branch(raw, target(to)),
            (Raw::Arm(raw), _) => raw.to_string(),
            (Raw::RiscV(raw), Flow::Jump(to) | Flow::Branch(to)) => {
                riscv64::branch(raw, &target(to))
            }
            (Raw::RiscV(raw), _) => raw.to_string(),
        }
    }

    /// Returns `true` if it only fills space.
    pub fn is_filler(&self) -> bool {
        match self.raw {
            Raw::X86(raw) => raw.mnemonic() == iced_x86::Mnemonic::Nop,
            Raw::Arm(raw) => raw.opcode == yaxpeax_arm::armv8::a64::Opcode::HINT,
            Raw::RiscV(raw) => riscv64::is_filler(&raw),
        }
    }

    /// Returns it as yaxpeax-arm gives it; `None` for other processors.
    pub fn arm(&self) -> Option<yaxpeax_arm::armv8::a64::Instruction> {
        match self.raw {
            Raw::Arm(raw) => Some(raw),
            Raw::X86(_) | Raw::RiscV(_) => None,
        }
    }

    /// Returns one that does nothing, for the processor of this one, at this address.
    pub fn nothing_at(&self, address: u64) -> Option<Instruction> {
        let (processor, bytes): (_, &[u8]) = match self.raw {
            Raw::X86(_) => (Processor::X86, &[0x90]),
            Raw::Arm(_) => (Processor::Arm, &[0x1f, 0x20, 0x03, 0xd5]),
            Raw::RiscV(_) => (Processor::RiscV, &[0x01, 0x00]),
        };
        processor.decode(bytes, address).next()?.ok()
    }

    /// Returns it as iced-x86 gives it; `None` for other processors.
    pub fn x86(&self) -> Option<iced_x86::Instruction> {
        match self.raw {
            Raw::X86(raw) => Some(raw),
            Raw::Arm(_) | Raw::RiscV(_) => None,
        }
    }
}

/// A processor whose instructions are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processor {
    X86,
    Arm,
    RiscV,
}

impl Processor {
    /// Returns the one with this number in ELF files.
    pub fn of(machine: u16) -> Option<Processor> {
        match machine {
            elf::EM_X86_64 => Some(Processor::X86),
            elf::EM_AARCH64 => Some(Processor::Arm),
            elf::EM_RISCV if riscv64::IS_DECODED => Some(Processor::RiscV),
            _ => None,
        }
    }

    /// Returns the instructions that these bytes are at this address, up to the first bytes that cannot be decoded,
    /// which are returned as an error with their address.
    pub fn decode(
        self,
        bytes: &[u8],
        address: u64,
    ) -> Box<dyn Iterator<Item = Result<Instruction, u64>> + '_> {
        match self {
            Processor::X86 => Box::new(x86_64::decode(bytes, address)),
            Processor::Arm => Box::new(aarch64::decode(bytes, address)),
            Processor::RiscV => Box::new(riscv64::decode(bytes, address)),
        }
    }

    /// Returns the direct jumps and calls in these bytes, as their addresses and targets. Whatever cannot be decoded is
    /// left out.
    pub fn jumps(self, bytes: &[u8], address: u64) -> Box<dyn Iterator<Item = (u64, u64)> + '_> {
        match self {
            Processor::X86 => Box::new(x86_64::jumps(bytes, address)),
            Processor::Arm => Box::new(aarch64::jumps(bytes, address)),
            Processor::RiscV => Box::new(riscv64::jumps(bytes, address)),
        }
    }

    /// Returns `true` if the models of `sim` run its instructions.
    pub fn is_modelled(self) -> bool {
        matches!(self, Processor::X86 | Processor::Arm)
    }

    /// Returns the name of a register, given its number.
    pub fn name(self, register: u32) -> String {
        match self {
            Processor::X86 => x86_64::name(register),
            Processor::Arm => aarch64::name(register),
            Processor::RiscV => riscv64::name(register),
        }
    }
}
