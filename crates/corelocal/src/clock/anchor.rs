//! Back-ends 2 and 3: a counter, anchored to the true clock every 32 ms by the next reading.
//!
//! For kernels whose pages have an unknown layout. It uses stable ABI only: the vDSO's function returns the time, and a
//! counter (the cpu's, or KVM's page for its guest) how much has passed since. `anchor/slew.rs` joins the two. This
//! file lets any number of threads read one line, while one of them, or a signal handler in the middle of another's
//! attempt, publishes the next.
//!
//! # Data flow
//! ```text
//!   read:   current ──► slot's words ──► counter ──► current the same? ──► line.at(counter)
//!   beyond the end:  sample ──► free slot, claimed ──► words ──► current, by compare-exchange
//! ```
//!
//! # Invariants
//! 1. A slot's words change only while the slot is claimed and not current. At most one thread has a slot claimed.
//! 2. `current` never has the same value twice (in 2^56 lines): it holds a growing number and the slot.
//! 3. A thread that loses the race for the next line uses the winner's, and no thread waits. So a thread that is
//!    stopped here, even for ever, holds one slot and blocks no other.
//! 4. The memory is wiped by fork. A child starts again, since it may be in another time namespace, and since slots
//!    that its parent's threads had claimed would stay claimed.
//!
//! # A race
//! ```text
//!   reader: current = 7 (slot 2)                 thread A: current 7 -> 8, slot 2 is free
//!           reads half of slot 2's words         thread B: claims slot 2, writes line 9
//!           reads the other half, of line 9
//!           current is still 7? No: it reads again.
//! ```
//! It sees 8 or later because B's words come after B's fence, which comes after A's exchange.

pub(in crate::clock) mod slew;

use super::status::Cause;
use crate::primitive::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use slew::{Line, Sample};

/// The number of slots. One is current, and each thread that is making the next line has one more.
const SLOTS: usize = if cfg!(loom) { 3 } else { 16 };

/// The number of words in a slot: the line and the offsets of the other clocks.
const WORDS: usize = 8 + OFFSETS;

/// The number of clocks beside the monotonic one: realtime, boottime, TAI.
pub(super) const OFFSETS: usize = 3;

/// The differences of the other clocks to the monotonic one, wrapping.
pub(super) type Offsets = [u64; OFFSETS];

/// A slot for a line that threads read.
#[repr(align(128))]
struct Slot {
    words: [AtomicU64; WORDS],
    /// 1 while the slot is claimed or current.
    claimed: AtomicU32,
}

/// A clock that follows the vDSO by lines (see the module's text). All-zero bytes are one without a line.
#[repr(align(128))]
pub(super) struct Anchor {
    /// The current line's number times 256, plus its slot; 0 if there is none.
    current: AtomicU64,
    slots: [Slot; SLOTS],
}

/// An anchor for each way to read the counter. All-zero bytes are anchors without lines.
#[cfg(not(loom))]
pub(super) struct Anchors {
    pub(super) counter: Anchor,
    pub(super) pvclock: Anchor,
}

/// The number and slot of a line. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Current(u64);

impl Current {
    const SLOT_BITS: u32 = 8;

    fn slot(self) -> usize {
        (self.0 & ((1 << Self::SLOT_BITS) - 1)) as usize % SLOTS
    }

    fn after(current: Option<Current>, slot: usize) -> u64 {
        let number = current.map_or(0, |current| current.0 >> Self::SLOT_BITS);
        (number + 1) << Self::SLOT_BITS | slot as u64
    }
}

/// The outcome of publishing a new line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Published {
    /// The new line is the current one.
    Yes,
    /// Another thread's line became the current one first.
    Overtaken,
    /// Every slot is in use, so nothing was published.
    NoSlot,
}

impl Anchor {
    #[cfg(loom)]
    pub(super) fn new() -> Anchor {
        Anchor {
            current: AtomicU64::new(0),
            slots: core::array::from_fn(|_| Slot {
                words: core::array::from_fn(|_| AtomicU64::new(0)),
                claimed: AtomicU32::new(0),
            }),
        }
    }

    /// Returns the time that the current line says at `count`'s counter, plus the offset of this number if there is
    /// one; `None` if anything is unusual: no line, an end, another line published meanwhile.
    #[inline(always)]
    pub(super) fn read_fast(
        &self,
        offset: Option<usize>,
        count: impl FnOnce() -> Option<u64>,
    ) -> Option<u64> {
        // The same steps with the same partners as in `read`.
        let current = self.current.load(Ordering::Acquire);
        let words = &self.slots[Current(current).slot()].words;
        let get = |word: usize| words[word].load(Ordering::Relaxed);
        let (base, time, rate, end) = (get(0), get(1), get(2), get(3));
        let ahead = offset.map_or(0, |at| get(8 + at % OFFSETS));
        // As in `kernel/page.rs`, `read_fast`.
        if cfg!(target_arch = "aarch64") && current == 0 {
            return None;
        }
        let counter = count()?;
        fence(Ordering::Acquire);
        if current == 0 || self.current.load(Ordering::Relaxed) != current {
            return None;
        }
        let line = Line { base, time, rate, end, ..Line::default() };
        line.covers(counter).then(|| line.at(counter).wrapping_add(ahead))
    }

    /// Returns the current line and the offsets, and what `count` gave between two looks at it; `None` if there is
    /// no line.
    ///
    /// Retried only when another line was published meanwhile, which each thread does once in a period.
    ///
    /// # Errors
    /// Those of `count`.
    #[inline(always)]
    #[allow(clippy::type_complexity)]
    pub(super) fn read<T, E>(
        &self,
        mut count: impl FnMut() -> Result<T, E>,
    ) -> Result<Option<(Current, Line, Offsets, T)>, E> {
        loop {
            // Acquire: partner is the Release in `publish`, whose line's words are then visible.
            let current = self.current.load(Ordering::Acquire);
            if current == 0 {
                return Ok(None);
            }
            let words = &self.slots[Current(current).slot()].words;
            let get = |word: usize| words[word].load(Ordering::Relaxed);
            let line = Line {
                base: get(0),
                time: get(1),
                rate: get(2),
                end: get(3),
                pace: get(4),
                sampled: get(5),
                truth: get(6),
                first: get(7),
            };
            let offsets = core::array::from_fn(|at| get(8 + at));
            let counted = count()?;
            // Acquire: partner is the Release fence in `publish`. If a word read above is of a later line,
            // the change of `current` that freed the slot is visible here.
            fence(Ordering::Acquire);
            if self.current.load(Ordering::Relaxed) == current {
                return Ok(Some((Current(current), line, offsets, counted)));
            }
        }
    }

    /// Puts a line after the one found by `after`. Wait-free.
    #[cold]
    pub(super) fn publish(
        &self,
        after: Option<Current>,
        line: &Line,
        offsets: &Offsets,
    ) -> Published {
        let in_use = after.map(Current::slot);
        let Some(at) = (0..SLOTS).find(|at| Some(*at) != in_use && self.claim(*at)) else {
            return Published::NoSlot;
        };
        // Release: partner is the Acquire fence in `read`. `claim` acquired the change of `current` that freed the
        // slot, so a thread that sees one of the words below sees that change, too.
        fence(Ordering::Release);
        let Line { base, time, rate, end, pace, sampled, truth, first } = *line;
        let values = [base, time, rate, end, pace, sampled, truth, first];
        for (word, value) in self.slots[at].words.iter().zip(values.iter().chain(offsets)) {
            word.store(*value, Ordering::Relaxed);
        }
        let (old, new) = (after.map_or(0, |current| current.0), Current::after(after, at));
        // Release: partner is the Acquire load in `read`. Acquire: what freed `old`'s slot, below, comes
        // after all that its own publisher did.
        let won = self.current.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed);
        let freed = if won.is_ok() { in_use } else { Some(at) };
        if let Some(slot) = freed {
            // Release: partner is the Acquire in `claim`.
            self.slots[slot].claimed.store(0, Ordering::Release);
        }
        if won.is_ok() { Published::Yes } else { Published::Overtaken }
    }

    /// Takes a slot that is free.
    fn claim(&self, at: usize) -> bool {
        // Acquire: partner is the Release that freed it.
        let claimed = &self.slots[at].claimed;
        claimed.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

/// Returns the true clock between two readings of the counter: the narrowest of some attempts, since interrupts and
/// preemption make others wide.
///
/// # Errors
/// Those of `count`.
pub(super) fn sample(
    count: &mut impl FnMut() -> Result<u64, Cause>,
    truth: impl Fn() -> u64,
) -> Result<Sample, Cause> {
    let mut best: Option<Sample> = None;
    for _ in 0..4 {
        let before = count()?;
        let time = truth();
        // A counter that ran back between the two makes a width that no other attempt is worse than. A count may be
        // almost over when it is read, and lasts up to a microsecond.
        let width = count()?.wrapping_sub(before).saturating_add(1);
        let sample = Sample { counter: before.wrapping_add(width / 2), time, width };
        if best.is_none_or(|best| width < best.width) {
            best = Some(sample);
        }
    }
    best.ok_or(Cause::Inconsistent)
}

/// Returns the offsets of the other clocks, given those that served so far; whether one of them jumped; and by how much
/// each may be too low.
///
/// Each is known to lie in an interval: between the clock less the monotonic one after, and before. The first
/// ones are the lower ends. An old offset within the interval stays, one outside moves to its bound: they get
/// better with each sample, and fall only when a clock was set back. The first ones are no further off than what
/// counts as a jump later, unless each attempt was interrupted.
pub(super) fn offsets(
    old: Option<&Offsets>,
    monotonic: impl Fn() -> u64,
    other: impl Fn(usize) -> u64,
) -> (Offsets, bool, u64) {
    /// The smallest difference that counts as a step of the clock, in nanoseconds; less may be an error of the samples.
    const STEP: u64 = 1000;
    const ATTEMPTS: usize = 16;
    // The least that an offset may be, and by how much it may be more.
    let interval = |at| {
        let before = monotonic();
        let time = other(at);
        let after = monotonic();
        (time.wrapping_sub(after), after.saturating_sub(before))
    };
    let (mut jumped, mut low) = (false, 0);
    let offsets = core::array::from_fn(|at| {
        let (mut least, mut width) = interval(at);
        let Some(old) = old else {
            for _ in 1..ATTEMPTS {
                if width <= STEP {
                    break;
                }
                let next = interval(at);
                if next.1 < width {
                    (least, width) = next;
                }
            }
            low = low.max(width);
            return least;
        };
        let into = old[at].wrapping_sub(least) as i64;
        let beyond = if into < 0 { into } else { (into - width as i64).max(0) };
        jumped |= beyond.unsigned_abs() > STEP;
        low = low.max(width);
        old[at].wrapping_sub(beyond as u64)
    });
    (offsets, jumped, low)
}

/// Returns the first line: two samples, so far apart that they make a rate. 20 us, once.
///
/// # Errors
/// Those of `count`; [`Cause::Inconsistent`] if the counter stands still or the samples make no rate.
#[cold]
pub(super) fn first(
    mut count: impl FnMut() -> Result<u64, Cause>,
    truth: impl Fn() -> u64,
) -> Result<Line, Cause> {
    /// The number of readings after which the clock counts as standing still: each takes at least a nanosecond.
    const PATIENCE: usize = 1_000_000;
    let a = sample(&mut count, &truth)?;
    for _ in 0..PATIENCE {
        if truth().saturating_sub(a.time) >= slew::SHORTEST {
            return Line::first(a, sample(&mut count, &truth)?);
        }
    }
    Err(Cause::Inconsistent)
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Returns a line all of whose words are made from one number.
    fn line(of: u64) -> (Line, Offsets) {
        let line = Line {
            base: of,
            time: of + 1,
            rate: of + 2,
            end: of + 3,
            pace: of + 4,
            sampled: of + 5,
            truth: of + 6,
            first: of + 7,
        };
        (line, [of + 8, of + 9, of + 10])
    }

    fn count() -> Result<u64, ()> {
        Ok(0)
    }

    /// Reads, and checks that what was read is one line.
    fn read_whole(anchor: &Anchor) -> Option<(Current, u64)> {
        let (current, found, offsets, _) = anchor.read(count).unwrap()?;
        assert_eq!((found, offsets), line(found.base), "torn");
        Some((current, found.base))
    }

    /// Publishes a line as the successor of line `number`, which is known to be in this slot.
    ///
    /// Without a look at what is current: loom takes a thread's load for the last access to a word, and does
    /// not see then that the thread's exchange races with another's load.
    fn publish(anchor: &Anchor, number: u64, slot: u64, of: u64) -> Published {
        let (line, offsets) = line(of);
        anchor.publish(Some(Current(number << Current::SLOT_BITS | slot)), &line, &offsets)
    }

    fn started() -> Arc<Anchor> {
        let anchor = Anchor::new();
        let (line, offsets) = line(100);
        assert_eq!(anchor.publish(None, &line, &offsets), Published::Yes);
        Arc::new(anchor)
    }

    /// A reader meets a publisher that comes round to the slot which the reader is in.
    #[test]
    fn loom_nothing_is_torn_when_a_slot_is_used_again() {
        crate::explore::within(2, || {
            let anchor = started();
            let publisher = {
                let anchor = anchor.clone();
                thread::spawn(move || {
                    assert_eq!(publish(&anchor, 1, 0, 200), Published::Yes);
                    assert_eq!(publish(&anchor, 2, 1, 300), Published::Yes);
                })
            };
            let (_, first) = read_whole(&anchor).unwrap();
            publisher.join().unwrap();
            let (last, then) = read_whole(&anchor).unwrap();
            assert!(first <= then && then == 300, "{first} then {then}");
            assert_eq!(last.slot(), 0, "the first slot was used again");
        });
    }

    /// Of two that follow the same line one wins, and no slot is lost.
    #[test]
    fn loom_one_of_two_publishers_wins() {
        loom::model(|| {
            let anchor = started();
            let other = {
                let anchor = anchor.clone();
                thread::spawn(move || publish(&anchor, 1, 0, 200))
            };
            let mine = publish(&anchor, 1, 0, 300);
            let theirs = other.join().unwrap();
            let (_, of) = read_whole(&anchor).unwrap();
            match (mine, theirs) {
                (Published::Yes, Published::Overtaken) => assert_eq!(of, 300),
                (Published::Overtaken, Published::Yes) => assert_eq!(of, 200),
                both => panic!("{both:?}"),
            }
            let claimed = |slot: &Slot| slot.claimed.load(Ordering::Relaxed) == 1;
            assert_eq!(anchor.slots.iter().filter(|slot| claimed(slot)).count(), 1);
        });
    }
}
