//! RISC-V of 64 bits.

use std::arch::asm;
use std::io;

use disc_v::{Instruction as Decoded, Isa};
use libc::{c_void, iovec, pid_t, ucontext_t};

/// The instruction of a breakpoint, as short as the shortest one: `c.ebreak`.
pub const BREAKPOINT: &[u8] = &0x9002_u16.to_le_bytes();
/// The number of instructions before a section at which a thread is stopped as well: those that announce the section.
pub const APPROACH: usize = 4;
/// The signature of every registration.
pub const SIGNATURE: u32 = 0xf140_1073;

/// Traps into the tracer, which goes on behind it.
#[inline(always)]
pub fn trap() {
    // SAFETY: under ptrace it stops the thread; all registers are kept.
    unsafe { asm!("c.ebreak", options(nostack)) };
}

/// Returns the calling thread's thread pointer.
pub fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads a register.
    unsafe { asm!("mv {}, tp", out(reg) pointer, options(nomem, nostack, preserves_flags)) };
    pointer
}

/// Returns the address of the instruction that a signal interrupted.
pub fn interrupted(context: &ucontext_t) -> i64 {
    context.uc_mcontext.__gregs[0] as i64
}

/// The names of the general registers, by number.
const NAMES: [&str; 32] = [
    "zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3", "a4",
    "a5", "a6", "a7", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4",
    "t5", "t6",
];

/// The registers of a stopped thread, by number, with the program counter in place of zero: as in `user_regs_struct`.
pub struct Registers([u64; 32]);

/// `NT_PRSTATUS`: the general registers.
const GENERAL: usize = 1;

impl Registers {
    /// # Errors
    /// Those of ptrace(2).
    pub fn of(thread: pid_t) -> io::Result<Registers> {
        let mut registers = Registers([0; 32]);
        let at = registers.0.as_mut_ptr().cast();
        Registers::request(libc::PTRACE_GETREGSET, thread, at)?;
        Ok(registers)
    }

    /// # Errors
    /// Those of ptrace(2).
    pub fn set(&self, thread: pid_t) -> io::Result<()> {
        let at = self.0.as_ptr().cast_mut().cast();
        Registers::request(libc::PTRACE_SETREGSET, thread, at)
    }

    fn request(request: libc::c_uint, thread: pid_t, at: *mut c_void) -> io::Result<()> {
        let mut part = iovec { iov_base: at, iov_len: size_of::<Registers>() };
        // SAFETY: both requests are given as many registers as they access.
        let result = unsafe { libc::ptrace(request, thread, GENERAL, &raw mut part) };
        if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Returns the address of the breakpoint or [`trap`] at which the thread was stopped.
    pub fn trapped_at(&self) -> u64 {
        self.0[0]
    }

    /// Goes back to the instruction that a breakpoint had replaced: the thread is there.
    pub fn back_to_breakpoint(&mut self) {}

    /// Goes on behind a [`trap`].
    pub fn behind_trap(&mut self) {
        self.0[0] += BREAKPOINT.len() as u64;
    }

    /// Returns the address of a memory operand.
    fn address(&self, operand: &str) -> Option<u64> {
        let (offset, base) = operand.strip_suffix(')')?.split_once('(')?;
        let offset: i64 = if offset.is_empty() { 0 } else { offset.parse().ok()? };
        Some(self.value(base)?.wrapping_add_signed(offset))
    }

    fn value(&self, name: &str) -> Option<u64> {
        match NAMES.iter().position(|is| *is == name)? {
            0 => Some(0),
            number => Some(self.0[number]),
        }
    }
}

/// An instruction.
#[derive(Clone, Copy, Debug)]
pub struct Instruction(Decoded);

impl Instruction {
    pub fn address(&self) -> u64 {
        self.0.pc()
    }

    pub fn is_invalid(&self) -> bool {
        self.0.is_illegal()
    }

    /// Returns `true` if it only fills space, or begins to compute an address: copies of a section differ in that.
    pub fn is_filler(&self) -> bool {
        matches!(self.0.mnemonic(), "nop" | "auipc")
    }

    /// Returns its name without operands.
    pub fn name(&self) -> String {
        self.0.mnemonic().to_owned()
    }

    /// Returns it as GNU's tools write it.
    pub fn text(&self) -> String {
        self.0.to_string()
    }

    /// Returns the address of its memory operand, given the registers after it.
    pub fn accessed(&self, registers: &Registers) -> Option<u64> {
        self.0.operands().to_string().split(',').find_map(|operand| registers.address(operand))
    }
}

/// Returns the instructions that these bytes are at this address.
pub fn decode(bytes: &[u8], address: u64) -> impl Iterator<Item = Instruction> + '_ {
    disc_v::disassemble(Isa::Rv64, address, bytes).map(Instruction)
}

/// Returns where a thread may be after the instruction with these bytes, at which it is stopped. The kernel has no
/// single steps for this processor.
pub fn after(bytes: &[u8], registers: &Registers) -> Vec<u64> {
    let Some(Instruction(decoded)) = decode(bytes, registers.trapped_at()).next() else {
        return Vec::new();
    };
    let behind = decoded.pc().wrapping_add(decoded.length() as u64);
    let operands = decoded.operands().to_string();
    let last = operands.rsplit(',').next().unwrap_or_default();
    let direct = last.strip_prefix("0x").and_then(|target| u64::from_str_radix(target, 16).ok());
    match (decoded.mnemonic(), direct) {
        ("j" | "jal", Some(target)) => vec![target],
        ("ret", _) => registers.value("ra").into_iter().collect(),
        ("jr" | "jalr", _) => {
            let target = registers.address(last).or_else(|| registers.value(last));
            target.map(|target| target & !1).into_iter().collect()
        }
        (name, Some(target)) if name.starts_with('b') => vec![behind, target],
        _ => vec![behind],
    }
}

/// The names of the instructions with which all sections begin that look for a slot, and of the shortest section; those
/// of `clear_if_clear`; and those with which `load` begins.
#[cfg(test)]
pub const SHAPES: [&str; 4] = [
    "lw bltz add lwu slli add ld ",
    "lw bltz add lwu slli add ld ld add bgeu ld add sd",
    "lw bltz lw bnez fence sw",
    "lw bltz ld fence blez ld",
];
