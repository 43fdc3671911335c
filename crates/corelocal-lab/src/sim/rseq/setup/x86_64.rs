//! Operands of sections for x86-64.
//!
//! ```text
//!   cmp  dword ptr fs:[area + 4], 0
//!   jl   unavailable
//!   mov  slot, fs:[id]                 these four only if the section looks for a slot
//!   mov  slot, [offsets + 8*slot]
//!   add  slot, [object]
//!   jnc  unavailable
//!   …
//! ```

use std::collections::BTreeMap;

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use super::Role;
use crate::check::code::Code;

/// Returns a general register, by number.
fn number(register: Register) -> Option<usize> {
    register.is_gpr().then(|| register.full_register().number())
}

/// Returns the operands of the section, by register. `None`: it does not begin as this library's sections do.
pub(super) fn operands(code: &Code) -> Option<BTreeMap<usize, Role>> {
    let inside: Option<Vec<Instruction>> = code.inside().map(|of| of.x86()).collect();
    let inside = inside?;
    let first = inside.first()?;
    if first.mnemonic() != Mnemonic::Cmp || first.segment_prefix() != Register::FS {
        return None;
    }
    let base = |nth: usize| number(inside.get(nth)?.memory_base());
    let mut roles = BTreeMap::from([(base(0)?, Role::Area)]);
    let of_thread =
        |nth: usize| inside.get(nth).is_some_and(|of| of.segment_prefix() == Register::FS);
    let locates = of_thread(2);
    let mut slot = None;
    if locates {
        slot = number(inside[2].op_register(0));
        roles.insert(base(2)?, Role::Id);
        roles.insert(base(3)?, Role::Offsets);
        roles.insert(base(4)?, Role::Object);
    }
    let mut written = [false; 16];
    if let Some(slot) = slot {
        written[slot] = true;
    }
    let mut factory = InstructionInfoFactory::new();
    for of in inside.iter().skip(if locates { 6 } else { 2 }) {
        // `lea` computes with numbers.
        let has_memory = of.mnemonic() != Mnemonic::Lea
            && (0..of.op_count()).any(|operand| of.op_kind(operand) == OpKind::Memory);
        let [base, index] =
            [of.memory_base(), of.memory_index()].map(|part| number(part).filter(|_| has_memory));
        let is_new = |register: &Option<usize>| register.is_some_and(|register| !written[register]);
        let mut assign = |register: Option<usize>, role| {
            if let Some(register) = register.filter(|&register| !written[register]) {
                roles.entry(register).or_insert(role);
            }
        };
        let base_role = match of.mnemonic() {
            // Beside the slot's address, an offset.
            _ if index.is_some() && !is_new(&index) => Role::Offset,
            _ if locates => Role::Buffer,
            Mnemonic::Cmp => Role::Gate,
            Mnemonic::Mov if of.memory_size().size() == 4 => Role::Flag,
            _ => Role::Pointer,
        };
        let base_role =
            if locates && of.memory_index_scale() == 8 { Role::Buffer } else { base_role };
        assign(base, base_role);
        assign(index, Role::Offset);
        let adds_to_slot =
            of.mnemonic() == Mnemonic::Add && !has_memory && number(of.op_register(0)) == slot;
        let info = factory.info(of);
        for used in info.used_registers() {
            let reads =
                !matches!(used.access(), OpAccess::Write | OpAccess::CondWrite | OpAccess::None);
            if reads {
                assign(
                    number(used.register()),
                    if adds_to_slot { Role::Offset } else { Role::Number },
                );
            }
        }
        for used in info.used_registers() {
            let writes =
                !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None);
            if let Some(register) = number(used.register()).filter(|_| writes) {
                written[register] = true;
            }
        }
    }
    Some(roles)
}
