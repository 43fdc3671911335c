//! A little more time: a thread asks the kernel not to take the cpu from it in the middle of a few instructions.
//!
//! The thread says in its rseq area that it would rather not be preempted now. When its slice ends, the kernel
//! may let it go on for some microseconds, which a timer enforces, and says so there:
//!
//! ```text
//!   request = 1                              request, granted
//!     the slice ends: the kernel grants          1       0
//!       request = 0, granted = 1                 0       1
//!     the time ends all the same
//!       granted = 0                              0       0
//!   request: tested and cleared
//!     it was set: nothing had to be asked
//!     it was not, and granted is: rseq_slice_yield(2), the cpu goes to who waits for it
//! ```
//!
//! # Invariants
//! 1. The request is cleared and looked at in one instruction: an interrupt comes before it or after.
//! 2. A thread writes its own fields alone, and only where the kernel has said that it reads them.
//!
//! Linux 7.0 and later, with `CONFIG_RSEQ_SLICE_EXTENSION`, for threads whose registration is of the second ABI
//! (commits 3ef79629e19b and 3a6a46e6f3ec; Documentation/userspace-api/rseq.rst).

use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::{Ordering, compiler_fence};

use crate::sys::Errno;
use crate::sys::rseq::slice as sys;

/// Why a thread gets no more time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SliceError {
    /// The kernel does not offer it to this thread: it is older than 7.0, or built or booted without it, or libc
    /// made a registration of the first ABI.
    Unavailable,
    /// The kernel refused.
    Kernel(Errno),
}

impl fmt::Display for SliceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SliceError::Unavailable => f.write_str(
                "the kernel does not offer to extend time slices: `corelocal doctor` says why",
            ),
            SliceError::Kernel(errno) => write!(f, "prctl(PR_RSEQ_SLICE_EXTENSION): {errno}"),
        }
    }
}

impl core::error::Error for SliceError {}

/// Switches it on for the calling thread: from now on [`brief`] has an effect there.
///
/// # Errors
/// See [`SliceError`]. What is asked for then has no effect.
pub fn enable() -> Result<(), SliceError> {
    if !sys::is_available() {
        return Err(SliceError::Unavailable);
    }
    sys::enable().map_err(SliceError::Kernel)
}

/// Whether it is switched on for the calling thread. A load.
#[inline]
pub fn is_enabled() -> bool {
    sys::is_enabled()
}

/// Asks for a little more time, should the thread's slice end before this is dropped: for a few microseconds of
/// work that others wait for, such as what is done under a lock.
///
/// Where [`enable`] was not called or failed this is a load and no more. It is a hint: the kernel may refuse, and
/// does when it has granted long enough.
///
/// ```
/// use corelocal::rseq::slice;
/// use corelocal::sync::Mutex;
///
/// let _ = slice::enable();
/// let counts = Mutex::new([0; 8]);
/// let mut guard = counts.lock();
/// let brief = slice::brief();
/// guard[3] += 1;
/// drop(guard);
/// drop(brief);
/// ```
///
/// # What must not be done meanwhile
/// System calls: a thread that was granted time and spends it on one is suspected of abuse, for which the kernel
/// may take the time back, or end the thread with SIGSEGV. (To unlock a [`Mutex`](crate::sync::Mutex) that others
/// wait for may be one: drop this first where they may.) It does not nest: the first that is dropped ends it.
#[inline]
pub fn brief() -> Brief {
    let is_asked = sys::is_enabled();
    if is_asked {
        sys::request();
        // Nothing of what follows comes before it.
        compiler_fence(Ordering::SeqCst);
    }
    Brief { is_asked, here: PhantomData }
}

/// As long as it exists its thread has asked for a little more time: see [`brief`].
#[must_use = "it ends when this is dropped"]
pub struct Brief {
    is_asked: bool,
    /// It is the thread that asks.
    here: PhantomData<*const ()>,
}

impl Drop for Brief {
    #[inline]
    fn drop(&mut self) {
        if self.is_asked {
            // Nothing of what came before goes after it.
            compiler_fence(Ordering::SeqCst);
            if !sys::take_request() && sys::is_granted() {
                sys::give_back();
            }
        }
    }
}

impl fmt::Debug for Brief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Brief").field("is_asked", &self.is_asked).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sys::Registration;

    /// In a thread of its own: what is switched on stays.
    #[test]
    fn as_the_kernel_offers() {
        std::thread::spawn(|| {
            let offered = Registration::of_this_thread().slice_available;
            let enabled = enable();
            assert_eq!(enabled.is_ok(), offered, "{enabled:?}");
            assert_eq!(is_enabled(), offered);
            for _ in 0..1000 {
                drop(brief());
            }
            if !offered {
                assert_eq!(enabled, Err(SliceError::Unavailable));
                std::eprintln!(
                    "skipped: slice: as_the_kernel_offers: this kernel extends no slices"
                );
            }
        })
        .join()
        .unwrap();
    }
}
