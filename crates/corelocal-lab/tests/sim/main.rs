//! The kernel's halves as models: what the explorer says of each, and whether it says so rightly.

mod oracle;
mod plain_search;
mod plan;

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use corelocal_lab::sim::case::{Case, Entry, Found, Options};
use corelocal_lab::sim::catalogue::catalogue;
use corelocal_lab::sim::explore::{FailureKind, Limits, Scope};
use corelocal_lab::sim::rseq;
use corelocal_lab::{check, torture};

fn with<R>(name: &str, run: impl FnOnce(&dyn Case) -> R) -> R {
    let entries = catalogue();
    let entry = entries
        .iter()
        .find(|entry| entry.name == name)
        .unwrap_or_else(|| panic!("no model {name}"));
    run(&*entry.case)
}

fn explore(name: &str, options: Options) -> Found {
    with(name, |case| case.explore(options, &mut |_| ControlFlow::Continue(())))
}

/// A correct model holds in all states; a planted fault is found, and the schedule leads to it.
fn are_judged_rightly(entries: impl IntoIterator<Item = Entry>) {
    let mut wrong = Vec::new();
    for entry in entries {
        let found = entry.case.explore(Options::default(), &mut |_| ControlFlow::Continue(()));
        let states = found.outcome.progress.states;
        let message = found.outcome.failure.as_ref().map(|failure| failure.message.as_str());
        println!("{:50} {states:>9} states, {}", entry.name, message.unwrap_or("holds"));
        let is_right = match (entry.fault, message) {
            (None, None) => found.outcome.scope == Scope::Complete,
            (Some(fault), Some(message)) => message.contains(fault),
            _ => false,
        };
        if !is_right {
            wrong.push(entry.name);
        }
        if let (Some(failure), Some(schedule)) = (&found.outcome.failure, &found.schedule) {
            assert_eq!(schedule.lines.len(), failure.path.len() + failure.cycle.len());
            assert_eq!(schedule.repeating > 0, failure.kind == FailureKind::Livelock);
        }
    }
    assert!(wrong.is_empty(), "judged wrongly: {wrong:?}");
}

#[test]
fn each_model_is_judged_rightly() {
    are_judged_rightly(catalogue());
}

/// The library's own sections, from the file of this program.
#[test]
fn each_section_is_judged_rightly() {
    let workloads = std::hint::black_box(torture::library()).len();
    println!("{workloads} workloads");
    let program = std::env::current_exe().expect("the file of this program");
    sections_are_judged_rightly("each_section_is_judged_rightly", &program);
}

/// The same of a program for another processor, as `ci/arm64` builds it. The environment names its file.
#[test]
fn each_section_of_another_processor_is_judged_rightly() {
    let test = "each_section_of_another_processor_is_judged_rightly";
    match std::env::var_os("CORELOCAL_SECTIONS_OF") {
        Some(file) => sections_are_judged_rightly(test, std::path::Path::new(&file)),
        None => eprintln!("skipped: {test}: ci/arm64 runs it"),
    }
}

fn sections_are_judged_rightly(test: &str, file: &std::path::Path) {
    let data = std::fs::read(file).expect("the program's file");
    let codes = check::sections("this program", &data).expect("an ELF file");
    if codes.is_empty() {
        return eprintln!("skipped: {test}: models do not run this processor's critical sections");
    }
    let entries = rseq::entries(&codes).expect("operands for each section");
    let mut sections =
        entries.iter().filter_map(|entry| entry.name.rsplit_once('/')).map(|(section, _)| section);
    let sections = sections.by_ref().collect::<BTreeSet<_>>().len();
    println!("{sections} sections");
    assert!(sections > 20, "{sections} sections");
    assert_eq!(entries.iter().filter(|entry| entry.fault.is_some()).count(), 8);
    // It takes more than a minute: each of two threads judges every second one.
    std::thread::scope(|scope| {
        for half in [0, 1] {
            let codes = &codes;
            scope.spawn(move || {
                let entries = rseq::entries(codes).expect("operands for each section");
                are_judged_rightly(entries.into_iter().skip(half).step_by(2));
            });
        }
    });
}

#[test]
fn names_are_unique() {
    let entries = catalogue();
    assert_eq!(
        entries.iter().map(|entry| &*entry.name).collect::<BTreeSet<_>>().len(),
        entries.len()
    );
}

/// Two bugs of the kernel, and the shortest schedules to them.
#[test]
fn known_bugs_are_found_by_short_schedules() {
    for (name, most) in
        [("cid/7.0-livelock", 12), ("cid/7.0-misses-forked", 18), ("pvclock/2015", 24)]
    {
        let failure = explore(name, Options::default()).outcome.failure.expect("a planted fault");
        assert!(failure.path.len() <= most, "{name}: {} steps", failure.path.len());
        assert!(!failure.is_renamed, "{name}");
    }
}

/// Few preemptions are enough for most faults, and leave most states out.
#[test]
fn preemptions_are_bounded() {
    let all = explore("pvclock/page-0", Options::default()).outcome;
    let mut states = 0;
    for preemptions in 0..4 {
        let some = explore(
            "pvclock/page-0",
            Options { preemptions: Some(preemptions), ..Options::default() },
        )
        .outcome;
        assert_eq!((some.failure.is_some(), some.scope), (false, Scope::Complete));
        assert!(some.progress.states > states);
        states = some.progress.states;
    }
    assert!(all.failure.is_none());
    let found =
        |preemptions| explore("pvclock/2015", Options { preemptions, ..Options::default() });
    assert!(found(Some(2)).outcome.failure.is_some());
}

#[test]
fn a_search_can_be_stopped_and_limited() {
    let stopped = with("cid/7.0", |case| {
        case.explore(Options::default(), &mut |progress| {
            if progress.states > 50_000 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
    });
    assert_eq!(stopped.outcome.scope, Scope::Stopped);
    assert!(stopped.outcome.progress.states > 50_000 && stopped.outcome.failure.is_none());
    let limits = Limits { states: 10_000, ..Limits::default() };
    let full = explore("cid/7.0", Options { limits, ..Options::default() });
    assert_eq!(full.outcome.scope, Scope::Full);
}

/// Symmetry leaves states out, and judges as without.
#[test]
fn symmetry_changes_no_judgement() {
    for name in ["cid/6.3", "cid/7.0-flip", "cid/slots-no-number"] {
        let plain = Limits { symmetry: false, ..Limits::default() };
        let plain = explore(name, Options { limits: plain, ..Options::default() }).outcome;
        let sorted = explore(name, Options::default()).outcome;
        assert_eq!(plain.failure, sorted.failure, "{name}");
        assert!(sorted.progress.states < plain.progress.states, "{name}");
    }
}

/// The same seed gives the same steps in every build: the numbers are from an optimised one.
#[test]
fn simulations_repeat() {
    let traces: [(&str, u64); 4] = [
        ("pvclock/per-cpu", 0x730b1f46ce8449b0),
        ("cid/6.4", 0x874fd4f54cf27855),
        ("cid/7.0-flip-back", 0x84acac226359ebfc),
        ("cid/slots", 0x2e589b5eb6602419),
    ];
    for (name, trace) in traces {
        let simulated = with(name, |case| case.simulate(7, 20_000, &|| false));
        assert!(simulated.failure.is_none());
        assert_eq!(format!("{:x}", simulated.trace), format!("{trace:x}"), "{name}");
    }
}

/// A simulation finds a fault, too, and its schedule ends with it.
#[test]
fn a_simulation_finds_a_fault() {
    let simulated = with("cid/6.3-keeps-twice", |case| case.simulate(1, 1_000_000, &|| false));
    let schedule = simulated.failure.expect("a planted fault");
    assert!(schedule.message.expect("what is wrong").contains("two owners"));
    assert!(!schedule.lines.is_empty());
}
