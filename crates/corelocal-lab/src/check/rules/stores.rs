//! Rules about the committing store: there is exactly one, it is the last instruction, and earlier stores can be
//! repeated.
//!
//! The file does not say which store commits. A store after which another one can come is a preparation, and any
//! other store is a commit.
//!
//! Nor does the code say whether other threads can see a preparation. Its author may declare that they cannot, for
//! each such store separately. In the same way, by its first instruction, a section is declared that stores nothing. A
//! declaration does not excuse faults that are certain.

use std::collections::HashSet;

use super::instructions::reachable;
use super::{Breach, Sections};
use crate::check::decode::{self, Edge, Step};
use crate::check::load::{Descriptor, Entry, Image};
use crate::check::machine::{Instruction, Write};
use crate::check::report::Rule;

pub fn check(image: &Image<'_>, descriptor: &Descriptor, steps: &[Step]) -> Vec<Breach> {
    let stores = stores_in(steps);
    if stores.is_empty() {
        let is_declared = image.is_prepared(descriptor.start);
        return if is_declared { Vec::new() } else { vec![none(image, descriptor)] };
    }
    let found = stores.iter().flat_map(|index| one(steps, &stores, *index));
    let is_declared = |breach: &Breach| {
        breach.rule == Rule::StoreBeforeCommit && image.is_prepared(breach.address)
    };
    found.filter(|breach| !is_declared(breach)).collect()
}

/// Declarations about other instructions than preparations and the first ones of sections that store nothing.
pub fn undeserved(image: &Image<'_>, sections: &Sections) -> Vec<Breach> {
    let prepared: HashSet<u64> =
        sections.values().flatten().flat_map(|steps| prepared(steps)).collect();
    let stray = image.prepared.iter().filter(|entry| !prepared.contains(&entry.target));
    let breach = |entry: &Entry| {
        let message = format!(
            "the entry names {:#x}, which is neither a store before the commit of a section nor the first \
             instruction of one that stores nothing",
            entry.target
        );
        Breach::new(Rule::StrayPrepare, entry.address, message)
    };
    stray.map(breach).collect()
}

/// Returns the addresses of the stores before the commit; the first instruction's if there are no stores.
fn prepared(steps: &[Step]) -> Vec<u64> {
    let stores = stores_in(steps);
    if stores.is_empty() {
        return steps.first().map(Step::address).into_iter().collect();
    }
    let prepares = stores.iter().filter(|index| prepares(steps, &stores, **index));
    prepares.map(|index| steps[*index].address()).collect()
}

/// Returns `true` if another store can come after this one.
fn prepares(steps: &[Step], stores: &[usize], index: usize) -> bool {
    let mut after = vec![false; steps.len()];
    for edge in &steps[index].next {
        if let Edge::To(next) = edge {
            let from_next = reachable(steps, *next);
            after.iter_mut().zip(from_next).for_each(|(after, next)| *after |= next);
        }
    }
    stores.iter().any(|other| *other != index && after[*other])
}

/// Returns the instructions that store, by number.
fn stores_in(steps: &[Step]) -> Vec<usize> {
    let reached = reachable(steps, 0);
    (0..steps.len()).filter(|i| reached[*i] && stores_data(&steps[*i])).collect()
}

/// Calls and changes of the stack pointer are reported as such. The announcement of the section may lie in it: then it is
/// one from there on.
fn stores_data(step: &Step) -> bool {
    let instruction = &step.instruction;
    instruction.write != Write::No
        && !instruction.is_call()
        && !instruction.moves_stack
        && !step.arms
}

fn none(image: &Image<'_>, descriptor: &Descriptor) -> Breach {
    let end = descriptor.end();
    let after = decode::from(image, end).next();
    let stores = |instruction: Result<Instruction, _>| {
        instruction.is_ok_and(|instruction| instruction.write != Write::No)
    };
    if after.is_some_and(stores) {
        let message = "the section stores nothing and ends right before this store: an abort does not undo it";
        return Breach::new(Rule::CommitOutside, end, message);
    }
    Breach::new(Rule::NoCommit, descriptor.start, "the section stores nothing")
}

fn one(steps: &[Step], stores: &[usize], index: usize) -> Vec<Breach> {
    let step = &steps[index];
    let breach = |rule, message: &str| Breach::new(rule, step.address(), message);
    match (prepares(steps, stores, index), step.instruction.write) {
        (true, Write::Update) => vec![breach(
            Rule::UpdateBeforeCommit,
            "this changes memory before the commit; aborted after it, the retry changes it again",
        )],
        (true, _) => vec![breach(
            Rule::StoreBeforeCommit,
            "a store before the commit: an abort leaves it behind",
        )],
        (false, _) if !step.is_last() => vec![breach(
            Rule::CommitNotLast,
            "this commits, and the section goes on: aborted after it, the retry commits again",
        )],
        (false, Write::InParts) => vec![breach(
            Rule::CommitInParts,
            "this commits in several steps, and the section can be aborted between them",
        )],
        (false, _) => Vec::new(),
    }
}
