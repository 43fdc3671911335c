//! The instructions of AArch64. Barriers do nothing: the model's memory is in order.

use yaxpeax_arm::armv8::a64::{Instruction, Opcode, Operand, ShiftStyle, SizeCode};

use super::{Memory, Registers, THREAD};

/// The number that stands for zero, or for the stack pointer, which sections do not use.
const ZERO: u16 = 31;

/// Runs one instruction, which is at this address.
pub(super) fn run(
    address: u64,
    of: &Instruction,
    registers: &mut Registers,
    memory: &mut dyn Memory,
) -> Result<(), String> {
    let mut cpu = Cpu { of, registers };
    match of.opcode {
        Opcode::LDR | Opcode::LDUR | Opcode::LDAR => {
            let value = super::read(memory, cpu.accessed()?, cpu.size(0))?;
            cpu.set(0, value)
        }
        Opcode::LDP => {
            let ((at, thread), size) = (cpu.accessed()?, cpu.size(0));
            let pair = [at, at + size as u64].map(|at| super::read(memory, (at, thread), size));
            for (operand, value) in pair.into_iter().enumerate() {
                cpu.set(operand, value?)?;
            }
            Ok(())
        }
        Opcode::STR | Opcode::STUR | Opcode::STLR => {
            let value = cpu.value(0)?;
            super::write(memory, cpu.accessed()?, cpu.size(0), value)
        }
        Opcode::ADD | Opcode::ADDS => {
            let (sum, carry) = cpu.add(cpu.value(1)?, cpu.value(2)?, false);
            cpu.result(of.opcode == Opcode::ADDS, sum, carry)
        }
        Opcode::SUB | Opcode::SUBS => {
            let (difference, carry) = cpu.add(cpu.value(1)?, !cpu.value(2)? & cpu.mask(), true);
            cpu.result(of.opcode == Opcode::SUBS, difference, carry)
        }
        Opcode::AND => cpu.set(0, cpu.value(1)? & cpu.value(2)?),
        Opcode::ANDS => {
            let result = cpu.value(1)? & cpu.value(2)?;
            cpu.registers.overflow = false;
            cpu.result(true, result, false)
        }
        Opcode::ORR => cpu.set(0, cpu.value(1)? | cpu.value(2)?),
        Opcode::MADD => {
            let product = cpu.value(1)?.wrapping_mul(cpu.value(2)?);
            cpu.set(0, product.wrapping_add(cpu.value(3)?))
        }
        Opcode::MOVZ => cpu.set(0, cpu.value(1)?),
        Opcode::CSEL => {
            let Operand::ConditionCode(condition) = of.operands[3] else {
                return Err("a selection without a condition".to_owned());
            };
            cpu.set(0, cpu.value(if cpu.holds(condition) { 1 } else { 2 })?)
        }
        // The counter stands still: a section that is run again does the same.
        Opcode::MRS => cpu.set(0, 0),
        Opcode::B => cpu.jump(address, true),
        Opcode::Bcc(condition) => cpu.jump(address, cpu.holds(condition)),
        Opcode::CBZ => cpu.jump(address, cpu.value(0)? == 0),
        Opcode::CBNZ => cpu.jump(address, cpu.value(0)? != 0),
        Opcode::HINT | Opcode::ISB | Opcode::DMB(_) | Opcode::DSB(_) => Ok(()),
        other => Err(format!("the model does not know the instruction {other}")),
    }
}

struct Cpu<'c> {
    of: &'c Instruction,
    registers: &'c mut Registers,
}

impl Cpu<'_> {
    /// Returns the size in bytes of an operand that is a register.
    fn size(&self, operand: usize) -> usize {
        match self.of.operands[operand] {
            Operand::Register(SizeCode::W, _) | Operand::RegisterOrSP(SizeCode::W, _) => 4,
            _ => 8,
        }
    }

    /// Returns the bits of the result.
    fn mask(&self) -> u64 {
        u64::MAX >> (64 - 8 * self.size(0))
    }

    fn register(&self, number: u16) -> u64 {
        if number == ZERO { 0 } else { self.registers.general[usize::from(number)] }
    }

    fn value(&self, operand: usize) -> Result<u64, String> {
        let value = match self.of.operands[operand] {
            Operand::Register(_, number) => self.register(number),
            Operand::RegisterOrSP(_, number) if number != ZERO => self.register(number),
            Operand::RegShift(ShiftStyle::LSL, by, _, number) => self.register(number) << by,
            Operand::Immediate(number) => number.into(),
            Operand::Imm64(number) => number,
            Operand::Imm16(number) => number.into(),
            Operand::ImmShift(number, by) => u64::from(number) << by,
            other => return Err(format!("the model does not know the operand {other:?}")),
        };
        Ok(value & self.mask())
    }

    /// Sets the register that is the operand. 32 bits clear the others.
    fn set(&mut self, operand: usize, value: u64) -> Result<(), String> {
        let value = value & (u64::MAX >> (64 - 8 * self.size(operand)));
        match self.of.operands[operand] {
            Operand::Register(_, ZERO) => Ok(()),
            Operand::Register(_, number) | Operand::RegisterOrSP(_, number) if number != ZERO => {
                self.registers.general[usize::from(number)] = value;
                Ok(())
            }
            other => Err(format!("the model does not know the result {other:?}")),
        }
    }

    /// Returns the address of the memory operand, and whether it is relative to the thread pointer.
    fn accessed(&self) -> Result<(u64, bool), String> {
        let address = self.of.operands.iter().find_map(|operand| match *operand {
            Operand::RegPreIndex(base, offset, false) => {
                Some(self.register(base).wrapping_add_signed(offset.into()))
            }
            Operand::RegRegOffset(base, index, _, ShiftStyle::LSL | ShiftStyle::UXTX, by) => {
                Some(self.register(base).wrapping_add(self.register(index) << by))
            }
            _ => None,
        });
        let address = address.ok_or("the model does not know how memory is addressed")?;
        let of_thread = address.wrapping_sub(THREAD);
        Ok(if of_thread < 1 << 16 { (of_thread, true) } else { (address, false) })
    }

    /// Returns the sum and the carry, and sets the overflow: `AddWithCarry` of Arm's manual.
    fn add(&mut self, a: u64, b: u64, carry: bool) -> (u64, bool) {
        let mask = self.mask();
        let sum = u128::from(a) + u128::from(b) + u128::from(carry);
        let result = sum as u64 & mask;
        let top = mask ^ mask >> 1;
        if matches!(self.of.opcode, Opcode::ADDS | Opcode::SUBS) {
            self.registers.overflow = !(a ^ b) & (a ^ result) & top != 0;
        }
        (result, sum > u128::from(mask))
    }

    fn result(&mut self, sets_flags: bool, result: u64, carry: bool) -> Result<(), String> {
        if sets_flags {
            let mask = self.mask();
            self.registers.zero = result == 0;
            self.registers.sign = result & (mask ^ mask >> 1) != 0;
            self.registers.carry = carry;
        }
        self.set(0, result)
    }

    fn holds(&self, condition: u8) -> bool {
        let Registers { zero, carry, sign, overflow, .. } = *self.registers;
        let holds = match condition >> 1 {
            0 => zero,
            1 => carry,
            2 => sign,
            3 => overflow,
            4 => carry && !zero,
            5 => sign == overflow,
            6 => sign == overflow && !zero,
            _ => return true,
        };
        holds != (condition & 1 == 1)
    }

    fn jump(&mut self, address: u64, taken: bool) -> Result<(), String> {
        let to = self.of.operands.iter().find_map(|operand| match operand {
            Operand::PCOffset(offset) => Some(address.wrapping_add_signed(*offset)),
            _ => None,
        });
        let to = to.ok_or("a jump without a target")?;
        if taken {
            self.registers.ip = to;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use yaxpeax_arch::{Decoder as _, U8Reader};
    use yaxpeax_arm::armv8::a64::InstDecoder;

    use super::*;

    /// No memory.
    struct Nowhere;

    impl Memory for Nowhere {
        fn load(&self, address: u64, _: bool) -> Result<u64, String> {
            Err(format!("a load from {address:#x}"))
        }

        fn store(&mut self, address: u64, _: bool, _: u64) -> Result<(), String> {
            Err(format!("a store to {address:#x}"))
        }
    }

    fn one(registers: &mut Registers, instruction: u32) {
        let bytes = instruction.to_le_bytes();
        let decoded = InstDecoder::default().decode(&mut U8Reader::new(&bytes)).unwrap();
        registers.ip = 4;
        run(0, &decoded, registers, &mut Nowhere).unwrap();
    }

    /// Returns whether the jump to 8 by this condition is taken.
    fn jumps(registers: &mut Registers, condition: u32) -> bool {
        one(registers, 0x5400_0040 | condition);
        registers.ip == 8
    }

    const VALUES: [u64; 9] = [
        0,
        1,
        u64::MAX,
        i64::MAX as u64,
        i64::MIN as u64,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        0x1_0000_0000,
    ];

    /// Conditions after comparisons, of 64 and of 32 bits, are those of the numbers.
    #[test]
    fn conditions_are_those_of_numbers() {
        for (a, b) in VALUES.iter().flat_map(|&a| VALUES.map(|b| (a, b))) {
            let mut registers = Registers::default();
            (registers.general[0], registers.general[1]) = (a, b);
            one(&mut registers, 0xeb01_001f); // cmp x0, x1
            let (signed_a, signed_b) = (a as i64, b as i64);
            let expected = [a == b, a >= b, a > b, signed_a >= signed_b, signed_a > signed_b];
            for (pair, holds) in [0, 1, 4, 5, 6].into_iter().zip(expected) {
                assert_eq!(jumps(&mut registers, 2 * pair), holds, "{a:x} {b:x} {pair}");
                assert_eq!(jumps(&mut registers, 2 * pair + 1), !holds, "{a:x} {b:x} {pair}");
            }
            one(&mut registers, 0x6b01_001f); // cmp w0, w1
            let (a, b) = (a as u32, b as u32);
            let (signed_a, signed_b) = (a as i32, b as i32);
            let expected = [a == b, a >= b, a > b, signed_a >= signed_b, signed_a > signed_b];
            for (pair, holds) in [0, 1, 4, 5, 6].into_iter().zip(expected) {
                assert_eq!(jumps(&mut registers, 2 * pair), holds, "{a:x} {b:x} {pair}");
            }
            assert!(jumps(&mut registers, 14));
        }
    }

    #[test]
    fn results_are_those_of_numbers() {
        for (a, b) in VALUES.iter().flat_map(|&a| VALUES.map(|b| (a, b))) {
            let mut registers = Registers::default();
            (registers.general[0], registers.general[1]) = (a, b);
            let mut result = |instruction| {
                one(&mut registers, instruction);
                (registers.general[2], registers.carry)
            };
            // adds, subs, and, orr, mul: x2, x0, x1; add x2, x0, x1, lsl #3; mov w2, w0.
            assert_eq!(result(0xab01_0002), (a.wrapping_add(b), a.checked_add(b).is_none()));
            assert_eq!(result(0xeb01_0002), (a.wrapping_sub(b), a >= b));
            assert_eq!(result(0x8a01_0002).0, a & b);
            assert_eq!(result(0xaa01_0002).0, a | b);
            assert_eq!(result(0x9b01_7c02).0, a.wrapping_mul(b));
            assert_eq!(result(0x8b01_0c02).0, a.wrapping_add(b << 3));
            assert_eq!(result(0x2a00_03e2).0, a & 0xffff_ffff);
            // cmp x0, x1; csel x2, x0, x1, hi
            one(&mut registers, 0xeb01_001f);
            one(&mut registers, 0x9a81_8002);
            assert_eq!(registers.general[2], a.max(b));
        }
    }
}
