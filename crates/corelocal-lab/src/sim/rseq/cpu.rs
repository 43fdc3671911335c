//! A processor that runs the instructions of critical sections, as x86-64 or AArch64 does, on a small memory.
//!
//! Memory is a list of regions. An access outside of them, or that is not aligned, is an error of the model: sections
//! access what their operands name only.

mod aarch64;
mod x86_64;

use crate::check::machine::Instruction;

/// Registers and flags of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Registers {
    pub(super) ip: u64,
    pub(super) general: [u64; 32],
    pub(super) vectors: [[u64; 2]; 16],
    pub(super) zero: bool,
    /// After a subtraction on x86-64, there was a borrow; on AArch64, there was none.
    pub(super) carry: bool,
    pub(super) sign: bool,
    pub(super) overflow: bool,
}

/// The memory that an instruction reads and writes.
pub(super) trait Memory {
    /// Returns the aligned word of 64 bits that contains the address. `thread`: relative to the thread pointer.
    fn load(&self, address: u64, thread: bool) -> Result<u64, String>;
    /// Does the same.
    fn store(&mut self, address: u64, thread: bool, word: u64) -> Result<(), String>;
}

/// The thread pointer, where it is in a register.
pub(super) const THREAD: u64 = 1 << 46;

/// Runs one instruction.
pub(super) fn run(
    of: &Instruction,
    registers: &mut Registers,
    memory: &mut dyn Memory,
) -> Result<(), String> {
    registers.ip = of.end;
    match (of.x86(), of.arm()) {
        (Some(of), _) => x86_64::run(&of, registers, memory),
        (_, Some(raw)) => aarch64::run(of.address, &raw, registers, memory),
        _ => Err("the model does not know this processor".to_owned()),
    }
}

/// Reads a number of 4 or 8 bytes.
fn read(memory: &dyn Memory, (address, thread): (u64, bool), size: usize) -> Result<u64, String> {
    match size {
        8 if address % 8 == 0 => memory.load(address, thread),
        4 if address % 4 == 0 => {
            let word = memory.load(address & !7, thread)?;
            Ok(if address % 8 == 0 { word & 0xffff_ffff } else { word >> 32 })
        }
        size => Err(format!("an access of {size} bytes at {address:#x}, which is not aligned")),
    }
}

/// Writes one.
fn write(
    memory: &mut dyn Memory,
    (address, thread): (u64, bool),
    size: usize,
    value: u64,
) -> Result<(), String> {
    match size {
        8 if address % 8 == 0 => memory.store(address, thread, value),
        4 if address % 4 == 0 => {
            let word = memory.load(address & !7, thread)?;
            let (half, high) = (value & 0xffff_ffff, word & !0xffff_ffff);
            let word = if address % 8 == 0 { high | half } else { word & 0xffff_ffff | half << 32 };
            memory.store(address & !7, thread, word)
        }
        size => Err(format!("a store of {size} bytes at {address:#x}, which is not aligned")),
    }
}
