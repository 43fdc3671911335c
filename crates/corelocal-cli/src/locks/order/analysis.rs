//! From a record to what is told of it: names, places and cycles.
//!
//! Invariants:
//! - What is shown of a deadlock was the same in two looks, with this time between them; as long as all of its threads
//!   wait, none of them changes what it holds.
//! - Any record ends in a bounded answer: names and stacks are looked for after the cycles that are shown were chosen.
//!   A further signal ends the work, and what is known by then is shown.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use corelocal::sync::profile::order::{Holding, LockOrder, LockPair, LockThread};
use corelocal::sync::profile::{Profile, Stack};
use corelocal_support::output::{one_line, path_line};
use corelocal_support::process::signals;
use corelocal_support::units::nanos;
use corelocal_symbols::callers::{Files, Program};
use serde::Serialize;

use super::super::call_stacks::{self, Call};
use super::cycles::{self, Edge, Found};

/// Threads in the deadlocks that are shown, in all. A thread waits for one mutex, and a mutex has one holder, so that
/// deadlocks have no thread in common: only a record that is made up has more.
pub const MOST_STUCK: usize = 256;
/// The maximum number of steps of all potential deadlocks that are shown.
pub const MOST_STEPS: usize = 2048;

/// A process.
#[derive(Debug, Default, Serialize)]
pub struct Process {
    /// The process id in the process's own namespace.
    pub process: u32,
    /// The file it runs.
    pub program: String,
    /// The number of mutexes in the pairs.
    pub locks: usize,
    /// The number of distinct pairs of which one mutex was held while the other one was locked.
    pub pairs: usize,
    /// The deadlocks: threads that wait for each other.
    pub deadlocks: Vec<Deadlock>,
    /// The potential deadlocks: inconsistent orders.
    pub potential: Vec<Potential>,
    /// The number of potential deadlocks that are left out.
    pub left_out: usize,
    /// The number of deadlocks that are left out.
    pub deadlocks_left_out: usize,
    /// Whether the search ended early: there were too many orders, or a signal came.
    pub has_ended_early: bool,
    /// Whether there is a deadlock, or a potential one that no common mutex prevents.
    #[serde(skip)]
    pub has_deadlocks: bool,
    pub missed: Missed,
}

/// Counts of what had no room in the record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Missed {
    pub threads: u64,
    pub depth: u64,
    pub pairs: u64,
}

/// A mutex.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lock {
    /// The name of the static it is in, or its address.
    pub lock: String,
    pub address: String,
}

/// Threads of which each waits for a mutex that the next one holds, and the last one for one that the first one holds.
#[derive(Debug, Serialize)]
pub struct Deadlock {
    pub threads: Vec<Stuck>,
}

/// A thread in a deadlock.
#[derive(Debug, Serialize)]
pub struct Stuck {
    pub thread: u32,
    pub name: String,
    pub waits_for: Lock,
    pub waits_ns: u64,
    /// The frames, innermost first.
    pub waits_at: Vec<Call>,
    /// The mutex that it holds, for which the thread before it waits.
    pub holds: Lock,
    pub held_at: Vec<Call>,
}

/// A potential deadlock: mutexes that were locked in a circle.
#[derive(Debug, Serialize)]
pub struct Potential {
    pub steps: Vec<Step>,
    /// The mutexes that were held each time, which prevent the deadlock.
    pub guarded_by: Vec<Lock>,
    /// Whether no other thread was seen in it than one.
    pub is_of_one_thread: bool,
}

/// A step of a circle: one mutex was held while the next one was locked.
#[derive(Debug, Serialize)]
pub struct Step {
    pub held: Lock,
    pub taken: Lock,
    pub times: u64,
    /// The first thread that did so.
    pub thread: u32,
    pub name: String,
    /// The frames, innermost first.
    pub held_at: Vec<Call>,
    pub taken_at: Vec<Call>,
}

/// The settings of an analysis.
#[derive(Clone, Copy)]
pub struct Look {
    /// The time between two looks.
    pub apart: Duration,
    /// The number of potential deadlocks to show.
    pub top: usize,
    /// The number of signals so far: a further one ends the work.
    pub signals: u32,
}

impl Process {
    /// `id` is the process, if it runs; `maps` what /proc said last of its files, if it was asked. `top` potential
    /// deadlocks are kept.
    pub fn of(
        order: &LockOrder,
        id: Option<u32>,
        maps: Option<String>,
        Look { apart, top, signals }: Look,
    ) -> Process {
        let is_to_end = || signals::count() != signals;
        // First, for names take their time.
        let (waiting, stuck) = deadlocks(order, apart, is_to_end);
        let pairs = pairs(order);
        let edge = |pair: &LockPair| Edge {
            from: pair.held,
            to: pair.taken,
            gates: pair.gates.into_iter().filter(|gate| *gate != 0).collect(),
        };
        let edges: Vec<Edge> = pairs.iter().map(edge).collect();
        let mut found = cycles::of(&edges, is_to_end);
        // Those without gates come first.
        let is_free = found.cycles.first().is_some_and(|cycle| cycle.gates.is_empty());
        found.keep(top, MOST_STEPS);
        let mut listed = Box::new([0; Profile::FILES_BYTES]);
        let len = order.read_files(&mut listed);
        let mut lines = String::from_utf8_lossy(&listed[..len]).into_owned();
        // Files that came later, too.
        lines.extend(maps);
        let root = id.map(|id| PathBuf::from(format!("/proc/{id}/root")));
        let files = Files::new(&lines, root.as_deref());
        let mut names =
            Names { program: Program::new(&files), stack: Box::new(Stack::EMPTY), signals };
        let all = waiting.len() + found.cycles.len();
        let deadlocks: Vec<Deadlock> = waiting
            .iter()
            .take_while(|_| !is_to_end())
            .map(|cycle| names.deadlock(order, cycle))
            .collect();
        let potential: Vec<Potential> = found
            .cycles
            .iter()
            .take_while(|_| !is_to_end())
            .map(|cycle| {
                let steps: Vec<&LockPair> = cycle.edges.iter().map(|at| &pairs[*at]).collect();
                Potential {
                    guarded_by: cycle.gates.iter().map(|gate| names.lock(*gate)).collect(),
                    is_of_one_thread: steps
                        .iter()
                        .all(|pair| !pair.has_others && pair.thread == steps[0].thread),
                    steps: steps.into_iter().map(|pair| names.step(order, pair)).collect(),
                }
            })
            .collect();
        let nodes: BTreeSet<u64> = pairs.iter().flat_map(|pair| [pair.held, pair.taken]).collect();
        let missed = order.missed();
        let is_cut = deadlocks.len() + potential.len() < all || is_to_end();
        Process {
            process: order.process(),
            program: files.program().map_or_else(String::new, path_line),
            locks: nodes.len(),
            pairs: pairs.len(),
            has_deadlocks: !waiting.is_empty() || is_free,
            deadlocks_left_out: stuck.left_out + waiting.len() - deadlocks.len(),
            left_out: found.left_out + found.cycles.len() - potential.len(),
            has_ended_early: stuck.has_ended_early || found.has_ended_early || is_cut,
            deadlocks,
            potential,
            missed: Missed { threads: missed.threads, depth: missed.depth, pairs: missed.pairs },
        }
    }

    /// Returns `true` if nothing is known of it.
    pub fn is_empty(&self) -> bool {
        self.pairs == 0 && self.deadlocks.is_empty() && self.missed == Missed::default()
    }
}

/// Returns each two mutexes once, in a fixed order.
fn pairs(order: &LockOrder) -> Vec<LockPair> {
    let mut known: BTreeMap<(u64, u64), LockPair> = BTreeMap::new();
    for pair in order.pairs() {
        let locks = (pair.held, pair.taken);
        match known.get_mut(&locks) {
            // Two threads came at once.
            Some(first) => {
                first.times = first.times.saturating_add(pair.times);
                first.has_others = true;
                let is_known = |gate: &u64| pair.gates.contains(gate);
                first.gates = first.gates.map(|gate| if is_known(&gate) { gate } else { 0 });
            }
            None => drop(known.insert(locks, pair)),
        }
    }
    known.into_values().collect()
}

/// A thread that waits for a mutex, and one that it holds.
#[derive(Clone)]
struct Waiting {
    thread: LockThread,
    wants: Holding,
    holds: Holding,
}

/// Cycles of threads that were there at both looks; and what the search for them left out.
fn deadlocks(
    order: &LockOrder,
    apart: Duration,
    is_to_end: impl Fn() -> bool,
) -> (Vec<Vec<Waiting>>, Found) {
    let first = waiting(order);
    let edge = |it: &Waiting| Edge { from: it.holds.lock, to: it.wants.lock, gates: Vec::new() };
    let mut found = cycles::of(&first.iter().map(edge).collect::<Vec<_>>(), is_to_end);
    found.keep(usize::MAX, MOST_STUCK);
    if found.cycles.is_empty() {
        return (Vec::new(), found);
    }
    thread::sleep(apart);
    let again = waiting(order);
    let is_same = |one: &Waiting, other: &Waiting| {
        one.thread.thread == other.thread.thread
            && one.wants == other.wants
            && one.holds == other.holds
    };
    let is_there = |at: &usize| again.iter().any(|other| is_same(&first[*at], other));
    let there = found.cycles.iter().filter(|cycle| cycle.edges.iter().all(is_there));
    let stuck = there.map(|cycle| cycle.edges.iter().map(|at| first[*at].clone()).collect());
    (stuck.collect(), found)
}

/// Returns each thread that waits, with each mutex that it holds.
fn waiting(order: &LockOrder) -> Vec<Waiting> {
    let mut all = Vec::new();
    for thread in order.threads() {
        let (wanted, held): (Vec<Holding>, Vec<Holding>) =
            order.holdings(&thread).partition(|holding| holding.is_wanted);
        for wants in &wanted {
            for holds in &held {
                let (wants, holds) = (wants.clone(), holds.clone());
                all.push(Waiting { thread: thread.clone(), wants, holds });
            }
        }
    }
    all
}

/// The sources of names.
struct Names<'a> {
    program: Program<'a>,
    stack: Box<Stack>,
    /// The number of signals so far: after a further one no stack is unwound.
    signals: u32,
}

impl Names<'_> {
    fn lock(&self, address: u64) -> Lock {
        let lock = call_stacks::variable(self.program.variable_at(address), address);
        Lock { lock, address: format!("{address:#x}") }
    }

    /// Returns the functions in what `read` reads, and the name of the thread.
    fn frames(&mut self, read: impl FnOnce(&mut Stack) -> bool) -> (Vec<Call>, String) {
        match read(&mut self.stack) {
            true if signals::count() != self.signals => (Vec::new(), String::new()),
            true => {
                let name = one_line(self.stack.name().to_owned());
                (call_stacks::frames(&self.program, &self.stack), name)
            }
            false => (Vec::new(), String::new()),
        }
    }

    fn step(&mut self, order: &LockOrder, pair: &LockPair) -> Step {
        let (held_at, _) = self.frames(|stack| order.read_held(pair, stack));
        let (taken_at, name) = self.frames(|stack| order.read_taken(pair, stack));
        Step {
            held: self.lock(pair.held),
            taken: self.lock(pair.taken),
            times: pair.times,
            thread: pair.thread,
            name,
            held_at,
            taken_at,
        }
    }

    fn deadlock(&mut self, order: &LockOrder, cycle: &[Waiting]) -> Deadlock {
        let stuck = |waiting: &Waiting| {
            let Waiting { thread, wants, holds } = waiting;
            let (waits_at, name) = self.frames(|stack| order.read_holding(thread, wants, stack));
            let (held_at, _) = self.frames(|stack| order.read_holding(thread, holds, stack));
            Stuck {
                thread: thread.thread,
                name,
                waits_for: self.lock(wants.lock),
                waits_ns: nanos(wants.time()),
                waits_at,
                holds: self.lock(holds.lock),
                held_at,
            }
        };
        Deadlock { threads: cycle.iter().map(stuck).collect() }
    }
}
