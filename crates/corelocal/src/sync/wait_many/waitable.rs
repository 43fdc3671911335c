//! The objects that can be waited for together.

use crate::primitive::atomic::AtomicU32;
use crate::sync::event::{AutoEvent, ManualEvent};
use crate::sync::latch::{Latch, WaitGroup};
use crate::sync::machinery::permits::{AWAITED, Permits};
use crate::sync::machinery::scope::Scope;
use crate::sync::parker::Parker;
use crate::sync::semaphore::Semaphore;
use crate::sys::futex;

/// An object that [`wait_any`](super::wait_any) and [`wait_all`](super::wait_all) can wait for: events, semaphores,
/// parkers, latches and wait groups, of either scope.
#[allow(private_bounds, reason = "a caller with such a bound must not reach the methods")]
pub trait Waitable: sealed::Sealed + Sync {}

impl<W: sealed::Sealed + Sync> Waitable for W {}

pub(super) mod sealed {
    use super::*;

    /// The steps of a wait.
    pub(crate) trait Sealed {
        /// Returns a number with which a later call can tell whether the object was ready in between.
        fn start(&self) -> u32;
        /// Takes from the object if it is ready. A thread that has slept on it, or may have, leaves it in the state
        /// that remaining sleepers need.
        fn take(&self, start: u32, has_slept: bool) -> bool;
        /// Returns `true` if the object is ready at the moment.
        fn is_there(&self, start: u32) -> bool;
        /// Marks the object as awaited and returns the word to sleep on. `None` if it is ready.
        fn announce(&self, start: u32) -> Option<u32>;
        /// Passes on a wake-up that the caller may have got, since it takes nothing.
        fn leave(&self);
        /// Gives back what the caller has taken.
        fn give_back(&self);
        /// Returns the word to sleep on.
        fn word(&self) -> &AtomicU32;
        /// Returns its scope.
        fn scope(&self) -> futex::Scope;
    }
}

/// For objects with up to `$most` permits.
macro_rules! waitable_permits {
    ($name:ident, $most:expr) => {
        impl<S: Scope> sealed::Sealed for $name<S> {
            fn start(&self) -> u32 {
                0
            }

            fn take(&self, _: u32, has_slept: bool) -> bool {
                self.permits.take(if has_slept { AWAITED } else { 0 }, 0)
            }

            fn is_there(&self, _: u32) -> bool {
                self.permits.available() > 0
            }

            fn announce(&self, _: u32) -> Option<u32> {
                self.permits.announce()
            }

            fn leave(&self) {
                self.permits.leave();
            }

            fn give_back(&self) {
                self.permits.give(1, $most, true);
            }

            fn word(&self) -> &AtomicU32 {
                self.permits.word()
            }

            fn scope(&self) -> futex::Scope {
                S::FUTEX
            }
        }
    };
}

waitable_permits!(Semaphore, Permits::<S>::MAX);
waitable_permits!(AutoEvent, 1);

/// For objects that wake all and are not consumed: a field, or the object itself.
macro_rules! waitable_state {
    ($name:ident $(, $field:ident)?) => {
        impl<S: Scope> sealed::Sealed for $name<S> {
            fn start(&self) -> u32 {
                self$(.$field)?.start()
            }

            fn take(&self, start: u32, _: bool) -> bool {
                self$(.$field)?.is_there(start)
            }

            fn is_there(&self, start: u32) -> bool {
                self$(.$field)?.is_there(start)
            }

            fn announce(&self, start: u32) -> Option<u32> {
                self$(.$field)?.announce(start)
            }

            fn leave(&self) {}

            fn give_back(&self) {}

            fn word(&self) -> &AtomicU32 {
                self$(.$field)?.word()
            }

            fn scope(&self) -> futex::Scope {
                S::FUTEX
            }
        }
    };
}

waitable_state!(ManualEvent);
waitable_state!(Latch, countdown);
waitable_state!(WaitGroup, countdown);

impl<S: Scope> sealed::Sealed for Parker<S> {
    fn start(&self) -> u32 {
        0
    }

    /// Returns `true` if it was set: an unpark wakes all sleepers, so none remains to be woken.
    fn take(&self, _: u32, _: bool) -> bool {
        Parker::take(self)
    }

    fn is_there(&self, _: u32) -> bool {
        self.is_unparked()
    }

    fn announce(&self, _: u32) -> Option<u32> {
        Parker::announce(self)
    }

    fn leave(&self) {}

    fn give_back(&self) {
        self.unpark();
    }

    fn word(&self) -> &AtomicU32 {
        Parker::word(self)
    }

    fn scope(&self) -> futex::Scope {
        S::FUTEX
    }
}
