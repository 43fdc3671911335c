//! Looking again for a moment before the kernel is asked to wait: a wake-up on another cpu takes a hundred
//! times as long as most locks are held.
//!
//! Invariant: whoever may run on one cpu only does not spin, for the owner cannot run meanwhile. How many
//! cpus there are is asked now and then; the answer is a hint, that of whichever thread asked last.

#[cfg(not(loom))]
pub(in crate::sync) use imp::Spin;

#[cfg(not(loom))]
mod imp {
    use crate::primitive::global::{AtomicU32, Ordering};
    use crate::sys;

    /// The allowed cpus are counted again after so many spins.
    const TRUST: u32 = 1024;
    /// How many cpus there are beyond the first, and, above these bits, for how many spins that holds.
    static OTHERS: AtomicU32 = AtomicU32::new(0);
    const COUNT_BITS: u32 = 16;

    /// So many looks, each after a pause.
    pub(in crate::sync) struct Spin {
        left: u32,
    }

    impl Spin {
        pub(in crate::sync) fn new(looks: u32) -> Spin {
            Spin { left: if others() { looks } else { 0 } }
        }

        /// Pauses, and says to look again; `false` when it is enough.
        #[inline]
        pub(in crate::sync) fn again(&mut self) -> bool {
            if self.left == 0 {
                return false;
            }
            self.left -= 1;
            core::hint::spin_loop();
            true
        }
    }

    /// Whether another cpu can run the owner.
    #[inline]
    fn others() -> bool {
        // Relaxed: a hint. Two threads that count down at once count once.
        let known = OTHERS.load(Ordering::Relaxed);
        if known >> COUNT_BITS == 0 {
            return count();
        }
        OTHERS.store(known - (1 << COUNT_BITS), Ordering::Relaxed);
        known % (1 << COUNT_BITS) != 0
    }

    #[cold]
    fn count() -> bool {
        let others = sys::allowed_cpus().saturating_sub(1);
        OTHERS.store(TRUST << COUNT_BITS | others.min((1 << COUNT_BITS) - 1), Ordering::Relaxed);
        others != 0
    }
}

/// In a model nobody looks again: it would be the same at once, for ever.
#[cfg(loom)]
pub(in crate::sync) struct Spin;

#[cfg(loom)]
impl Spin {
    pub(in crate::sync) fn new(_: u32) -> Spin {
        Spin
    }

    pub(in crate::sync) fn again(&mut self) -> bool {
        false
    }
}
