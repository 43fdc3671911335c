//! Rules about the abort handler: its code and where it leads.
//!
//! The kernel resumes a thread at abort_ip with the registers as they were in the middle of the section, and has
//! cleared rseq_cs. So the handler must not enter the section without announcing it again, nor rely on a register
//! that the section overwrites. Only a store of the section's own descriptor announces it (`arming.rs`). If the section
//! begins before that store, the handler may enter it there, as long as nothing is loaded or stored in between.
//!
//! Invariants:
//! - The walk follows both directions of a branch. It stops at calls, returns and jumps to computed addresses, and
//!   after `LIMIT` instructions. So findings about registers are warnings.
//! - Where two paths meet, only what both have done counts.
//! - A store of an unknown register may be the announcement: its value may come from before the section. That is a warning.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::Breach;
use crate::check::arming::{Announces, Holders};
use crate::check::decode::{self, Step};
use crate::check::load::{Descriptor, Image};
use crate::check::machine::Flow;
use crate::check::report::Rule;

/// The maximum number of instructions visited for one handler.
const LIMIT: usize = 512;

/// The effects of the path since the abort.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Since {
    /// Registers written, whose old values no longer matter.
    written: u64,
    holders: Holders,
    /// Whether the section was announced, as far as is known.
    announced: Announces,
}

impl Since {
    /// Returns what is so on both paths.
    fn and(self, other: Since) -> Since {
        let announced = match (self.announced, other.announced) {
            (Announces::No, _) | (_, Announces::No) => Announces::No,
            (Announces::Yes, Announces::Yes) => Announces::Yes,
            _ => Announces::Perhaps,
        };
        let (written, holders) = (self.written & other.written, self.holders.and(other.holders));
        Since { written, holders, announced }
    }
}

pub fn check(image: &Image<'_>, descriptor: &Descriptor, steps: &[Step]) -> Vec<Breach> {
    // The handler never sees the result of the last instruction.
    let middle = steps.iter().filter(|step| !step.is_last());
    let doubtful = middle.fold(0, |mask, step| mask | step.instruction.written);
    let mut walk = Walk { image, descriptor, doubtful, blamed: 0, found: Vec::new() };
    walk.run();
    walk.found
}

struct Walk<'a> {
    image: &'a Image<'a>,
    descriptor: &'a Descriptor,
    /// Registers with unknown values at the abort.
    doubtful: u64,
    /// Registers that were already reported.
    blamed: u64,
    found: Vec<Breach>,
}

impl Walk<'_> {
    fn run(&mut self) {
        let mut known: HashMap<u64, Since> = HashMap::new();
        let holders = Holders::new(self.descriptor.address);
        let first = Since { written: 0, holders, announced: Announces::No };
        let mut open = vec![(self.descriptor.abort, first)];
        for _ in 0..LIMIT {
            let Some((address, since)) = open.pop() else { return };
            let since = match known.entry(address) {
                Entry::Vacant(new) => *new.insert(since),
                Entry::Occupied(mut old) => {
                    let both = old.get().and(since);
                    if both == *old.get() {
                        continue;
                    }
                    old.insert(both);
                    both
                }
            };
            let Some(Ok(instruction)) = decode::from(self.image, address).next() else { continue };
            if instruction.is_call() {
                continue;
            }
            let mut holders = since.holders;
            let announces = holders.step(&instruction);
            let is_inside = self.descriptor.contains(address);
            if is_inside && since.announced != Announces::Yes && announces != Announces::Yes {
                if since.announced == Announces::Perhaps {
                    self.unknown();
                    continue;
                }
                if instruction.touches_memory || instruction.flow != Flow::Next {
                    self.unarmed();
                    continue;
                }
            }
            self.read(address, instruction.read, since);
            let since = Since {
                written: since.written | instruction.written,
                holders,
                announced: match announces {
                    Announces::No => since.announced,
                    Announces::Perhaps if since.announced == Announces::Yes => Announces::Yes,
                    now => now,
                },
            };
            // After a retry its outcome counts, not the abort's.
            let retried = self.descriptor.contains(address);
            let goes_on = |next: &u64| *next != 0 && (!retried || self.descriptor.contains(*next));
            let next = instruction.successors().into_iter().filter(goes_on);
            open.extend(next.map(|next| (next, since)));
        }
    }

    fn unarmed(&mut self) {
        if !self.found.iter().any(|breach| breach.rule == Rule::RetryUnarmed) {
            let message = "this handler leads back into the section without a store of its descriptor to rseq_cs";
            let at = self.descriptor.abort;
            self.found.push(Breach::new(Rule::RetryUnarmed, at, message));
        }
    }

    fn unknown(&mut self) {
        if !self.found.iter().any(|breach| breach.rule == Rule::RetryUnproved) {
            let message = "this handler leads back into the section behind a store of a register that may hold its \
                 descriptor, or something else";
            let at = self.descriptor.abort;
            self.found.push(Breach::new(Rule::RetryUnproved, at, message));
        }
    }

    /// Reports the registers of this mask whose values are those of an unknown point of the section.
    fn read(&mut self, address: u64, registers: u64, since: Since) {
        let mut blamed = registers & self.doubtful & !since.written & !self.blamed;
        self.blamed |= blamed;
        let Some(processor) = self.image.processor() else { return };
        while blamed != 0 {
            let name = processor.name(blamed.trailing_zeros());
            blamed &= blamed - 1;
            let message = format!(
                "after an abort this reads {name}, which the section overwrites: its value may be \
                 from any point in it"
            );
            self.found.push(Breach::new(Rule::InputOverwritten, address, message));
        }
    }
}
