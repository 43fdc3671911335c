//! AArch64.

use std::arch::asm;
use std::io;

use libc::{c_void, iovec, pid_t, ucontext_t, user_regs_struct};
use yaxpeax_arch::{Decoder as _, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Instruction as Decoded, Opcode, Operand, ShiftStyle};

/// The instruction of a breakpoint: `brk #0`.
pub const BREAKPOINT: &[u8] = &0xd420_0000_u32.to_le_bytes();
/// The number of instructions before a section at which a thread is stopped as well: those that announce the section.
pub const APPROACH: usize = 5;
/// The signature of every registration.
pub const SIGNATURE: u32 = 0xd428_bc00;
/// The length of an instruction.
const LENGTH: u64 = 4;

/// Traps into the tracer, which goes on behind it.
#[inline(always)]
pub fn trap() {
    // SAFETY: under ptrace it stops the thread; all registers and flags are kept.
    unsafe { asm!("brk #0", options(nostack)) };
}

/// Returns the calling thread's thread pointer.
pub fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads a register.
    unsafe {
        asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nomem, nostack, preserves_flags))
    };
    pointer
}

/// Returns the address of the instruction that a signal interrupted.
pub fn interrupted(context: &ucontext_t) -> i64 {
    context.uc_mcontext.pc as i64
}

/// The registers of a stopped thread.
pub struct Registers(user_regs_struct);

/// `NT_PRSTATUS`: the general registers.
const GENERAL: usize = 1;

impl Registers {
    /// # Errors
    /// Those of ptrace(2).
    pub fn of(thread: pid_t) -> io::Result<Registers> {
        // SAFETY: integers, for which all-zero bytes are values.
        let mut registers = Registers(unsafe { std::mem::zeroed() });
        let at = (&raw mut registers.0).cast();
        Registers::request(libc::PTRACE_GETREGSET, thread, at)?;
        Ok(registers)
    }

    /// # Errors
    /// Those of ptrace(2).
    pub fn set(&self, thread: pid_t) -> io::Result<()> {
        let at = (&raw const self.0).cast_mut().cast();
        Registers::request(libc::PTRACE_SETREGSET, thread, at)
    }

    fn request(request: libc::c_uint, thread: pid_t, at: *mut c_void) -> io::Result<()> {
        let mut part = iovec { iov_base: at, iov_len: size_of::<user_regs_struct>() };
        // SAFETY: both requests are given as many registers as they access.
        let result = unsafe { libc::ptrace(request, thread, GENERAL, &raw mut part) };
        if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Returns the address of the breakpoint or [`trap`] at which the thread was stopped.
    pub fn trapped_at(&self) -> u64 {
        self.0.pc
    }

    /// Goes back to the instruction that a breakpoint had replaced: the thread is there.
    pub fn back_to_breakpoint(&mut self) {}

    /// Goes on behind a [`trap`].
    pub fn behind_trap(&mut self) {
        self.0.pc += LENGTH;
    }

    /// Returns the value of a register; 31 is the stack pointer.
    fn base(&self, number: u16) -> u64 {
        self.0.regs.get(usize::from(number)).copied().unwrap_or(self.0.sp)
    }

    /// Returns the value of a register; 31 is zero.
    fn index(&self, number: u16) -> u64 {
        self.0.regs.get(usize::from(number)).copied().unwrap_or(0)
    }
}

/// An instruction; `None` if it is not one.
#[derive(Clone, Copy, Debug)]
pub struct Instruction {
    address: u64,
    decoded: Option<Decoded>,
}

impl Instruction {
    pub fn address(&self) -> u64 {
        self.address
    }

    pub fn is_invalid(&self) -> bool {
        self.decoded.is_none()
    }

    /// Returns `true` if it only fills space, or begins to compute an address: copies of a section differ in that.
    pub fn is_filler(&self) -> bool {
        self.decoded.is_some_and(|decoded| matches!(decoded.opcode, Opcode::HINT | Opcode::ADRP))
    }

    /// Returns its name without operands.
    pub fn name(&self) -> String {
        self.text().split_whitespace().next().unwrap_or_default().to_owned()
    }

    /// Returns it in Arm's syntax.
    pub fn text(&self) -> String {
        self.decoded.map_or_else(|| "not an instruction".to_owned(), |decoded| decoded.to_string())
    }

    /// Returns the address of its memory operand, given the registers after it.
    pub fn accessed(&self, registers: &Registers) -> Option<u64> {
        self.decoded?.operands.iter().find_map(|operand| match *operand {
            Operand::RegPreIndex(base, offset, false) => {
                Some(registers.base(base).wrapping_add_signed(i64::from(offset)))
            }
            Operand::RegRegOffset(base, index, _, ShiftStyle::LSL | ShiftStyle::UXTX, shift) => {
                Some(registers.base(base).wrapping_add(registers.index(index) << shift))
            }
            _ => None,
        })
    }
}

/// Returns the instructions that these bytes are at this address.
pub fn decode(bytes: &[u8], address: u64) -> impl Iterator<Item = Instruction> {
    let decoder = InstDecoder::default();
    bytes.chunks_exact(LENGTH as usize).zip(0..).map(move |(bytes, nth)| Instruction {
        address: address + LENGTH * nth,
        decoded: decoder.decode(&mut U8Reader::new(bytes)).ok(),
    })
}

/// The names of the instructions with which all sections begin that look for a slot, and of the shortest section; those
/// of `clear_if_clear`; and those with which `load` begins.
#[cfg(test)]
pub const SHAPES: [&str; 4] = [
    "ldr cmp b.lt ldr ldr ",
    "ldr cmp b.lt ldr ldr ldr adds b.lo ldr add str",
    "ldr cmp b.lt ldr cbnz stlr",
    "ldr cmp b.lt ldar cmp b.le ld",
];
