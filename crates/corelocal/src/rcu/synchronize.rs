//! Waits for a grace period, and for what it frees.

use core::time::Duration;

use super::domain::Domain;
use super::error::Error;
use crate::sys::futex::Deadline;

impl Domain {
    /// Waits for a grace period: until every guard of this domain that exists now has ended.
    ///
    /// Calls at the same time share grace periods. Under a guard of this domain the calling thread would wait for
    /// itself, for ever.
    ///
    /// # Errors
    /// [`Error::InCallback`] in a deferred function of this domain, [`Error::Refused`] if the kernel refuses
    /// `membarrier(2)` since the first use. Then guards may exist: free nothing.
    pub fn synchronize(&'static self) -> Result<(), Error> {
        self.wait_and_flush(None)
    }

    /// Does what [`synchronize`](Self::synchronize) does, but waits no longer than this.
    ///
    /// # Errors
    /// [`Error::TimedOut`], besides those of `synchronize`.
    pub fn synchronize_timeout(&'static self, span: Duration) -> Result<(), Error> {
        self.wait_and_flush(Some(Deadline::after(span)))
    }

    fn wait_and_flush(&'static self, deadline: Option<Deadline>) -> Result<(), Error> {
        self.start_poll().wait_until(deadline)?;
        #[cfg(feature = "std")]
        self.flush_on_caller();
        Ok(())
    }
}
