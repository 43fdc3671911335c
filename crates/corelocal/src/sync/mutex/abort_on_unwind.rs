//! Ends the process where a panic would leave a guard without its lock.

/// Aborts the process when a panic unwinds through it: for locks that are reacquired for a guard that the caller
/// still has. If the panic were caught, that guard would exist without its lock.
pub(super) struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        // SAFETY: no preconditions.
        unsafe { libc::abort() };
    }
}
