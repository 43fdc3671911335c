//! Rules about the committing store: there is one, it is the last instruction, and what is stored
//! before it can be repeated.
//!
//! Which store commits is not written anywhere. The one that nothing follows is taken for it: a store
//! after which another one can come is a preparation, any other is a commit.

use super::Breach;
use super::instructions::reachable;
use crate::check::decode::{self, Edge, Step, Write};
use crate::check::load::{Descriptor, Image};
use crate::check::report::Rule;

pub fn check(image: &Image<'_>, descriptor: &Descriptor, steps: &[Step]) -> Vec<Breach> {
    let reached = reachable(steps, 0);
    let stores: Vec<usize> =
        (0..steps.len()).filter(|i| reached[*i] && stores_data(&steps[*i])).collect();
    if stores.is_empty() {
        return vec![none(image, descriptor)];
    }
    stores.iter().flat_map(|index| one(steps, &stores, *index)).collect()
}

/// Calls and moves of the stack are reported as such.
fn stores_data(step: &Step) -> bool {
    step.write != Write::No && !step.is_call() && !step.moves_stack
}

fn none(image: &Image<'_>, descriptor: &Descriptor) -> Breach {
    let end = descriptor.end();
    let after = decode::from(image, end).next();
    if after.is_some_and(|instruction| decode::stores(&instruction)) {
        let message = "the section stores nothing and ends right before this store, which an abort \
                       does not prevent";
        return Breach::new(Rule::CommitOutside, end, message);
    }
    Breach::new(Rule::NoCommit, descriptor.start, "the section stores nothing")
}

fn one(steps: &[Step], stores: &[usize], index: usize) -> Vec<Breach> {
    let step = &steps[index];
    let breach = |rule, message: &str| Breach::new(rule, step.address(), message);
    let mut after = vec![false; steps.len()];
    for edge in &step.next {
        if let Edge::To(next) = edge {
            let from_next = reachable(steps, *next);
            after.iter_mut().zip(from_next).for_each(|(after, next)| *after |= next);
        }
    }
    let prepares = stores.iter().any(|other| *other != index && after[*other]);
    match (prepares, step.write) {
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
        (false, _) if step.instruction.is_string_instruction() && step.repeats() => vec![breach(
            Rule::CommitInParts,
            "this commits in steps, and can be aborted between them",
        )],
        (false, _) => Vec::new(),
    }
}
