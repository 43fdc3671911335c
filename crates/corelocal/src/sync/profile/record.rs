//! The statistics of one lock.
//!
//! Invariants:
//! 1. The key is set once: a record belongs to one lock, or to whatever lies at its address later, as long as the
//!    page exists.
//! 2. Numbers only grow while recording is on, except `longest` and `worst`, which restart when it is switched on.
//!    Each number is exact, but they are not read at one moment.

use super::contended_hold::Stretch;
use super::histogram::{self, BUCKETS};
use super::kind::Kind;
use super::page::Page;
use crate::primitive::atomic::{AtomicU64, Ordering::Relaxed};

/// Bits of a key that hold the address. The bits above are the kind's number.
const ADDRESS_BITS: u32 = 58;

/// The shortest wait, in nanoseconds, for which the stack is copied.
const WORTH_A_TRACE: u64 = 1000;

/// A lock and its kind as one word. Never 0.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Key(u64);

impl Key {
    pub(super) fn new(kind: Kind, address: usize) -> Key {
        Key((kind as u64) << ADDRESS_BITS | address as u64 & ((1 << ADDRESS_BITS) - 1))
    }

    pub(super) fn of_word(word: u64) -> Key {
        Key(word)
    }

    pub(super) fn word(self) -> u64 {
        self.0
    }

    pub(super) fn address(self) -> u64 {
        self.0 & ((1 << ADDRESS_BITS) - 1)
    }

    pub(super) fn kind(self) -> Option<Kind> {
        Kind::of_number(self.0 >> ADDRESS_BITS)
    }

    /// Returns a hash whose upper bits are the best mixed.
    pub(super) fn hash(self) -> u64 {
        // 2^64 divided by the golden ratio.
        (self.0 ^ self.0 >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// The statistics of one lock. All bytes 0 is an unused record.
#[repr(C)]
pub(super) struct Record {
    key: AtomicU64,
    stretch: Stretch,
    pub(super) waits: AtomicU64,
    pub(super) sleeps: AtomicU64,
    pub(super) gave_up: AtomicU64,
    /// The sum of the waits, in nanoseconds, as the times below.
    pub(super) total: AtomicU64,
    pub(super) longest: AtomicU64,
    /// The longest contended hold.
    pub(super) worst: AtomicU64,
    /// The number plus one of the trace of the longest waiter. 0 if there is none.
    pub(super) waiter: AtomicU64,
    /// The trace, in the same way, of the owner that unlocked at the end of the longest contended hold.
    pub(super) holder: AtomicU64,
    unused: [u64; 5],
    pub(super) times: [AtomicU64; BUCKETS],
}

const _: () = assert!(size_of::<Record>() == 1024);

impl Record {
    /// Returns the key of its lock. `None` if it is unused.
    pub(super) fn key(&self) -> Option<Key> {
        // Relaxed: all other fields were 0 before, and each is read by itself.
        Some(self.key.load(Relaxed)).filter(|key| *key != 0).map(Key)
    }

    /// Returns whether the record is of that lock. An unused record becomes that lock's.
    pub(super) fn is_or_becomes(&self, key: Key) -> bool {
        // Relaxed: as in `key`.
        match self.key.compare_exchange(0, key.0, Relaxed, Relaxed) {
            Ok(_) => true,
            Err(other) => other == key.0,
        }
    }

    pub(super) fn waiting(&self) -> u64 {
        self.stretch.waiting()
    }

    /// Restarts the maxima.
    pub(super) fn begin_anew(&self) {
        self.longest.store(0, Relaxed);
        self.worst.store(0, Relaxed);
    }

    /// Counts the beginning of a wait.
    pub(super) fn begin(&self, now: u64) {
        self.stretch.begin(now);
    }

    /// Counts the end of a wait that began at `began`. `got` says whether the lock was acquired.
    pub(super) fn end(&self, page: &Page, began: u64, now: u64, sleeps: u32, got: bool) {
        self.stretch.end(now, got);
        let waited = now.saturating_sub(began);
        self.waits.fetch_add(1, Relaxed);
        self.sleeps.fetch_add(sleeps.into(), Relaxed);
        self.gave_up.fetch_add((!got).into(), Relaxed);
        self.total.fetch_add(waited, Relaxed);
        self.times[histogram::bucket(waited)].fetch_add(1, Relaxed);
        if waited > self.longest.fetch_max(waited, Relaxed) {
            trace(page, &self.waiter, waited, now);
        }
    }

    /// Counts an unlock, while other threads may wait.
    pub(super) fn let_go(&self, page: &Page, now: u64) {
        let Some(stretch) = self.stretch.let_go(now) else { return };
        if stretch > self.worst.fetch_max(stretch, Relaxed) {
            trace(page, &self.holder, stretch, now);
        }
    }
}

fn trace(page: &Page, place: &AtomicU64, time: u64, now: u64) {
    if time < WORTH_A_TRACE {
        return;
    }
    if let Some(trace) = page.trace_at(place) {
        trace.take(time, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let key = Key::new(Kind::Parker, usize::MAX);
        assert_eq!((key.kind(), key.address()), (Some(Kind::Parker), (1 << ADDRESS_BITS) - 1));
        let key = Key::new(Kind::Mutex, 0x7fff_1234_5678);
        assert_eq!((key.kind(), key.address()), (Some(Kind::Mutex), 0x7fff_1234_5678));
        assert!(Key::new(Kind::Mutex, 0).0 != 0);
    }
}
