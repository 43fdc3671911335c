//! The result of a wait with a time limit.

/// Whether a wait timed out. Returned by every `_for` and `_until` function that has nothing else to return, like
/// `std::sync::WaitTimeoutResult`.
///
/// ```
/// use core::time::Duration;
/// use corelocal::sync::AutoEvent;
///
/// let event = AutoEvent::new(false);
/// assert!(event.wait_for(Duration::from_millis(1)).timed_out());
/// event.set();
/// assert!(!event.wait_for(Duration::from_millis(1)).timed_out());
/// ```
///
/// The `try_` functions return what they got instead: a guard, or whether there was a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult {
    timed_out: bool,
}

impl WaitTimeoutResult {
    #[inline]
    pub(in crate::sync) fn timed_out_if(timed_out: bool) -> WaitTimeoutResult {
        WaitTimeoutResult { timed_out }
    }

    /// Returns the result of a wait that has succeeded, or has timed out.
    #[inline]
    pub(in crate::sync) fn of(is_done: bool) -> WaitTimeoutResult {
        WaitTimeoutResult { timed_out: !is_done }
    }

    /// Returns `true` if the time limit passed first.
    #[inline]
    pub const fn timed_out(self) -> bool {
        self.timed_out
    }
}
