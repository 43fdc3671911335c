//! The sections of a program as models, and planted faults.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::case::Entry;
use super::memory::{self, CELLS, FLAGS, OFFSETS, POINTER, SLOTS};
use super::{Budget, KERNEL, Kernel, Remote, Sections, setup};
use crate::check::code::Code;

const TWO_THREADS: Budget = Budget { preemptions: 2, migrations: 1, signals: 1 };

/// The events beside a thread that runs a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    /// Another thread runs the section, too.
    Thread,
    /// A thread freezes the slot, and uses it after a fence.
    Freezer,
    /// A thread publishes another object, and poisons the old one after a fence.
    Writer,
    /// A thread closes a gate, and uses the word after a fence.
    Visitor,
}

impl Beside {
    fn name(self) -> &'static str {
        match self {
            Beside::Thread => "two-threads",
            Beside::Freezer => "freezer",
            Beside::Writer => "writer",
            Beside::Visitor => "visitor",
        }
    }

    fn steps(self) -> Vec<Remote> {
        let poisons =
            (0..memory::CELL_WORDS as u64).map(|word| Remote::Store(CELLS + 8 * word, 0xdead));
        match self {
            Beside::Thread => Vec::new(),
            Beside::Freezer => {
                let uses = [Remote::Store(SLOTS, 0), Remote::Store(SLOTS + 24, 0)];
                [Remote::Store(OFFSETS, 0), Remote::Fence].into_iter().chain(uses).collect()
            }
            Beside::Writer => [Remote::Store(POINTER, CELLS + 64), Remote::Fence]
                .into_iter()
                .chain(poisons)
                .collect(),
            Beside::Visitor => {
                vec![Remote::Store(FLAGS, 1), Remote::Fence, Remote::Store(FLAGS + 8, 5)]
            }
        }
    }
}

/// Returns the distinct sections among these, each with how often it occurs. Those of other shapes than this library's
/// are left out: their operands are not known.
fn distinct(codes: &[Code]) -> Vec<(Arc<Code>, usize)> {
    let mut by_shape: BTreeMap<Vec<String>, (Arc<Code>, usize)> = BTreeMap::new();
    for code in codes.iter().filter(|code| setup::is_known(code)) {
        by_shape.entry(code.shape()).or_insert_with(|| (Arc::new(code.clone()), 0)).1 += 1;
    }
    let mut distinct = by_shape.into_values().collect::<Vec<_>>();
    distinct.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
    // Sections of one line, such as those for several lengths, are numbered.
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    for (code, _) in &mut distinct {
        let number = numbers.entry(code.name.clone()).or_insert(0);
        *number += 1;
        if *number > 1 {
            let mut renamed = Code::clone(code);
            renamed.name = format!("{}#{number}", code.name);
            *code = Arc::new(renamed);
        }
    }
    distinct
}

/// Returns the models of a section, for operands with which it ends in different ways.
fn models(code: &Arc<Code>, kernel: Kernel) -> Result<Vec<(Beside, Sections)>, String> {
    let mut models = Vec::new();
    for setup in setup::find(code)? {
        let beside: &[Beside] = match (setup.locates, setup.has_pointer) {
            (true, _) => &[Beside::Thread, Beside::Freezer],
            (false, true) => &[Beside::Writer],
            (false, false) => &[Beside::Visitor],
        };
        models.extend(beside.iter().map(|&beside| {
            let (code, setup, remote) = (code.clone(), setup.clone(), beside.steps());
            let model = Sections {
                code,
                setup,
                remote,
                kernel,
                budget: TWO_THREADS,
                writes_cpu_id_start: false,
            };
            (beside, model)
        }));
    }
    Ok(models)
}

/// Returns the sections of a program as models, and planted faults in one of them or in the kernel.
///
/// Copies of a section are explored once. Each is explored with two threads, two preemptions, a migration and a signal
/// whose handler runs the section, too, and beside a thread that uses membarrier.
///
/// # Errors
/// No operands were found with which a section ends.
pub fn entries(codes: &[Code]) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    let distinct = distinct(codes);
    for (code, copies) in &distinct {
        let models = models(code, KERNEL).map_err(|why| format!("{}: {why}", code.name))?;
        let mut numbers = BTreeMap::new();
        for (beside, model) in models {
            let number = numbers.entry(beside.name()).or_insert(0);
            *number += 1;
            let name = format!("rseq/{}/{}-{number}", code.name, beside.name());
            let about = format!(
                "a section of {} instructions, {copies} times in this program",
                code.inside().count()
            );
            entries.push(Entry::new(name, about, None, model));
        }
    }
    entries.extend(planted(&distinct));
    Ok(entries)
}

const STALE: Option<&str> = Some("no longer so");

fn planted(sections: &[(Arc<Code>, usize)]) -> Vec<Entry> {
    let find = |kernel: Kernel, beside: Beside, change: &dyn Fn(&mut Code) -> bool| {
        // Long enough to be interrupted between a load and a store.
        let long = sections.iter().filter(|(code, _)| code.inside().count() > 7);
        long.map(|(code, _)| Code::clone(code)).find_map(|mut code| {
            let models = change(&mut code).then(|| models(&Arc::new(code), kernel))?.ok()?;
            models.into_iter().find(|(of, _)| *of == beside).map(|(_, model)| model)
        })
    };
    let kernel = |kernel, beside| find(kernel, beside, &|_| true);
    let changed = |change: &dyn Fn(&mut Code) -> bool| find(KERNEL, Beside::Thread, change);
    let undeclared = |code: &mut Code| !std::mem::take(&mut code.prepared).is_empty();
    let one_more = |code: &mut Code| {
        let more = code.inside().next().and_then(|of| of.nothing_at(code.end));
        let Some(more) = more else { return false };
        code.instructions.insert(code.end, more);
        code.end = more.end;
        true
    };
    let v2 = Kernel { is_v2: true, ..KERNEL };
    let faults = [
        (
            "v2",
            "version 2 of the ABI, with a program that keeps to it",
            None,
            kernel(v2, Beside::Thread),
        ),
        (
            "same-core",
            "as arm64 in 6.19: a section is not aborted by a preemption on the same cpu",
            Some("commits"),
            kernel(Kernel { only_when_moved: true, ..KERNEL }, Beside::Thread),
        ),
        (
            "v2-writes-cpu-id-start",
            "a program writes to cpu_id_start, as one malloc did, under version 2",
            Some("read-only"),
            kernel(v2, Beside::Thread).map(|model| Sections { writes_cpu_id_start: true, ..model }),
        ),
        ("commit-not-last", "the commit is not the last instruction", STALE, changed(&one_more)),
        (
            "undeclared-store",
            "a section stores what others see before its commit",
            Some("others see"),
            changed(&undeclared),
        ),
        (
            "no-fence",
            "membarrier aborts no section, and a slot is used that was frozen",
            STALE,
            kernel(Kernel { no_fence: true, ..KERNEL }, Beside::Freezer),
        ),
        (
            "no-fence-for-readers",
            "membarrier aborts no reader, and its object is poisoned",
            STALE,
            kernel(Kernel { no_fence: true, ..KERNEL }, Beside::Writer),
        ),
        (
            "no-signals",
            "a section is not aborted before the handler of a signal",
            STALE,
            kernel(Kernel { not_for_signals: true, ..KERNEL }, Beside::Thread),
        ),
        (
            "stale-ids",
            "ids are not written after a migration",
            STALE,
            kernel(Kernel { stale_ids: true, ..KERNEL }, Beside::Thread),
        ),
    ];
    let of_model = |(name, about, fault, model): (&str, &'static str, _, Option<Sections>)| {
        Some(Entry::new(format!("rseq/{name}"), about, fault, model?))
    };
    faults.into_iter().filter_map(of_model).collect()
}
