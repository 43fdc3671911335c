//! `corelocal lab run FILE.toml`: a scenario that a user describes, explored.
//!
//! A file has a title, one of the tables `[futex]`, `[cid]` and `[pvclock]`, and what is expected: "holds", or a part of
//! the failure's message. Errors show the line.

use std::ops::Range;
use std::path::Path;

use corelocal_lab::sim::case::{Case, Entry};
use corelocal_lab::sim::cid::{Cids, CpuIds, Policy, Slots, V6_3, V6_4, V7_0};
use corelocal_lab::sim::futex::{ANY, Age, Futexes, Kernel, Mapping, Op, Scope, WORDS};
use corelocal_lab::sim::pvclock::{
    COUNTER_FIRST, PER_CPU, PER_CPU_ID_IN_VERSION, PER_CPU_ONE_GETCPU, Pvclock, STABLE_AFTER,
    STABLE_BEFORE, STABLE_INSIDE, WRITES, WRITES_2015,
};
use corelocal_symbols::input;
use serde::Deserialize;
use toml::Spanned;

use corelocal_support::output;

/// The shipped scenarios, by name.
pub const SHIPPED: [(&str, &str); 10] = [
    ("condvar", include_str!("../../scenarios/condvar.toml")),
    ("mixed-flags", include_str!("../../scenarios/mixed-flags.toml")),
    ("old-kernel", include_str!("../../scenarios/old-kernel.toml")),
    ("two-processes", include_str!("../../scenarios/two-processes.toml")),
    ("lost-wake", include_str!("../../scenarios/lost-wake.toml")),
    ("container", include_str!("../../scenarios/container.toml")),
    ("fork-storm", include_str!("../../scenarios/fork-storm.toml")),
    ("compact-slots", include_str!("../../scenarios/compact-slots.toml")),
    ("live-migration", include_str!("../../scenarios/live-migration.toml")),
    ("old-host", include_str!("../../scenarios/old-host.toml")),
];

const THREADS: usize = 4;
const TASKS: usize = 5;
const CPUS: usize = 4;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    title: String,
    expect: Option<String>,
    futex: Option<FutexScenario>,
    cid: Option<CidScenario>,
    pvclock: Option<PvclockScenario>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FutexScenario {
    kernel: Spanned<String>,
    /// The words of a file, which all processes share.
    #[serde(default)]
    file_words: Vec<Spanned<u8>>,
    #[serde(default)]
    timeouts: bool,
    #[serde(default)]
    faults: Vec<Spanned<String>>,
    thread: Vec<FutexThread>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FutexThread {
    #[serde(default)]
    process: Option<Spanned<u8>>,
    program: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CidScenario {
    policy: Spanned<String>,
    /// The map of each task that exists at the beginning.
    tasks: Spanned<Vec<u8>>,
    /// The number of tasks that map 0 forks.
    #[serde(default)]
    forks: Option<Spanned<usize>>,
    #[serde(default)]
    exits: bool,
    /// The cpus that tasks may run on, of the four that are possible.
    cpus: Spanned<u8>,
    /// The cpus that tasks are confined to later.
    confined: Option<Spanned<u8>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PvclockScenario {
    host: Spanned<String>,
    reader: Spanned<String>,
    #[serde(default)]
    wait_for_all: bool,
    #[serde(default)]
    adjusts: bool,
    #[serde(default)]
    may_die: bool,
    updates: Spanned<u8>,
}

/// An error in a part of the file.
type Wrong = (Range<usize>, String);

/// Returns the scenario of a file, or a shipped one of this name.
///
/// # Errors
/// A sentence with the file's name and the line.
pub fn load(path: &Path) -> Result<Entry, String> {
    let name = output::path_line(path);
    let shipped = SHIPPED.iter().find(|(known, _)| path.as_os_str() == *known);
    let text = match shipped {
        Some((_, text)) => (*text).to_owned(),
        None => input::read_text(path).map_err(|error| {
            let near = |known: &&str| (strsim::jaro_winkler(&name, known) * 1e6) as u64;
            let nearest = SHIPPED.map(|(known, _)| known).into_iter().max_by_key(near);
            format!(
                "cannot read {name}: {error}; name a file, or a shipped scenario: the nearest name is {}, and `corelocal lab \
                 run --list` shows all",
                nearest.unwrap_or_default()
            )
        })?,
    };
    let scenario: Scenario = toml::from_str(&text).map_err(|error| format!("{name}: {error}"))?;
    let case = case(&scenario).map_err(|(span, what)| {
        let line = text[..span.start.min(text.len())].matches('\n').count() + 1;
        let source = text.lines().nth(line - 1).unwrap_or_default();
        format!("{name}: line {line}: {what}\n  {source}")
    })?;
    let expected = scenario.expect.filter(|expected| expected != "holds");
    // A command runs one scenario.
    let fault = expected.map(|expected| &*expected.leak());
    Ok(Entry { name: name.into(), about: scenario.title.into(), fault, case })
}

fn case(scenario: &Scenario) -> Result<Box<dyn Case>, Wrong> {
    match (&scenario.futex, &scenario.cid, &scenario.pvclock) {
        (Some(futex), None, None) => Ok(Box::new(of_futex(futex)?)),
        (None, Some(cid), None) => of_cid(cid),
        (None, None, Some(pvclock)) => Ok(Box::new(of_pvclock(pvclock)?)),
        _ => Err((0..0, "a scenario has one of the tables [futex], [cid] and [pvclock]".into())),
    }
}

fn wrong<T, R>(part: &Spanned<T>, what: impl Into<String>) -> Result<R, Wrong> {
    Err((part.span(), what.into()))
}

fn of_futex(of: &FutexScenario) -> Result<Futexes<THREADS>, Wrong> {
    let age = match of.kernel.get_ref().as_str() {
        "before 2007" => Age::Before2007,
        "since 2007" => Age::Private,
        "6.17" => Age::PerProcess,
        _ => return wrong(&of.kernel, "kernel is \"before 2007\", \"since 2007\" or \"6.17\""),
    };
    let mut kernel = Kernel::of(age);
    for fault in &of.faults {
        let flag = match fault.get_ref().as_str() {
            "no barrier" => &mut kernel.no_barrier,
            "tests early" => &mut kernel.tests_early,
            "counts late" => &mut kernel.counts_late,
            "locks twice" => &mut kernel.locks_twice,
            "keeps key" => &mut kernel.keeps_key,
            "forgets old table" => &mut kernel.forgets_old_table,
            _ => {
                let known = "no barrier, tests early, counts late, locks twice, keeps key, forgets old table";
                return wrong(fault, format!("a fault is one of: {known}"));
            }
        };
        *flag = true;
    }
    let mut mappings = [Mapping::Anonymous; WORDS];
    for word in &of.file_words {
        match mappings.get_mut(usize::from(*word.get_ref())) {
            Some(mapping) => *mapping = Mapping::File,
            None => return wrong(word, format!("words are 0 to {}", WORDS - 1)),
        }
    }
    let mut processes = [0; THREADS];
    let mut programs = [const { Vec::new() }; THREADS];
    for (number, thread) in of.thread.iter().enumerate() {
        let too_many = || {
            (
                thread.program.first().map_or(0..0, Spanned::span),
                format!("at most {THREADS} threads"),
            )
        };
        let (process, program) =
            processes.get_mut(number).zip(programs.get_mut(number)).ok_or_else(too_many)?;
        if let Some(of) = &thread.process {
            match of.get_ref() {
                number @ 0..2 => *process = *number,
                _ => return wrong(of, "processes are 0 and 1"),
            }
        }
        if thread.program.is_empty() {
            return Err((of.kernel.span(), format!("thread {number} has an empty program")));
        }
        for line in &thread.program {
            program.push(op(line.get_ref()).ok_or_else(|| (line.span(), OPERATIONS.to_owned()))?);
        }
    }
    Ok(Futexes {
        kernel,
        processes,
        programs,
        mappings,
        store_buffers: true,
        timeouts: of.timeouts,
    })
}

const OPERATIONS: &str = "an operation is one of: store WORD VALUE, exchange WORD VALUE, wait WORD VALUE SCOPE, \
    wait-while WORD VALUE SCOPE, wake WORD COUNT SCOPE, requeue WORD WAKE MOVE TARGET SCOPE, die WORD, map, resize; \
    SCOPE is private, shared, global or global-once";

fn op(line: &str) -> Option<Op> {
    let parts = line.split_whitespace().collect::<Vec<_>>();
    let word =
        |nth: usize| parts.get(nth)?.parse::<u8>().ok().filter(|&word| usize::from(word) < WORDS);
    let number = |nth: usize| parts.get(nth)?.parse::<u8>().ok().filter(|&number| number < 0x40);
    let scope = |nth: usize| match *parts.get(nth)? {
        "private" => Some(Scope::Private),
        "shared" => Some(Scope::Shared),
        "global" => Some(Scope::Global),
        "global-once" => Some(Scope::GlobalOnce),
        _ => None,
    };
    let (op, length) = match *parts.first()? {
        "store" => (Op::Store(word(1)?, number(2)?), 3),
        "exchange" => (Op::Exchange(word(1)?, number(2)?), 3),
        "wait" => (Op::Wait(word(1)?, number(2)?, ANY, scope(3)?), 4),
        "wait-while" => (Op::WaitWhile(word(1)?, number(2)?, scope(3)?), 4),
        "wake" => (Op::Wake(word(1)?, number(2)?, ANY, scope(3)?), 4),
        "requeue" => {
            let (word, wake, requeue, target) = (word(1)?, number(2)?, number(3)?, word(4)?);
            (Op::Requeue { word, wake, requeue, target, expected: None, scope: scope(5)? }, 6)
        }
        "die" => (Op::Die(word(1)?), 2),
        "map" => (Op::Map, 1),
        "resize" => (Op::Resize, 1),
        _ => return None,
    };
    (parts.len() == length).then_some(op)
}

fn of_cid(of: &CidScenario) -> Result<Box<dyn Case>, Wrong> {
    let tasks = of.tasks.get_ref();
    let forks = of.forks.as_ref().map_or(0, |forks| *forks.get_ref());
    if tasks.is_empty() || tasks.len() + forks > TASKS || tasks.iter().any(|&map| map > 1) {
        return wrong(
            &of.tasks,
            format!(
                "tasks are the maps of 1 to {TASKS} tasks, with those that are forked: 0 or 1 each"
            ),
        );
    }
    let in_range = |cpus: &Spanned<u8>| match *cpus.get_ref() {
        number @ 1..=4 => Ok(number),
        _ => wrong(cpus, "a machine has 4 cpus here: 1 to 4 of them"),
    };
    let allowed = in_range(&of.cpus)?;
    let confined = of.confined.as_ref().map(in_range).transpose()?.unwrap_or(allowed);
    // Tasks that never exist are of no map.
    let maps = std::array::from_fn(|task| match task {
        task if task < tasks.len() => tasks[task],
        task if task < tasks.len() + forks => 0,
        _ => u8::MAX,
    });
    let count = tasks.len() as u8;
    let v6_4 = |prefers_recent| V6_4 { prefers_recent, waits: true, fault: None };
    fn cids<P>(
        policy: P,
        maps: [u8; TASKS],
        of: &CidScenario,
        tasks: u8,
        cpus: (u8, u8),
    ) -> Box<dyn Case>
    where
        P: Policy<TASKS, CPUS> + 'static,
    {
        let (allowed, confined) = cpus;
        Box::new(Cids::<P, TASKS, CPUS> {
            policy,
            maps,
            tasks,
            exits: of.exits,
            running: true,
            allowed,
            confined,
            possible: CPUS as u8,
        })
    }
    let cpus = (allowed, confined);
    Ok(match of.policy.get_ref().as_str() {
        "cpu number" => cids(CpuIds, maps, of, count, cpus),
        "6.3" => cids(V6_3 { keeps_twice: false }, maps, of, count, cpus),
        "6.4" => cids(v6_4(false), maps, of, count, cpus),
        "6.14" => cids(v6_4(true), maps, of, count, cpus),
        "6.19" => cids(V7_0 { threshold: None, fault: None }, maps, of, count, cpus),
        "slots" => cids(Slots { freezes: 1, fault: None }, maps, of, count, cpus),
        _ => {
            return wrong(
                &of.policy,
                "policy is \"cpu number\", \"6.3\", \"6.4\", \"6.14\", \"6.19\" or \"slots\"",
            );
        }
    })
}

fn of_pvclock(of: &PvclockScenario) -> Result<Pvclock, Wrong> {
    let writes = match of.host.get_ref().as_str() {
        "2015" => WRITES_2015,
        "today" => WRITES,
        _ => return wrong(&of.host, "host is \"2015\" or \"today\""),
    };
    let reader = match of.reader.get_ref().as_str() {
        "page 0" => STABLE_INSIDE,
        "page 0, stable before" => STABLE_BEFORE,
        "page 0, stable after" => STABLE_AFTER,
        "page 0, counter first" => COUNTER_FIRST,
        "per cpu" => PER_CPU,
        "per cpu, one getcpu" => PER_CPU_ONE_GETCPU,
        "per cpu, id in version" => PER_CPU_ID_IN_VERSION,
        _ => {
            let known = "\"page 0\", \"page 0, stable before\", \"page 0, stable after\", \"page 0, counter first\", \"per cpu\", \
                         \"per cpu, one getcpu\" or \"per cpu, id in version\"";
            return wrong(&of.reader, format!("reader is {known}"));
        }
    };
    match *of.updates.get_ref() {
        updates @ 1..=4 => {
            let PvclockScenario { wait_for_all, adjusts, may_die, .. } = *of;
            Ok(Pvclock { writes, wait_for_all, adjusts, may_die, reader, updates })
        }
        _ => wrong(&of.updates, "updates are 1 to 4"),
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use corelocal_lab::sim::case::Options;

    use super::*;

    /// Each shipped scenario comes out as it says.
    #[test]
    fn shipped_scenarios_come_out_as_expected() {
        for (name, _) in SHIPPED {
            let entry = load(Path::new(name)).unwrap();
            let outcome =
                entry.case.explore(Options::default(), &mut |_| ControlFlow::Continue(())).outcome;
            let message = outcome.failure.map(|failure| failure.message);
            let is_right = match (entry.fault, &message) {
                (None, None) => true,
                (Some(fault), Some(message)) => message.contains(fault),
                _ => false,
            };
            assert!(
                is_right,
                "{name}: {message:?}, expected {:?}; {} states",
                entry.fault, outcome.progress.states
            );
        }
    }
}
