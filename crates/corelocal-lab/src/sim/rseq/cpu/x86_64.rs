//! The instructions of x86-64.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use super::{Memory, Registers};

/// Runs one instruction.
pub(super) fn run(
    of: &Instruction,
    registers: &mut Registers,
    memory: &mut dyn Memory,
) -> Result<(), String> {
    let mut cpu = Cpu { of, registers, memory };
    match of.mnemonic() {
        Mnemonic::Mov => {
            let value = cpu.read(1)?;
            cpu.write(0, value)
        }
        Mnemonic::Movaps | Mnemonic::Movups | Mnemonic::Movq => {
            let value = cpu.read_vector(1)?;
            cpu.write_vector(0, value)
        }
        Mnemonic::Movhps => {
            let high = cpu.read(1)?;
            let [low, _] = cpu.read_vector(0)?;
            cpu.write_vector(0, [low, high])
        }
        Mnemonic::Xorps => cpu.write_vector(0, [0, 0]),
        Mnemonic::Punpcklqdq => {
            let ([low, _], [high, _]) = (cpu.read_vector(0)?, cpu.read_vector(1)?);
            cpu.write_vector(0, [low, high])
        }
        // The counter stands still: a section that is run again does the same.
        Mnemonic::Rdtsc => {
            cpu.registers.general[Register::RAX.number()] = 0;
            cpu.registers.general[Register::RDX.number()] = 0;
            Ok(())
        }
        Mnemonic::Lea => {
            let (address, _) = cpu.address();
            cpu.write(0, address)
        }
        Mnemonic::Add => cpu.arithmetic(true, |a, b, mask| {
            (a.wrapping_add(b), (a & mask).checked_add(b & mask).is_none_or(|sum| sum > mask))
        }),
        Mnemonic::Sub => {
            cpu.arithmetic(true, |a, b, mask| (a.wrapping_sub(b), a & mask < b & mask))
        }
        Mnemonic::Cmp => {
            cpu.arithmetic(false, |a, b, mask| (a.wrapping_sub(b), a & mask < b & mask))
        }
        Mnemonic::And => cpu.logic(true, |a, b| a & b),
        Mnemonic::Test => cpu.logic(false, |a, b| a & b),
        Mnemonic::Xor => cpu.logic(true, |a, b| a ^ b),
        Mnemonic::Imul => {
            let product = cpu.read(0)?.wrapping_mul(cpu.read(1)?);
            cpu.write(0, product)
        }
        Mnemonic::Cmova if cpu.registers.carry || cpu.registers.zero => Ok(()),
        Mnemonic::Cmovae if cpu.registers.carry => Ok(()),
        Mnemonic::Cmova | Mnemonic::Cmovae => {
            let value = cpu.read(1)?;
            cpu.write(0, value)
        }
        Mnemonic::Jmp => cpu.jump(true),
        Mnemonic::Je => cpu.jump(cpu.registers.zero),
        Mnemonic::Jne => cpu.jump(!cpu.registers.zero),
        Mnemonic::Jb => cpu.jump(cpu.registers.carry),
        Mnemonic::Jae => cpu.jump(!cpu.registers.carry),
        Mnemonic::Ja => cpu.jump(!cpu.registers.carry && !cpu.registers.zero),
        Mnemonic::Jbe => cpu.jump(cpu.registers.carry || cpu.registers.zero),
        Mnemonic::Jl => cpu.jump(cpu.registers.sign != cpu.registers.overflow),
        Mnemonic::Jge => cpu.jump(cpu.registers.sign == cpu.registers.overflow),
        Mnemonic::Jle => {
            cpu.jump(cpu.registers.zero || cpu.registers.sign != cpu.registers.overflow)
        }
        Mnemonic::Jg => {
            cpu.jump(!cpu.registers.zero && cpu.registers.sign == cpu.registers.overflow)
        }
        Mnemonic::Pause | Mnemonic::Nop => Ok(()),
        other => Err(format!("the model does not know the instruction {other:?}")),
    }
}

fn address_of(of: &Instruction, registers: &Registers) -> (u64, bool) {
    let value = |register: Register| match register {
        Register::None => 0,
        Register::RIP => 0,
        register => registers.general[register.full_register().number()],
    };
    let index = value(of.memory_index()).wrapping_mul(of.memory_index_scale().into());
    let address =
        value(of.memory_base()).wrapping_add(index).wrapping_add(of.memory_displacement64());
    (address, of.segment_prefix() == Register::FS)
}

struct Cpu<'c> {
    of: &'c Instruction,
    registers: &'c mut Registers,
    memory: &'c mut dyn Memory,
}

impl Cpu<'_> {
    fn address(&self) -> (u64, bool) {
        address_of(self.of, self.registers)
    }

    /// Returns the size in bytes of an operand.
    fn size(&self, operand: u32) -> usize {
        match self.of.op_kind(operand) {
            OpKind::Register => self.of.op_register(operand).size(),
            OpKind::Memory => self.of.memory_size().size(),
            // An immediate is as wide as the other operand.
            _ => self.size(0),
        }
    }

    fn read(&self, operand: u32) -> Result<u64, String> {
        match self.of.op_kind(operand) {
            OpKind::Register => {
                let register = self.of.op_register(operand);
                let value = self.registers.general[register.full_register().number()];
                match register.size() {
                    8 => Ok(value),
                    4 => Ok(value & 0xffff_ffff),
                    _ => Err(format!("the model does not know the register {register:?}")),
                }
            }
            OpKind::Memory => super::read(self.memory, self.address(), self.size(operand)),
            _ => Ok(self.of.immediate(operand)),
        }
    }

    fn write(&mut self, operand: u32, value: u64) -> Result<(), String> {
        match self.of.op_kind(operand) {
            OpKind::Register => {
                let register = self.of.op_register(operand);
                // A write of 32 bits clears the others.
                let value = if register.size() == 4 { value & 0xffff_ffff } else { value };
                self.registers.general[register.full_register().number()] = value;
                Ok(())
            }
            _ => {
                let (address, size) = (self.address(), self.size(operand));
                super::write(self.memory, address, size, value)
            }
        }
    }

    fn read_vector(&self, operand: u32) -> Result<[u64; 2], String> {
        match self.of.op_kind(operand) {
            OpKind::Register if self.of.op_register(operand).is_vector_register() => {
                Ok(self.registers.vectors[self.of.op_register(operand).number() & 15])
            }
            OpKind::Memory if self.size(operand) == 16 => {
                let (address, thread) = self.address();
                Ok([self.memory.load(address, thread)?, self.memory.load(address + 8, thread)?])
            }
            _ => Ok([self.read(operand)?, 0]),
        }
    }

    fn write_vector(&mut self, operand: u32, value: [u64; 2]) -> Result<(), String> {
        if self.of.op_kind(operand) == OpKind::Register {
            let register = self.of.op_register(operand);
            if register.is_vector_register() {
                self.registers.vectors[register.number() & 15] = value;
                return Ok(());
            }
            return self.write(operand, value[0]);
        }
        let (address, thread) = self.address();
        if self.size(operand) != 16 {
            return self.memory.store(address, thread, value[0]);
        }
        self.memory.store(address, thread, value[0])?;
        self.memory.store(address + 8, thread, value[1])
    }

    /// Returns an operation with a carry, and `a - b` or `a + b`.
    fn arithmetic(
        &mut self,
        stores: bool,
        operate: fn(u64, u64, u64) -> (u64, bool),
    ) -> Result<(), String> {
        let bits = 8 * self.size(0) as u32;
        let mask = u64::MAX >> (64 - bits);
        let (a, b) = (self.read(0)?, self.read(1)?);
        let (result, carry) = operate(a, b, mask);
        let top = 1 << (bits - 1);
        let is_sum = self.of.mnemonic() == Mnemonic::Add;
        let other = if is_sum { b } else { !b };
        self.registers.overflow = !(a ^ other) & (a ^ result) & top != 0;
        self.registers.carry = carry;
        self.set_zero_and_sign(result & mask, top);
        if stores { self.write(0, result & mask) } else { Ok(()) }
    }

    fn logic(&mut self, stores: bool, operate: fn(u64, u64) -> u64) -> Result<(), String> {
        let bits = 8 * self.size(0) as u32;
        let mask = u64::MAX >> (64 - bits);
        let result = operate(self.read(0)?, self.read(1)?) & mask;
        (self.registers.overflow, self.registers.carry) = (false, false);
        self.set_zero_and_sign(result, 1 << (bits - 1));
        if stores { self.write(0, result) } else { Ok(()) }
    }

    fn set_zero_and_sign(&mut self, result: u64, top: u64) {
        (self.registers.zero, self.registers.sign) = (result == 0, result & top != 0);
    }

    fn jump(&mut self, taken: bool) -> Result<(), String> {
        if taken {
            self.registers.ip = self.of.near_branch_target();
        }
        Ok(())
    }
}
