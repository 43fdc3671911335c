//! The containers of a storm, and the invariants that they must keep.
//!
//! Invariants:
//! - `grown` counters are only added to, by positive numbers, and never taken. So a second read by one thread returns
//!   no smaller value.
//! - For each `flow` counter, all that was taken and the rest equal all that was added.
//! - A maximum that a thread reads is at least what the thread has recorded or read before.
//! - A token that was put into a bin comes out once (`bins.rs`).
//! - The two numbers protected by a lock are equal whenever the lock is free.

use std::array;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU64, Ordering};

use corelocal::cid::{Cid, CpuId};
use corelocal::percpu::{Counter, CounterVec, Histogram, Lock, Max, Word};
use libc::c_int;

use super::bins::{AtomicFlow, BINS, Bin, Flow, bins, token};

/// The number of objects of each kind. Few, so that threads contend.
pub const EACH: usize = 4;

/// The signal whose handler operates.
pub const SIGNAL: c_int = libc::SIGUSR2;

/// The number that the handler adds and records.
const HANDLED: i64 = 3;

/// The number of values that are recorded in a histogram, and of counters in a vector.
pub const VALUES: usize = 8;

/// The containers.
pub struct Objects {
    pub grown: [Counter<Cid>; EACH],
    pub grown_by_cpu: [Counter<CpuId>; EACH],
    pub flow: [Counter<Cid>; EACH],
    pub flow_by_cpu: [Counter<CpuId>; EACH],
    pub largest: [Max<Cid>; EACH],
    pub largest_by_cpu: [Max<CpuId>; EACH],
    pub samples: Histogram,
    pub vec: CounterVec<VALUES>,
    pub sum: Word<CpuId>,
    pub lock: Lock<(i64, i64)>,
    pub bins: [(&'static str, Box<dyn Bin>); BINS],
}

/// Accounts of the operations on each container, modulo 2^64 for those that wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    pub grown: [i64; EACH],
    pub grown_by_cpu: [i64; EACH],
    /// Added minus taken.
    pub flow: [i64; EACH],
    pub flow_by_cpu: [i64; EACH],
    pub largest: [u64; EACH],
    pub largest_by_cpu: [u64; EACH],
    pub samples: [i64; VALUES],
    pub vec: [i64; VALUES],
    pub sum: i64,
    pub locked: i64,
    pub bins: [Flow; BINS],
}

impl Accounts {
    /// Adds another account.
    pub fn add(&mut self, other: &Accounts) {
        let sums = [
            (&mut self.grown, &other.grown),
            (&mut self.grown_by_cpu, &other.grown_by_cpu),
            (&mut self.flow, &other.flow),
            (&mut self.flow_by_cpu, &other.flow_by_cpu),
        ];
        for (mine, theirs) in sums {
            *mine = array::from_fn(|i| mine[i].wrapping_add(theirs[i]));
        }
        let maxima = [
            (&mut self.largest, &other.largest),
            (&mut self.largest_by_cpu, &other.largest_by_cpu),
        ];
        for (mine, theirs) in maxima {
            *mine = array::from_fn(|i| mine[i].max(theirs[i]));
        }
        self.samples = array::from_fn(|i| self.samples[i] + other.samples[i]);
        self.vec = array::from_fn(|i| self.vec[i].wrapping_add(other.vec[i]));
        self.sum = self.sum.wrapping_add(other.sum);
        self.locked = self.locked.wrapping_add(other.locked);
        self.bins.iter_mut().zip(&other.bins).for_each(|(mine, theirs)| mine.add(theirs));
    }
}

impl Objects {
    /// Creates containers, which handlers use from now on. Never freed, since a handler may run late.
    pub fn make() -> *mut Objects {
        let objects = Box::into_raw(Box::new(Objects {
            grown: array::from_fn(|_| Counter::new()),
            grown_by_cpu: array::from_fn(|_| Counter::new()),
            flow: array::from_fn(|_| Counter::new()),
            flow_by_cpu: array::from_fn(|_| Counter::new()),
            largest: array::from_fn(|_| Max::new()),
            largest_by_cpu: array::from_fn(|_| Max::new()),
            samples: Histogram::new(),
            vec: CounterVec::new(),
            sum: Word::new(),
            lock: Lock::default(),
            bins: bins(),
        }));
        // Release: partner is the Acquire in `handle`.
        FOR_HANDLER.store(objects, Ordering::Release);
        objects
    }

    /// Reports every disagreement with the accounts of all threads, after they have ended.
    pub fn check(&mut self, accounts: &Accounts, mut violation: impl FnMut(String)) {
        FOR_HANDLER.store(std::ptr::null_mut(), Ordering::Relaxed);
        self.check_bins(accounts, &mut violation);
        let mut same = |what: &str, is: i64, expected: i64| {
            if is != expected {
                violation(format!("{what} is {is} in the end; the accounts say {expected}"));
            }
        };
        let by_handlers = &HANDLERS;
        let handlers_added = |times: &AtomicU64| (times.load(Ordering::Relaxed) as i64) * HANDLED;
        for i in 0..EACH {
            let expected = accounts.grown[i].wrapping_add(handlers_added(&by_handlers.grown[i]));
            same("a counter", self.grown[i].get(), expected);
            let grown = self.grown_by_cpu[i].get();
            same("a counter by cpu number", grown, accounts.grown_by_cpu[i]);

            same("a counter that is taken from", self.flow[i].get(), accounts.flow[i]);
            let expected =
                accounts.flow_by_cpu[i].wrapping_add(handlers_added(&by_handlers.flow[i]));
            let flow = self.flow_by_cpu[i].get();
            same("a counter by cpu number that is taken from", flow, expected);

            let largest = self.largest[i].get().unwrap_or(0);
            same("a maximum", largest as i64, accounts.largest[i] as i64);
            let by_handlers = by_handlers.largest[i].load(Ordering::Relaxed);
            let expected = accounts.largest_by_cpu[i].max(by_handlers);
            let largest = self.largest_by_cpu[i].get().unwrap_or(0);
            same("a maximum by cpu number", largest as i64, expected as i64);
        }
        let counts = self.samples.buckets();
        let mut samples = [0; VALUES];
        counts.for_each(|bucket| samples[bucket.low as usize % VALUES] += bucket.count as i64);
        let sampled = by_handlers.samples.load(Ordering::Relaxed) as i64;
        for (value, seen) in samples.into_iter().enumerate() {
            let handlers = if value as i64 == HANDLED { sampled } else { 0 };
            let expected = accounts.samples[value] + handlers;
            same("a bucket of a histogram", seen, expected);
            let sum = self.vec.get(value).unwrap_or(0);
            same("a counter of a vector", sum, accounts.vec[value]);
        }
        let sum = self.sum.iter().fold(0, |sum: i64, (_, word)| sum.wrapping_add(word as i64));
        same("the sum of words", sum, accounts.sum.wrapping_add(handlers_added(&by_handlers.sum)));
        let locked = self.lock.iter_mut().fold((0, 0), |sum: (i64, i64), part| {
            (sum.0.wrapping_add(part.0), sum.1.wrapping_add(part.1))
        });
        let expected = accounts.locked.wrapping_add(handlers_added(&by_handlers.locked));
        same("the first sum behind locks", locked.0, expected);
        same("the second sum behind locks", locked.1, expected);
        if by_handlers.broken.load(Ordering::Relaxed) {
            violation("a handler got a lock whose holder was at work".to_owned());
        }
    }

    fn check_bins(&mut self, accounts: &Accounts, violation: &mut impl FnMut(String)) {
        let flows = accounts.bins.iter().zip(&HANDLERS.bins);
        for ((name, bin), (flow, by_handlers)) in self.bins.iter_mut().zip(flows) {
            let mut flow = *flow;
            flow.add(&by_handlers.get());
            bin.empty(&mut flow);
            match flow {
                Flow { tokens: 0, image: 0 } => {}
                Flow { tokens: 0, .. } => {
                    violation(format!("of {name}, some items came twice or torn, and others not"));
                }
                Flow { tokens, .. } if tokens > 0 => {
                    violation(format!("{name} lost {tokens} items more than came twice"));
                }
                Flow { tokens, .. } => {
                    violation(format!("{name} gave {} items more than it got", -tokens));
                }
            }
        }
    }

    /// Adds to the value protected by one of the locks. False if its two numbers differ.
    pub fn add_locked((first, second): &mut (i64, i64), n: i64) -> bool {
        let is_whole = first == second;
        *first = first.wrapping_add(n);
        // A concurrent thread finds them different.
        std::hint::black_box(&mut *first);
        *second = second.wrapping_add(n);
        is_whole
    }
}

static FOR_HANDLER: AtomicPtr<Objects> = AtomicPtr::new(std::ptr::null_mut());
static TIMES: AtomicU64 = AtomicU64::new(0);

/// The handlers' accounts.
struct Handlers {
    /// The number of additions to each.
    grown: [AtomicU64; EACH],
    flow: [AtomicU64; EACH],
    samples: AtomicU64,
    sum: AtomicU64,
    locked: AtomicU64,
    /// The largest value that they recorded.
    largest: [AtomicU64; EACH],
    bins: [AtomicFlow; BINS],
    /// Whether a handler found a protected value half changed.
    broken: AtomicBool,
}

static HANDLERS: Handlers = Handlers {
    grown: [const { AtomicU64::new(0) }; EACH],
    flow: [const { AtomicU64::new(0) }; EACH],
    samples: AtomicU64::new(0),
    sum: AtomicU64::new(0),
    locked: AtomicU64::new(0),
    largest: [const { AtomicU64::new(0) }; EACH],
    bins: [const { AtomicFlow::new() }; BINS],
    broken: AtomicBool::new(false),
};

/// The value that the next handler records.
static NEXT: AtomicI64 = AtomicI64::new(1);

/// Returns the number of signals that were handled.
pub fn handled() -> u64 {
    TIMES.load(Ordering::Relaxed)
}

/// Installs the signal handler.
pub fn handle_signals() {
    // SAFETY: all-zero bytes are an action without flags and with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handle as extern "C" fn(c_int) as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: `handle` makes async-signal-safe calls only.
    unsafe { libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut()) };
}

extern "C" fn handle(_: c_int) {
    // Acquire: partner is the Release in `shared`.
    // SAFETY: null, or objects that are never freed.
    let Some(objects) = (unsafe { FOR_HANDLER.load(Ordering::Acquire).as_ref() }) else { return };
    let turn = TIMES.fetch_add(1, Ordering::Relaxed) as usize;
    let (i, bin) = (turn % EACH, turn % BINS);
    let count = |times: &AtomicU64| _ = times.fetch_add(1, Ordering::Relaxed);
    match turn / EACH % 8 {
        0 => {
            objects.grown[i].add(HANDLED);
            count(&HANDLERS.grown[i]);
        }
        1 => {
            objects.flow_by_cpu[i].add(HANDLED);
            count(&HANDLERS.flow[i]);
        }
        2 => {
            let value = NEXT.fetch_add(HANDLED, Ordering::Relaxed) as u64;
            objects.largest_by_cpu[i].record(value);
            HANDLERS.largest[i].fetch_max(value, Ordering::Relaxed);
        }
        3 => {
            objects.samples.record(HANDLED.unsigned_abs());
            count(&HANDLERS.samples);
            objects.sum.add_fetch(HANDLED.unsigned_abs());
            count(&HANDLERS.sum);
        }
        4 => {
            if let Some(mut part) = objects.lock.try_lock() {
                if !Objects::add_locked(&mut part, HANDLED) {
                    HANDLERS.broken.store(true, Ordering::Relaxed);
                }
                count(&HANDLERS.locked);
            }
        }
        _ => {
            let mut flow = Flow::default();
            let (_, bin_of) = &objects.bins[bin];
            match turn / (EACH * BINS) % 3 {
                0 => bin_of.put(token(), &mut flow),
                1 => bin_of.take(&mut flow),
                _ => bin_of.exchange_batches(&mut flow),
            }
            HANDLERS.bins[bin].add(&flow);
        }
    }
}
