//! Ctrl-C, and being asked to end: seen by who looks, so that what was begun is brought to its end.
//!
//! Invariant: the handler stores to one word, and nothing else.

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

static CAME: AtomicI32 = AtomicI32::new(0);

/// From now on SIGINT, SIGTERM and SIGHUP are noted and no longer end the process.
pub fn note() {
    extern "C" fn noted(signal: libc::c_int) {
        // Relaxed, with the load: the number is all there is.
        CAME.store(signal, Ordering::Relaxed);
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: a zeroed sigaction is valid; the handler stores to an atomic and returns.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = noted as extern "C" fn(libc::c_int) as usize;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

/// Whether one came.
pub fn came() -> bool {
    CAME.load(Ordering::Relaxed) != 0
}

/// Which one came last, if any did.
pub fn which() -> Option<i32> {
    Some(CAME.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
}

/// The same signals, kept back: for who waits for time to pass and has nothing else to do.
pub struct Kept(libc::sigset_t);

impl Kept {
    /// From now on they come to [`wait`](Kept::wait) only, in this thread and those it starts.
    pub fn back() -> Kept {
        // SAFETY: `sigemptyset` makes a set of any bytes; the others get a valid set.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(&mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            Kept(set)
        }
    }

    /// Lets `time` pass; the signal's name if one comes first.
    pub fn wait(&self, time: Duration) -> Option<&'static str> {
        let time = libc::timespec {
            tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: time.subsec_nanos().into(),
        };
        // SAFETY: a valid set and a valid time; nothing is asked about the signal.
        match unsafe { libc::sigtimedwait(&self.0, std::ptr::null_mut(), &time) } {
            libc::SIGINT => Some("SIGINT"),
            libc::SIGTERM => Some("SIGTERM"),
            libc::SIGHUP => Some("SIGHUP"),
            // The time has passed, or a debugger came by.
            _ => None,
        }
    }
}
