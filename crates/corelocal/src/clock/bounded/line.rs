//! The bounds until the kernel's next tick, as a line over the cpu's counter.
//!
//! Between two of its ticks the kernel's clock is a straight line, and so is either bound. The first reading of
//! bounds after a tick computes that line; later ones need one multiplication. The line is stored beside the error
//! bound, in one [`Cache`](super::cache::Cache), and belongs to it.
//!
//! # Data flow
//! ```text
//!   line's words ──► counter ──► kernel still in that tick? ──► both bounds at the line's base + advance
//! ```
//!
//! # Invariants
//! 1. A line belongs to one update by the kernel, which `head` names, and is used while that is the last one. So it
//!    is the kernel's clock, through slews and steps, as `kernel/page.rs` reads it. 0 names no update.
//! 2. It is valid for `REACH` counts, for which its bounds are wide enough, so that a kernel without ticks does not
//!    delay a new estimate; and at most until the counter's low half wraps. So only the low half is multiplied, which
//!    the cpu has some cycles before the rest.
//! 3. Products cannot overflow: a low half and a rate are both below 2^32. A counter slower than 1 GHz, whose rate is
//!    not, has no lines on x86-64; aarch64's mostly are, and their products have 128 bits.
//! 4. A line begins at a moment at which the error bound is still valid. The thread may have been stopped since it
//!    learnt the bound, or found it in the cache.

/// Words of a line: head, counter at its base, rate, earliest and latest where the low half is 0. Models have
/// no lines, and are done the sooner.
pub(in crate::clock) const WORDS: usize = if cfg!(loom) { 0 } else { 5 };
/// The words that a reader loads: the line's, and the one after them, which has the state of the bounds.
#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_os = "linux",
    not(any(miri, loom))
))]
const ALL: usize = WORDS + 1;

/// The words that stand for "no line".
pub(in crate::clock) const NONE: [u64; WORDS] = [0; WORDS];

/// The counts from a line's base to its end: about a millisecond, and 5 ms for an aarch64 that counts at 25 MHz.
#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_os = "linux",
    not(any(miri, loom))
))]
const REACH: u32 = if cfg!(target_arch = "aarch64") { 1 << 17 } else { 1 << 22 };

#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_os = "linux",
    not(any(miri, loom))
))]
mod imp {
    use super::{ALL, NONE, REACH, WORDS};
    use crate::clock::SELECTOR;
    use crate::clock::bounded::cache::Cache;
    use crate::clock::bounded::drift;
    use crate::clock::counter;
    use crate::sys::arch::counter::Halves;

    /// Returns the realtime clock's bounds now, and what they are worth; `None` if there is no line, or it is over.
    /// Ordered.
    #[inline(always)]
    pub(crate) fn read(cache: &Cache) -> Option<(u64, u64, u64)> {
        let page = SELECTOR.serving()?;
        let (now, line) = cache.read_with(|| counter::ordered_halves(page.fence()));
        let [head, base, rate, earliest, latest, worth]: [u64; ALL] = line?;
        if !page.is_still(head) || !reaches(base, now) {
            return None;
        }
        let nanos = nanos(now.0, rate);
        Some((earliest.wrapping_add(nanos), latest.wrapping_add(nanos), worth))
    }

    /// Returns the time that so many counts take. (3)
    #[inline(always)]
    fn nanos(counts: u32, rate: u64) -> u64 {
        match cfg!(target_arch = "aarch64") {
            true => ((u128::from(counts) * u128::from(rate)) >> 32) as u64,
            false => u64::from(counts).wrapping_mul(rate) >> 32,
        }
    }

    /// Returns `true` if a line with this base goes as far as that counter. (2)
    #[inline(always)]
    fn reaches(base: u64, (low, high): Halves) -> bool {
        high == (base >> 32) as u32 && low.wrapping_sub(base as u32) < REACH
    }

    /// Returns `true` if the line with this head and base is over, and another one can be drawn.
    pub(crate) fn is_over(head: u64, base: u64) -> bool {
        SELECTOR
            .serving()
            .is_some_and(|page| !page.is_still(head) || !reaches(base, counter::unordered_halves()))
    }

    /// Returns the line of what realtime is ahead of the monotonic clock by, at least and at most; none if that does
    /// not hold at the line's base, by the monotonic clock.
    pub(crate) fn draw(
        earliest: u64,
        latest: u64,
        holds: impl FnOnce(u64) -> bool,
    ) -> [u64; WORDS] {
        let Some(tick) = SELECTOR.tick() else { return NONE };
        let is_fast = tick.rate >> 32 == 0 || cfg!(target_arch = "aarch64");
        if !is_fast || !holds(tick.nanos) {
            return NONE; // (3), (4)
        }
        // (2), and what the sums cut off.
        let wider = drift(nanos(REACH, tick.rate)) + 2;
        let at_base = nanos(tick.counter as u32, tick.rate);
        let ahead = tick.nanos.wrapping_sub(at_base);
        [
            tick.head,
            tick.counter,
            tick.rate,
            ahead.wrapping_add(earliest).wrapping_sub(wider),
            ahead.wrapping_add(latest).wrapping_add(wider),
        ]
    }
}

/// The module for processors whose counter is not read: there are no lines.
#[cfg(not(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_os = "linux",
    not(any(miri, loom))
)))]
mod imp {
    use super::{NONE, WORDS};
    #[cfg(not(loom))]
    use crate::clock::bounded::cache::Cache;

    #[cfg(not(loom))]
    pub(crate) fn read(_: &Cache) -> Option<(u64, u64, u64)> {
        None
    }

    pub(crate) fn is_over(_: u64, _: u64) -> bool {
        false
    }

    pub(crate) fn draw(_: u64, _: u64, _: impl FnOnce(u64) -> bool) -> [u64; WORDS] {
        NONE
    }
}

#[cfg(not(loom))]
pub(in crate::clock) use imp::read;
pub(in crate::clock) use imp::{draw, is_over};
