//! The state machine of grace periods. A grace period that begins after a change of data ends only when every reader
//! that may have seen the old data has ended.
//!
//! Readers count their begins and ends in one of two periods: the current one when they looked. A grace period first
//! sees the other period without readers, flips, and then sees the former current period without readers. So each
//! reader from before the grace period is awaited, and a steady stream of new readers delays nothing: they count in
//! the new period. If neither period has readers, one look is enough.
//!
//! ```text
//!            begin                    the other period is empty: flip
//!   idle(n) ───────► start(n + 1) ─────────────────────────────────────► drain(n + 1, period)
//!                        │ both periods are empty                              │ the period is empty
//!                        └──────────────────────► idle(n + 1) ◄────────────────┘
//! ```
//!
//! # Invariants
//! 1. A look reads the ends, then runs a barrier in all threads, then reads the begins. If both are equal, no reader
//!    of that period is inside that began before the barrier. Script, for a reader R that began before: its begin is
//!    visible after the barrier, so it is in the sum. If the sums are equal, its end was in the sum of the ends; so
//!    its accesses come before the barrier. With the begins first, a reader that begins and ends in between would be
//!    in the ends alone, and hide another one that is inside.
//! 2. A reader that begins after the barrier sees all data that was published before it. So a grace period need not
//!    await it.
//! 3. A reader may load the period, be delayed, and count in that period after a flip. So two periods are awaited
//!    for each grace period, not one: the other period may have such readers that later changes must wait for.
//! 4. Each step is a compare-exchange of the whole state, from the value that the look began with; numbers never
//!    repeat. So any number of threads may take steps at the same time. The period to drain is part of the state,
//!    since a late thread may flip once more. That delays, but makes nothing unsafe.
//! 5. A ticket is the number of the first grace period that begins after it. Several tickets may have the same number.

use crate::primitive::atomic::{AtomicU64, Ordering, fence};
use crate::sys::Errno;

/// The readers that a grace period waits for.
pub(super) trait Readers {
    /// Returns the period in which new readers count: 0 or 1.
    fn period(&self) -> u32;

    /// Makes the other one the current period, if it is still `from`.
    fn flip(&self, from: u32);

    /// Returns how many readers have begun in the period.
    fn begun(&self, period: u32) -> i64;

    /// Returns how many readers have ended in the period.
    fn ended(&self, period: u32) -> i64;

    /// A full barrier in every thread, at some moment during the call.
    fn barrier(&self) -> Result<(), Errno>;
}

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The state has changed, by this thread or by another one.
    Changed,
    /// Readers of the earlier period are still inside.
    Waiting,
}

/// The number of a grace period, with the generation of the process above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Number(u64);

const GENERATION_SHIFT: u32 = 48;
const NUMBER_SHIFT: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Start,
    Drain(u32),
}

/// ```text
///   63       48 47          2 1   0
///   generation  number        phase      0 idle, 1 start, 2 + p drain period p
/// ```
/// All bytes 0, as after a fork, is idle(0) of any generation.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State(u64);

impl State {
    fn new(number: Number, phase: Phase) -> State {
        let phase = match phase {
            Phase::Idle => 0,
            Phase::Start => 1,
            Phase::Drain(period) => 2 + u64::from(period),
        };
        State(number.0 | phase)
    }

    fn phase(self) -> Phase {
        match self.0 % (1 << NUMBER_SHIFT) {
            0 => Phase::Idle,
            1 => Phase::Start,
            drain => Phase::Drain(drain as u32 - 2),
        }
    }

    /// Returns the number of the last grace period that has begun.
    fn begun(self) -> Number {
        Number(self.0 >> NUMBER_SHIFT << NUMBER_SHIFT)
    }
}

impl Number {
    fn next(self) -> Number {
        Number(self.0 + (1 << NUMBER_SHIFT))
    }

    pub(super) fn get(self) -> u64 {
        self.0
    }

    /// Returns the generation of the process that it is from.
    pub(super) fn generation(self) -> u32 {
        (self.0 >> GENERATION_SHIFT) as u32
    }
}

/// The progress of grace periods. All bytes 0 means that none has begun.
pub(super) struct Progress(AtomicU64);

impl Progress {
    const_fn! {
        pub(super) const fn new() -> Progress {
            Progress(AtomicU64::new(0))
        }
    }

    /// Returns the state of this generation, and the word that stands for it.
    fn state(&self, generation: u32, order: Ordering) -> (State, u64) {
        let word = self.0.load(order);
        let is_own = Number(word).generation() == generation;
        (State(if is_own { word } else { u64::from(generation) << GENERATION_SHIFT }), word)
    }

    /// Returns the first grace period that begins from now on.
    pub(super) fn ticket(&self, generation: u32) -> Number {
        // SeqCst: partners are the barrier of a step and the one of a reader. A grace period that this load does not
        // see yet has its barrier after this fence. A reader that it misses has its own barrier after that one, and
        // sees what the caller published before.
        fence(Ordering::SeqCst);
        self.state(generation, Ordering::Relaxed).0.begun().next()
    }

    /// Returns a word that is another one after each step.
    #[inline(always)]
    pub(super) fn word(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns the number of the last grace period that has begun.
    pub(super) fn last(&self, generation: u32) -> u64 {
        self.state(generation, Ordering::Relaxed).0.begun().0
    }

    /// Returns `true` if this grace period has ended. Its generation must be the current one.
    pub(super) fn is_complete(&self, number: Number) -> bool {
        // Acquire: partner is the Release of the step that ended it. Accesses of readers come before.
        let (state, _) = self.state(number.generation(), Ordering::Acquire);
        let begun = state.begun();
        begun > number || begun == number && state.phase() == Phase::Idle
    }

    /// Takes a step towards the end of this grace period: at most one barrier.
    pub(super) fn step(&self, number: Number, readers: &impl Readers) -> Result<Step, Errno> {
        // Acquire: partner is the Release of the step before, for the flip.
        let (state, word) = self.state(number.generation(), Ordering::Acquire);
        let next = match state.phase() {
            Phase::Idle if state.begun() >= number => return Ok(Step::Changed),
            Phase::Idle => State::new(state.begun().next(), Phase::Start),
            Phase::Start => {
                let current = readers.period();
                let ended = [readers.ended(0), readers.ended(1)];
                // Order: invariant 1.
                readers.barrier()?;
                let is_empty = |period: u32| readers.begun(period) == ended[period as usize % 2];
                if is_empty(current ^ 1) {
                    if is_empty(current) {
                        State::new(state.begun(), Phase::Idle)
                    } else {
                        readers.flip(current);
                        State::new(state.begun(), Phase::Drain(current))
                    }
                } else {
                    return Ok(Step::Waiting);
                }
            }
            Phase::Drain(period) => {
                let ended = readers.ended(period);
                // Order: invariant 1.
                readers.barrier()?;
                if readers.begun(period) != ended {
                    return Ok(Step::Waiting);
                }
                State::new(state.begun(), Phase::Idle)
            }
        };
        // Release: partners are the Acquires above. Relaxed on failure: another thread's step was faster (4).
        let _ = self.0.compare_exchange(word, next.0, Ordering::AcqRel, Ordering::Relaxed);
        Ok(Step::Changed)
    }
}

#[cfg(all(test, loom))]
mod loom;

#[cfg(all(test, not(loom)))]
mod tests;
