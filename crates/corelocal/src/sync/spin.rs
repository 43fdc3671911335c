//! Looking again for a moment before one sleeps: a holder on another cpu is often done sooner than the kernel
//! could put a thread to sleep and wake it.
//!
//! Between two looks a thread lets others run (sched_yield(2), a third of a microsecond if there are none). That
//! is longer than it need be, and on purpose:
//! - Each look takes the lock's cache line away from its holder. Looks that follow each other sooner make a lock
//!   that two cpus want half as fast, for both.
//! - With more threads than cpus, the ready ones pass the lock on among themselves in the order in which the
//!   kernel runs them, and few of them ever sleep.
//! - A thread that may run on one cpu only looks when the holder has run, and need not know that it is one.
//!
//! Invariant: a spin ends after the looks it was made for, and writes nothing that other threads read.

/// What is enough where a holder lets go soon, or not for long: three microseconds.
pub(super) const BRIEF: u32 = 7;

/// One wait's worth of looks.
pub(super) struct Spin {
    left: u32,
}

impl Spin {
    #[inline]
    pub(super) fn new(looks: u32) -> Spin {
        // A model explores all orders anyway.
        Spin { left: if cfg!(loom) { 0 } else { looks } }
    }

    /// Lets others run, and says to look again; false, at once, when it is time to sleep.
    #[inline]
    pub(super) fn again(&mut self) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        // SAFETY: no preconditions. Should it be refused, it was a pause.
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
