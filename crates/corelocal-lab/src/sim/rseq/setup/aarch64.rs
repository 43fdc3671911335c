//! Operands of sections for AArch64.
//!
//! ```text
//!   ldr  w_slot, [place, #4]
//!   cmp  w_slot, #0
//!   b.lt unavailable
//!   ldr  w_slot, [thread, id]          these five only if the section looks for a slot
//!   ldr  slot, [offsets, slot, lsl #3]
//!   ldr  place, [object]
//!   adds slot, slot, place
//!   b.lo unavailable
//!   …
//! ```

use std::collections::BTreeMap;

use yaxpeax_arm::armv8::a64::{Instruction as Decoded, Opcode, Operand, ShiftStyle, SizeCode};

use super::Role;
use crate::check::code::Code;
use crate::check::machine::{Instruction, Write};

/// Returns the operand of an instruction that is memory: base, and index.
fn memory(of: &Decoded) -> Option<(u16, Option<u16>)> {
    of.operands.iter().find_map(|operand| match *operand {
        Operand::RegPreIndex(base, _, false) => Some((base, None)),
        Operand::RegRegOffset(base, index, ..) => Some((base, Some(index))),
        _ => None,
    })
}

/// Returns the operands of the section, by register. `None`: it does not begin as this library's sections do.
pub(super) fn operands(code: &Code) -> Option<BTreeMap<usize, Role>> {
    let inside: Vec<(&Instruction, Decoded)> =
        code.inside().map(|of| Some((of, of.arm()?))).collect::<Option<_>>()?;
    let opcodes = |nth: usize, expected: &[Opcode]| {
        let found = inside.iter().skip(nth).map(|(_, raw)| raw.opcode);
        found.take(expected.len()).eq(expected.iter().copied())
    };
    // One that has the address of a static is left out: the model does not know what is there.
    let has_static = inside.iter().any(|(_, raw)| raw.opcode == Opcode::ADRP);
    if has_static || !opcodes(0, &[Opcode::LDR, Opcode::SUBS, Opcode::Bcc(11)]) {
        return None;
    }
    let at = |nth: usize| memory(&inside.get(nth)?.1);
    let mut roles = BTreeMap::from([(at(0)?.0.into(), Role::Place)]);
    let locates =
        opcodes(3, &[Opcode::LDR, Opcode::LDR, Opcode::LDR, Opcode::ADDS, Opcode::Bcc(3)]);
    let (mut slot, mut thread) = (None, None);
    if locates {
        let ((of_thread, Some(id)), (offsets, Some(of_slot))) = (at(3)?, at(4)?) else {
            return None;
        };
        (slot, thread) = (Some(of_slot), Some(of_thread));
        roles.insert(of_thread.into(), Role::Thread);
        roles.insert(id.into(), Role::Id);
        roles.insert(offsets.into(), Role::Offsets);
        roles.insert(at(5)?.0.into(), Role::Object);
    }
    let (head, rest) = inside.split_at(if locates { 8 } else { 3 });
    let mut written = head.iter().fold(0, |all, (of, _)| all | of.written);
    for (of, raw) in rest {
        let is_new = |register: u16| register < 31 && written & 1 << register == 0;
        let mut assign = |register: u16, role| {
            if is_new(register) {
                roles.entry(register.into()).or_insert(role);
            }
        };
        if let Some((base, index)) = memory(raw) {
            let is_short = matches!(raw.operands[0], Operand::Register(SizeCode::W, _));
            assign(
                base,
                match (locates, is_short, of.write) {
                    (true, ..) => Role::Buffer,
                    (_, true, Write::No) => Role::Gate,
                    (_, true, _) => Role::Flag,
                    (_, false, _) => Role::Pointer,
                },
            );
            if let Some(index) = index {
                assign(index, Role::Offset);
            }
        }
        if let (
            Opcode::ADD,
            Operand::Register(_, to),
            Operand::RegShift(ShiftStyle::LSL, 0, _, more),
        ) = (raw.opcode, raw.operands[1], raw.operands[2])
        {
            match Some(to) {
                to if to == slot => assign(more, Role::Offset),
                to if to == thread => assign(more, Role::Area),
                _ => {}
            }
        }
        (0..31).filter(|register| of.read & 1 << register != 0).for_each(|register| {
            assign(register, Role::Number);
        });
        written |= of.written;
    }
    Some(roles)
}
