//! Random disturbances at full speed, without ptrace: what the enumeration of triples cannot show,
//! since a thread that is stopped has no cpu that runs beside it.
//!
//! Workers do random operations on all containers, come and go, fork, and now and then have no
//! registration. A tormentor sends them signals, whose handler operates too, and changes their
//! affinity. Everybody keeps accounts; at the end they must agree with the containers, and some
//! promises are watched all the time.
//!
//! Invariants:
//! - An account is written by one thread alone and given over when the thread ends; the handlers'
//!   are atomics.
//! - A handler does nothing but operate and keep accounts: it may come anywhere.

mod objects;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{allowed_cpus, confine};
use objects::{Accounts, Objects};
use worker::Worker;

/// Between two looks at the workers.
const PAUSE: Duration = Duration::from_millis(1);
/// Between two calls of `progress`.
const NEWS: Duration = Duration::from_millis(200);
/// More violations than these say nothing new.
const MOST_VIOLATIONS: usize = 20;

/// What happened so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Operations of each kind.
    pub operations: Operations,
    /// Sections that the kernel aborted.
    pub aborts: u64,
    /// Operations that used atomics in the end.
    pub fallbacks: u64,
    /// Signals that were handled.
    pub signals: u64,
    /// Changes of a thread's affinity.
    pub moves: u64,
    /// Threads that lived.
    pub threads: u64,
    /// Of these, without a registration.
    pub unregistered: u64,
    /// Forked children.
    pub forks: u64,
    /// What must not happen. Sentences; the first ones only.
    pub violations: Vec<String>,
}

/// How many operations there were.
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
}

impl Operations {
    /// All of them.
    pub fn total(&self) -> u64 {
        let Operations { adds, gets, takes, records, maxima, lives } = self;
        adds + gets + takes + records + maxima + lives
    }

    fn add(&mut self, more: &Operations) {
        self.adds += more.adds;
        self.gets += more.gets;
        self.takes += more.takes;
        self.records += more.records;
        self.maxima += more.maxima;
        self.lives += more.lives;
    }
}

impl Totals {
    fn violation(&mut self, sentence: String) {
        if self.violations.len() < MOST_VIOLATIONS {
            self.violations.push(sentence);
        }
    }
}

/// Lets a storm rage in this process for a while. `progress` is told now and then, and at the end.
///
/// It changes the action of a signal, and a section that is broken may crash it: run it in a process
/// of its own.
pub fn rage(time: Duration, seed: u64, progress: &mut dyn FnMut(&Totals)) -> Totals {
    let objects = Objects::shared();
    objects::handle_signals();
    let cpus = allowed_cpus();
    let seats = (cpus.len() * 4).clamp(4, 64);
    let shared = Arc::new(Shared {
        done: AtomicBool::new(false),
        forks: AtomicU64::new(0),
        moves: AtomicU64::new(0),
        threads: (0..seats).map(|_| AtomicI32::new(0)).collect(),
    });
    let tormentor = {
        let (shared, cpus) = (shared.clone(), cpus.clone());
        thread::spawn(move || torment(&shared, &cpus, Random::new(seed)))
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
    objects.check(&accounts, |sentence| totals.violation(sentence));
    progress(&totals);
    totals
}

/// What the threads of a storm share.
struct Shared {
    /// The time is up: everybody ends soon, on a machine with more threads than it can run, too.
    done: AtomicBool,
    forks: AtomicU64,
    moves: AtomicU64,
    /// The number of the thread in each seat; 0 when it is empty.
    threads: Vec<AtomicI32>,
}

/// Signals and moves random threads until told to stop.
fn torment(shared: &Shared, cpus: &[usize], mut random: Random) {
    // SAFETY: no arguments.
    let process = unsafe { libc::getpid() };
    while !shared.done.load(Ordering::Relaxed) {
        let seat = random.below(shared.threads.len() as u64) as usize;
        let thread = shared.threads[seat].load(Ordering::Relaxed);
        if thread == 0 {
            thread::yield_now();
            continue;
        }
        match random.below(8) {
            0..4 => {
                // SAFETY: no addresses. A thread that has ended is ESRCH; should its number belong
                // to another one of this process by now, that one handles the signal.
                unsafe { libc::syscall(libc::SYS_tgkill, process, thread, objects::SIGNAL) };
            }
            4..7 => {
                let cpu = cpus[random.below(cpus.len() as u64) as usize];
                confine(thread, &[cpu]);
                shared.moves.fetch_add(1, Ordering::Relaxed);
            }
            _ => confine(thread, cpus),
        }
        // Most signals hit a thread at work, not in the handler of the one before.
        thread::sleep(Duration::from_micros(random.below(60)));
    }
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
    use super::*;

    #[test]
    fn a_short_storm_finds_nothing() {
        let mut calls = 0;
        let totals = rage(Duration::from_millis(300), 1, &mut |_| calls += 1);
        assert_eq!(totals.violations, Vec::<String>::new());
        assert!(totals.operations.total() > 0 && totals.threads > 0 && calls > 0, "{totals:?}");
    }
}
