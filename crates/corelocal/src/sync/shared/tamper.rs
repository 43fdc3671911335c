//! Types that stay memory safe while another user writes arbitrary bytes to them.
//!
//! A robust mutex is not among them: it is linked into a list whose pointers lie in the object, and the kernel
//! follows them when its owner ends. Nor is a lock with data: the data may change between two reads of its owner.
//!
//! Invariant: an implementor's words are atomics of which every number is a valid value. None of them is used as an
//! address, an index or a length.

use core::sync::atomic;

use super::{
    SharedAutoEvent, SharedBarrier, SharedCondvar, SharedLatch, SharedManualEvent, SharedMutex,
    SharedParker, SharedRwLock, SharedSafe, SharedSemaphore, SharedWaitGroup,
};

/// Types that stay memory safe while others write arbitrary bytes to them, at any time.
///
/// Memory safety is all they offer. A user that writes to an `AtomicU64` decides which number is read. One that
/// writes to a [`SharedSemaphore`] decides which thread gets a permit, whether a waiter wakes, and whether a method
/// panics over an impossible count. Treat numbers like those in a message from that user.
///
/// ```
/// use corelocal::sync::shared::{self, SharedSafe, TamperSafe, layout};
/// use std::sync::atomic::AtomicU64;
///
/// #[repr(C)]
/// struct Requests {
///     sent: AtomicU64,
///     wanted: shared::SharedAutoEvent,
/// }
///
/// // SAFETY: `repr(C)`, and made of such types; the name changes with the fields.
/// unsafe impl SharedSafe for Requests {
///     const LAYOUT: u64 = layout("Requests 1", &[AtomicU64::LAYOUT, shared::SharedAutoEvent::LAYOUT]);
/// }
///
/// // SAFETY: made of such types.
/// unsafe impl TamperSafe for Requests {}
/// ```
///
/// Robust mutexes and data under a lock are not:
///
/// ```compile_fail,E0277
/// use corelocal::sync::shared::{SharedRobustMutex, SharedBox};
///
/// // SAFETY: this does not compile.
/// let _ = unsafe { SharedBox::<SharedRobustMutex<u64>>::open_of_user("x", 1000) };
/// ```
///
/// ```compile_fail,E0277
/// use corelocal::sync::shared::{SharedMutex, SharedBox};
///
/// // SAFETY: this does not compile.
/// let _ = unsafe { SharedBox::<SharedMutex<u64>>::open_of_user("x", 1000) };
/// ```
///
/// # Safety
/// - Any bytes are a valid value, and a concurrent change does no harm to memory: atomics of integers, and structures
///   of those. `u64` is not such a type, since a compiler may load it twice; nor is `AtomicBool`, for which 2 is
///   invalid.
/// - No word of it is used as an address, an index or a length without a check.
pub unsafe trait TamperSafe: SharedSafe + Sync {}

macro_rules! tamper_safe {
    ($($type:ty,)*) => {
        $(
            // SAFETY: atomics of integers.
            unsafe impl TamperSafe for $type {}
        )*
    };
}

tamper_safe! {
    atomic::AtomicU8, atomic::AtomicU16, atomic::AtomicU32, atomic::AtomicU64, atomic::AtomicUsize,
    atomic::AtomicI8, atomic::AtomicI16, atomic::AtomicI32, atomic::AtomicI64, atomic::AtomicIsize,
    SharedAutoEvent, SharedBarrier, SharedCondvar, SharedLatch, SharedManualEvent, SharedParker, SharedSemaphore, SharedWaitGroup,
    SharedMutex<()>, SharedRwLock<()>,
}

// SAFETY: an array of tamper-safe objects.
unsafe impl<T: TamperSafe, const N: usize> TamperSafe for [T; N] {}
