//! Between what times it is now: the realtime clock with what it may be off by.
//!
//! Two events on two machines happened in this order if the first one's latest time is before the second's
//! earliest. That is all a database needs of a clock, if the bounds are true.
//!
//! The kernel keeps the bound that its time daemon gave it (`adjtimex(2)`): greatest error, and how fast it
//! grows until the daemon looks again, 500 ppm. Asking takes a system call, so what was learnt is kept for
//! [`PERIOD`], in `bounded/cache.rs`; what the clock may drift by meanwhile is part of it. Where the vDSO's
//! data is read, both bounds are lines over the cpu's counter until the kernel's next tick (`bounded/line.rs`), so
//! that most readings are one multiplication.
//!
//! # Data's way
//! ```text
//!   line of this tick? ──► counter ──► earliest, latest
//!     │ no
//!   cache ──► monotonic clock ──► fresh? ──► + earliest, + latest ──► next line
//!                                   │ no
//!                                   └──► monotonic, adjtimex, monotonic ──► ahead ± error ──► cache
//! ```
//!
//! # Invariants
//! 1. What realtime is ahead by, and what that may be off by, are of one call of `adjtimex`. So bounds stay
//!    true while the clock is set: they are of the time before, whose error was known.
//! 2. Bounds are rounded outwards.
//! 3. After something that the daemon cannot have foreseen (a suspend, a migration, a snapshot restored),
//!    there are no bounds until the kernel's greatest error has fallen, which only a daemon makes it do.
//!    That is remembered in a word that can always be read: see [`Past`].
//! 4. A line is of what was learnt beside it, and begins while that holds.

mod answer;
pub(in crate::clock) mod cache;
pub(in crate::clock) mod kernel;
pub(in crate::clock) mod line;

pub use answer::{Bounded, Leap, Unbounded};

use super::{Clock, SELECTOR, Timestamp, events};
use crate::sys::Errno;
#[cfg(not(loom))]
use cache::Cache;
use cache::Words;
use kernel::{Answer, ask};

/// The time for which what the kernel said is used, in nanoseconds.
const PERIOD: u64 = 4_000_000;

/// The kernel's figures on the clock's error at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Learnt {
    /// The monotonic clock at that moment.
    at: u64,
    /// The least and the greatest difference of realtime to the monotonic clock, `PERIOD` before and after `at`;
    /// wrapping.
    earliest: u64,
    latest: u64,
    state: State,
    leap: Leap,
    past: Past,
}

/// The part of earlier conclusions that the next one must know, in one word: it must know it even where the rest of the
/// cache cannot be read. (3)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Past {
    /// The number of suspends and disruptions noticed by then.
    upsets: u32,
    /// After such an event: the kernel's maximum error must fall below this before bounds are given again, in
    /// microseconds.
    below: Option<u32>,
}

impl Past {
    const KNOWN: u64 = 1 << 31;
    const UPSET: u64 = 1 << 30;
    /// The largest maximum error that the word has room for: a thousand seconds. The kernel's own limit is 16 s.
    const MOST: u32 = (1 << 30) - 1;

    /// Returns it as a word, never 0.
    fn word(self) -> u64 {
        let below = self.below.map_or(0, |below| Past::UPSET | u64::from(below.min(Past::MOST)));
        u64::from(self.upsets) << 32 | Past::KNOWN | below
    }

    /// Returns `None` of 0: nothing was ever concluded.
    fn of(word: u64) -> Option<Past> {
        let below = (word & Past::UPSET != 0).then_some(word as u32 & Past::MOST);
        (word & Past::KNOWN != 0).then_some(Past { upsets: (word >> 32) as u32, below })
    }
}

/// The state of the bounds: whether they hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Bounded,
    Unsynchronised,
    Disrupted,
    Untold(i32),
}

impl Learnt {
    const FACTS: [State; 3] = [State::Bounded, State::Unsynchronised, State::Disrupted];
    /// The word for "unsynchronised", without a leap second.
    const UNSYNCHRONISED: u64 = 1 << 8;
    const LEAPS: [Leap; 5] =
        [Leap::None, Leap::Insertion, Leap::Deletion, Leap::InProgress, Leap::Over];

    fn words(&self) -> Words {
        let worth = worth(self.state, self.leap);
        let line = line::draw(self.earliest, self.latest, |now| self.holds(now));
        let facts = [worth, self.at, self.earliest, self.latest, self.past.word()];
        let mut words = line.into_iter().chain(facts);
        core::array::from_fn(|_| words.next().unwrap_or(0))
    }

    fn of(words: &Words) -> Learnt {
        let [.., worth, at, earliest, latest, past] = *words;
        let (state, leap) = worth_of(worth);
        let past = Past::of(past).unwrap_or_default();
        Learnt { at, earliest, latest, state, leap, past }
    }

    /// Returns `true` if it holds at a moment of the monotonic clock.
    fn holds(&self, now: u64) -> bool {
        // Also for a reading from before `at`: a thread may read the clock first and then use what another one has
        // learnt meanwhile.
        now.wrapping_sub(self.at).wrapping_add(PERIOD) <= 2 * PERIOD
    }

    /// Returns the bounds at a moment at which it holds.
    fn bounds(&self, now: u64) -> Result<Bounded, Unbounded> {
        let (earliest, latest) = (now.wrapping_add(self.earliest), now.wrapping_add(self.latest));
        bounded(earliest, latest, self.state, self.leap)
    }

    /// Returns it less certain by so much.
    fn wider(self, by: u64) -> Learnt {
        let (earliest, latest) = (self.earliest.wrapping_sub(by), self.latest.wrapping_add(by));
        Learnt { earliest, latest, ..self }
    }
}

/// Bounds, if they are worth something.
#[inline]
pub(super) fn bounded(
    earliest: u64,
    latest: u64,
    state: State,
    leap: Leap,
) -> Result<Bounded, Unbounded> {
    match state {
        State::Bounded => {
            let [earliest, latest] = [earliest, latest].map(|at| Timestamp::from_nanos(at as i64));
            Ok(Bounded { earliest, latest, leap })
        }
        State::Unsynchronised => Err(Unbounded::Unsynchronised),
        State::Disrupted => Err(Unbounded::Disrupted),
        State::Untold(number) => Err(Unbounded::Untold(Errno(number))),
    }
}

/// Returns the state of the bounds and the leap second, encoded in a word.
pub(super) const fn worth(state: State, leap: Leap) -> u64 {
    let state = match state {
        State::Bounded => 0,
        State::Unsynchronised => 1,
        State::Disrupted => 2,
        State::Untold(number) => Learnt::FACTS.len() as u64 + number.unsigned_abs() as u64,
    };
    state << 8 | leap as u64
}

/// Returns the state of the bounds and the leap second that a word encodes.
pub(super) fn worth_of(word: u64) -> (State, Leap) {
    let (state, leap) = ((word >> 8) as usize, (word & 0xff) as usize);
    let untold = || State::Untold(state.wrapping_sub(Learnt::FACTS.len()) as i32);
    (
        Learnt::FACTS.get(state).copied().unwrap_or_else(untold),
        Learnt::LEAPS.get(leap).copied().unwrap_or(Leap::None),
    )
}

/// Returns what a clock may drift by in so much time: 500 ppm, as the kernel has it, rounded up.
pub(super) fn drift(nanos: u64) -> u64 {
    nanos / 2000 + 1
}

/// Returns what follows from an answer that was given between two moments of the monotonic clock.
fn conclude(
    answer: &Answer,
    (before, after): (u64, u64),
    upsets: u32,
    last: Option<Past>,
) -> Learnt {
    const SECOND: u64 = 1_000_000_000;
    const DAY: u64 = 86_400;
    /// The kernel counts a leap second at its first timer tick, so up to 10 ms late.
    const TICK: u64 = 10_000_000;
    let width = after.saturating_sub(before);
    let at = before.wrapping_add(width / 2);
    let leap = match answer.state {
        Ok(libc::TIME_INS) => Leap::Insertion,
        Ok(libc::TIME_DEL) => Leap::Deletion,
        Ok(libc::TIME_OOP) => Leap::InProgress,
        Ok(libc::TIME_WAIT) => Leap::Over,
        _ => Leap::None,
    };
    // The kernel lets its error grow at the turn of a second; what it has grown since is added.
    let grown = drift(answer.time % SECOND + TICK);
    // Without STA_NANO the time was cut off at a microsecond.
    let cut = if answer.status & libc::STA_NANO == 0 { 1000 } else { 0 };
    // From the last seconds of such a day until the kernel has done it, some milliseconds late, the clock is
    // a second off, or about to be within the time that this is kept for.
    let second = answer.time / SECOND % DAY;
    let turns = leap != Leap::None && (second >= DAY - 2 || second <= 1);
    let error = (u64::from(answer.max_error) * 1000)
        .saturating_add(answer.offset)
        .saturating_add(grown + cut + width / 2 + 1 + drift(PERIOD))
        .saturating_add(if turns { SECOND } else { 0 });
    // (3): the error grows until a daemon looks, so it must fall below what it was the last time.
    let is_new = last.is_some_and(|last| last.upsets != upsets);
    let below = last.and_then(|last| last.below);
    let is_upset = is_new || below.is_some_and(|below| answer.max_error >= below);
    let past = match answer.state {
        Ok(_) => Past { upsets, below: is_upset.then_some(answer.max_error) },
        // Nothing was learnt: another thread, which may ask the kernel, compares with what was known before.
        Err(_) => last.unwrap_or(Past { upsets, below: None }),
    };
    let state = match answer.state {
        Err(number) => State::Untold(number),
        Ok(libc::TIME_ERROR) => State::Unsynchronised,
        Ok(_) if answer.status & libc::STA_UNSYNC != 0 => State::Unsynchronised,
        Ok(_) if is_upset => State::Disrupted,
        Ok(_) => State::Bounded,
    };
    let ahead = answer.time.wrapping_sub(at);
    Learnt { at, earliest: ahead, latest: ahead, state, leap, past }.wider(error)
}

/// Asks until the answer came quickly, three times at most: interrupts make it late.
fn learn(last: Option<Past>) -> Learnt {
    learn_by(|| events::check().upsets(), ask, last)
}

/// Returns the same, with this count of upsets and this kernel.
fn learn_by(upsets: impl Fn() -> u32, ask: impl Fn() -> Answer, last: Option<Past>) -> Learnt {
    const QUICK: u64 = 1_000;
    let known = upsets();
    let width = |(before, after): (u64, u64)| after.saturating_sub(before);
    let timed = || {
        let before = SELECTOR.read::<true>(Clock::Monotonic);
        let answer = ask();
        (answer, (before, SELECTOR.read::<true>(Clock::Monotonic)))
    };
    // Always a value: of a `None` the compiler would compare the empty content ahead of the test, which valgrind
    // reports.
    let (mut answer, mut around) = timed();
    for _ in 0..2 {
        if width(around) < QUICK {
            break;
        }
        let again = timed();
        if width(again.1) < width(around) {
            (answer, around) = again;
        }
    }
    let learnt = conclude(&answer, around, known, last);
    // (3): an upset since, perhaps before the answer: the thread may have been stopped. Nor is it known which of the
    // two the error is of; so the next thread that learns finds the upset new, and compares with its own answer.
    let is_late = upsets() != known && learnt.state == State::Bounded;
    if is_late { Learnt { state: State::Disrupted, ..learnt } } else { learnt }
}

#[cfg(not(loom))]
static CACHE: Cache = Cache::new();

/// Returns the earliest and latest time that it may be now, if the realtime clock is right within the error that its
/// daemon states.
///
/// It uses the kernel's error estimate ([`adjtimex`](https://man7.org/linux/man-pages/man2/adjtimex.2.html)): the
/// maximum error that the daemon gave, which is the distance to the root, and 500 ppm of the time since; what the
/// kernel is still to slew; and the time that the reading takes. The estimate is at most some 5 ms old, for which
/// some 3 us are added. Ordered, like [`realtime`](super::realtime).
///
/// It costs as much as [`monotonic`](super::monotonic). After each tick of the kernel one call costs more, and every
/// 4 ms one call makes a system call. Async-signal-safe apart from `errno`.
///
/// - *Leap seconds.* From two seconds before midnight until the kernel has inserted or left out the second, bounds
///   are wider by a second on both sides. Clocks that smear it are off by the smear, which the kernel does not know.
/// - *Daemons.* chrony and ntpd state half the delay to the root and its dispersion. systemd-timesyncd states an
///   error of zero at each synchronisation, so its bounds do not cover its own error.
/// - *Steps.* When the clock is set, bounds are those of the old clock for at most some 5 ms.
/// - *Disruptions.* A suspend or a migration is noticed at the next system call. Until then, for at most some 5 ms of
///   the monotonic clock, bounds are those of the old clock. Then the result is [`Unbounded::Disrupted`], until the
///   daemon has synchronised again.
///
/// # Errors
/// [`Unbounded`] if the clock has no valid error bound. [`realtime`](super::realtime) is still available.
///
/// ```
/// use corelocal::clock::{self, Timestamp};
///
/// match clock::now_bounded() {
///     Ok(now) => assert!(now.earliest <= now.latest),
///     Err(why) => println!("{why}"),
/// }
/// ```
#[inline]
pub fn now_bounded() -> Result<Bounded, Unbounded> {
    #[cfg(not(loom))]
    match line::read(&CACHE) {
        Some((earliest, latest, 0)) => {
            return bounded(earliest, latest, State::Bounded, Leap::None);
        }
        Some((.., Learnt::UNSYNCHRONISED)) => return Err(Unbounded::Unsynchronised),
        Some((earliest, latest, worth)) => return unusual(earliest, latest, worth),
        None => {}
    }
    without_line()
}

/// Bounds near a leap second, or that are worth nothing.
#[inline(never)]
fn unusual(earliest: u64, latest: u64, worth: u64) -> Result<Bounded, Unbounded> {
    let (state, leap) = worth_of(worth);
    bounded(earliest, latest, state, leap)
}

/// Computes the bounds from what the kernel said last, and stores the next line. For `now_bounded`.
#[inline(never)]
fn without_line() -> Result<Bounded, Unbounded> {
    // The clock comes later: see `Cache::read_with`.
    let (now, words) = look(|| SELECTOR.read::<true>(Clock::Monotonic));
    match words.map(|words| (Learnt::of(&words), words)) {
        Some((learnt, words)) if learnt.holds(now) => {
            if line::is_over(words[0], words[1]) {
                // Another thread may have learnt it meanwhile. A thread that is just doing so does it for all.
                draw_next(learnt);
            }
            learnt.bounds(now)
        }
        _ => learn_and_bound(),
    }
}

#[cold]
fn learn_and_bound() -> Result<Bounded, Unbounded> {
    #[cfg(not(loom))]
    let learnt = learn_into(&CACHE, learn);
    #[cfg(loom)]
    let learnt = learn(None);
    // However long that took.
    let now = SELECTOR.read::<true>(Clock::Monotonic);
    learnt.wider(drift(now.saturating_sub(learnt.at))).bounds(now)
}

/// Learns, and keeps it unless another thread is just doing that: for this one time it is done twice.
#[cfg(not(loom))]
fn learn_into(cache: &Cache, learn: impl Fn(Option<Past>) -> Learnt) -> Learnt {
    // `update` and `read` have nothing where a writer is busy or was left behind; that word is always there. (3)
    let learn = || learn(Past::of(cache.last_word()));
    cache.update(|_| learn().words()).map_or_else(learn, |words| Learnt::of(&words))
}

/// Returns what `clock` says, and what is kept.
fn look<R>(clock: impl FnOnce() -> R) -> (R, Option<Words>) {
    #[cfg(not(loom))]
    return CACHE.read_with(clock);
    // Models have no statics.
    #[cfg(loom)]
    return (clock(), None);
}

/// Draws the next line: of what is kept now, or of what the caller found if that can no longer be read.
fn draw_next(found: Learnt) {
    #[cfg(not(loom))]
    CACHE.update(|last| last.map_or(found, |words| Learnt::of(&words)).words());
    #[cfg(loom)]
    let _ = found.words();
}

#[cfg(all(test, not(loom)))]
mod tests;
