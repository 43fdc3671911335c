//! Where the kernel has no call for several words.

use super::*;
use crate::sync::{AutoEvent, ManualEvent, Semaphore};
use crate::sys::Errno;

/// As a kernel before 5.16.
fn refused(_: &[vector::Waiter<'_>], _: Option<Deadline>) -> Result<vector::WakeAny, Errno> {
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

/// A sleeper of the semaphore alone gets the permit whose wake-up went to one that took something else.
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
            scope.spawn(|| permits.acquire());
            event.set();
            permits.release();
        });
        event.reset();
        assert_eq!(permits.available(), 0);
    }
}
