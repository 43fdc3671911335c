//! Waiting for several objects at once.
//!
//! Each object marks itself as awaited and returns the value of its word to sleep on: `announce`, as in its own wait.
//! All words then go to the kernel in one call (`futex_waitv`).
//!
//! # Without `futex_waitv`
//! Before Linux 5.16, or behind a filter, the thread sleeps on one word at a time, in turn, for 50 us at first and up
//! to 1 ms later, and checks all of them in between. So it never misses anything, and notices objects that it does
//! not sleep on with a delay of up to a millisecond.
//!
//! # Invariants
//! 1. `wait_any` takes from one object, or from none. If it has slept, several objects may have woken it, and it owes
//!    each of them what a sleeper owes (`machinery/permits.rs`, invariant 2): it takes from one as a thread that has slept, and
//!    leaves the others, so that their wake-ups are passed on.
//! 2. `wait_all` takes from all objects, or gives back what it took. It takes in the order of addresses: of two
//!    threads that wait for the same objects one gets the first, and hence all, so they do not block each other for
//!    ever. It leaves an object that has woken it at once, and then takes as a thread that never slept.

mod waitable;

use core::fmt;
use core::time::Duration;

pub use waitable::Waitable;

use super::machinery::bounded_wait;
use crate::sys::futex::{Deadline, Scope, Wake, vector};
use crate::sys::sleep;

/// The maximum number of objects in one call.
pub const MAX_WAITABLES: usize = vector::MAX_WAITERS;

const SHORTEST: Duration = Duration::from_micros(50);
const LONGEST: Duration = Duration::from_millis(1);

/// The reason why a wait for several objects ended without them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// The deadline has passed.
    TimedOut,
    /// The list of objects is empty.
    Nothing,
    /// There are more than [`MAX_WAITABLES`] objects.
    TooMany,
    /// `wait_all` got an object twice.
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

/// Waits for any of the objects, takes from it, and returns its index; the lowest one if several are ready.
///
/// Taking resets an [`AutoEvent`](super::AutoEvent) or a [`Parker`](super::Parker), and takes a permit of a
/// [`Semaphore`](super::Semaphore). Other objects do not change.
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
/// [`WaitError::Nothing`] or [`WaitError::TooMany`].
pub fn wait_any(things: &[&dyn Waitable]) -> Result<usize, WaitError> {
    any(things, None, sleep::wait_any)
}

/// Does what [`wait_any`] does, for at most this time span.
///
/// # Errors
/// As for [`wait_any`], and [`WaitError::TimedOut`].
pub fn wait_any_for(things: &[&dyn Waitable], span: Duration) -> Result<usize, WaitError> {
    wait_any_until(things, Deadline::after(span))
}

/// Does what [`wait_any`] does, until the deadline.
///
/// # Errors
/// As for [`wait_any`], and [`WaitError::TimedOut`].
pub fn wait_any_until(things: &[&dyn Waitable], deadline: Deadline) -> Result<usize, WaitError> {
    any(things, Some(deadline), sleep::wait_any)
}

/// Waits until all objects are ready, and takes from each.
///
/// For a moment it may have taken from some of them, which it gives back if another one is not ready. A
/// [`ManualEvent`](super::ManualEvent) counts as ready if it was set at some moment since the call; so does a
/// [`WaitGroup`](super::WaitGroup) that was empty.
///
/// # Errors
/// [`WaitError::TooMany`] or [`WaitError::Twice`].
pub fn wait_all(things: &[&dyn Waitable]) -> Result<(), WaitError> {
    all(things, None)
}

/// Does what [`wait_all`] does, for at most this time span.
///
/// # Errors
/// As for [`wait_all`], and [`WaitError::TimedOut`]; nothing has been taken then.
pub fn wait_all_for(things: &[&dyn Waitable], span: Duration) -> Result<(), WaitError> {
    wait_all_until(things, Deadline::after(span))
}

/// Does what [`wait_all`] does, until the deadline.
///
/// # Errors
/// As for [`wait_all`], and [`WaitError::TimedOut`]; nothing has been taken then.
pub fn wait_all_until(things: &[&dyn Waitable], deadline: Deadline) -> Result<(), WaitError> {
    all(things, Some(deadline))
}

/// The call that sleeps on several words: the kernel's, or one of a test that is refused.
type Vector =
    fn(&[sleep::Waiter<'_>], Option<Deadline>) -> Result<vector::WakeAny, crate::sys::Errno>;

/// Returns the state of each object at the start.
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
            // One of them was ready, and another thread may have taken it.
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

/// A wait that sleeps on one word at a time, in turn.
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
            // It is ready again.
            is_over = deadline.is_some_and(Deadline::has_come);
            continue;
        };
        match bounded_wait::wait(thing.word(), expected, deadline, thing.scope()) {
            // It takes later, if at all: another sleeper may be faster. (2)
            Wake::Woken => thing.leave(),
            Wake::TimedOut => is_over = true,
            Wake::Differed | Wake::Interrupted => (),
        }
    }
}

/// Takes from all objects, or from none; then returns the index of one that was not ready.
fn take_all(things: &[&dyn Waitable], starts: &[u32], order: &[u8]) -> Option<usize> {
    // Check first, so that nothing is taken in vain.
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

/// Indices of the objects in the order of their addresses.
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
mod loom;
