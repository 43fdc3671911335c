//! x86-64.

use std::arch::asm;
use std::io;

use iced_x86::{
    Decoder, DecoderOptions, Formatter as _, Instruction as Decoded, IntelFormatter, Mnemonic,
    OpKind, Register,
};
use libc::{pid_t, ucontext_t, user_regs_struct};

/// The instruction of a breakpoint: `int3`.
pub const BREAKPOINT: &[u8] = &[0xcc];
/// The number of instructions before a section at which a thread is stopped as well: those that load the operands and
/// announce the section.
pub const APPROACH: usize = 4;
/// The signature of every registration.
pub const SIGNATURE: u32 = 0x5305_3053;

/// Traps into the tracer.
#[inline(always)]
pub fn trap() {
    // SAFETY: under ptrace it stops the thread; all registers and flags are kept.
    unsafe { asm!("int3", options(nostack)) };
}

/// Returns the calling thread's thread pointer.
pub fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: the psABI stores the thread pointer's own value at fs:0.
    unsafe {
        asm!(
            "mov {}, qword ptr fs:[0]",
            out(reg) pointer,
            options(readonly, nostack, preserves_flags),
        );
    }
    pointer
}

/// Returns the address of the instruction that a signal interrupted.
pub fn interrupted(context: &ucontext_t) -> i64 {
    context.uc_mcontext.gregs[libc::REG_RIP as usize]
}

/// The registers of a stopped thread.
pub struct Registers(user_regs_struct);

impl Registers {
    /// # Errors
    /// Those of ptrace(2).
    pub fn of(thread: pid_t) -> io::Result<Registers> {
        // SAFETY: integers, for which all-zero bytes are values.
        let mut registers: user_regs_struct = unsafe { std::mem::zeroed() };
        // SAFETY: a valid place for the registers.
        let result =
            unsafe { libc::ptrace(libc::PTRACE_GETREGS, thread, 0usize, &raw mut registers) };
        if result == -1 { Err(io::Error::last_os_error()) } else { Ok(Registers(registers)) }
    }

    /// # Errors
    /// Those of ptrace(2).
    pub fn set(&self, thread: pid_t) -> io::Result<()> {
        // SAFETY: the kernel reads the registers.
        let result =
            unsafe { libc::ptrace(libc::PTRACE_SETREGS, thread, 0usize, &raw const self.0) };
        if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Returns the address of the breakpoint or [`trap`] at which the thread was stopped.
    pub fn trapped_at(&self) -> u64 {
        self.0.rip - BREAKPOINT.len() as u64
    }

    /// Goes back to the instruction that a breakpoint had replaced.
    pub fn back_to_breakpoint(&mut self) {
        self.0.rip -= BREAKPOINT.len() as u64;
    }

    /// Goes on behind a [`trap`]: the processor has done so.
    pub fn behind_trap(&mut self) {}

    /// Returns the value of a register that addresses are computed from. `None` for other registers.
    fn value(&self, name: Register) -> Option<u64> {
        let registers = &self.0;
        Some(match name.full_register() {
            Register::RAX => registers.rax,
            Register::RBX => registers.rbx,
            Register::RCX => registers.rcx,
            Register::RDX => registers.rdx,
            Register::RSI => registers.rsi,
            Register::RDI => registers.rdi,
            Register::RBP => registers.rbp,
            Register::RSP => registers.rsp,
            Register::R8 => registers.r8,
            Register::R9 => registers.r9,
            Register::R10 => registers.r10,
            Register::R11 => registers.r11,
            Register::R12 => registers.r12,
            Register::R13 => registers.r13,
            Register::R14 => registers.r14,
            Register::R15 => registers.r15,
            // The data segments begin at 0.
            Register::DS | Register::ES | Register::SS => 0,
            Register::FS => registers.fs_base,
            Register::GS => registers.gs_base,
            _ => return None,
        })
    }
}

/// An instruction.
#[derive(Clone, Copy, Debug)]
pub struct Instruction(Decoded);

impl Instruction {
    pub fn address(&self) -> u64 {
        self.0.ip()
    }

    pub fn is_invalid(&self) -> bool {
        self.0.is_invalid()
    }

    /// Returns `true` if it only fills space.
    pub fn is_filler(&self) -> bool {
        self.0.mnemonic() == Mnemonic::Nop
    }

    /// Returns its name without operands.
    pub fn name(&self) -> String {
        format!("{:?}", self.0.mnemonic()).to_lowercase()
    }

    /// Returns it in Intel syntax.
    pub fn text(&self) -> String {
        let mut formatter = IntelFormatter::new();
        let options = formatter.options_mut();
        options.set_hex_prefix("0x");
        options.set_hex_suffix("");
        options.set_uppercase_hex(false);
        options.set_rip_relative_addresses(true);
        options.set_branch_leading_zeros(false);
        options.set_show_branch_size(false);
        options.set_space_after_operand_separator(true);
        let mut text = String::new();
        formatter.format(&self.0, &mut text);
        text
    }

    /// Returns the address of its memory operand, given the registers after it.
    pub fn accessed(&self, registers: &Registers) -> Option<u64> {
        let operand =
            (0..self.0.op_count()).find(|&operand| self.0.op_kind(operand) == OpKind::Memory)?;
        self.0.virtual_address(operand, 0, |name, _, _| registers.value(name))
    }
}

/// Returns the instructions that these bytes are at this address.
pub fn decode(bytes: &[u8], address: u64) -> impl Iterator<Item = Instruction> {
    Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).into_iter().map(Instruction)
}

/// The names of the instructions with which all sections begin that look for a slot, and of the shortest section; those
/// of `clear_if_clear`; and those with which `load` begins.
#[cfg(test)]
pub const SHAPES: [&str; 4] = [
    "cmp jl mov mov add jae ",
    "cmp jl mov mov add jae add",
    "cmp jl cmp jne mov",
    "cmp jl mov test jle mov",
];
