//! The bare counter, for code that stores time stamps and converts them later.
//!
//! A tracer stores a time stamp with each of its events. Reading the counter is the larger part of a clock's cost.
//! Converting it to a time can wait until the events are examined, if they ever are. `convert.rs` does that for many
//! at once.
//!
//! # The meaning of a tick
//! By itself a tick has no meaning: after the machine slept or was restored from a snapshot, the counter may have any
//! value, and where the cpus' counters disagree, ticks are nanoseconds instead. So a tick belongs to an epoch
//! (`events.rs`), which must be stored with it: with each tick ([`Stamp`]), or with a batch.
//!
//! # Invariant
//! 1. The unit of ticks is part of the epoch's word, so one load yields both.

use super::events;

/// A reading of the cpu's counter: for storing now, and for converting later.
///
/// Where the kernel does not trust the cpus' counters to agree (and on processors whose counter is not read
/// here), it is a number of nanoseconds; a [`Converter`](super::Converter) knows. 8 bytes.
///
/// ```
/// use corelocal::clock::{self, Converter, Ticks};
///
/// let mut converter = Converter::new();
/// let epoch = clock::epoch();
/// let events = [Ticks::now(), Ticks::now(), Ticks::now()];
///
/// converter.refresh(); // so that it knows of the time until now
/// let mut times = [0; 3];
/// converter.monotonic_all(epoch, &events, &mut times)?;
/// assert!(times[0] <= times[2] && times[2] <= clock::monotonic() + 1_000);
/// # Ok::<(), clock::NoTime>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
#[repr(transparent)]
pub struct Ticks(u64);

impl Ticks {
    /// Returns now, whenever the cpu likes to read it: some nanoseconds before it is done with what comes first in
    /// the program, perhaps. The cheapest there is. Async-signal-safe.
    #[inline]
    #[must_use]
    pub fn now() -> Ticks {
        read::<false>(events::word())
    }

    /// Returns now: read after all that the thread read before, so that ticks of two threads that hand something
    /// over never go back. Async-signal-safe.
    #[inline]
    #[must_use]
    pub fn now_ordered() -> Ticks {
        read::<true>(events::word())
    }

    /// Returns the ticks that were stored as a number.
    #[inline]
    #[must_use]
    pub const fn from_raw(raw: u64) -> Ticks {
        Ticks(raw)
    }

    /// Returns it as a number, for storing.
    #[inline]
    #[must_use]
    pub const fn as_raw(self) -> u64 {
        self.0
    }
}

/// Ticks and the epoch they belong to: all that a [`Converter`](super::Converter) needs. 16 bytes.
///
/// ```
/// use corelocal::clock::{Converter, Stamp};
///
/// let mut converter = Converter::new();
/// let stamp = Stamp::now();
/// converter.refresh();
/// let time: u64 = converter.monotonic(stamp)?; // nanoseconds of CLOCK_MONOTONIC
/// # let _ = time;
/// # Ok::<(), corelocal::clock::Unknown>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Stamp {
    /// The counter's value.
    pub ticks: Ticks,
    /// The number of the [`epoch`](super::epoch) at that moment.
    pub epoch: u64,
}

impl Stamp {
    /// Returns now, with unordered ticks: see [`Ticks::now`]. Async-signal-safe.
    #[inline]
    #[must_use]
    pub fn now() -> Stamp {
        // One word for both. (1)
        let word = events::word();
        Stamp { ticks: read::<false>(word), epoch: events::epoch_of(word) }
    }

    /// Returns now, with ordered ticks: see [`Ticks::now_ordered`]. Async-signal-safe.
    #[inline]
    #[must_use]
    pub fn now_ordered() -> Stamp {
        let word = events::word();
        Stamp { ticks: read::<true>(word), epoch: events::epoch_of(word) }
    }
}

/// Returns `true` if ticks are readings of the cpu's counter now, and not nanoseconds.
#[cfg(not(any(miri, loom)))]
pub(crate) fn are_counted() -> bool {
    events::word().counter().is_some()
}

/// Reads what ticks are counted in.
#[inline(always)]
pub(super) fn read<const ORDERED: bool>(word: events::Word) -> Ticks {
    if let Some(fence) = word.counter() {
        let count = match ORDERED {
            true => super::counter::ordered_by(fence),
            false => super::counter::unordered(),
        };
        return Ticks(count);
    }
    nanoseconds::<ORDERED>()
}

/// Reads the monotonic clock. By a call, so that the code around a reading of the counter is short.
#[cold]
#[inline(never)]
fn nanoseconds<const ORDERED: bool>() -> Ticks {
    Ticks(super::SELECTOR.read::<ORDERED>(super::Clock::Monotonic))
}
