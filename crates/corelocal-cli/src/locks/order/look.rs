//! From a record to what is told of it: names, places and cycles.
//!
//! Invariant: what is shown of a deadlock was the same in two looks, with this time between them; as long as all of its
//! threads wait, none of them changes what it holds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use corelocal::sync::profile::order::{Holding, LockOrder, LockPair, LockThread};
use corelocal::sync::profile::{Profile, Stack};
use corelocal_lab::callers::{Files, Program};
use serde::Serialize;

use super::super::look::nanos;
use super::super::places::{self, Call};
use super::cycles::{self, Edge};
use crate::output::{one_line, path_line};

/// A process.
#[derive(Debug, Default, Serialize)]
pub struct Process {
    /// As it knows itself.
    pub process: u32,
    /// The file it runs.
    pub program: String,
    /// How many mutexes there are in the pairs.
    pub locks: usize,
    /// How often one mutex was held while another one was locked, each two counted once.
    pub pairs: usize,
    /// Threads that wait for each other.
    pub deadlocks: Vec<Deadlock>,
    /// Orders that contradict each other.
    pub potential: Vec<Potential>,
    /// Potential deadlocks that are left out.
    pub left_out: usize,
    pub missed: Missed,
}

/// What there was no room for.
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
    /// Innermost first.
    pub waits_at: Vec<Call>,
    /// What the one before waits for.
    pub holds: Lock,
    pub held_at: Vec<Call>,
}

/// Mutexes that were locked in a circle.
#[derive(Debug, Serialize)]
pub struct Potential {
    pub steps: Vec<Step>,
    /// Mutexes that were held each time: then it is no danger.
    pub guarded_by: Vec<Lock>,
    /// Whether no other thread was seen in it than one.
    pub is_of_one_thread: bool,
}

/// One mutex was held while the next one was locked.
#[derive(Debug, Serialize)]
pub struct Step {
    pub held: Lock,
    pub taken: Lock,
    pub times: u64,
    /// The first thread that did so.
    pub thread: u32,
    pub name: String,
    /// Innermost first.
    pub held_at: Vec<Call>,
    pub taken_at: Vec<Call>,
}

impl Process {
    /// `id` is the process, if it runs; `maps` what /proc said last of its files, if it was asked; `apart` the time
    /// between two looks.
    pub fn of(
        order: &LockOrder,
        id: Option<u32>,
        maps: Option<String>,
        apart: Duration,
    ) -> Process {
        // First, for names take their time.
        let waiting = deadlocks(order, apart);
        let pairs = pairs(order);
        let mut listed = Box::new([0; Profile::FILES_BYTES]);
        let len = order.read_files(&mut listed);
        let mut lines = String::from_utf8_lossy(&listed[..len]).into_owned();
        // Files that came later, too.
        lines.extend(maps);
        let root = id.map(|id| PathBuf::from(format!("/proc/{id}/root")));
        let files = Files::new(&lines, root.as_deref());
        let mut names = Names { program: Program::new(&files), stack: Box::new(Stack::EMPTY) };
        let edge = |pair: &LockPair| Edge {
            from: pair.held,
            to: pair.taken,
            gates: pair.gates.into_iter().filter(|gate| *gate != 0).collect(),
        };
        let edges: Vec<Edge> = pairs.iter().map(edge).collect();
        let potential = cycles::of(&edges).into_iter().map(|cycle| {
            let steps: Vec<&LockPair> = cycle.edges.iter().map(|at| &pairs[*at]).collect();
            Potential {
                guarded_by: cycle.gates.iter().map(|gate| names.lock(*gate)).collect(),
                is_of_one_thread: steps
                    .iter()
                    .all(|pair| !pair.has_others && pair.thread == steps[0].thread),
                steps: steps.into_iter().map(|pair| names.step(order, pair)).collect(),
            }
        });
        let potential: Vec<Potential> = potential.collect();
        let nodes: BTreeSet<u64> = pairs.iter().flat_map(|pair| [pair.held, pair.taken]).collect();
        let missed = order.missed();
        Process {
            process: order.process(),
            program: files.program().map_or_else(String::new, path_line),
            locks: nodes.len(),
            pairs: pairs.len(),
            deadlocks: waiting.into_iter().map(|cycle| names.deadlock(order, &cycle)).collect(),
            potential,
            left_out: 0,
            missed: Missed { threads: missed.threads, depth: missed.depth, pairs: missed.pairs },
        }
    }

    /// Keeps so many potential deadlocks; those that are there stay all.
    pub fn keep(&mut self, most: usize) {
        self.left_out = self.potential.len().saturating_sub(most);
        self.potential.truncate(most);
    }

    /// A deadlock, or a potential one against which no other mutex helps.
    pub fn has_deadlocks(&self) -> bool {
        let is_free = |potential: &Potential| potential.guarded_by.is_empty();
        !self.deadlocks.is_empty() || self.potential.iter().any(is_free)
    }

    /// Nothing is known of it.
    pub fn is_empty(&self) -> bool {
        self.pairs == 0 && self.deadlocks.is_empty() && self.missed == Missed::default()
    }
}

/// Each two mutexes once, in a fixed order.
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
struct Waiting {
    thread: LockThread,
    wants: Holding,
    holds: Holding,
}

/// Cycles of threads that were there at both looks.
fn deadlocks(order: &LockOrder, apart: Duration) -> Vec<Vec<Waiting>> {
    let first = waiting(order);
    if first.is_empty() {
        return Vec::new();
    }
    thread::sleep(apart);
    let again = waiting(order);
    let is_same = |one: &Waiting, other: &Waiting| {
        one.thread.thread == other.thread.thread
            && one.wants == other.wants
            && one.holds == other.holds
    };
    let is_there = |one: &Waiting| again.iter().flatten().any(|other| is_same(one, other));
    first.into_iter().filter(|cycle| cycle.iter().all(is_there)).collect()
}

fn waiting(order: &LockOrder) -> Vec<Vec<Waiting>> {
    let mut edges = Vec::new();
    let mut all = Vec::new();
    for thread in order.threads() {
        let (wanted, held): (Vec<Holding>, Vec<Holding>) =
            order.holdings(&thread).partition(|holding| holding.is_wanted);
        for wants in &wanted {
            for holds in &held {
                edges.push(Edge { from: holds.lock, to: wants.lock, gates: Vec::new() });
                all.push((thread.clone(), wants.clone(), holds.clone()));
            }
        }
    }
    let cycle = |edges: Vec<usize>| {
        let waiting = edges.into_iter().map(|at| {
            let (thread, wants, holds) = all[at].clone();
            Waiting { thread, wants, holds }
        });
        waiting.collect()
    };
    cycles::of(&edges).into_iter().map(|found| cycle(found.edges)).collect()
}

/// What gives names.
struct Names<'a> {
    program: Program<'a>,
    stack: Box<Stack>,
}

impl Names<'_> {
    fn lock(&self, address: u64) -> Lock {
        let lock = places::variable(self.program.variable_at(address), address);
        Lock { lock, address: format!("{address:#x}") }
    }

    /// The functions in what `read` reads, and the name of the thread.
    fn frames(&mut self, read: impl FnOnce(&mut Stack) -> bool) -> (Vec<Call>, String) {
        match read(&mut self.stack) {
            true => {
                let name = one_line(self.stack.name().to_owned());
                (places::frames(&self.program, &self.stack), name)
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
