//! The bytes that wait to be freed, and their limits.
//!
//! A thread that defers reserves bytes before it pushes its item. Small items take them from a credit of the core, so
//! that the fast path adds to a word of the core and compares the sum with 0. A core whose credit is used up takes
//! another one from the total, by a compare-exchange, and so do large items for themselves.
//!
//! # Invariants
//! 1. `total` has all bytes that are deferred, and the credits of all cores.
//! 2. The word of a core is what was reserved there, less its credits. A sum above 0 takes the cold path. A thread that is
//!    moved to another core between two steps leaves a word too large, and finds the credit of another one; the sum of all
//!    words is right.
//! 3. The credits of all cores together are at most a sixteenth of the hard limit, and the total is raised only up to a
//!    sixteenth below it. So what is deferred stays within the limit, whichever way threads are moved, but for what cannot
//!    wait (`force`).
//! 4. An item that fits beside what is deferred is granted, also if the total has no room for it: what else the total has
//!    is credits. An item of more than 15 sixteenths of the limit is granted when nothing else is deferred. When limits
//!    change, credits are taken back, as far as the words of other cores can be reached.

use crate::cid;
use crate::percpu::Word;
use crate::primitive::global::{AtomicI64, AtomicUsize, Ordering};

/// The largest credit.
const LARGEST_CREDIT: usize = 16 << 10;
/// The divisor of the hard limit that bounds the credits of all cores together.
const CREDITS: usize = 16;

/// The outcome of reserving bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// They were taken from the core's credit.
    Near,
    /// They were added to the total.
    Charged,
    /// They were added to the total, which has reached the soft limit by it.
    Due,
    /// The hard limit leaves no room for them.
    None,
}

pub(super) struct Budget {
    near: Word,
    total: AtomicI64,
    /// The largest size that is taken from a core's credit; 0 before the first call.
    credit: AtomicUsize,
    soft: AtomicUsize,
    hard: AtomicUsize,
}

impl Budget {
    pub(super) const fn new() -> Budget {
        Budget {
            near: Word::new(),
            total: AtomicI64::new(0),
            credit: AtomicUsize::new(0),
            soft: AtomicUsize::new(1 << 20),
            hard: AtomicUsize::new(64 << 20),
        }
    }

    pub(super) fn set_limits(&self, soft: usize, hard: usize) {
        // Relaxed: numbers without further meaning.
        let hard = hard.min(isize::MAX as usize);
        self.soft.store(soft.min(hard), Ordering::Relaxed);
        self.hard.store(hard, Ordering::Relaxed);
        self.divide();
        // What is not reached stays with its core. (4)
        let _ = self.near.drain(|_, left| _ = self.total.fetch_add(left as i64, Ordering::Relaxed));
    }

    /// Sets the credit. (3)
    fn divide(&self) {
        let hard = self.hard.load(Ordering::Relaxed);
        let credit = (hard / CREDITS / cid::capacity() as usize).clamp(1, LARGEST_CREDIT);
        self.credit.store(credit, Ordering::Relaxed);
    }

    /// Returns the bytes that are deferred. Linear in the number of cores in use.
    pub(super) fn deferred(&self) -> i64 {
        self.total.load(Ordering::Relaxed).saturating_add(self.near())
    }

    fn near(&self) -> i64 {
        self.near.iter().fold(0, |sum: i64, (_, bytes)| sum.saturating_add(bytes as i64))
    }

    /// Returns `true` if a grace period is due at once.
    pub(super) fn is_due(&self) -> bool {
        self.total.load(Ordering::Relaxed) >= self.soft.load(Ordering::Relaxed) as i64
    }

    /// Reserves bytes for an item.
    #[inline]
    pub(super) fn reserve(&self, bytes: usize) -> Room {
        // Relaxed: 0 is the first call.
        if bytes < self.credit.load(Ordering::Relaxed) {
            if self.near.add_fetch(bytes as u64) as i64 <= 0 {
                return Room::Near;
            }
            return self.take_credit(bytes as i64);
        }
        self.reserve_directly(bytes)
    }

    #[cold]
    #[inline(never)]
    fn take_credit(&self, bytes: i64) -> Room {
        let owed = self.near.exchange(0) as i64;
        if owed <= 0 {
            // The thread is on another core, which has credit, or another thread was faster.
            self.near.add_fetch(owed as u64);
            return Room::Near;
        }
        let credit = self.credit.load(Ordering::Relaxed) as i64;
        let room = self.charge(owed.saturating_add(credit));
        let left = match room {
            Room::None => owed - bytes,
            _ => -credit,
        };
        self.near.add_fetch(left as u64);
        if room == Room::None { self.grant(bytes) } else { room }
    }

    #[cold]
    #[inline(never)]
    fn reserve_directly(&self, bytes: usize) -> Room {
        if self.credit.load(Ordering::Relaxed) == 0 {
            self.divide();
            return self.reserve(bytes);
        }
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let room = self.charge(bytes);
        if room == Room::None { self.grant(bytes) } else { room }
    }

    /// Reserves bytes for which the total has no room, if what it has is not deferred but credits. (4)
    fn grant(&self, bytes: i64) -> Room {
        let total = self.total.load(Ordering::Relaxed);
        let deferred = total + self.near();
        let most = self.most();
        let fits =
            if bytes > most { deferred <= 0 } else { deferred.saturating_add(bytes) <= most };
        let more = total.saturating_add(bytes);
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        if fits && self.total.compare_exchange(total, more, success, failure).is_ok() {
            Room::Due
        } else {
            Room::None
        }
    }

    /// Returns what the total is raised to at most. (3)
    fn most(&self) -> i64 {
        let hard = self.hard.load(Ordering::Relaxed);
        (hard - hard / CREDITS) as i64
    }

    /// Adds to the total, if that leaves the part of the hard limit that it must. (3)
    fn charge(&self, bytes: i64) -> Room {
        let most = self.most();
        let more = |total: i64| total.checked_add(bytes).filter(|total| *total <= most);
        match self.total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(before) => {
                let soft = self.soft.load(Ordering::Relaxed) as i64;
                if before < soft && before + bytes >= soft { Room::Due } else { Room::Charged }
            }
            Err(_) => Room::None,
        }
    }

    /// Reserves bytes for an item that cannot wait.
    #[cold]
    pub(super) fn force(&self, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let more = |total: i64| Some(total.saturating_add(bytes));
        let _ = self.total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// Gives back the bytes of items that have run.
    pub(super) fn release(&self, bytes: i64) {
        self.total.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Sets what is deferred to these bytes, in a child.
    pub(super) fn recount(&self, bytes: i64) {
        self.total.store(bytes - self.near(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stay_within_the_hard_limit() {
        for (soft, hard) in [(0, 0), (1, 100), (1 << 18, 1 << 20), (usize::MAX, 1 << 20)] {
            for item in [24, 100, 1000, 1 << 14, 1000 << 10, 2 << 20] {
                let budget = Budget::new();
                budget.set_limits(soft, hard);
                let mut granted = 0;
                while budget.reserve(item) != Room::None {
                    granted += item;
                }
                // One item that is too large for the limit, alone.
                assert!(granted <= hard || granted == item, "{granted} of {hard} by {item}");
                assert!(granted >= item && (granted + item) * 16 >= hard.min(1 << 30) * 15);
                assert_eq!(budget.deferred(), granted as i64);
                budget.release(granted as i64);
                assert_eq!(budget.deferred(), 0);
                assert_ne!(budget.reserve(item), Room::None);
            }
        }
    }

    #[test]
    fn extremes_are_limits() {
        for (soft, hard) in
            [(0, usize::MAX), (usize::MAX, usize::MAX), (isize::MAX as usize + 1, 1)]
        {
            let budget = Budget::new();
            budget.set_limits(soft, hard);
            assert_ne!(budget.reserve(24), Room::None);
            assert_eq!(budget.is_due(), soft.min(hard) <= 24 || soft.min(hard) < LARGEST_CREDIT);
            budget.force(usize::MAX);
            budget.force(usize::MAX);
            assert!(budget.deferred() > 0 && budget.reserve(24) == Room::None || hard > 1);
        }
    }
}
