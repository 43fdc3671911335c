//! Discontinuities of the clocks: they were set, or the machine slept, was moved, or was restored from a snapshot.
//!
//! Most of these are not reported by the kernel. They are detected by comparing clocks. The realtime clock is ahead
//! of the monotonic one by an amount that changes only when it is set, and `CLOCK_BOOTTIME` by one that grows only
//! when the machine sleeps. Each check compares with the values of the last one. There is no thread and no signal:
//! [`check`] checks, and so do [`Converter::refresh`](super::Converter::refresh) and
//! [`now_bounded`](super::now_bounded).
//!
//! # Data flow
//! ```text
//!   sources.rs:        clocks, hypervisor's pages ──► Seen ──► compare with the known values
//!                                                              │ differs: compare-exchange, the winner
//!                                                              counts
//!   epoch() ◄── one word: number, and the unit of ticks ◄──────┘
//! ```
//!
//! # Invariants
//! 1. Numbers and counts only grow. A change is counted before its number is published; one of the counter after it,
//!    by the thread that changed the word. So for a moment an epoch may be new without a count that says why.
//! 2. The known values of a source change only by compare-exchange from the ones that the checking thread had read
//!    before it looked. So each change is counted once, and a thread that was delayed cannot restore old values.
//! 3. The word's kind (`events/word.rs`) is 0 until the first check. Then it changes only together with the number.

pub(in crate::clock) mod distance;
pub(in crate::clock) mod sources;
#[cfg(target_os = "linux")]
pub(in crate::clock) mod watcher;
pub(in crate::clock) mod word;

use core::fmt;

use crate::primitive::global::{AtomicU32, AtomicU64, Ordering, fence};
use distance::{Distance, Range};
use sources::Seen;
pub(super) use word::Word;
use word::number;

/// A kind of event that changes what clocks tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
#[repr(u8)]
pub enum Change {
    /// Another back-end serves the clocks, or one that follows them by samples had to jump.
    Backend,
    /// The counter and the monotonic clock did not go on together, or the cpus' counters are no longer known
    /// to agree: ticks from before have nothing to do with those after.
    Counter,
    /// The realtime clock was set against the monotonic one, by an administrator, a daemon or a leap second.
    Realtime,
    /// The machine slept: `CLOCK_BOOTTIME` went on without the monotonic clock.
    Suspend,
    /// The hypervisor reported that the counter was disrupted, usually by a live migration. From vmclock.
    Disruption,
    /// The machine was restored from a snapshot, or is a clone. From vmclock.
    Restore,
    /// The hypervisor reported that it had stopped the machine. From KVM's page: a hint.
    Stopped,
    /// The hypervisor rewrote its clock page. From KVM's page: a hint.
    Republished,
}

impl Change {
    const COUNT: usize = 8;

    const ALL: [Change; Change::COUNT] = [
        Change::Backend,
        Change::Counter,
        Change::Realtime,
        Change::Suspend,
        Change::Disruption,
        Change::Restore,
        Change::Stopped,
        Change::Republished,
    ];

    /// Returns `true` if it only makes one look closer. A hint begins no epoch.
    #[must_use]
    pub const fn is_hint(self) -> bool {
        matches!(self, Change::Stopped | Change::Republished)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Change::Backend => "another back-end reads the clocks",
            Change::Counter => "the counter and the monotonic clock did not go on together",
            Change::Realtime => "the realtime clock was set",
            Change::Suspend => "the machine was suspended",
            Change::Disruption => "the hypervisor disrupted the counter",
            Change::Restore => "the machine was restored from a snapshot, or cloned",
            Change::Stopped => "the hypervisor had stopped the machine",
            Change::Republished => "the hypervisor wrote its clock page anew",
        })
    }
}

/// The number of events so far, by kind: see [`check`].
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Epoch {
    number: u64,
    counts: [u32; Change::COUNT],
}

impl Epoch {
    /// Does what [`epoch()`](super::epoch) does: another one after every change that is no hint.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns how often something happened, as far as this process noticed.
    #[must_use]
    pub fn count(&self, change: Change) -> u32 {
        self.counts.get(change as usize).copied().unwrap_or(0)
    }

    /// Returns what happened since `earlier`, and how often. A change of the counter that another thread has just found
    /// may be missing, although the number is another.
    pub fn since<'a>(&'a self, earlier: &'a Epoch) -> impl Iterator<Item = (Change, u32)> + 'a {
        let count = |change| self.count(change).wrapping_sub(earlier.count(change));
        Change::ALL
            .into_iter()
            .map(move |change| (change, count(change)))
            .filter(|(_, count)| *count > 0)
    }

    /// Returns `true` if something happened since `earlier`.
    pub(super) fn has(&self, change: Change, earlier: &Epoch) -> bool {
        self.count(change) != earlier.count(change)
    }

    /// Returns how often something happened after which the kernel's idea of its error is worth nothing.
    pub(super) fn upsets(&self) -> u32 {
        [Change::Suspend, Change::Disruption, Change::Restore, Change::Stopped]
            .iter()
            .fold(0, |sum, change| sum.wrapping_add(self.count(*change)))
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        map.entry(&"number", &self.number);
        map.entries(self.since(&Epoch::default())).finish()
    }
}

/// The last known state of the sources, and the counts of events.
pub(super) struct Events {
    word: AtomicU64,
    counts: [AtomicU32; Change::COUNT],
    /// Realtime and boottime minus monotonic: a [`Distance`] each, or 0 while it is unknown.
    realtime: AtomicU64,
    boottime: AtomicU64,
    /// The hypervisor's marks, plus `BIAS`; 0 while they are unknown.
    disruptions: AtomicU64,
    generation: AtomicU64,
    pvclock: AtomicU64,
}

const BIAS: u64 = 1 << 63;

impl Events {
    pub(super) const fn new() -> Events {
        Events {
            word: AtomicU64::new(0),
            counts: [const { AtomicU32::new(0) }; Change::COUNT],
            realtime: AtomicU64::new(0),
            boottime: AtomicU64::new(0),
            disruptions: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            pvclock: AtomicU64::new(0),
        }
    }

    /// Looks, and counts what is different from the last look. Lock-free.
    pub(super) fn look(&self, look: impl FnOnce() -> Seen) {
        // Before the look: (2). Relaxed: each word is by itself.
        let known = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let (realtime, boottime) = (known(&self.realtime), known(&self.boottime));
        let (disruptions, generation) = (known(&self.disruptions), known(&self.generation));
        let (pvclock, word) = (known(&self.pvclock), known(&self.word));
        // Acquire: partner is the Release in `replace`. The thread that stored the known values had looked before. So
        // clocks that are read from here on are not earlier than they were then.
        fence(Ordering::Acquire);
        let seen = look();

        let kind = Word::kind(seen.counter);
        if word & Word::KIND != kind {
            self.count_as(word, kind);
        }
        if moved(&self.realtime, realtime, seen.realtime) {
            self.happened(Change::Realtime);
        }
        if moved(&self.boottime, boottime, seen.boottime) {
            self.happened(Change::Suspend);
        }
        if differs(&self.disruptions, disruptions, seen.disruptions) {
            self.happened(Change::Disruption);
        }
        if differs(&self.generation, generation, seen.generation) {
            self.happened(Change::Restore);
        }
        let pages =
            seen.pvclock.map(|(version, stopped)| u64::from(version) << 1 | u64::from(stopped));
        if differs(&self.pvclock, pvclock, pages) {
            let was_stopped = pvclock & 1 != 0;
            if seen.pvclock.is_some_and(|(_, stopped)| stopped && !was_stopped) {
                self.happened(Change::Stopped);
            }
            if pages.is_some_and(|pages| pages >> 1 != (pvclock & !BIAS) >> 1) {
                self.happened(Change::Republished);
            }
        }
    }

    /// Counts a change, which begins an epoch unless it is a hint.
    pub(super) fn happened(&self, change: Change) {
        // Release, and below: partner is the Acquire in `number`, whose counts are then visible. (1)
        self.counts[change as usize].fetch_add(1, Ordering::Release);
        if !change.is_hint() {
            self.word.fetch_add(1 << Word::NUMBER_SHIFT, Ordering::Release);
        }
    }

    /// Makes ticks count in something else; at the first look nothing has changed by that. (3)
    fn count_as(&self, word: u64, kind: u64) {
        let next = ((word >> Word::NUMBER_SHIFT) + 1) << Word::NUMBER_SHIFT | kind;
        if word & Word::KIND == 0 {
            // Losers found the same.
            let _ = self.word.compare_exchange(word, kind, Ordering::Relaxed, Ordering::Relaxed);
        } else if self
            .word
            .compare_exchange(word, next, Ordering::Release, Ordering::Relaxed)
            .is_ok()
        {
            self.counts[Change::Counter as usize].fetch_add(1, Ordering::Release);
        }
    }

    /// Returns the word, after a first check if there was none.
    #[inline(always)]
    fn word(&self, look: impl FnOnce()) -> Word {
        match self.word.load(Ordering::Relaxed) {
            0 => self.first_word(look),
            word => Word(word),
        }
    }

    #[cold]
    fn first_word(&self, look: impl FnOnce()) -> Word {
        look();
        Word(self.word.load(Ordering::Relaxed))
    }

    /// Returns what happened so far; `others` is how often another back-end served.
    pub(super) fn epoch(&self, others: u64) -> Epoch {
        // Acquire: partner is the Release in `happened`.
        let number = number(self.word.load(Ordering::Acquire), others);
        let mut counts = [0; Change::COUNT];
        for (count, counted) in counts.iter_mut().zip(&self.counts) {
            *count = counted.load(Ordering::Acquire);
        }
        counts[Change::Backend as usize] = others as u32;
        Epoch { number, counts }
    }
}

/// Returns `true` if a clock's distance, now seen in `range`, is not what was known; then that is replaced.
fn moved(word: &AtomicU64, known: u64, range: Range) -> bool {
    let seen = Distance::seen(range);
    let Some(last) = Distance::of_word(known) else {
        // Losers saw the same. A look that was held up says too little.
        let _ = seen.map(|seen| replace(word, known, seen.word()));
        return false;
    };
    let is_closer = seen.is_some_and(|seen| seen.class() < last.class());
    let is_same = last.agrees(range);
    match seen {
        Some(seen) if is_closer || !is_same => replace(word, known, seen.word()) && !is_same,
        _ => false,
    }
}

/// Returns `true` if a number is not what was known; then that is replaced. A source that is gone changes nothing.
fn differs(word: &AtomicU64, known: u64, seen: Option<u64>) -> bool {
    let Some(seen) = seen.map(|seen| seen | BIAS) else { return false };
    seen != known && replace(word, known, seen) && known != 0
}

/// Replaces the known values. Returns whether this thread was the one to do so (invariant 2).
fn replace(word: &AtomicU64, known: u64, seen: u64) -> bool {
    // Release: partner is the Acquire fence in `look`.
    word.compare_exchange(known, seen, Ordering::Release, Ordering::Relaxed).is_ok()
}

static EVENTS: Events = Events::new();

/// Returns what ticks are counted in, with the number.
#[inline(always)]
pub(super) fn word() -> Word {
    EVENTS.word(|| EVENTS.look(sources::look))
}

/// Returns the number of the epoch that has this word.
#[inline(always)]
pub(super) fn epoch_of(word: Word) -> u64 {
    number(word.0, super::SELECTOR.epoch())
}

/// Notes that the counter does not go on with the monotonic clock.
#[cold]
pub(super) fn counter_broke() -> Epoch {
    EVENTS.happened(Change::Counter);
    EVENTS.epoch(super::SELECTOR.epoch())
}

/// Returns the kernel reports that the realtime clock was set, which no check has detected.
#[cfg_attr(loom, allow(dead_code))]
pub(super) fn realtime_was_set() -> Epoch {
    EVENTS.happened(Change::Realtime);
    EVENTS.epoch(super::SELECTOR.epoch())
}

/// Returns how far the realtime clock is ahead of the monotonic one, as far as was seen.
pub(super) fn realtime_ahead() -> Option<u64> {
    Distance::of_word(EVENTS.realtime.load(Ordering::Relaxed)).map(Distance::middle)
}

/// Returns the number of the current epoch. It changes with each [`Change`] that is not a hint.
///
/// Two readings of a clock in the same epoch may be compared closely. Between epochs a clock may have been set, or
/// the machine may have slept. [`Stamp`](super::Stamp)s contain it. It grows when a check detects a change, such as
/// [`check`]. Two loads, and at first use as much as [`check`]; async-signal-safe.
///
/// ```
/// use corelocal::clock;
///
/// let before = clock::epoch();
/// // something is measured here, by the realtime clock, say
/// clock::check();
/// if clock::epoch() != before {
///     println!("measure again");
/// }
/// ```
#[inline]
#[must_use]
pub fn epoch() -> u64 {
    epoch_of(word())
}

/// Looks whether something happened to the clocks, and tells what did so far.
///
/// Reads four clocks by the vDSO, and the hypervisor's pages: some hundred nanoseconds. The first call opens
/// and maps `/dev/vmclock0`, where that is. Steps of the realtime clock below a microsecond or two (ten,
/// where there is no vDSO) are taken for nothing, as is what was undone between two looks. A process that
/// enters another time namespace sees its clocks set. Async-signal-safe, lock-free.
///
/// ```
/// use corelocal::clock;
///
/// let before = clock::check();
/// // some time later:
/// let now = clock::check();
/// for (change, times) in now.since(&before) {
///     println!("{change}, {times} times");
/// }
/// ```
pub fn check() -> Epoch {
    EVENTS.look(sources::look);
    EVENTS.epoch(super::SELECTOR.epoch())
}

#[cfg(all(test, not(loom)))]
mod tests;
