//! Operands for a section that is known by its code only.
//!
//! The registers that a section reads before it writes them are its operands, and how it uses each tells what it is:
//! the thread's rseq area, the table of slots, a pointer, a number. For numbers, small values are tried, until the
//! section commits when it runs alone, and until it leaves.

mod aarch64;
mod x86_64;

use std::collections::BTreeMap;

use super::cpu::{Registers, THREAD};
use super::memory::{
    self, BUFFER_WORDS, BUFFERS, FLAGS, OBJECT, OFFSETS, POINTER, SEGMENT, SEGMENTS,
};
use super::{AREA, alone};
use crate::check::code::Code;

/// The role of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// The area's offset from the thread pointer, and its address.
    Area,
    Place,
    Thread,
    /// The offset of the id.
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

/// Returns the operands of the section, by register. `None`: it does not begin as this library's sections do.
fn operands(code: &Code) -> Option<BTreeMap<usize, Role>> {
    match code.inside().next()?.x86() {
        Some(_) => x86_64::operands(code),
        None => aarch64::operands(code),
    }
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
                        Role::Place => THREAD + AREA,
                        Role::Thread => THREAD,
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
    operands(code).is_some()
}
