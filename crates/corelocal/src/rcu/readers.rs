//! What readers and grace periods of a domain share: a page that a fork wipes.
//!
//! Invariant: all bytes 0 is valid: no readers, and no grace period yet. Numbers in parentheses are invariants of
//! `domain.rs`.

use core::sync::atomic::fence;

use super::grace_period::{Number, Progress, Readers};
use super::survivors;
#[cfg(feature = "std")]
use super::tracked;
use super::watch::Watch;
use super::word;
use crate::percpu::{Group, ReaderCounts, heavy_barrier};
use crate::primitive::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sys::Errno;

/// The counts of a domain's readers and the state of its grace periods: see the [module](self).
#[repr(C)]
pub(super) struct Core {
    /// The counts of readers. They come first, so that critical sections need only the address of this.
    pub(super) counts: ReaderCounts,
    pub(super) word: AtomicU64,
    /// 1 while a thread takes steps for all that wait. A hint: it saves barriers.
    pub(super) driver: AtomicU32,
    /// A futex word on which waiting threads sleep. The end of each grace period adds 1.
    pub(super) changes: AtomicU32,
    pub(super) progress: Progress,
    pub(super) watch: Watch,
}

impl Core {
    pub(super) const fn new() -> Core {
        Core {
            word: AtomicU64::new(0),
            progress: Progress::new(),
            driver: AtomicU32::new(0),
            changes: AtomicU32::new(0),
            watch: Watch::new(),
            counts: ReaderCounts::new(),
        }
    }

    pub(super) fn is_complete(&self, number: Number) -> bool {
        self.progress.is_complete(number) && survivors::are_gone()
    }

    /// Returns the readers inside now, or some more.
    pub(super) fn guards(&self) -> i64 {
        let ended = self.ended(0) + self.ended(1);
        self.begun(0) + self.begun(1) - ended
    }

    /// Returns the group of readers in which a period of this process is counted. (2)
    fn group(&self, period: u32) -> Group {
        word::group(word::with_period(self.word.load(Ordering::Relaxed), period))
    }

    /// Ends a guard that began with this word in COLD, or before a fork. Its thread has counted the end.
    #[cold]
    #[inline(never)]
    pub(super) fn end_cold(&self, began: u64) {
        #[cfg(feature = "std")]
        tracked::end(word::entry(began));
        let now = self.word.load(Ordering::Relaxed);
        if word::generation(now) == word::generation(began) {
            // SeqCst: partner is the barrier of a grace period. (4)
            fence(Ordering::SeqCst);
            self.counts.end_atomically(word::group(began));
        }
        // Publishes what is left from before a fork (`survivors.rs`, invariant 2).
        let _ = survivors::are_gone();
    }
}

impl Readers for Core {
    fn period(&self) -> u32 {
        word::period(self.word.load(Ordering::Relaxed))
    }

    fn flip(&self, from: u32) {
        let word = self.word.load(Ordering::Relaxed);
        if word != 0 && word::period(word) == from {
            // Relaxed: readers may see it late, and grace periods see it in the state's order. Failure: another thread
            // has flipped, or the process has forked.
            let flipped = word ^ word::PERIOD;
            let _ = self.word.compare_exchange(word, flipped, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    fn begun(&self, period: u32) -> i64 {
        self.counts.begun(self.group(period))
    }

    fn ended(&self, period: u32) -> i64 {
        self.counts.ended(self.group(period))
    }

    fn barrier(&self) -> Result<(), Errno> {
        if self.word.load(Ordering::Relaxed) & word::FENCED != 0 {
            // SeqCst: partners are the fences of readers. (4)
            fence(Ordering::SeqCst);
            return Ok(());
        }
        heavy_barrier()
    }
}
