//! Back-ends 2 and 3: a counter, its anchor, and the samples that adjust the line.
//!
//! # Invariants
//! 1. Each counter has an anchor of its own: lines of one are meaningless for the other.
//! 2. The thread that publishes a line counts the discontinuity that it shows; a thread that was overtaken does not.
//! 3. An anchor begins and ends in `handover.rs` only.

use super::{Selector, Truth};
use crate::clock::Clock;
use crate::clock::anchor::slew::Line;
use crate::clock::anchor::{self, Anchor, Anchors, Current, Offsets, Published};
use crate::clock::counter::{self, Fence, how};
use crate::clock::kernel::page::Mode;
use crate::clock::kernel::paravirtual;
use crate::clock::status::Cause;

impl<T: Truth> Selector<T> {
    #[inline(never)]
    pub(super) fn read_anchored<const HOW: u8, const PVCLOCK: bool>(&self, clock: Clock) -> u64 {
        let count = || match PVCLOCK {
            true => paravirtual::count(self.pvclock()?, counter::count::<HOW>).ok(),
            false => Some(counter::count::<HOW>()),
        };
        let mode = if PVCLOCK { Mode::Pvclock } else { Mode::Counter };
        match self.anchor(mode).and_then(|anchor| anchor.read_fast(other(clock), count)) {
            Some(nanos) => nanos,
            None => self.read_patiently(clock, HOW != how::UNORDERED),
        }
    }

    /// Reads a clock by an anchor (back-ends 2 and 3); bends the line, begins it or follows its end where needed.
    pub(super) fn read_anchor(
        &self,
        route: usize,
        mode: Mode,
        clock: Clock,
        ordered: bool,
    ) -> Result<u64, Cause> {
        /// The number of attempts. One fails if the thread is stopped for a period, or loses to another thread.
        const ROUNDS: usize = 64;
        let fence = Fence::of_bit(route);
        let anchor = self.anchor(mode).ok_or(Cause::NoResources)?;
        for _ in 0..ROUNDS {
            match anchor.read(|| self.count(mode, ordered, fence))? {
                Some((_, line, offsets, counter)) if line.covers(counter) => {
                    let ahead = other(clock).map_or(0, |at| offsets[at]);
                    return Ok(line.at(counter).wrapping_add(ahead));
                }
                Some((current, line, offsets, _)) if line.is_open() => {
                    self.bend(anchor, mode, fence, current, &line, &offsets)?;
                }
                // Another thread is about to lead to another back-end.
                Some(_) => return Ok(self.after_end(mode, clock, fence)),
                // After a fork.
                None => self.enter(mode, fence)?,
            }
        }
        Err(Cause::NoResources)
    }

    /// Takes a sample, and draws the next line.
    #[cold]
    fn bend(
        &self,
        anchor: &Anchor,
        mode: Mode,
        fence: Fence,
        current: Current,
        line: &Line,
        offsets: &Offsets,
    ) -> Result<(), Cause> {
        let mut count = || self.count(mode, true, fence);
        let sample = anchor::sample(&mut count, || T::read(Clock::Monotonic))?;
        let (line, stepped) = line.next(sample)?;
        let (offsets, jumped, _) = other_clocks::<T>(Some(offsets));
        match anchor.publish(Some(current), &line, &offsets) {
            Published::Yes if stepped || jumped => self.counts.discontinuity(),
            Published::Yes | Published::Overtaken => {}
            Published::NoSlot => return Err(Cause::NoResources),
        }
        Ok(())
    }

    /// Returns the anchor of the counter of `mode`: each has its own, since one's lines mean nothing to the other.
    #[inline(always)]
    pub(super) fn anchor(&self, mode: Mode) -> Option<&'static Anchor> {
        let Anchors { counter, pvclock } = self.anchors.get()?;
        Some(if mode == Mode::Counter { counter } else { pvclock })
    }
}

/// Returns which of the clocks beside the monotonic one it is.
#[inline(always)]
fn other(clock: Clock) -> Option<usize> {
    match clock {
        Clock::Realtime => Some(0),
        Clock::Boottime => Some(1),
        Clock::Tai => Some(2),
        _ => None,
    }
}

/// Returns the other clocks' offsets from the monotonic one; whether one jumped; what they may be too low by.
pub(super) fn other_clocks<T: Truth>(old: Option<&Offsets>) -> (Offsets, bool, u64) {
    const CLOCKS: [Clock; anchor::OFFSETS] = [Clock::Realtime, Clock::Boottime, Clock::Tai];
    anchor::offsets(old, || T::read(Clock::Monotonic), |at| T::read(CLOCKS[at]))
}
