//! The code of critical sections, for a model that runs it.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{Instruction as X86, OpKind, Register};

use super::decode::{self, Edge};
use super::elf::Elf;
use super::load::{Descriptor, Image};
use super::machine::{Flow, Instruction};
use super::names::Names;

/// The code of a critical section and of its exits, up to the instruction after it.
#[derive(Clone, Debug)]
pub struct Code {
    /// The place in the source, as "sums.rs:253", or the address.
    pub name: String,
    /// `start_ip`.
    pub start: u64,
    /// The address after the section.
    pub end: u64,
    /// `abort_ip`.
    pub abort: u64,
    /// The instructions, by address.
    pub instructions: BTreeMap<u64, Instruction>,
    /// The stores that are declared to be invisible until the commit.
    pub prepared: BTreeSet<u64>,
}

impl Code {
    /// Returns the instructions of the section, without those that only fill space.
    pub fn inside(&self) -> impl Iterator<Item = &Instruction> {
        let inside =
            self.instructions.range(self.start..self.end).map(|(_, instruction)| instruction);
        inside.filter(|instruction| !instruction.is_filler())
    }

    /// Returns the number of instructions of the section before this address.
    fn place(&self, address: u64) -> usize {
        self.inside().take_while(|instruction| instruction.address < address).count()
    }

    /// Returns the instructions without addresses and names of registers: the same for all copies of a section.
    pub fn shape(&self) -> Vec<String> {
        let mut names = BTreeMap::new();
        self.inside().map(|instruction| shape_of(instruction, self, &mut names)).collect()
    }
}

fn shape_of(instruction: &Instruction, code: &Code, names: &mut BTreeMap<u32, usize>) -> String {
    // Where to, by instructions: a short branch and a near one are the same.
    let place = |target: u64| {
        let is_inside = (code.start..=code.end).contains(&target);
        if is_inside { format!("to {}", code.place(target)) } else { "out".into() }
    };
    let mut number = |register: u32| {
        let next = names.len();
        *names.entry(register).or_insert(next)
    };
    match instruction.x86() {
        Some(x86) => shape_of_x86(&x86, &mut number, place),
        None => numbered(&instruction.text(place), &mut number),
    }
}

/// Returns the text with numbers in place of the names of registers, which are a letter and a number: those of AArch64.
fn numbered(text: &str, number: &mut impl FnMut(u32) -> usize) -> String {
    text.split_inclusive(|c: char| !c.is_ascii_alphanumeric())
        .map(|part| {
            let word = part.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
            let register = word.strip_prefix(['x', 'w']).and_then(|number| number.parse().ok());
            register.map_or(part.to_owned(), |register| {
                format!("{}{}{}", &word[..1], number(register), &part[word.len()..])
            })
        })
        .collect()
}

fn shape_of_x86(
    instruction: &X86,
    number: &mut impl FnMut(u32) -> usize,
    place: impl Fn(u64) -> String,
) -> String {
    let mut number = |register: Register| number(register.full_register() as u32);
    let mut text = format!("{:?}", instruction.mnemonic());
    for operand in 0..instruction.op_count() {
        text += &match instruction.op_kind(operand) {
            OpKind::Register => format!(" r{}", number(instruction.op_register(operand))),
            OpKind::Memory => {
                let parts = [instruction.memory_base(), instruction.memory_index()];
                let [base, index] = parts.map(|part| match part {
                    Register::None => "-".to_owned(),
                    Register::RIP => "rip".to_owned(),
                    register => format!("r{}", number(register)),
                });
                let (scale, at) =
                    (instruction.memory_index_scale(), instruction.memory_displacement64());
                format!(" [{base}+{scale}*{index}+{at:x}]")
            }
            OpKind::NearBranch64 | OpKind::NearBranch32 | OpKind::NearBranch16 => {
                format!(" {}", place(instruction.near_branch_target()))
            }
            _ => format!(" {:x}", instruction.immediate(operand)),
        };
    }
    text
}

/// An exit has no more instructions: a number, registers that are cleared, a jump, and what fills space.
const EXIT: usize = 24;

/// Returns the sections that were decoded, of processors that models run; others are left out.
pub fn of(elf: &Elf<'_>) -> Vec<Code> {
    let image = Image::load(elf);
    let names = Names::of(elf, image.descriptors.iter().map(|descriptor| descriptor.start));
    image.descriptors.iter().filter_map(|descriptor| one(&image, &names, descriptor)).collect()
}

fn one(image: &Image<'_>, names: &Names, descriptor: &Descriptor) -> Option<Code> {
    if !image.processor()?.is_modelled() {
        return None;
    }
    let steps = decode::section(image, descriptor).ok()?;
    let mut instructions = BTreeMap::new();
    let mut exits = vec![descriptor.abort];
    for step in &steps {
        instructions.insert(step.address(), step.instruction);
        if step.next.contains(&Edge::Exit) {
            exits.extend(match step.instruction.flow {
                Flow::Jump(target) | Flow::Branch(target) => Some(target),
                _ => None,
            });
        }
    }
    for exit in exits {
        for instruction in decode::from(image, exit).take(EXIT).map_while(Result::ok) {
            instructions.insert(instruction.address, instruction);
            if instruction.flow != Flow::Next {
                break;
            }
        }
    }
    let place = names.place(descriptor.start);
    let is_ours = |line: &&String| !line.contains("/rseq/") && !line.contains("/rustc/");
    let parts =
        place.source.iter().find(is_ours).map(|line| line.rsplit('/').take(2).collect::<Vec<_>>());
    let name = parts.map_or_else(
        || format!("{:#x}", descriptor.start),
        |parts| parts.into_iter().rev().collect::<Vec<_>>().join("/"),
    );
    let prepared = steps
        .iter()
        .map(|step| step.address())
        .filter(|&address| image.is_prepared(address))
        .collect();
    let (start, end, abort) = (descriptor.start, descriptor.end(), descriptor.abort);
    Some(Code { name, start, end, abort, instructions, prepared })
}
