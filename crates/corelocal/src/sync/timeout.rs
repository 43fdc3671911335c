//! What a wait with a time limit returns.

/// Whether a wait ended because its time was over: what every `_for` and `_until` form returns that has nothing else to
/// return, as `std::sync::WaitTimeoutResult` does.
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
/// The `try_` forms return what they got instead: a guard, or for a permit whether there was one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult {
    timed_out: bool,
}

impl WaitTimeoutResult {
    #[inline]
    pub(super) fn timed_out_if(timed_out: bool) -> WaitTimeoutResult {
        WaitTimeoutResult { timed_out }
    }

    /// The result of a wait that has reached its end, or has timed out.
    #[inline]
    pub(super) fn of(is_done: bool) -> WaitTimeoutResult {
        WaitTimeoutResult { timed_out: !is_done }
    }

    /// Whether the time was over before what was waited for came.
    #[inline]
    pub const fn timed_out(self) -> bool {
        self.timed_out
    }
}
