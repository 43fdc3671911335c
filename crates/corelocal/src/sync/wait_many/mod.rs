//! Waiting for several things at once.
//!
//! What can be waited for says that it is awaited, and by which value of its word: `announce`, as in its own
//! wait. All words then go to the kernel in one call (`futex_waitv`).
//!
//! # Where the kernel has no such call
//! Before Linux 5.16, or behind a filter, the thread sleeps on one of the words at a time, in turn, for 50 us at
//! first and for at most 1 ms later, and looks at all of them in between. So it never misses anything, and what
//! it does not sleep on just then it sees a millisecond late.
//!
//! # Invariants
//! 1. `wait_any` takes from one thing, or from none. Where it has slept it was perhaps woken by several, and
//!    owes each of them what a sleeper owes (`permits.rs`, invariant 2): the one that it takes from it takes
//!    from as one that has slept, and those that it does not take from it leaves, so that the wake-up is
//!    another's.
//! 2. `wait_all` takes from all, or gives back what it took. It takes in the order of addresses: of two that
//!    wait for the same things one gets the first, and so all, and they do not stand in each other's way for
//!    ever. It leaves what has woken it at once, and takes as one that never slept.

mod waitable;

use core::fmt;
use core::time::Duration;

pub use waitable::Waitable;

use super::bounded_wait;
use crate::sys::futex::{Deadline, Scope, Wake, vector};
use crate::sys::sleep;

/// The most things that one call can wait for.
pub const MAX_WAITABLES: usize = vector::MAX_WAITERS;

const SHORTEST: Duration = Duration::from_micros(50);
const LONGEST: Duration = Duration::from_millis(1);

/// Why a wait for several things ended without them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// The deadline has passed.
    TimedOut,
    /// There was nothing to wait for.
    Nothing,
    /// There were more than [`MAX_WAITABLES`].
    TooMany,
    /// All were to be there, and one was named twice.
    Twice,
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WaitError::TimedOut => "timed out before it happened",
            WaitError::Nothing => "there is nothing to wait for: give one thing at least",
            WaitError::TooMany => "one call waits for at most 128 things: wait for fewer",
            WaitError::Twice => "one of the things is named twice: name it once",
        })
    }
}

impl core::error::Error for WaitError {}

/// Waits for any of the things, takes from it, and says which it was; the first one of those that are there.
///
/// Taking resets an [`AutoEvent`](super::AutoEvent) and a [`Parker`](super::Parker), and takes a permit of a
/// [`Semaphore`](super::Semaphore). The others stay as they are.
///
/// ```
/// use core::time::Duration;
/// use corelocal::sync::{AutoEvent, Semaphore, wait_any};
///
/// let (stop, work) = (AutoEvent::new(false), Semaphore::new(1));
/// assert_eq!(wait_any(&[&stop, &work]), Ok(1));
/// stop.set();
/// assert_eq!(wait_any(&[&stop, &work]), Ok(0));
/// ```
///
/// # Errors
/// If there is nothing to wait for, or more than [`MAX_WAITABLES`].
pub fn wait_any(things: &[&dyn Waitable]) -> Result<usize, WaitError> {
    any(things, None, sleep::wait_any)
}

/// [`wait_any`], at most so long.
///
/// # Errors
/// Also if nothing was there in that time.
pub fn wait_any_for(things: &[&dyn Waitable], span: Duration) -> Result<usize, WaitError> {
    wait_any_until(things, Deadline::after(span))
}

/// [`wait_any`], until the deadline.
///
/// # Errors
/// Also if nothing was there before it.
pub fn wait_any_until(things: &[&dyn Waitable], deadline: Deadline) -> Result<usize, WaitError> {
    any(things, Some(deadline), sleep::wait_any)
}

/// Waits until all of the things are there, and takes from each.
///
/// For a moment it may have taken from some, which it gives back if another one is missing. A
/// [`ManualEvent`](super::ManualEvent) was there if it was set at some moment since the call; so for a
/// [`WaitGroup`](super::WaitGroup) that was empty.
///
/// # Errors
/// If there are more than [`MAX_WAITABLES`], or one of them twice.
pub fn wait_all(things: &[&dyn Waitable]) -> Result<(), WaitError> {
    all(things, None)
}

/// [`wait_all`], at most so long.
///
/// # Errors
/// Also if they were not all there in that time. Then it has taken nothing.
pub fn wait_all_for(things: &[&dyn Waitable], span: Duration) -> Result<(), WaitError> {
    wait_all_until(things, Deadline::after(span))
}

/// [`wait_all`], until the deadline.
///
/// # Errors
/// Also if they were not all there before it. Then it has taken nothing.
pub fn wait_all_until(things: &[&dyn Waitable], deadline: Deadline) -> Result<(), WaitError> {
    all(things, Some(deadline))
}

/// The call that sleeps on several words: the kernel's, or a test's that is refused.
type Vector =
    fn(&[sleep::Waiter<'_>], Option<Deadline>) -> Result<vector::WakeAny, crate::sys::Errno>;

/// What each thing was like at first.
fn starts(things: &[&dyn Waitable]) -> Result<[u32; MAX_WAITABLES], WaitError> {
    if things.len() > MAX_WAITABLES {
        return Err(WaitError::TooMany);
    }
    let mut starts = [0; MAX_WAITABLES];
    for (start, thing) in starts.iter_mut().zip(things) {
        *start = thing.start();
    }
    Ok(starts)
}

fn any(
    things: &[&dyn Waitable],
    deadline: Option<Deadline>,
    wait: Vector,
) -> Result<usize, WaitError> {
    let starts = starts(things)?;
    let Some(first) = things.first() else { return Err(WaitError::Nothing) };
    let mut waiters = [sleep::Waiter::new(first.word(), 0, first.scope()); MAX_WAITABLES];
    let mut turns = Turns { next: 0, pause: SHORTEST };
    let mut slept = false;
    let mut is_over = false;
    loop {
        let take = |at: &usize| things[*at].take(starts[*at], slept);
        if let Some(taken) = (0..things.len()).find(take) {
            leave(things, slept, Some(taken));
            return Ok(taken);
        }
        if is_over {
            leave(things, slept, None);
            return Err(WaitError::TimedOut);
        }
        let announced =
            waiters.iter_mut().zip(things).zip(starts).all(|((waiter, thing), start)| {
                let expected = thing.announce(start);
                let word = thing.word();
                *waiter = sleep::Waiter::new(word, expected.unwrap_or(0), thing.scope());
                expected.is_some()
            });
        if !announced {
            // One of them was there, and may be another's by now.
            is_over = deadline.is_some_and(Deadline::has_come);
            continue;
        }
        let is_shared = things.iter().any(|thing| thing.scope() == Scope::Shared);
        let limit =
            bounded_wait::limit(deadline, if is_shared { Scope::Shared } else { Scope::Private });
        match wait(&waiters[..things.len()], limit) {
            Ok(vector::WakeAny::Woken(_)) => slept = true,
            Ok(vector::WakeAny::TimedOut) if limit != deadline => slept = true,
            Ok(vector::WakeAny::TimedOut) => is_over = true,
            Ok(vector::WakeAny::Differed | vector::WakeAny::Interrupted) => (),
            Err(_) => {
                let wake = turns.sleep(things, &starts, deadline);
                slept |= wake == Wake::Woken;
                is_over = deadline.is_some_and(Deadline::has_come);
            }
        }
    }
}

/// Invariant 1.
fn leave(things: &[&dyn Waitable], slept: bool, taken: Option<usize>) {
    if slept {
        let others = things.iter().enumerate().filter(|(at, _)| Some(*at) != taken);
        others.for_each(|(_, thing)| thing.leave());
    }
}

/// Sleeping on one word at a time.
struct Turns {
    next: usize,
    pause: Duration,
}

impl Turns {
    #[cold]
    fn sleep(
        &mut self,
        things: &[&dyn Waitable],
        starts: &[u32],
        deadline: Option<Deadline>,
    ) -> Wake {
        let (thing, start) = (things[self.next], starts[self.next]);
        self.next = (self.next + 1) % things.len();
        let pause = Deadline::after(self.pause);
        self.pause = LONGEST.min(self.pause * 2);
        let end = deadline.map_or(pause, |deadline| deadline.min(pause));
        match thing.announce(start) {
            Some(expected) => sleep::wait(thing.word(), expected, Some(end), thing.scope()),
            None => Wake::Differed,
        }
    }
}

fn all(things: &[&dyn Waitable], deadline: Option<Deadline>) -> Result<(), WaitError> {
    let starts = starts(things)?;
    let order = by_address(things);
    let order = &order[..things.len()];
    let word = |at: u8| core::ptr::from_ref(things[usize::from(at)].word());
    if order.windows(2).any(|pair| core::ptr::eq(word(pair[0]), word(pair[1]))) {
        // The second would wait for what the first has taken.
        return Err(WaitError::Twice);
    }
    let mut is_over = false;
    loop {
        let Some(missing) = take_all(things, &starts, order) else { return Ok(()) };
        if is_over {
            return Err(WaitError::TimedOut);
        }
        let thing = things[missing];
        let Some(expected) = thing.announce(starts[missing]) else {
            // It is there again.
            is_over = deadline.is_some_and(Deadline::has_come);
            continue;
        };
        match bounded_wait::wait(thing.word(), expected, deadline, thing.scope()) {
            // It takes later, if at all: whoever else sleeps there may be quicker. (2)
            Wake::Woken => thing.leave(),
            Wake::TimedOut => is_over = true,
            Wake::Differed | Wake::Interrupted => (),
        }
    }
}

/// Takes from all, or from none: then says what was missing.
fn take_all(things: &[&dyn Waitable], starts: &[u32], order: &[u8]) -> Option<usize> {
    // A look first, so that nothing is taken in vain.
    let is_missing = |at: &usize| !things[*at].is_there(starts[*at]);
    if let Some(missing) = (0..things.len()).find(is_missing) {
        return Some(missing);
    }
    for (count, at) in order.iter().enumerate() {
        let at = usize::from(*at);
        if !things[at].take(starts[at], false) {
            order[..count].iter().for_each(|&taken| things[usize::from(taken)].give_back());
            return Some(at);
        }
    }
    None
}

/// The things' places in the order of their addresses.
fn by_address(things: &[&dyn Waitable]) -> [u8; MAX_WAITABLES] {
    const { assert!(MAX_WAITABLES <= u8::MAX as usize) };
    let mut order = [0; MAX_WAITABLES];
    for (at, place) in order.iter_mut().enumerate().take(things.len()) {
        *place = at as u8;
    }
    order[..things.len()]
        .sort_unstable_by_key(|&at| core::ptr::from_ref(things[usize::from(at)].word()) as usize);
    order
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
#[path = "any_loom.rs"]
mod loom_tests;
