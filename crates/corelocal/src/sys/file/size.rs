//! Calls that make files longer, past the limit of the process too (`RLIMIT_FSIZE`, `ulimit -f`).
//!
//! There the kernel answers `EFBIG`, and sends SIGXFSZ, which ends a program that does not expect it. It sends the
//! signal to the calling thread, before the call returns. So the thread blocks it around the call, and takes it away.
//!
//! # Invariants
//! 1. A SIGXFSZ that was pending before stays: the program has blocked it, and waits for it.
//! 2. The thread's mask is what it was. Nothing here allocates or changes `errno`: it is async-signal-safe.

use crate::sys::errno::Errno;
use crate::sys::syscall::syscall;

/// SIGXFSZ as a bit of the kernel's signal set.
const SIGXFSZ: u64 = 1 << (libc::SIGXFSZ - 1);
/// The length of the kernel's signal set in bytes.
const LEN: usize = size_of::<u64>();

/// Calls `rt_sigprocmask(SIG_BLOCK, {SIGXFSZ}, &before)`, see sigprocmask(2).
///
/// Makes a call that returns `EFBIG` past the limit, without the signal.
#[doc(alias = "sigprocmask")]
pub fn without_sigxfsz<T>(call: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    // Miri has no signals.
    if cfg!(miri) {
        return call();
    }
    let (set, mut before, mut pending) = (SIGXFSZ, 0u64, 0u64);
    let (set_at, before_at) = (&raw const set as usize, &raw mut before as usize);
    let args = [libc::SIG_BLOCK as usize, set_at, before_at, LEN, 0, 0];
    // SAFETY: the kernel reads one set and writes the other.
    if unsafe { syscall(libc::SYS_rt_sigprocmask, args) }.is_err() {
        return call();
    }
    if before & SIGXFSZ != 0 {
        // SAFETY: the kernel writes the set.
        let _ = unsafe {
            syscall(libc::SYS_rt_sigpending, [&raw mut pending as usize, LEN, 0, 0, 0, 0])
        };
    }
    let result = call();
    if matches!(result, Err(Errno::EFBIG)) && pending & SIGXFSZ == 0 {
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let args = [set_at, 0, &raw const now as usize, LEN, 0, 0];
        // SAFETY: the kernel reads the set and the time. Of two signals it takes the thread's own.
        let _ = unsafe { syscall(libc::SYS_rt_sigtimedwait, args) };
    }
    let args = [libc::SIG_SETMASK as usize, before_at, 0, LEN, 0, 0];
    // SAFETY: the kernel reads the set.
    let _ = unsafe { syscall(libc::SYS_rt_sigprocmask, args) };
    result
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU32, Ordering};

    static CAME: AtomicU32 = AtomicU32::new(0);

    extern "C" fn came(_: libc::c_int) {
        CAME.fetch_add(1, Ordering::Relaxed);
    }

    /// Fails as the kernel does past the limit.
    fn too_long() -> Result<(), Errno> {
        // SAFETY: a signal to the calling thread.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGXFSZ) };
        Err(Errno::EFBIG)
    }

    #[test]
    fn the_signal_is_the_call_s_alone() {
        // SAFETY: all bytes 0 is an action, and a set; the handler counts.
        let set = unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = came as extern "C" fn(libc::c_int) as usize;
            assert_eq!(libc::sigaction(libc::SIGXFSZ, &action, core::ptr::null_mut()), 0);
            let mut set: libc::sigset_t = core::mem::zeroed();
            libc::sigaddset(&mut set, libc::SIGXFSZ);
            set
        };
        assert_eq!(without_sigxfsz(too_long), Err(Errno::EFBIG));
        assert_eq!(CAME.load(Ordering::Relaxed), 0);
        // Not blocked any more.
        let _ = too_long();
        assert_eq!(CAME.load(Ordering::Relaxed), 1);
        let mask = |how| {
            // SAFETY: the thread's own mask.
            assert_eq!(unsafe { libc::pthread_sigmask(how, &set, core::ptr::null_mut()) }, 0);
        };
        // One that the program has blocked is not pending afterwards, unless it was before.
        for (is_pending, expected) in [(false, 1), (true, 2)] {
            mask(libc::SIG_BLOCK);
            if is_pending {
                let _ = too_long();
            }
            assert_eq!(without_sigxfsz(too_long), Err(Errno::EFBIG));
            mask(libc::SIG_UNBLOCK);
            assert_eq!(CAME.load(Ordering::Relaxed), expected);
        }
        // Only EFBIG from the kernel consumes a pending signal.
        let other = || too_long().or(Err(Errno::EIO));
        assert_eq!(without_sigxfsz(other), Err(Errno::EIO));
        assert_eq!(CAME.load(Ordering::Relaxed), 3);
    }
}
