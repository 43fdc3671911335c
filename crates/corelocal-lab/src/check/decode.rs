//! The instructions of one critical section, and their successors.
//!
//! Invariants:
//! - Decoding is a linear sweep from start to end. Branches into the middle of an instruction, which would make
//!   another reading possible, are reported and not followed.
//! - An instruction that leaves the section other than by its end is an exit. Its target is not judged.

use super::arming::{Announces, Holders};
use super::load::{Descriptor, Image};
use super::machine::Instruction;

/// The successor of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// To the instruction of this index.
    To(usize),
    /// To the instruction after the commit.
    End,
    /// Out of the section.
    Exit,
    /// Into the middle of an instruction at this address.
    Astray(u64),
}

/// An instruction of a section.
pub struct Step {
    pub instruction: Instruction,
    pub next: Vec<Edge>,
    /// Whether it stores the address of the section's own descriptor.
    pub arms: bool,
}

impl Step {
    pub fn address(&self) -> u64 {
        self.instruction.address
    }

    /// Returns `true` if no instruction of the section follows it.
    pub fn is_last(&self) -> bool {
        self.next.iter().all(|edge| !matches!(edge, Edge::To(_)))
    }
}

/// The reason why a section cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// There is no valid instruction at this address.
    Invalid(u64),
    /// The section ends within the instruction at this address.
    Straddles(u64),
}

/// Returns all instructions of the section.
pub fn section(image: &Image<'_>, descriptor: &Descriptor) -> Result<Vec<Step>, Failure> {
    let end = descriptor.end();
    let mut instructions = Vec::new();
    for instruction in from(image, descriptor.start) {
        let instruction = instruction.map_err(Failure::Invalid)?;
        if instruction.end > end {
            return Err(Failure::Straddles(instruction.address));
        }
        instructions.push(instruction);
        if instruction.end == end {
            break;
        }
    }
    let starts: Vec<u64> = instructions.iter().map(|instruction| instruction.address).collect();
    let edge = |target: u64| match starts.binary_search(&target) {
        Ok(index) => Edge::To(index),
        Err(_) if target == end => Edge::End,
        Err(_) if descriptor.contains(target) => Edge::Astray(target),
        Err(_) => Edge::Exit,
    };
    let mut holders = Holders::new(descriptor.address);
    let steps = instructions.iter().map(|instruction| Step {
        arms: holders.step(instruction) == Announces::Yes,
        next: instruction.successors().into_iter().map(edge).collect(),
        instruction: *instruction,
    });
    Ok(steps.collect())
}

/// Returns the instructions from `address` on, to the end of its ELF section or the first bytes that cannot be decoded;
/// the latter are returned as a last item, an error with their address. None on processors that are not decoded.
pub fn from<'a>(
    image: &'a Image<'_>,
    address: u64,
) -> impl Iterator<Item = Result<Instruction, u64>> + 'a {
    let code = image.code_at(address);
    image.processor().into_iter().flat_map(move |processor| processor.decode(code, address))
}
