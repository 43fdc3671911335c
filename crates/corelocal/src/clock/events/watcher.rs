//! A descriptor that becomes readable when the realtime clock is set: for programs that wait in `poll`
//! anyway.
//!
//! It is a timer far in the future, which the kernel cancels when it sets that clock, and when the machine
//! wakes up.
//!
//! # Invariant
//! 1. A [`Watcher`] owns an open timerfd, closed once.

use core::ffi::c_int;

use super::{Change, Epoch};
use crate::clock::events;
use crate::sys::Errno;

/// Tells by a descriptor that the realtime clock was set.
///
/// ```
/// use corelocal::clock::Watcher;
///
/// let mut watcher = Watcher::new()?;
/// let mut poll = libc::pollfd { fd: watcher.fd(), events: libc::POLLIN, revents: 0 };
/// // SAFETY: one valid entry; does not wait.
/// let ready = unsafe { libc::poll(&mut poll, 1, 0) };
/// if ready == 1 {
///     println!("the clocks changed: {:?}", watcher.look());
/// }
/// # Ok::<(), corelocal::sys::Errno>(())
/// ```
///
/// A forked child shares the descriptor with its parent, and the look of one takes the change from the other: the child
/// makes a watcher of its own.
#[derive(Debug)]
pub struct Watcher {
    timer: c_int,
    /// The epoch at the last look.
    seen: Epoch,
}

/// Half of the largest time: the kernel can add any time of its own to it without overflow.
const FAR: i64 = i64::MAX / 2;

impl Watcher {
    /// Watches from now on. Four system calls. Async-signal-safe but for `errno`.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`, or `ENODEV` for want of what a descriptor takes.
    pub fn new() -> Result<Watcher, Errno> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: no addresses.
        let timer = unsafe { libc::timerfd_create(libc::CLOCK_REALTIME, flags) };
        if timer < 0 {
            return Err(Errno::last());
        }
        let mut watcher = Watcher { timer, seen: Epoch::default() };
        watcher.arm()?;
        watcher.seen = events::check();
        Ok(watcher)
    }

    fn arm(&self) -> Result<(), Errno> {
        let flags = libc::TFD_TIMER_ABSTIME | libc::TFD_TIMER_CANCEL_ON_SET;
        let at = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: libc::timespec { tv_sec: FAR, tv_nsec: 0 },
        };
        // SAFETY: an open timerfd (1), a valid time, no place for the old one.
        match unsafe { libc::timerfd_settime(self.timer, flags, &at, core::ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(Errno::last()),
        }
    }

    /// Returns the descriptor: readable (`POLLIN`) after the clock was set, until [`look`](Watcher::look). It
    /// belongs to this watcher; do not read from it.
    #[must_use]
    pub fn fd(&self) -> c_int {
        self.timer
    }

    /// Returns the changes of the clocks so far, as [`check`](crate::clock::check) reports them. Afterwards the
    /// descriptor is no longer readable. Does not wait; a few system calls and some hundred nanoseconds.
    ///
    /// A change that the descriptor reported is always counted, also if the clock was set by less than a microsecond,
    /// or set back before this call.
    pub fn look(&mut self) -> Epoch {
        let mut expired = 0u64;
        // SAFETY: an open timerfd (1), and eight bytes to write to.
        let read = unsafe { libc::read(self.timer, (&raw mut expired).cast(), size_of::<u64>()) };
        let was_set = read < 0 && Errno::last().0 == libc::ECANCELED;
        let mut epoch = events::check();
        let is_counted = |change| epoch.has(change, &self.seen);
        if was_set && !is_counted(Change::Realtime) && !is_counted(Change::Suspend) {
            epoch = events::realtime_was_set();
        }
        self.seen = epoch;
        epoch
    }
}

#[cfg(feature = "std")]
impl std::os::fd::AsFd for Watcher {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        // SAFETY: open for as long as the watcher (1).
        unsafe { std::os::fd::BorrowedFd::borrow_raw(self.timer) }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // SAFETY: ours, and not used again (1).
        unsafe { libc::close(self.timer) };
    }
}
