//! Back-ends 2 and 3: a counter, its anchor, and the samples that bend the line.
//!
//! # Invariants
//! 1. Each counter has an anchor of its own: one's lines mean nothing to the other.
//! 2. Whoever publishes a line counts what it tells of a discontinuity; who was overtaken does not.

use crate::primitive::global::Ordering;

use super::{Selector, Truth};
use crate::clock::Clock;
use crate::clock::anchor::{self, Anchor, Anchors, Current, Offsets, Published};
use crate::clock::counter::{self, Fence, how};
use crate::clock::kernel_page::Mode;
use crate::clock::line::Line;
use crate::clock::paravirtual;
use crate::clock::status::Cause;

impl<T: Truth> Selector<T> {
    #[inline(never)]
    pub(super) fn read_anchored<const HOW: u8, const PVCLOCK: bool>(&self, clock: Clock) -> u64 {
        let count = || match PVCLOCK {
            true => paravirtual::count(self.pvclock()?, counter::count::<HOW>).ok(),
            false => Some(counter::count::<HOW>()),
        };
        let mode = if PVCLOCK { Mode::Pvclock } else { Mode::Tsc };
        match self.anchor(mode).and_then(|anchor| anchor.read_fast(other(clock), count)) {
            Some(nanos) => nanos,
            None => self.read_patiently(clock, HOW != how::UNORDERED),
        }
    }

    /// Back-ends 2 and 3, with all that can be in the way.
    pub(super) fn read_anchor(
        &self,
        route: usize,
        mode: Mode,
        clock: Clock,
        ordered: bool,
    ) -> Result<u64, Cause> {
        /// Rounds that a thread can need which is stopped for a period in each.
        const ROUNDS: usize = 64;
        let fence = Fence::of_bit(route);
        let anchor = self.anchor(mode).ok_or(Cause::NoResources)?;
        for _ in 0..ROUNDS {
            match anchor.read(|| self.count(mode, ordered, fence))? {
                Some((_, line, offsets, counter)) if line.covers(counter) => {
                    let ahead = other(clock).map_or(0, |at| offsets[at]);
                    return Ok(line.at(counter).wrapping_add(ahead));
                }
                Some((current, line, offsets, _)) => {
                    self.bend(anchor, mode, fence, current, &line, &offsets)?;
                }
                // After a fork.
                None => self.begin(anchor, mode, fence)?,
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
        let (offsets, jumped) = other_clocks::<T>(Some(offsets));
        match anchor.publish(Some(current), &line, &offsets) {
            Published::Yes if stepped || jumped => self.counts.discontinuity(),
            Published::Yes | Published::Overtaken => {}
            Published::NoSlot => return Err(Cause::NoResources),
        }
        Ok(())
    }

    /// Draws a line that owes nothing to the one before.
    #[cold]
    pub(super) fn begin(&self, anchor: &Anchor, mode: Mode, fence: Fence) -> Result<(), Cause> {
        let now = anchor.read(|| Ok::<(), Cause>(()))?.map(|(current, ..)| current);
        let line = anchor::first(|| self.count(mode, true, fence), || T::read(Clock::Monotonic))?;
        match anchor.publish(now, &line, &other_clocks::<T>(None).0) {
            Published::NoSlot => Err(Cause::NoResources),
            Published::Yes | Published::Overtaken => Ok(()),
        }
    }

    /// The anchor of the counter of `mode`: each has its own, since one's lines mean nothing to the other.
    #[inline(always)]
    pub(super) fn anchor(&self, mode: Mode) -> Option<&'static Anchor> {
        let Anchors { tsc, pvclock } = self.anchors.get()?;
        Some(if mode == Mode::Tsc { tsc } else { pvclock })
    }

    /// The vDSO must not be behind what the anchor said; but if it is far behind, this is another clock, as
    /// after a journey to a time namespace.
    pub(super) fn raise_floor(&self, mode: Mode, fence: Fence) {
        /// Three of an anchor's periods, and what a line may be off by.
        const FAR: u64 = 100_000_000;
        let Some(anchor) = self.anchor(mode) else { return };
        if let Ok(Some((_, line, _, counter))) = anchor.read(|| self.count(mode, true, fence)) {
            let last = line.at(if line.covers(counter) { counter } else { line.end });
            let is_near = last.saturating_sub(T::read(Clock::Monotonic)) < FAR;
            self.floor.store(if is_near { last } else { 0 }, Ordering::Relaxed);
        }
    }
}

/// Which of the clocks beside the monotonic one it is.
#[inline(always)]
fn other(clock: Clock) -> Option<usize> {
    match clock {
        Clock::Realtime => Some(0),
        Clock::Boottime => Some(1),
        Clock::Tai => Some(2),
        _ => None,
    }
}

/// The other clocks' offsets from the monotonic one.
fn other_clocks<T: Truth>(old: Option<&Offsets>) -> (Offsets, bool) {
    const CLOCKS: [Clock; anchor::OFFSETS] = [Clock::Realtime, Clock::Boottime, Clock::Tai];
    anchor::offsets(old, || T::read(Clock::Monotonic), |at| T::read(CLOCKS[at]))
}
