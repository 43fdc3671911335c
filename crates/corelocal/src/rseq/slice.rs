//! Time slice extension: a thread asks the kernel not to preempt it during a few instructions.
//!
//! The thread sets a request in its rseq area. When its slice ends, the kernel may let it run for some more
//! microseconds, which a timer enforces, and sets a flag there:
//!
//! ```text
//!   request = 1                              request, granted
//!     the slice ends: the kernel grants          1       0
//!       request = 0, granted = 1                 0       1
//!     the extension ends by the timer
//!       granted = 0                              0       0
//!   request: tested and cleared
//!     it was set: the kernel was not involved
//!     it was clear, and granted is set: rseq_slice_yield(2), which gives up the cpu
//! ```
//!
//! # Invariants
//! 1. The request is cleared and tested in one instruction: an interrupt comes before or after it.
//! 2. A thread writes its own fields only, and only if the kernel has stated that it reads them.
//!
//! Linux 7.0 and later, with `CONFIG_RSEQ_SLICE_EXTENSION`, for threads whose registration is of the second ABI
//! (commits 3ef79629e19b and 3a6a46e6f3ec; Documentation/userspace-api/rseq.rst).

use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::{Ordering, compiler_fence};

use crate::sys::Errno;
use crate::sys::rseq::slice as sys;

/// The reason why a thread cannot extend its time slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SliceError {
    /// The kernel does not offer it to this thread: the kernel is older than 7.0, was built or booted without it, or
    /// libc made a registration of the first ABI.
    Unavailable,
    /// The system call failed.
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

/// Switches the extension on for the calling thread: from now on [`extend`] has an effect there.
///
/// # Errors
/// See [`SliceError`]. Requests then have no effect.
pub fn enable() -> Result<(), SliceError> {
    if !sys::is_available() {
        return Err(SliceError::Unavailable);
    }
    sys::enable().map_err(SliceError::Kernel)
}

/// Returns whether it is switched on for the calling thread. A load.
#[inline]
pub fn is_enabled() -> bool {
    sys::is_enabled()
}

/// Requests an extension if the thread's slice ends before this is dropped: for a few microseconds of work that other
/// threads wait for, such as a critical section under a lock.
///
/// If [`enable`] was not called or failed this is one load. It is a hint: the kernel may refuse, and does when it has
/// granted enough time.
///
/// ```
/// use corelocal::rseq::slice;
/// use corelocal::sync::Mutex;
///
/// let _ = slice::enable();
/// let counts = Mutex::new([0; 8]);
/// let mut guard = counts.lock();
/// let extension = slice::extend();
/// guard[3] += 1;
/// drop(guard);
/// drop(extension);
/// ```
///
/// # Restrictions
/// Make no system calls meanwhile: a thread that makes one during an extension loses the extension, or is ended with
/// SIGSEGV. Unlocking a [`Mutex`](crate::sync::Mutex) that others wait for may be a system call, so drop this first.
/// Requests do not nest: the first one that is dropped ends the extension.
#[inline]
pub fn extend() -> Extension {
    let is_asked = sys::is_enabled();
    if is_asked {
        sys::request();
        // The following code is not moved before the request.
        compiler_fence(Ordering::SeqCst);
    }
    Extension { is_asked, here: PhantomData }
}

/// While it exists its thread requests an extension: see [`extend`].
#[must_use = "it ends when this is dropped"]
pub struct Extension {
    is_asked: bool,
    /// Not `Send`: the request is that of this thread.
    here: PhantomData<*const ()>,
}

impl Drop for Extension {
    #[inline]
    fn drop(&mut self) {
        if self.is_asked {
            // The preceding code is not moved behind the end of the request.
            compiler_fence(Ordering::SeqCst);
            if !sys::take_request() && sys::is_granted() {
                sys::give_back();
            }
        }
    }
}

impl fmt::Debug for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extension").field("is_asked", &self.is_asked).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sys::Registration;

    /// In a thread of its own, since the setting is permanent.
    #[test]
    fn as_the_kernel_offers() {
        std::thread::spawn(|| {
            let offered = Registration::of_this_thread().slice_available;
            let enabled = enable();
            assert_eq!(enabled.is_ok(), offered, "{enabled:?}");
            assert_eq!(is_enabled(), offered);
            for _ in 0..1000 {
                drop(extend());
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
