//! Operands for a section that is known by its code only.
//!
//! The registers that a section reads before it writes them are its operands, and how it uses each tells what it is:
//! the thread's rseq area, the table of slots, a pointer, a number. For numbers, small values are tried, until the
//! section commits when it runs alone, and until it leaves.
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

use super::cpu::Registers;
use super::memory::{
    self, BUFFER_WORDS, BUFFERS, FLAGS, OBJECT, OFFSETS, POINTER, SEGMENT, SEGMENTS,
};
use super::{AREA, alone};
use crate::check::code::Code;

/// The role of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Area,
    Id,
    Offsets,
    Object,
    /// The offset of the stack within the slot.
    Offset,
    /// The address of a buffer of the thread's own.
    Buffer,
    /// The address of a pointer to an object.
    Pointer,
    Gate,
    Flag,
    Number,
}

/// Returns a general register, by number.
fn number(register: Register) -> Option<usize> {
    register.is_gpr().then(|| register.full_register().number())
}

/// Returns the operands of the section, by register. `None`: it does not begin as this library's sections do.
fn operands(code: &Code) -> Option<BTreeMap<usize, Role>> {
    let inside: Vec<&Instruction> = code.inside().collect();
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

/// Registers and memory to begin with.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// The registers of each thread.
    pub registers: [Registers; 2],
    pub words: Vec<u64>,
    /// Whether the section looks for a slot, reads through a pointer, or tests a gate.
    pub locates: bool,
    pub has_pointer: bool,
}

/// Setups with which the section ends in different ways: by its commit, by a longer way to it, by an exit.
pub(super) fn find(code: &Code) -> Result<Vec<Setup>, String> {
    let roles = operands(code).ok_or("the section does not begin as this library's do")?;
    let numbers: Vec<usize> =
        roles.iter().filter(|(_, role)| **role == Role::Number).map(|(&at, _)| at).collect();
    let has = |role| roles.values().any(|&of| of == role);
    let mut found: BTreeMap<(u64, bool), (usize, Setup)> = BTreeMap::new();
    let mut why = String::new();
    let room = |id: usize| SEGMENTS + SEGMENT * id as u64;
    let firsts: [&dyn Fn(usize) -> u64; 7] =
        [&|_| 1, &|_| 2, &|_| 0, &|id| room(id) + 8, &|id| room(id) + SEGMENT, &|_| 3, &room];
    let choices = 3_usize.pow(numbers.len().min(4) as u32);
    for first in firsts {
        for choice in 0..choices {
            let mut words = memory::initial(first);
            let of = |thread: usize| {
                let mut registers = Registers { ip: code.start, ..Registers::default() };
                for (&at, role) in &roles {
                    registers.general[at] = match role {
                        Role::Area => AREA,
                        Role::Id => AREA + 24,
                        Role::Offsets => OFFSETS,
                        Role::Object => OBJECT,
                        Role::Offset => 8,
                        Role::Buffer => BUFFERS + 8 * (BUFFER_WORDS * thread) as u64,
                        Role::Pointer => POINTER,
                        Role::Gate => FLAGS,
                        Role::Flag => FLAGS + 8,
                        Role::Number => {
                            let nth =
                                numbers.iter().position(|&number| number == at).unwrap_or_default();
                            (choice / 3_usize.pow(nth.min(3) as u32) % 3) as u64 + 1
                        }
                    };
                }
                registers
            };
            if has(Role::Flag) {
                words[memory::index(FLAGS + 8).unwrap_or_default()] = 1;
            }
            let registers = [of(0), of(1)];
            let setup =
                Setup { registers, words, locates: has(Role::Id), has_pointer: has(Role::Pointer) };
            // What one of the ids cannot use is not meant.
            let of_other = alone(code, &setup.registers[1], &mut setup.words.clone(), 1);
            let end = alone(code, &setup.registers[0], &mut setup.words.clone(), 0);
            match of_other.and(end) {
                Ok(end) => {
                    // The shortest way to each end, and the longest to the commit.
                    let short = found
                        .entry((end.target, false))
                        .or_insert_with(|| (end.instructions, setup.clone()));
                    if end.instructions < short.0 {
                        *short = (end.instructions, setup.clone());
                    }
                    let long = found
                        .entry((end.target, true))
                        .or_insert_with(|| (end.instructions, setup.clone()));
                    if end.instructions > long.0 && end.instructions <= LONGEST {
                        *long = (end.instructions, setup);
                    }
                }
                Err(message) => why = message,
            }
        }
    }
    let shortest = |end: u64| found.get(&(end, false)).map(|(instructions, _)| *instructions);
    let differs = |&(&(end, is_long), (instructions, _)): &(&(u64, bool), &(usize, Setup))| {
        !is_long || Some(*instructions) != shortest(end)
    };
    let setups =
        found.iter().filter(differs).map(|(_, (_, setup))| setup.clone()).collect::<Vec<_>>();
    if setups.is_empty() { Err(why) } else { Ok(setups) }
}

/// The maximum length of a path that is explored.
const LONGEST: usize = 40;

/// Returns `true` if the section begins as this library's do, with a test of the cpu number.
pub(super) fn is_known(code: &Code) -> bool {
    let first = code.inside().next();
    let tests = first
        .is_some_and(|of| of.mnemonic() == Mnemonic::Cmp && of.segment_prefix() == Register::FS);
    tests && operands(code).is_some()
}
