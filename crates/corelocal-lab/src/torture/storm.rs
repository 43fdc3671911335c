//! Random disturbances at full speed, without ptrace. They cover what triples cannot: while a thread is stopped, no
//! other thread runs concurrently with its section.
//!
//! Workers perform random operations on all containers, start and end, fork, and are sometimes without a
//! registration. A tormentor sends them signals, whose handler operates too, changes their affinity, and takes slots
//! away from their ids. All threads keep accounts. At the end the accounts must agree with the containers; some
//! invariants are checked all the time.
//!
//! ```text
//!   objects.rs     the containers, the accounts, the handlers' operations
//!   bins.rs        containers that items go into and come out of
//!   heap.rs        the malloc, as one of these
//!   lives.rs       short-lived containers
//!   worker.rs      a thread and its life
//!   torment.rs     the disturbances
//!   visits.rs      an owner and a visitor of one lock, at the same moment
//! ```
//!
//! Invariants:
//! - An account is written by one thread only, and handed over when the thread ends. Those of handlers are atomics.
//! - A handler only operates and keeps accounts, since it may interrupt anything.

mod bins;
mod heap;
mod lives;
mod objects;
mod torment;
mod visits;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::allowed_cpus;
use objects::{Accounts, Objects};
pub use visits::{Biased, Pair, visits};
use worker::Worker;

/// The time between two checks of the workers.
const PAUSE: Duration = Duration::from_millis(1);
/// The time between two calls of `progress`.
const NEWS: Duration = Duration::from_millis(200);
/// The duration of one run of visits, and of the pause until the next one.
const VISITS: Duration = Duration::from_millis(5);
const REST: Duration = Duration::from_millis(45);
/// Further violations are not recorded.
const MOST_VIOLATIONS: usize = 20;

/// The totals of a storm so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// The operations, by kind.
    pub operations: Operations,
    /// Sections that the kernel aborted.
    pub aborts: u64,
    /// Operations that used atomics in the end.
    pub fallbacks: u64,
    /// Signals that were handled.
    pub signals: u64,
    /// Changes of a thread's affinity.
    pub moves: u64,
    /// Slots that were frozen for a while.
    pub freezes: u64,
    /// The number of times that all slots were taken back at once, or spare memory was given back.
    pub compactions: u64,
    /// Threads that were started.
    pub threads: u64,
    /// Threads without a registration among them.
    pub unregistered: u64,
    /// The number of forked children.
    pub forks: u64,
    /// Violations of invariants, as sentences; only the first ones.
    pub violations: Vec<String>,
}

/// The number of operations, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operations {
    /// `Counter::add` and `sub`.
    pub adds: u64,
    /// `Counter::get`.
    pub gets: u64,
    /// `Counter::take`.
    pub takes: u64,
    /// `Max::record`.
    pub records: u64,
    /// `Max::get`.
    pub maxima: u64,
    /// Containers made, used and dropped.
    pub lives: u64,
    /// `Histogram::record`, `CounterVec::add`, `Word::add_fetch`.
    pub samples: u64,
    /// Items put into or taken out of stacks, pools, rings, queues, words and objects of the malloc.
    pub items: u64,
    /// Complete drains of one of these.
    pub drains: u64,
    /// `Lock::lock` and its variants.
    pub locks: u64,
}

impl Operations {
    /// Returns the sum.
    pub fn total(&self) -> u64 {
        let Operations { adds, gets, takes, records, maxima, lives, samples, items, drains, locks } =
            self;
        adds + gets + takes + records + maxima + lives + samples + items + drains + locks
    }

    fn add(&mut self, more: &Operations) {
        self.adds += more.adds;
        self.gets += more.gets;
        self.takes += more.takes;
        self.records += more.records;
        self.maxima += more.maxima;
        self.lives += more.lives;
        self.samples += more.samples;
        self.items += more.items;
        self.drains += more.drains;
        self.locks += more.locks;
    }
}

impl Totals {
    fn violation(&mut self, sentence: String) {
        if self.violations.len() < MOST_VIOLATIONS {
            self.violations.push(sentence);
        }
    }
}

/// Runs a storm in this process for a while. `progress` is called now and then, and at the end.
///
/// It changes the action of a signal, and a broken section may crash it. So run it in a process of its own.
pub fn rage(time: Duration, seed: u64, progress: &mut dyn FnMut(&Totals)) -> Totals {
    let all = Objects::make();
    // SAFETY: never freed, and shared until `check`.
    let objects = unsafe { &*all };
    objects::handle_signals();
    let cpus = allowed_cpus();
    let seats = (cpus.len() * 4).clamp(4, 64);
    let shared = Arc::new(Shared {
        done: AtomicBool::new(false),
        forks: AtomicU64::new(0),
        moves: AtomicU64::new(0),
        freezes: AtomicU64::new(0),
        compactions: AtomicU64::new(0),
        threads: (0..seats).map(|_| AtomicI32::new(0)).collect(),
    });
    let tormentor = {
        let (shared, cpus) = (shared.clone(), cpus.clone());
        thread::spawn(move || torment::torment(&shared, &cpus, Random::new(seed)))
    };
    let visits = {
        let shared = shared.clone();
        thread::spawn(move || fight(&shared))
    };

    let mut totals = Totals::default();
    let mut accounts = Accounts::default();
    let mut workers: Vec<Option<thread::JoinHandle<Worker>>> = (0..seats).map(|_| None).collect();
    let (end, mut next_news) = (Instant::now() + time, Instant::now() + NEWS);
    let mut number = 0;
    loop {
        let is_over = Instant::now() >= end;
        if is_over {
            shared.done.store(true, Ordering::Relaxed);
        }
        for (seat, worker) in workers.iter_mut().enumerate() {
            if worker.as_ref().is_some_and(thread::JoinHandle::is_finished) || is_over {
                match worker.take().map(thread::JoinHandle::join) {
                    Some(Ok(worker)) => worker.settle(&mut totals, &mut accounts),
                    Some(Err(_)) => totals.violation("a thread panicked".to_owned()),
                    None => {}
                }
            }
            if worker.is_none() && !is_over {
                number += 1;
                let random = Random::new(seed.wrapping_add(number));
                let shared = shared.clone();
                *worker = Some(thread::spawn(move || worker::work(seat, objects, &shared, random)));
            }
        }
        let stats = corelocal::rseq::stats();
        (totals.aborts, totals.fallbacks) = (stats.aborts, stats.fallbacks);
        totals.signals = objects::handled();
        totals.moves = shared.moves.load(Ordering::Relaxed);
        totals.forks = shared.forks.load(Ordering::Relaxed);
        totals.freezes = shared.freezes.load(Ordering::Relaxed);
        totals.compactions = shared.compactions.load(Ordering::Relaxed);
        if is_over {
            break;
        }
        if Instant::now() >= next_news {
            next_news += NEWS;
            progress(&totals);
        }
        thread::sleep(PAUSE);
    }
    let _ = tormentor.join();
    match visits.join() {
        Ok(Ok(locks)) => totals.operations.locks += locks,
        Ok(Err(sentence)) => totals.violation(sentence),
        Err(_) => totals.violation("a thread panicked".to_owned()),
    }
    // SAFETY: all threads have ended, and so have the handlers that ran in them.
    unsafe { &mut *all }.check(&accounts, |sentence| totals.violation(sentence));
    progress(&totals);
    totals
}

/// Runs visits until the storm is over. Returns how often a lock was acquired, or the violation.
fn fight(shared: &Shared) -> Result<u64, String> {
    let mut locks = 0;
    while !shared.done.load(Ordering::Relaxed) {
        locks += visits(&mut corelocal::percpu::Lock::<Pair>::default(), VISITS)?;
        thread::sleep(REST);
    }
    Ok(locks)
}

/// State that the threads of a storm share.
struct Shared {
    /// Set when the time is up. All threads then end soon, also on a machine with more threads than it can run.
    done: AtomicBool,
    forks: AtomicU64,
    moves: AtomicU64,
    freezes: AtomicU64,
    compactions: AtomicU64,
    /// The thread id in each seat. 0 for an empty seat.
    threads: Vec<AtomicI32>,
}

/// xorshift64 (Marsaglia 2003).
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        // Never 0, from which it would not get away; neighbouring seeds far apart.
        Random(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

#[cfg(test)]
mod tests {
    use super::bins::{Bin as _, Flow, token};
    use super::*;
    use std::sync::Mutex;

    /// Held by a test that compares the malloc's use of memory: one at a time.
    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn a_short_storm_finds_nothing() {
        let _alone = ALONE.lock();
        let mut calls = 0;
        let totals = rage(Duration::from_millis(300), 1, &mut |_| calls += 1);
        assert_eq!(totals.violations, Vec::<String>::new());
        assert!(totals.operations.total() > 0 && totals.threads > 0 && calls > 0, "{totals:?}");
    }

    #[test]
    fn an_object_that_the_malloc_loses_is_noticed() {
        let _alone = ALONE.lock();
        let (mut heap, mut flow) = (heap::Heap::new(), Flow::default());
        (0..1000).for_each(|_| heap.put(token(), &mut flow));
        heap.drain(&mut flow);
        assert_eq!(flow, Flow::default());
        let lost = corelocal::alloc::allocate(100);
        heap.empty(&mut flow);
        assert_eq!(flow.tokens, 1);
        // SAFETY: allocated above.
        unsafe { corelocal::alloc::deallocate(lost) };
    }
}
