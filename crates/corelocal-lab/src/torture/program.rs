//! The critical sections of the running program: found in its own memory, where the loader has resolved every
//! address, and named from its file.
//!
//! Invariants:
//! - Addresses are those of this process. `bias` is their difference from the file's.
//! - Two sections are *alike* if their instructions have the same names in the same order: inlined copies of one
//!   section differ in registers and offsets only. Padding is ignored.

use object::read::elf::{ElfFile64, FileHeader as _, ProgramHeader as _};
use object::{Endianness, Object as _, ObjectSection as _, ObjectSymbol as _, SectionKind};

use super::Obstacle;
use super::machine::{APPROACH, Instruction, Registers, decode as decoded};
use corelocal_symbols::demangle::demangled;

const DESCRIPTORS: &str = "__rseq_cs";

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
    commit: Option<Instruction>,
    pub commit_at: u64,
}

/// An instruction at which a thread can be stopped.
#[derive(Clone, Debug)]
pub struct Step {
    /// The instruction's number. The first one of the section has 0.
    pub number: i64,
    /// The instruction's address.
    pub address: u64,
    /// The instruction's text.
    pub text: String,
}

impl Code {
    /// Returns `true` if a thread that is stopped at `address` must be aborted.
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Returns the address to which the last instruction stores, given the registers after it.
    pub fn stored_to(&self, registers: &Registers) -> Option<u64> {
        self.commit?.accessed(registers)
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
        commit: None,
    };
    let step = |number: usize, instruction: &Instruction| Step {
        number: number as i64,
        address: instruction.address().wrapping_add(bias),
        text: instruction.text(),
    };

    let mut names = Vec::new();
    let end = start.checked_add(descriptor.length)?;
    for (number, instruction) in decode(elf, start).enumerate() {
        if instruction.is_invalid() || instruction.address() >= end {
            found.steps.push(step(number, &instruction));
            break;
        }
        found.steps.push(step(number, &instruction));
        if !instruction.is_filler() {
            names.push(instruction.name());
            found.commit = Some(instruction);
            found.commit_at = instruction.address().wrapping_add(bias);
        }
    }
    found.alike = names.join(" ");
    if let Some((address, ..)) = function {
        let before: Vec<Instruction> = decode(elf, *address)
            .take_while(|instruction| instruction.address() < start && !instruction.is_invalid())
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
    decoded(bytes.unwrap_or_default(), address)
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
        let [with_slot, shortest, without_slot, load] = crate::torture::machine::SHAPES;
        assert!(
            kinds.iter().all(|kind| {
                kind.starts_with(with_slot) || *kind == without_slot || kind.starts_with(load)
            }),
            "{kinds:?}"
        );
        assert!(kinds.contains(&without_slot), "{kinds:?}");
        assert!(kinds.iter().any(|kind| kind.starts_with(load)), "{kinds:?}");
        assert!(kinds.len() > 5 && kinds.contains(&shortest), "{kinds:?}");
    }
}
