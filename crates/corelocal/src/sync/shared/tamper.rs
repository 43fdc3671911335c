//! Which types stay memory safe while another user writes any bytes to them.
//!
//! A robust mutex is not among them: it is linked into a list whose pointers lie in the object, and the kernel follows
//! them when its owner ends. Neither is a lock with data: between two looks of its holder the data may change.
//!
//! Invariant: an implementor's words are atomics that any number is a value of, and none of them is used as an address,
//! an index or a length.

use core::sync::atomic;

use super::{
    SharedAutoEvent, SharedBarrier, SharedCondvar, SharedLatch, SharedManualEvent, SharedMutex,
    SharedParker, SharedRwLock, SharedSafe, SharedSemaphore, SharedWaitGroup,
};

/// Types that stay memory safe while others write any bytes to them, at any time.
///
/// That is all: another user that writes to an `AtomicU64` decides what number is read, and one that writes to a
/// [`SharedSemaphore`] decides who gets a permit, whether a waiter wakes, and whether a method panics over a count that
/// cannot be. Treat numbers as those of a message from that user.
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
/// - Any bytes are a value, and another value at any time does no harm to memory: atomics of numbers, and what is made
///   of nothing else. Not `u64`, whose value a compiler may load twice; nor `AtomicBool`, of which 2 is no value.
/// - No word of it is an address, an index or a length that is used without a check.
pub unsafe trait TamperSafe: SharedSafe + Sync {}

macro_rules! tamper_safe {
    ($($type:ty,)*) => {
        $(
            // SAFETY: atomics of numbers.
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

// SAFETY: one after the other.
unsafe impl<T: TamperSafe, const N: usize> TamperSafe for [T; N] {}
