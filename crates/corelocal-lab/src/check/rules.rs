//! The rules and their order: faults that make a section unreadable come first and end its check.
//!
//! Invariants:
//! - Each function looks for one kind of fault, independently of the others. A fault is reported by one rule.
//! - Instructions are decoded and judged once, however many descriptors name them.

mod descriptor;
mod entries;
mod handler;
mod instructions;
mod stores;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use super::decode::{self, Step};
use super::elf::Kind;
use super::load::{Descriptor, Image};
use super::machine::Instruction;
use super::names::Names;
use super::report::{Finding, Line, Report, Rule, Section};

/// A breach of a rule, with addresses that are still to be named.
pub struct Breach {
    pub rule: Rule,
    pub address: u64,
    pub message: String,
}

impl Breach {
    fn new(rule: Rule, address: u64, message: impl Into<String>) -> Breach {
        Breach { rule, address, message: message.into() }
    }
}

/// The number of instructions shown before and after the place.
const AROUND: usize = 3;

/// The instructions of sections by start and length, if they can be decoded.
type Sections = HashMap<(u64, u64), Option<Vec<Step>>>;

/// Checks all sections of `image`.
pub fn run(object: &str, image: &Image<'_>) -> Report {
    let mut breaches: Vec<(Option<usize>, Breach)> = Vec::new();
    let mut sections = Sections::new();
    for (index, descriptor) in image.descriptors.iter().enumerate() {
        let mut found = descriptor::check(image, descriptor);
        let sane = !found.iter().any(|breach| breach.rule == Rule::Range);
        if sane && image.is_decoded() {
            let steps = match sections.entry((descriptor.start, descriptor.length)) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(match decode::section(image, descriptor) {
                    Ok(steps) => {
                        found.extend(instructions::check(descriptor, &steps));
                        found.extend(stores::check(image, descriptor, &steps));
                        Some(steps)
                    }
                    Err(failure) => {
                        found.push(instructions::undecodable(failure));
                        None
                    }
                }),
            };
            let no_handler = |b: &Breach| matches!(b.rule, Rule::AbortInside | Rule::AbortNotCode);
            if let Some(steps) = steps.as_ref().filter(|_| !found.iter().any(no_handler)) {
                found.extend(handler::check(image, descriptor, steps));
            }
        }
        breaches.extend(found.into_iter().map(|breach| (Some(index), breach)));
    }
    breaches.extend(descriptor::together(image));
    if image.is_decoded() {
        breaches
            .extend(stores::undeserved(image, &sections).into_iter().map(|breach| (None, breach)));
        // A handler that comes back unannounced is reported as that.
        let is_retry = |rule| matches!(rule, Rule::RetryUnarmed | Rule::RetryUnproved);
        let retried: HashSet<usize> = breaches
            .iter()
            .filter_map(|(index, breach)| index.filter(|_| is_retry(breach.rule)))
            .collect();
        let entries = entries::check(image).into_iter();
        breaches.extend(entries.filter(|(index, _)| index.is_none_or(|it| !retried.contains(&it))));
    }
    report(object, image, &sections, breaches)
}

fn report(
    object: &str,
    image: &Image<'_>,
    sections: &Sections,
    breaches: Vec<(Option<usize>, Breach)>,
) -> Report {
    let mut notes = notes(image);
    let steps_of = |descriptor: &Descriptor| {
        sections.get(&(descriptor.start, descriptor.length)).and_then(Option::as_deref)
    };
    let of_sections = image.descriptors.iter().flat_map(|d| [d.address, d.start, d.abort]);
    let of_breaches = breaches.iter().map(|(_, breach)| breach.address);
    let names = Names::of(image.elf, of_sections.chain(of_breaches));
    notes.extend(names.notes.iter().cloned());
    let section = |descriptor: &Descriptor| Section {
        descriptor: names.place(descriptor.address),
        start: names.place(descriptor.start),
        length: descriptor.length,
        abort: names.place(descriptor.abort),
        instructions: steps_of(descriptor).map(<[Step]>::len),
    };
    let mut findings: Vec<Finding> = breaches
        .into_iter()
        .map(|(section, breach)| Finding {
            rule: breach.rule,
            severity: breach.rule.severity(),
            place: names.place(breach.address),
            section,
            message: breach.message,
            remedy: breach.rule.remedy(),
            disassembly: disassembly(
                image,
                &names,
                section.and_then(|i| steps_of(&image.descriptors[i])).unwrap_or_default(),
                breach.address,
            ),
        })
        .collect();
    findings.sort_by(|a, b| {
        (a.severity, a.section, a.place.address).cmp(&(b.severity, b.section, b.place.address))
    });
    Report {
        object: object.to_owned(),
        architecture: image.architecture(),
        decoded: image.is_decoded(),
        sections: image.descriptors.iter().map(section).collect(),
        findings,
        notes,
    }
}

fn notes(image: &Image<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    if !image.elf.has_sections() {
        notes.push(
            "the file has no section table, so sections cannot be found; check it before sstrip"
                .to_owned(),
        );
    }
    if !image.descriptors.is_empty() && !image.is_decoded() {
        notes
            .push(format!("{} is not decoded: only descriptors are checked", image.architecture()));
        if image.signature().is_none() {
            notes.push("the signature of this architecture is not known: not checked".to_owned());
        }
    }
    notes
}

/// Returns the instructions around `address`, of the section or of the code there.
fn disassembly(image: &Image<'_>, names: &Names, steps: &[Step], address: u64) -> Vec<Line> {
    let spot = steps.iter().position(|step| step.address() == address);
    let instructions: Vec<_> = match spot {
        Some(spot) => {
            let shown = spot.saturating_sub(AROUND)..steps.len().min(spot + AROUND + 1);
            steps[shown].iter().map(|step| step.instruction).collect()
        }
        None if image.is_decoded() => {
            decode::from(image, address).map_while(Result::ok).take(AROUND + 1).collect()
        }
        None => Vec::new(),
    };
    let line = |instruction: &Instruction| Line {
        address: names.shown(instruction.address),
        text: instruction.text(|target| names.target(instruction.address, target)),
        spot: instruction.address == address,
    };
    instructions.iter().map(line).collect()
}

/// Returns `true` if `image` may be unmapped while threads run.
fn can_be_unloaded(image: &Image<'_>) -> bool {
    image.kind() == Kind::Shared && !image.elf.nodelete && !image.stays
}
