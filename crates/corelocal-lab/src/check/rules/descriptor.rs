//! Rules about descriptors: each on its own, and all of them together. They need no decoding.
//!
//! The kernel's conditions are those of `rseq_get_rseq_cs` in `kernel/rseq.c`.

use std::collections::{HashMap, HashSet};

use super::{Breach, can_be_unloaded};
use crate::check::load::{DESCRIPTOR_LEN, Descriptor, Image};
use crate::check::report::Rule;

/// A critical section has a few dozen instructions. A longer one has a wrong label, and would take too long to check,
/// since the rules are quadratic in the number of instructions.
const MAX_LEN: u64 = 4096;

pub fn check(image: &Image<'_>, descriptor: &Descriptor) -> Vec<Breach> {
    let mut rules: Vec<fn(&Image<'_>, &Descriptor) -> Option<Breach>> = vec![version, flags, range];
    // If the section's range is invalid, its surroundings are unknown, too.
    if range(image, descriptor).is_none() {
        rules.push(abort_inside);
        rules.push(abort_not_code);
        rules.push(signature);
    }
    rules.iter().filter_map(|rule| rule(image, descriptor)).collect()
}

fn version(_: &Image<'_>, descriptor: &Descriptor) -> Option<Breach> {
    (descriptor.version != 0).then(|| {
        let message =
            format!("the version is {}, and the kernel accepts only 0", descriptor.version);
        Breach::new(Rule::Version, descriptor.address, message)
    })
}

fn flags(_: &Image<'_>, descriptor: &Descriptor) -> Option<Breach> {
    (descriptor.flags != 0).then(|| {
        let message =
            format!("the flags are {:#x}, and the kernel accepts only 0", descriptor.flags);
        Breach::new(Rule::Flags, descriptor.address, message)
    })
}

fn range(image: &Image<'_>, descriptor: &Descriptor) -> Option<Breach> {
    let available = image.code_at(descriptor.start).len() as u64;
    let message = if available == 0 {
        format!("the section starts at {:#x}, which is not executable code", descriptor.start)
    } else if descriptor.length == 0 {
        "the section has length 0".to_owned()
    } else if descriptor.length > MAX_LEN {
        format!("the section is {} bytes long, more than any real one", descriptor.length)
    } else if descriptor.length > available {
        format!(
            "the section is {} bytes long, and its code ends after {available}",
            descriptor.length
        )
    } else {
        return None;
    };
    Some(Breach::new(Rule::Range, descriptor.address, message))
}

fn abort_inside(_: &Image<'_>, descriptor: &Descriptor) -> Option<Breach> {
    descriptor.contains(descriptor.abort).then(|| {
        let offset = descriptor.abort - descriptor.start;
        let message = format!("the abort handler lies {offset} bytes into the section");
        Breach::new(Rule::AbortInside, descriptor.abort, message)
    })
}

fn abort_not_code(image: &Image<'_>, descriptor: &Descriptor) -> Option<Breach> {
    image.code_at(descriptor.abort).is_empty().then(|| {
        let message = format!("the abort handler {:#x} is not executable code", descriptor.abort);
        Breach::new(Rule::AbortNotCode, descriptor.address, message)
    })
}

fn signature(image: &Image<'_>, descriptor: &Descriptor) -> Option<Breach> {
    let expected = image.signature()?;
    // Reported by their own rules.
    if image.code_at(descriptor.abort).is_empty() || descriptor.contains(descriptor.abort) {
        return None;
    }
    let message = match image.before(descriptor.abort).map(u32::from_le_bytes) {
        Some(found) if found == expected => return None,
        Some(found) => {
            format!(
                "{found:#010x} before the abort handler instead of the signature {expected:#010x}"
            )
        }
        None => format!("no room before the abort handler for the signature {expected:#010x}"),
    };
    Some(Breach::new(Rule::Signature, descriptor.abort, message))
}

/// Returns the rules about all descriptors together. Each breach comes with the descriptor it is about.
pub fn together(image: &Image<'_>) -> Vec<(Option<usize>, Breach)> {
    let mut found = layout(image);
    found.extend(unlisted(image));
    found.extend(stray_entries(image));
    found.extend(overlaps(image));
    found.extend(nodelete(image));
    found
}

fn layout(image: &Image<'_>) -> Vec<(Option<usize>, Breach)> {
    let breach = |(address, length): &(u64, usize)| {
        let message = format!(
            "{length} bytes are left over at the end of __rseq_cs; a descriptor has {DESCRIPTOR_LEN}"
        );
        (None, Breach::new(Rule::Layout, *address, message))
    };
    image.rest.iter().map(breach).collect()
}

fn unlisted(image: &Image<'_>) -> Vec<(Option<usize>, Breach)> {
    let listed: HashSet<u64> = image.entries.iter().map(|entry| entry.target).collect();
    let missing =
        image.descriptors.iter().enumerate().filter(|(_, d)| !listed.contains(&d.address));
    let message = "the descriptor is not in __rseq_cs_ptr_array";
    missing.map(|(i, d)| (Some(i), Breach::new(Rule::Unlisted, d.address, message))).collect()
}

fn stray_entries(image: &Image<'_>) -> Vec<(Option<usize>, Breach)> {
    let known: HashSet<u64> = image.descriptors.iter().map(|d| d.address).collect();
    let stray = image.entries.iter().filter(|entry| !known.contains(&entry.target));
    stray
        .map(|entry| {
            let message = format!(
                "the entry names {:#x}, which is not a descriptor in __rseq_cs",
                entry.target
            );
            (None, Breach::new(Rule::StrayEntry, entry.address, message))
        })
        .collect()
}

fn overlaps(image: &Image<'_>) -> Vec<(Option<usize>, Breach)> {
    let sane = |d: &Descriptor| range(image, d).is_none();
    let mut order: Vec<(usize, &Descriptor)> =
        image.descriptors.iter().enumerate().filter(|(_, d)| sane(d)).collect();
    order.sort_by_key(|(_, d)| (d.start, d.end()));
    let mut found = Vec::new();
    let mut seen: HashMap<(u64, u64), u64> = HashMap::new();
    let mut reach: Option<&Descriptor> = None;
    for (index, descriptor) in order {
        if let Some(first) = seen.insert((descriptor.start, descriptor.length), descriptor.address)
        {
            let message = format!("the descriptor at {first:#x} describes the same code");
            found.push((Some(index), Breach::new(Rule::Duplicate, descriptor.address, message)));
            continue;
        }
        match reach.filter(|before| before.end() > descriptor.start) {
            Some(before) => {
                let message = format!(
                    "it begins {} bytes into the section that starts at {:#x}",
                    descriptor.start - before.start,
                    before.start
                );
                found.push((Some(index), Breach::new(Rule::Overlap, descriptor.start, message)));
                if descriptor.end() > before.end() {
                    reach = Some(descriptor);
                }
            }
            None => reach = Some(descriptor),
        }
    }
    found
}

fn nodelete(image: &Image<'_>) -> Option<(Option<usize>, Breach)> {
    let first = image.descriptors.first()?;
    can_be_unloaded(image).then(|| {
        let message = "a shared object that dlclose may unmap, while a thread's rseq_cs still points \
                       into it: the kernel kills that thread at its next preemption";
        (None, Breach::new(Rule::Nodelete, first.address, message))
    })
}
