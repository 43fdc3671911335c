//! The critical sections of the running program: found in its own memory, where the loader has resolved every
//! address, and named from its file.
//!
//! Invariants:
//! - Addresses are those of this process. `bias` is their difference from the file's.
//! - Two sections are *alike* if their instructions have the same names in the same order: inlined copies of one
//!   section differ in registers and offsets only. Padding is ignored.

use iced_x86::{
    Decoder, DecoderOptions, Formatter as _, Instruction, IntelFormatter, Mnemonic, OpKind,
    Register,
};
use object::read::elf::{ElfFile64, FileHeader as _, ProgramHeader as _};
use object::{Endianness, Object as _, ObjectSection as _, ObjectSymbol as _, SectionKind};

use super::Obstacle;
use corelocal_symbols::demangle::demangled;

const DESCRIPTORS: &str = "__rseq_cs";

/// The number of instructions before a section at which a thread is stopped as well: those that load the operands and
/// announce the section.
const APPROACH: usize = 4;

/// `struct rseq_cs` in include/uapi/linux/rseq.h.
#[repr(C, align(32))]
#[derive(Clone, Copy)]
struct Descriptor {
    version: u32,
    flags: u32,
    start: u64,
    length: u64,
    abort: u64,
}

/// A critical section.
#[derive(Clone, Debug)]
pub struct Code {
    /// The address of the section's first instruction.
    pub start: u64,
    /// The instruction after its last.
    pub end: u64,
    /// The address to which the kernel sends a thread that it aborts.
    pub abort: u64,
    /// The name of the function that contains it.
    pub function: String,
    /// The section's instructions, some before it, and the one after it.
    pub steps: Vec<Step>,
    /// The names of its instructions.
    pub alike: String,
    /// The section's last instruction, which should be the committing store, and below it the address.
    commit: Instruction,
    pub commit_at: u64,
}

/// An instruction at which a thread can be stopped.
#[derive(Clone, Debug)]
pub struct Step {
    /// The instruction's number. The first one of the section has 0.
    pub number: i64,
    /// The instruction's address.
    pub address: u64,
    /// The instruction's text in Intel syntax.
    pub text: String,
}

impl Code {
    /// Returns `true` if a thread that is stopped at `address` must be aborted.
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Returns the address to which the last instruction stores, given the registers after it.
    pub fn stored_to(&self, register: impl Fn(Register) -> Option<u64>) -> Option<u64> {
        let operand = (0..self.commit.op_count())
            .find(|&operand| self.commit.op_kind(operand) == OpKind::Memory)?;
        self.commit.virtual_address(operand, 0, |name, _, _| register(name))
    }
}

/// The running program.
pub struct Program {
    /// The program's sections, by address.
    pub sections: Vec<Code>,
    /// The difference between addresses in memory and in the file.
    pub bias: u64,
}

impl Program {
    /// # Errors
    /// The program's file cannot be read, or has no sections.
    pub fn of_this_process() -> Result<Program, Obstacle> {
        let unable = |why: String| {
            Obstacle::Unable(format!(
                "this program's own file cannot be read: {why}; is /proc mounted?"
            ))
        };
        let bytes = std::fs::read("/proc/self/exe").map_err(|error| unable(error.to_string()))?;
        let elf =
            ElfFile64::<Endianness>::parse(&*bytes).map_err(|error| unable(error.to_string()))?;
        let bias = bias(&elf).ok_or_else(|| unable("it has no program headers".to_owned()))?;
        let functions = functions(&elf);
        let mut sections: Vec<Code> = descriptors(&elf, bias)
            .iter()
            .filter_map(|descriptor| code(&elf, bias, &functions, descriptor))
            .collect();
        if sections.is_empty() {
            return Err(Obstacle::Unable(
                "there are no critical sections in this program".to_owned(),
            ));
        }
        sections.sort_by_key(|section| section.start);
        Ok(Program { sections, bias })
    }
}

type Elf<'a> = ElfFile64<'a, Endianness>;

/// Returns the difference between the addresses at which the loader mapped the program and those in the file.
fn bias(elf: &Elf<'_>) -> Option<u64> {
    let (header, endian) = (elf.elf_header(), elf.endian());
    let at = header.e_phoff(endian);
    let segment = elf.elf_program_headers().iter().find(|segment| {
        let offset = segment.p_offset(endian);
        segment.p_type(endian) == object::elf::PT_LOAD
            && (offset..offset.saturating_add(segment.p_filesz(endian))).contains(&at)
    })?;
    let address = segment.p_vaddr(endian).wrapping_add(at - segment.p_offset(endian));
    // SAFETY: reads the vector that the kernel gave to the process; no preconditions.
    let loaded = unsafe { libc::getauxval(libc::AT_PHDR) };
    (loaded != 0).then(|| loaded.wrapping_sub(address))
}

fn descriptors(elf: &Elf<'_>, bias: u64) -> &'static [Descriptor] {
    let Some(section) = elf.section_by_name(DESCRIPTORS) else { return &[] };
    let at = section.address().wrapping_add(bias) as *const Descriptor;
    let count = section.size() as usize / size_of::<Descriptor>();
    if count == 0 || !at.is_aligned() {
        return &[];
    }
    // SAFETY: a section of this very program, mapped by the loader at the file's address plus the bias for as long as
    // the process lives, and not written after relocation.
    unsafe { std::slice::from_raw_parts(at, count) }
}

/// Returns the functions' addresses in the file, sizes and names, by address.
fn functions<'a>(elf: &Elf<'a>) -> Vec<(u64, u64, &'a str)> {
    let symbols = elf.symbols().filter(|symbol| symbol.kind() == object::SymbolKind::Text);
    let mut functions: Vec<_> = symbols
        .filter_map(|symbol| Some((symbol.address(), symbol.size(), symbol.name().ok()?)))
        .collect();
    functions.sort_unstable();
    functions
}

fn code(
    elf: &Elf<'_>,
    bias: u64,
    functions: &[(u64, u64, &str)],
    descriptor: &Descriptor,
) -> Option<Code> {
    let start = descriptor.start.wrapping_sub(bias);
    let after = functions.partition_point(|(address, ..)| *address <= start);
    let function = after.checked_sub(1).and_then(|before| functions.get(before));
    let function = function.filter(|(address, size, _)| start - address < *size);
    let mut found = Code {
        start: descriptor.start,
        end: descriptor.start.checked_add(descriptor.length)?,
        commit_at: descriptor.start,
        abort: descriptor.abort,
        function: function
            .map_or("a function without a name".to_owned(), |(.., name)| demangled(name)),
        steps: Vec::new(),
        alike: String::new(),
        commit: Instruction::default(),
    };
    let mut formatter = IntelFormatter::new();
    let options = formatter.options_mut();
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_uppercase_hex(false);
    options.set_rip_relative_addresses(true);
    options.set_branch_leading_zeros(false);
    options.set_show_branch_size(false);
    options.set_space_after_operand_separator(true);
    let mut step = |number: usize, instruction: &Instruction| {
        let mut text = String::new();
        formatter.format(instruction, &mut text);
        Step { number: number as i64, address: instruction.ip().wrapping_add(bias), text }
    };

    let mut names = Vec::new();
    let end = start.checked_add(descriptor.length)?;
    for (number, instruction) in decode(elf, start).enumerate() {
        if instruction.is_invalid() || instruction.ip() >= end {
            found.steps.push(step(number, &instruction));
            break;
        }
        found.steps.push(step(number, &instruction));
        if instruction.mnemonic() != Mnemonic::Nop {
            names.push(format!("{:?}", instruction.mnemonic()).to_lowercase());
            (found.commit, found.commit_at) = (instruction, instruction.ip().wrapping_add(bias));
        }
    }
    found.alike = names.join(" ");
    if let Some((address, ..)) = function {
        let before: Vec<Instruction> = decode(elf, *address)
            .take_while(|instruction| instruction.ip() < start && !instruction.is_invalid())
            .collect();
        let before = before.iter().rev().take(APPROACH).enumerate();
        let before = before
            .map(|(back, instruction)| Step { number: -1 - back as i64, ..step(0, instruction) });
        let before: Vec<Step> = before.collect();
        found.steps.splice(0..0, before.into_iter().rev());
    }
    Some(found)
}

/// Returns the instructions from this address in the file on.
fn decode<'a>(elf: &Elf<'a>, address: u64) -> impl Iterator<Item = Instruction> + 'a {
    let holder = elf.sections().find(|section| {
        section.kind() == SectionKind::Text
            && address.checked_sub(section.address()).is_some_and(|offset| offset < section.size())
    });
    let bytes = holder.and_then(|section| {
        let content = section.data().ok()?;
        content.get((address - section.address()) as usize..)
    });
    Decoder::with_ip(64, bytes.unwrap_or_default(), address, DecoderOptions::NONE).into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_sections_of_this_test() {
        // The sections exist because this test program has the workloads.
        std::hint::black_box(crate::torture::library());
        let Ok(program) = Program::of_this_process() else {
            eprintln!("skipped: finds_the_sections_of_this_test: this build has no sections");
            return;
        };
        for section in &program.sections {
            assert!(section.steps.len() > 5, "{section:?}");
            assert!(!section.contains(section.abort) && section.contains(section.start));
            assert!(section.contains(section.commit_at) && !section.contains(section.end));
            assert_eq!(section.steps.last().map(|step| step.address), Some(section.end));
        }
        let mut kinds: Vec<&str> = program.sections.iter().map(|code| &*code.alike).collect();
        kinds.sort_unstable();
        kinds.dedup();
        // All sections look their slot up in the same way, and the shortest one adds to it; except those without a slot.
        let without_slot = "cmp jl cmp jne mov";
        let load = "cmp jl mov test jle mov";
        assert!(
            kinds.iter().all(|kind| {
                kind.starts_with("cmp jl mov mov add jae ")
                    || *kind == without_slot
                    || kind.starts_with(load)
            }),
            "{kinds:?}"
        );
        assert!(kinds.contains(&without_slot) && kinds.contains(&load), "{kinds:?}");
        assert!(kinds.len() > 5 && kinds.contains(&"cmp jl mov mov add jae add"), "{kinds:?}");
    }
}
