//! A grace period that a program looks at without blocking.

use core::cell::Cell;
use core::fmt;
use core::panic::{RefUnwindSafe, UnwindSafe};

#[cfg(feature = "std")]
use super::deferred::runner;
use super::domain::{Core, Domain};
use super::error::Error;
use super::grace_period::Number;
use super::word;
use crate::primitive::atomic::Ordering;

/// A grace period that a program asks for now and then. See [`Domain::start_poll`].
#[derive(Clone)]
pub struct Ticket {
    pub(super) core: &'static Core,
    pub(super) domain: &'static Domain,
    pub(super) number: Cell<Number>,
}

impl Ticket {
    /// Whether the grace period has ended: whether every guard that existed when the ticket was made has ended.
    ///
    /// Takes steps towards the end, as long as no guard is in the way, with a few calls of `membarrier(2)` at most. Never
    /// blocks. In a forked child a ticket from before stands for the child's next grace period.
    ///
    /// # Errors
    /// As for [`Domain::synchronize`].
    pub fn is_complete(&self) -> Result<bool, Error> {
        #[cfg(feature = "std")]
        if runner::is_inside_of(self.domain) {
            return Err(Error::InCallback);
        }
        self.poll()
    }

    /// Like `is_complete`, in a deferred function, too.
    pub(super) fn poll(&self) -> Result<bool, Error> {
        loop {
            let number = self.of_this_process();
            if self.core.is_complete(number) {
                return Ok(true);
            }
            if !self.core.takes_a_step(number, self.domain)? {
                return Ok(false);
            }
        }
    }

    /// The grace period; in a forked child another one than before.
    pub(super) fn of_this_process(&self) -> Number {
        if self.number.get().generation()
            != word::generation(self.core.word.load(Ordering::Relaxed))
        {
            self.number.set(self.domain.next_grace_period().1);
        }
        self.number.get()
    }

    /// The domain that it is of.
    pub fn domain(&self) -> &'static Domain {
        self.domain
    }

    /// Waits until the grace period has ended.
    ///
    /// # Errors
    /// As for [`Domain::synchronize`].
    pub fn wait(&self) -> Result<(), Error> {
        self.domain.wait(self, None)
    }
}

impl UnwindSafe for Ticket {}
impl RefUnwindSafe for Ticket {}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").finish_non_exhaustive()
    }
}
