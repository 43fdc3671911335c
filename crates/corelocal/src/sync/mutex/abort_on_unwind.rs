//! Ends the process where a panic would leave a guard without its lock.

/// Ends the process when a panic unwinds to here: for locks that are taken again for a guard that the caller
/// still has. Caught, the panic would leave that guard without its lock.
pub(super) struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        // SAFETY: no preconditions.
        unsafe { libc::abort() };
    }
}
