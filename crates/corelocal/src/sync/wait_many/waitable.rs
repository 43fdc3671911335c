//! What can be waited for together with others.

use crate::primitive::atomic::AtomicU32;
use crate::sync::event::{AutoEvent, ManualEvent};
use crate::sync::latch::{Latch, WaitGroup};
use crate::sync::parker::Parker;
use crate::sync::permits::{AWAITED, Permits};
use crate::sync::scope::Scope;
use crate::sync::semaphore::Semaphore;
use crate::sys::futex;

/// What [`wait_any`](super::wait_any) and [`wait_all`](super::wait_all) can wait for: events, semaphores, parkers,
/// latches and wait groups, of either scope.
#[allow(private_bounds, reason = "a caller with such a bound must not reach the methods")]
pub trait Waitable: sealed::Sealed + Sync {}

impl<W: sealed::Sealed + Sync> Waitable for W {}

pub(super) mod sealed {
    use super::*;

    /// What a wait is made of.
    pub(crate) trait Sealed {
        /// Something to tell later whether it was there in between.
        fn start(&self) -> u32;
        /// Takes from it, if it is there. One that has slept on it, or may have, leaves it as those that sleep
        /// on need it.
        fn take(&self, start: u32, has_slept: bool) -> bool;
        /// Whether it is there at the moment.
        fn is_there(&self, start: u32) -> bool;
        /// Says that somebody is about to sleep: while the word is as returned. Nothing if it is there.
        fn announce(&self, start: u32) -> Option<u32>;
        /// The caller was perhaps woken, and takes nothing.
        fn leave(&self);
        /// The caller has taken, and has no use for it.
        fn give_back(&self);
        /// What to sleep on.
        fn word(&self) -> &AtomicU32;
        /// Who sleeps on it.
        fn scope(&self) -> futex::Scope;
    }
}

/// For what has permits, up to `$most` of them.
macro_rules! waitable_permits {
    ($name:ident, $most:expr) => {
        impl<S: Scope> sealed::Sealed for $name<S> {
            fn start(&self) -> u32 {
                0
            }

            fn take(&self, _: u32, has_slept: bool) -> bool {
                self.permits.take(if has_slept { AWAITED } else { 0 })
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

/// For what wakes all and is not used up, at a field or the thing itself.
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

    /// An unpark wakes all who sleep: nobody sleeps on beside one that was woken.
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
