//! The contestants that read.

use std::hint::black_box;
use std::sync::atomic::{AtomicPtr, Ordering};

use corelocal::rcu::{self, Rcu, RcuCopy};

use super::Reads;
use crate::tables::baseline::{Counters, Id};
use crate::tables::checked::Line;

/// Counts the reads that are right, of so many.
#[inline(always)]
fn count(times: u64, mut is_right: impl FnMut() -> bool) -> u64 {
    (0..times).map(|_| u64::from(is_right())).sum()
}

/// A pointer that owns its value.
struct Owned(AtomicPtr<u64>);

impl Owned {
    fn new(value: u64) -> Owned {
        Owned(AtomicPtr::new(Box::into_raw(Box::new(value))))
    }

    #[inline(always)]
    fn is(&self, expected: u64) -> bool {
        // SAFETY: the value stays until this is dropped.
        unsafe { *black_box(self).0.load(Ordering::Acquire) == expected }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: from `Box::into_raw`, and no thread reads any more.
        drop(unsafe { Box::from_raw(*self.0.get_mut()) });
    }
}

/// A pointer to a value that is never freed.
pub struct Load(Owned);

impl Load {
    pub fn new(value: u64) -> Load {
        Load(Owned::new(value))
    }
}

impl Reads for Load {
    fn reads(&self, expected: u64, times: u64) -> u64 {
        count(times, || self.0.is(expected))
    }
}

/// A load between additions of 1 to two words of the cpu, atomically.
pub struct Getcpu {
    value: Owned,
    lines: Vec<[Line; 2]>,
}

impl Getcpu {
    pub fn new(value: u64) -> Getcpu {
        let lines = (0..corelocal::cid::capacity()).map(|_| Default::default()).collect();
        Getcpu { value: Owned::new(value), lines }
    }

    fn add(&self, nth: usize) {
        // SAFETY: no arguments.
        let cpu = unsafe { libc::sched_getcpu() } as usize;
        if let Some(lines) = self.lines.get(cpu) {
            lines[nth].0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Reads for Getcpu {
    fn reads(&self, expected: u64, times: u64) -> u64 {
        count(times, || {
            self.add(0);
            let is_right = self.value.is(expected);
            self.add(1);
            is_right
        })
    }
}

/// A load between two increments in C.
pub struct InC {
    value: Owned,
    counters: Counters,
}

impl InC {
    pub fn new(id: Id, value: u64) -> anyhow::Result<InC> {
        Ok(InC { value: Owned::new(value), counters: Counters::new(id)? })
    }
}

impl Reads for InC {
    fn reads(&self, expected: u64, times: u64) -> u64 {
        // SAFETY: the value stays until this is dropped.
        unsafe { self.counters.read(&self.value.0, expected, times) }
    }
}

/// crossbeam-epoch.
pub struct Crossbeam(crossbeam_epoch::Atomic<u64>);

impl Crossbeam {
    pub fn new(value: u64) -> Crossbeam {
        Crossbeam(crossbeam_epoch::Atomic::new(value))
    }
}

impl Reads for Crossbeam {
    fn reads(&self, expected: u64, times: u64) -> u64 {
        count(times, || {
            let guard = crossbeam_epoch::pin();
            let value = self.0.load(Ordering::Acquire, &guard);
            // SAFETY: a value, which stays until this is dropped.
            unsafe { *value.deref() == expected }
        })
    }
}

impl Drop for Crossbeam {
    fn drop(&mut self) {
        // SAFETY: no thread reads any more.
        drop(unsafe { std::mem::take(&mut self.0).into_owned() });
    }
}

/// seize.
pub struct Seize {
    collector: seize::Collector,
    value: Owned,
}

impl Seize {
    pub fn new(value: u64) -> Seize {
        Seize { collector: seize::Collector::new(), value: Owned::new(value) }
    }
}

impl Reads for Seize {
    fn reads(&self, expected: u64, times: u64) -> u64 {
        use seize::Guard;
        count(times, || {
            let guard = self.collector.enter();
            let value = guard.protect(&self.value.0, Ordering::Acquire);
            // SAFETY: the value stays until this is dropped.
            unsafe { *value == expected }
        })
    }
}

/// haphazard: a hazard pointer that the thread keeps.
pub struct Haphazard(haphazard::AtomicPtr<u64>);

impl Haphazard {
    pub fn new(value: u64) -> Haphazard {
        Haphazard(haphazard::AtomicPtr::from(Box::new(value)))
    }
}

impl Reads for Haphazard {
    fn reads(&self, expected: u64, times: u64) -> u64 {
        let mut hazard = haphazard::HazardPointer::new();
        count(times, || {
            let is_right = self.0.safe_load(&mut hazard).is_some_and(|value| *value == expected);
            hazard.reset_protection();
            is_right
        })
    }
}

impl Drop for Haphazard {
    fn drop(&mut self) {
        let value = self.0.load_ptr();
        // SAFETY: from a box, and no thread reads any more.
        drop(unsafe { Box::from_raw(value) });
    }
}

/// arc-swap.
pub struct ArcSwap(arc_swap::ArcSwap<u64>);

impl ArcSwap {
    pub fn new(value: u64) -> ArcSwap {
        ArcSwap(arc_swap::ArcSwap::from_pointee(value))
    }
}

impl Reads for ArcSwap {
    fn reads(&self, expected: u64, times: u64) -> u64 {
        count(times, || **self.0.load() == expected)
    }
}

/// arc-swap, with a copy that the thread keeps.
pub struct Cached(arc_swap::ArcSwap<u64>);

impl Cached {
    pub fn new(value: u64) -> Cached {
        Cached(arc_swap::ArcSwap::from_pointee(value))
    }
}

impl Reads for Cached {
    fn reads(&self, expected: u64, times: u64) -> u64 {
        let mut cache = arc_swap::Cache::new(&self.0);
        count(times, || **black_box(&mut cache).load() == expected)
    }
}

/// std.
pub struct StdLock(std::sync::RwLock<u64>);

impl StdLock {
    pub fn new(value: u64) -> StdLock {
        StdLock(std::sync::RwLock::new(value))
    }
}

impl Reads for StdLock {
    fn reads(&self, expected: u64, times: u64) -> u64 {
        count(times, || self.0.read().is_ok_and(|value| *value == expected))
    }
}

/// parking_lot.
pub struct ParkingLot(parking_lot::RwLock<u64>);

impl ParkingLot {
    pub fn new(value: u64) -> ParkingLot {
        ParkingLot(parking_lot::RwLock::new(value))
    }
}

impl Reads for ParkingLot {
    fn reads(&self, expected: u64, times: u64) -> u64 {
        count(times, || *self.0.read() == expected)
    }
}

/// `Rcu`, with a guard for each read.
pub struct Ours(Rcu<Box<u64>>);

impl Ours {
    pub fn new(value: u64) -> Ours {
        Ours(Rcu::new(Box::new(value)))
    }
}

impl Reads for Ours {
    fn reads(&self, expected: u64, times: u64) -> u64 {
        count(times, || {
            let guard = rcu::read();
            *self.0.load(&guard) == expected
        })
    }
}

/// `Rcu`, by a thread that says after so many reads that it uses nothing, as that of liburcu's qsbr does.
pub struct Quiescent(Rcu<Box<u64>>);

impl Quiescent {
    pub fn new(value: u64) -> Quiescent {
        Quiescent(Rcu::new(Box::new(value)))
    }
}

impl Reads for Quiescent {
    fn reads(&self, expected: u64, times: u64) -> u64 {
        const QUIET_EVERY: u64 = 1024;
        let (mut reader, mut nth) = (rcu::quiescent_reader(), 0_u64);
        count(times, || {
            let is_right = *self.0.load(&reader) == expected;
            if nth % QUIET_EVERY == 0 {
                reader.quiescent();
            }
            nth += 1;
            is_right
        })
    }
}

/// `Rcu`, with a copy that the thread keeps.
pub struct OursCached(Rcu<std::sync::Arc<u64>>);

impl OursCached {
    pub fn new(value: u64) -> OursCached {
        OursCached(Rcu::from_pointee(value))
    }
}

impl Reads for OursCached {
    fn reads(&self, expected: u64, times: u64) -> u64 {
        let mut cache = rcu::Cache::new(&self.0);
        count(times, || **black_box(&mut cache).load() == expected)
    }
}

/// `RcuCopy` of a word.
pub struct Copy(RcuCopy<u64>);

impl Copy {
    pub fn new(value: u64) -> Copy {
        let copy = RcuCopy::new(0);
        copy.store(value);
        Copy(copy)
    }
}

impl Reads for Copy {
    fn reads(&self, expected: u64, times: u64) -> u64 {
        count(times, || self.0.load() == expected)
    }
}

/// `RcuCopy` of eight words.
pub struct LongCopy(RcuCopy<[u64; 8]>);

impl LongCopy {
    pub fn new(value: u64) -> LongCopy {
        let copy = RcuCopy::new([0; 8]);
        copy.store([value; 8]);
        LongCopy(copy)
    }
}

impl Reads for LongCopy {
    fn reads(&self, expected: u64, times: u64) -> u64 {
        count(times, || {
            let copy = self.0.load();
            copy[0] == expected && copy[7] == expected
        })
    }
}
