//! Decodes the instructions of one critical section, and finds their successors.
//!
//! Invariants:
//! - Decoding is a linear sweep from start to end. Branches into the middle of an instruction, which would make
//!   another reading possible, are reported and not followed.
//! - An instruction that leaves the section other than by its end is an exit. Its target is not judged.

use iced_x86::{
    Decoder, DecoderError, DecoderOptions, FlowControl, Instruction, InstructionInfo,
    InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use super::arming::{Announces, Holders};
use super::load::{Descriptor, Image};

/// The successor of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// To the instruction of this index.
    To(usize),
    /// To the instruction after the commit.
    End,
    /// Out of the section.
    Exit,
    /// Into the middle of an instruction at this address.
    Astray(u64),
}

/// The way in which an instruction writes to its memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    No,
    /// It stores without a load.
    Store,
    /// The stored value depends on the old one.
    Update,
}

/// An instruction of a section.
pub struct Step {
    pub instruction: Instruction,
    pub next: Vec<Edge>,
    pub write: Write,
    /// Whether it stores the address of the section's own descriptor.
    pub arms: bool,
    pub locked: bool,
    /// Whether it moves the stack pointer.
    pub moves_stack: bool,
    /// General and vector registers that it writes, as a [`mask`].
    pub written: u64,
}

impl Step {
    pub fn address(&self) -> u64 {
        self.instruction.ip()
    }

    pub fn is_call(&self) -> bool {
        is_call(&self.instruction)
    }

    /// Returns `true` if a prefix makes it repeat.
    pub fn repeats(&self) -> bool {
        self.instruction.has_rep_prefix() || self.instruction.has_repne_prefix()
    }

    /// Returns `true` if no instruction of the section follows it.
    pub fn is_last(&self) -> bool {
        self.next.iter().all(|edge| !matches!(edge, Edge::To(_)))
    }
}

/// The reason why a section cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// There is no valid instruction at this address.
    Invalid(u64),
    /// The section ends within the instruction at this address.
    Straddles(u64),
}

/// Returns all instructions of the section.
pub fn section(image: &Image<'_>, descriptor: &Descriptor) -> Result<Vec<Step>, Failure> {
    let end = descriptor.end();
    let mut instructions = Vec::new();
    for instruction in from(image, descriptor.start) {
        if instruction.is_invalid() {
            return Err(Failure::Invalid(instruction.ip()));
        }
        if instruction.next_ip() > end {
            return Err(Failure::Straddles(instruction.ip()));
        }
        instructions.push(instruction);
        if instruction.next_ip() == end {
            break;
        }
    }
    let starts: Vec<u64> = instructions.iter().map(Instruction::ip).collect();
    let edge = |target: u64| match starts.binary_search(&target) {
        Ok(index) => Edge::To(index),
        Err(_) if target == end => Edge::End,
        Err(_) if descriptor.contains(target) => Edge::Astray(target),
        Err(_) => Edge::Exit,
    };
    let mut factory = InstructionInfoFactory::new();
    let mut holders = Holders::new(descriptor.address);
    let steps = instructions.iter().map(|instruction| {
        let info = factory.info(instruction);
        Step {
            arms: holders.step(instruction, info) == Announces::Yes,
            next: successors(instruction).into_iter().map(edge).collect(),
            write: write(info),
            locked: instruction.has_lock_prefix() || is_exchange(instruction),
            moves_stack: written(info).any(|register| register == Register::RSP),
            written: mask(written(info)),
            instruction: *instruction,
        }
    });
    Ok(steps.collect())
}

/// Returns the instructions from `address` on, to the end of its ELF section or the first bytes that cannot be decoded;
/// the latter are returned as a last, invalid item.
pub fn from<'a>(image: &'a Image<'_>, address: u64) -> impl Iterator<Item = Instruction> + 'a {
    let code = image.code_at(address);
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut failed = false;
    std::iter::from_fn(move || {
        if failed || !decoder.can_decode() {
            return None;
        }
        let instruction = decoder.decode();
        failed = decoder.last_error() != DecoderError::None;
        Some(instruction)
    })
}

/// Returns the addresses of its possible successors. An unknown address is 0. A call is assumed to return.
pub fn successors(instruction: &Instruction) -> Vec<u64> {
    match instruction.flow_control() {
        FlowControl::UnconditionalBranch => vec![instruction.near_branch_target()],
        FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
            vec![instruction.next_ip(), instruction.near_branch_target()]
        }
        FlowControl::IndirectBranch | FlowControl::Return => vec![0],
        _ => vec![instruction.next_ip()],
    }
}

/// Returns `true` if it transfers control to another function, the kernel, or a trap.
pub fn is_call(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Call
            | FlowControl::IndirectCall
            | FlowControl::Interrupt
            | FlowControl::Exception
            | FlowControl::XbeginXabortXend
    )
}

/// Returns `true` if it writes memory.
pub fn stores(instruction: &Instruction) -> bool {
    write(InstructionInfoFactory::new().info(instruction)) != Write::No
}

/// Returns `true` for `xchg` with memory locks the bus without a prefix.
fn is_exchange(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Xchg
        && (0..instruction.op_count()).any(|i| instruction.op_kind(i) == OpKind::Memory)
}

/// Returns how an instruction writes to the memory it names.
pub fn write(info: &InstructionInfo) -> Write {
    let mut write = Write::No;
    for memory in info.used_memory() {
        match memory.access() {
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => return Write::Update,
            OpAccess::Write | OpAccess::CondWrite => write = Write::Store,
            _ => {}
        }
    }
    write
}

/// Returns the registers that an instruction writes, in full width.
pub fn written(info: &InstructionInfo) -> impl Iterator<Item = Register> {
    used(info, |access| {
        matches!(
            access,
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        )
    })
}

/// Returns the registers that an instruction reads, in full width.
pub fn read(info: &InstructionInfo) -> impl Iterator<Item = Register> {
    used(info, |access| {
        matches!(
            access,
            OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        )
    })
}

fn used(info: &InstructionInfo, of: fn(OpAccess) -> bool) -> impl Iterator<Item = Register> {
    let registers = info.used_registers().iter();
    registers.filter(move |used| of(used.access())).map(|used| used.register().full_register())
}

/// Returns one bit for each general (0 to 15) and vector register (16 to 47), without the stack pointer.
pub fn mask(registers: impl Iterator<Item = Register>) -> u64 {
    registers.fold(0, |mask, register| mask | bit(register))
}

fn bit(register: Register) -> u64 {
    if register == Register::RSP {
        0
    } else if register.is_gpr() {
        1 << (register.number() & 15)
    } else if register.is_vector_register() {
        1 << (16 + (register.number() & 31))
    } else {
        0
    }
}
