//! Tests without the kernel's call for several words, and of what a sleeper leaves behind.

use super::waitable::sealed::Sealed;
use super::*;
use crate::primitive::atomic::Ordering;
use crate::sync::machinery::permits::AWAITED;
use crate::sync::{AutoEvent, ManualEvent, Semaphore};
use crate::sys::Errno;
use crate::sys::futex::Scope;

/// As a kernel before 5.16.
fn refused(_: &[sleep::Waiter<'_>], _: Option<Deadline>) -> Result<vector::WakeAny, Errno> {
    Err(Errno::ENOSYS)
}

#[test]
fn without_the_call_it_sees_what_it_does_not_sleep_on() {
    let events: [AutoEvent; 5] = core::array::from_fn(|_| AutoEvent::new(false));
    let things = events.each_ref().map(|event| event as &dyn Waitable);
    for (at, event) in events.iter().enumerate() {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(3));
                event.set();
            });
            assert_eq!(any(&things, None, refused), Ok(at));
        });
        assert!(!event.is_set());
    }
}

#[test]
fn without_the_call_it_ends_on_time() {
    let (event, permits) = (ManualEvent::new(false), Semaphore::new(0));
    let start = std::time::Instant::now();
    let deadline = Deadline::after(Duration::from_millis(20));
    assert_eq!(any(&[&event, &permits], Some(deadline), refused), Err(WaitError::TimedOut));
    assert!(start.elapsed() >= Duration::from_millis(20));
}

/// A sleeper of the semaphore alone gets the permit whose wake-up went to a thread that took something else.
#[test]
fn without_the_call_no_wake_up_is_lost() {
    let (event, permits) = (AutoEvent::new(false), Semaphore::new(0));
    for _ in 0..200 {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if any(&[&event, &permits], None, refused) == Ok(1) {
                    permits.release();
                }
            });
            scope.spawn(|| permits.acquire_raw());
            event.set();
            permits.release();
        });
        event.reset();
        assert_eq!(permits.available(), 0);
    }
}

/// The semaphore's word: whether threads may be sleeping.
fn word(permits: &Semaphore) -> u32 {
    Sealed::word(permits).load(Ordering::Relaxed)
}

/// The thread was woken by the first of two permits, whose giver has cleared the mark: others may still sleep on the
/// second one, and must learn of the next.
#[test]
fn who_slept_leaves_the_word_marked() {
    static PERMITS: Semaphore = Semaphore::new(0);
    fn woken(_: &[sleep::Waiter<'_>], _: Option<Deadline>) -> Result<vector::WakeAny, Errno> {
        PERMITS.release();
        PERMITS.release();
        Ok(vector::WakeAny::Woken(0))
    }
    assert_eq!(any(&[&PERMITS], None, woken), Ok(0));
    assert_eq!(word(&PERMITS), AWAITED | 1);
    // A thread that has not slept does not change the mark.
    assert_eq!(any(&[&PERMITS], None, woken), Ok(0));
    assert_eq!(word(&PERMITS), AWAITED);
    PERMITS.release();
    PERMITS.release();
    assert_eq!(any(&[&PERMITS], None, woken), Ok(0));
    assert_eq!(word(&PERMITS), 1);
}

#[test]
fn who_slept_leaves_the_word_marked_without_the_call_too() {
    let permits = Semaphore::new(0);
    std::thread::scope(|scope| {
        let taker = scope.spawn(|| any(&[&permits], None, refused));
        // Woken spuriously, so that it has certainly slept.
        while sleep::wake(Sealed::word(&permits), 1, Scope::Private) == 0 {
            std::thread::yield_now();
        }
        permits.release_many(2);
        assert_eq!(taker.join().unwrap(), Ok(0));
    });
    assert_eq!(word(&permits), AWAITED | 1);
}
