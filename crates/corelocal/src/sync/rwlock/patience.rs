//! How a thread waits for a lock: it looks again a few times, then it sleeps, and after a while it insists.

use core::time::Duration;

use crate::sys::futex::Deadline;

/// How long a thread sleeps and is overtaken before it insists.
const PATIENCE: Duration = Duration::from_micros(500);

/// What one thread has done so far to get the lock.
pub(super) struct Patience {
    looks: u32,
    /// The end of it, once the thread was about to sleep.
    end: Option<Deadline>,
    /// It has slept, and perhaps was woken in place of another.
    pub(super) slept: bool,
    /// It has said that it comes first.
    pub(super) insists: bool,
}

impl Patience {
    pub(super) fn new() -> Patience {
        Patience { looks: looks(), end: None, slept: false, insists: false }
    }

    /// Of one that does not wait.
    pub(super) fn none() -> Patience {
        Patience { looks: 0, end: None, slept: false, insists: false }
    }

    /// Waits a little, if it is worth to look again before sleeping.
    pub(super) fn look_again(&mut self) -> bool {
        let Some(left) = self.looks.checked_sub(1) else { return false };
        self.looks = left;
        // Longer and longer, while the holder has a chance to leave soon.
        for _ in 0..(LOOKS - left).min(16) {
            core::hint::spin_loop();
        }
        true
    }

    /// It is about to sleep.
    pub(super) fn sleeps(&mut self) {
        if self.end.is_none() && !cfg!(loom) {
            self.end = Some(Deadline::after(PATIENCE));
        }
    }

    /// It was overtaken for so long that it insists now; in a model, when it was overtaken once.
    pub(super) fn is_over(&self) -> bool {
        self.slept
            && !self.insists
            && (cfg!(loom) || self.end.is_some_and(|end| end <= Deadline::now()))
    }
}

const LOOKS: u32 = 12;

/// How often to look again: what one waits for does not happen meanwhile on a single cpu.
#[cfg(not(loom))]
fn looks() -> u32 {
    use crate::primitive::global::{AtomicU32, Ordering};
    static CPUS: AtomicU32 = AtomicU32::new(0);
    // Relaxed: the value is all there is.
    let mut cpus = CPUS.load(Ordering::Relaxed);
    if cpus == 0 {
        cpus = crate::sys::allowed_cpus().max(1);
        CPUS.store(cpus, Ordering::Relaxed);
    }
    if cpus > 1 { LOOKS } else { 0 }
}

#[cfg(loom)]
fn looks() -> u32 {
    0
}
