//! Spinning before a thread sleeps: an owner on another cpu is often done sooner than the kernel could put a thread
//! to sleep and wake it.
//!
//! Between two checks a thread yields (sched_yield(2), a third of a microsecond if no other thread is ready). That is
//! deliberately longer than necessary:
//! - Each check takes the lock's cache line away from the owner. More frequent checks halve the throughput of a lock
//!   that two cpus want.
//! - With more threads than cpus, ready threads pass the lock among themselves in the order in which the kernel runs
//!   them, and few of them ever sleep.
//! - A thread that is restricted to one cpu checks after the owner has run, and need not know about the restriction.
//!
//! Invariant: a spin ends after the number of checks that it was created for, and writes nothing that other threads
//! read.

/// The checks of a short spin, about three microseconds: an owner unlocks within it, or holds the lock for long.
pub(in crate::sync) const BRIEF: u32 = 7;

/// The spinning phase of one wait.
pub(in crate::sync) struct Spin {
    left: u32,
}

impl Spin {
    #[inline]
    pub(in crate::sync) fn new(looks: u32) -> Spin {
        // A model explores all orders anyway.
        Spin { left: if cfg!(loom) { 0 } else { looks } }
    }

    /// Yields, and returns true for another check; false, at once, when it is time to sleep.
    #[inline]
    pub(in crate::sync) fn again(&mut self) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        // SAFETY: no preconditions. If it is refused, it served as a pause.
        unsafe { libc::sched_yield() };
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_spin_ends() {
        let mut spin = Spin::new(BRIEF);
        assert_eq!((0..1000).filter(|_| spin.again()).count(), BRIEF as usize);
        assert!(!spin.again());
    }
}
