//! What a storm works on, and what must hold of it.
//!
//! Invariants:
//! - `grown` counters are only added to, by positive numbers, and never taken: whoever looks twice
//!   sees no smaller value the second time.
//! - Of each `flow` counter, all that was taken and what is left is all that was added.
//! - A maximum is never below what the one who looks has recorded or seen before.

use std::array;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, Ordering};

use corelocal::cid::{Cid, CpuId};
use corelocal::percpu::{Counter, Max};
use libc::c_int;

/// Objects of each sort. Few, so that threads meet.
pub const EACH: usize = 4;

/// The signal whose handler operates.
pub const SIGNAL: c_int = libc::SIGUSR2;

/// What the handler adds and records.
const HANDLED: i64 = 3;

/// The containers.
pub struct Objects {
    pub grown: [Counter<Cid>; EACH],
    pub grown_by_cpu: [Counter<CpuId>; EACH],
    pub flow: [Counter<Cid>; EACH],
    pub flow_by_cpu: [Counter<CpuId>; EACH],
    pub largest: [Max<Cid>; EACH],
    pub largest_by_cpu: [Max<CpuId>; EACH],
}

/// What was done to each of them, modulo 2^64 for those that wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    pub grown: [i64; EACH],
    pub grown_by_cpu: [i64; EACH],
    /// Added less taken.
    pub flow: [i64; EACH],
    pub flow_by_cpu: [i64; EACH],
    pub largest: [u64; EACH],
    pub largest_by_cpu: [u64; EACH],
}

impl Accounts {
    /// Takes another's over.
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
    }
}

impl Objects {
    /// Those of this process.
    pub fn shared() -> &'static Objects {
        static OBJECTS: OnceLock<Objects> = OnceLock::new();
        let objects = OBJECTS.get_or_init(|| Objects {
            grown: array::from_fn(|_| Counter::new()),
            grown_by_cpu: array::from_fn(|_| Counter::new()),
            flow: array::from_fn(|_| Counter::new()),
            flow_by_cpu: array::from_fn(|_| Counter::new()),
            largest: array::from_fn(|_| Max::new()),
            largest_by_cpu: array::from_fn(|_| Max::new()),
        });
        // Release: partner is the Acquire in `handle`.
        FOR_HANDLER.store((&raw const *objects).cast_mut(), Ordering::Release);
        objects
    }

    /// Tells every disagreement with the accounts of all threads, once they are done.
    pub fn check(&self, accounts: &Accounts, mut violation: impl FnMut(String)) {
        let mut same = |what: &str, is: i64, expected: i64| {
            if is != expected {
                violation(format!("{what} is {is} in the end; the accounts say {expected}"));
            }
        };
        let handlers_added = |times: &AtomicU64| (times.load(Ordering::Relaxed) as i64) * HANDLED;
        for i in 0..EACH {
            let expected = accounts.grown[i].wrapping_add(handlers_added(&HANDLERS_GROWN[i]));
            same("a counter", self.grown[i].get(), expected);
            let grown = self.grown_by_cpu[i].get();
            same("a counter by cpu number", grown, accounts.grown_by_cpu[i]);

            same("a counter that is taken from", self.flow[i].get(), accounts.flow[i]);
            let expected = accounts.flow_by_cpu[i].wrapping_add(handlers_added(&HANDLERS_FLOW[i]));
            let flow = self.flow_by_cpu[i].get();
            same("a counter by cpu number that is taken from", flow, expected);

            let largest = self.largest[i].get().unwrap_or(0);
            same("a maximum", largest as i64, accounts.largest[i] as i64);
            let by_handlers = HANDLERS_LARGEST[i].load(Ordering::Relaxed);
            let expected = accounts.largest_by_cpu[i].max(by_handlers);
            let largest = self.largest_by_cpu[i].get().unwrap_or(0);
            same("a maximum by cpu number", largest as i64, expected as i64);
        }
    }
}

static FOR_HANDLER: AtomicPtr<Objects> = AtomicPtr::new(std::ptr::null_mut());
static TIMES: AtomicU64 = AtomicU64::new(0);
/// How often handlers added to each counter.
static HANDLERS_GROWN: [AtomicU64; EACH] = [const { AtomicU64::new(0) }; EACH];
static HANDLERS_FLOW: [AtomicU64; EACH] = [const { AtomicU64::new(0) }; EACH];
/// The largest value handlers recorded.
static HANDLERS_LARGEST: [AtomicU64; EACH] = [const { AtomicU64::new(0) }; EACH];
/// What the next handler records.
static NEXT: AtomicI64 = AtomicI64::new(1);

/// Signals that were handled.
pub fn handled() -> u64 {
    TIMES.load(Ordering::Relaxed)
}

/// From here on the signal operates.
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
    let i = turn % EACH;
    match turn / EACH % 3 {
        0 => {
            objects.grown[i].add(HANDLED);
            HANDLERS_GROWN[i].fetch_add(1, Ordering::Relaxed);
        }
        1 => {
            objects.flow_by_cpu[i].add(HANDLED);
            HANDLERS_FLOW[i].fetch_add(1, Ordering::Relaxed);
        }
        _ => {
            let value = NEXT.fetch_add(HANDLED, Ordering::Relaxed) as u64;
            objects.largest_by_cpu[i].record(value);
            HANDLERS_LARGEST[i].fetch_max(value, Ordering::Relaxed);
        }
    }
}
