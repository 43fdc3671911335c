//! What the C library (crate corelocal-capi) needs besides the public interface: objects that begin as zeros, guards that
//! are held between two calls, and the words that inline sections of C programs read.
//!
//! Hidden, as it changes with the library. Nothing here adds a capability that Rust programs lack.

use core::sync::atomic::AtomicU64;

use crate::cid::{Cid, SlotIndex, private::Sealed as _};
use crate::percpu::area::Cell;
use crate::percpu::histogram::{Bits, Precision};
use crate::percpu::{Counter, CounterVec, Histogram, Queue, Stack};
use crate::sync::{Condvar, Orphaned, Recovered, RobustMutex, RobustMutexGuard, Scope, Waiting};
use crate::sys;

/// Types whose new object is all bytes 0, so that C programs can declare it without a call.
///
/// # Safety
/// - All bytes 0 is a valid value, the one that `new` makes.
pub unsafe trait ZeroIsNew {}

// SAFETY: slots without a base, and a bias of 0.
unsafe impl<I: SlotIndex> ZeroIsNew for Counter<I> {}
// SAFETY: as for `Counter`.
unsafe impl<const N: usize, I: SlotIndex> ZeroIsNew for CounterVec<N, I> {}
// SAFETY: as for `Counter`.
unsafe impl<const PRECISION: u32, I: SlotIndex> ZeroIsNew for Histogram<PRECISION, I> where
    Bits<PRECISION>: Precision
{
}
// SAFETY: slots without a base.
unsafe impl<T: Send + 'static, const N: usize, I: SlotIndex> ZeroIsNew for Stack<T, N, I> {}
// SAFETY: slots without a base, no sleepers, and a cursor at 0.
unsafe impl<T, I: SlotIndex> ZeroIsNew for Queue<T, I> {}
// SAFETY: no waiters.
unsafe impl<S: Scope> ZeroIsNew for Condvar<S> {}
// SAFETY: an unlocked word in no list; the value may be all bytes 0.
unsafe impl<T: ZeroIsNew, S: Scope, W: Waiting> ZeroIsNew for RobustMutex<T, S, W> {}
// SAFETY: an unlocked word.
#[cfg(feature = "lock_api")]
unsafe impl<S: Scope> ZeroIsNew for crate::sync::RawMutex<S> {}
// SAFETY: an unlocked word.
#[cfg(feature = "lock_api")]
unsafe impl<S: Scope> ZeroIsNew for crate::sync::RawRwLock<S> {}
// SAFETY: a pointer that was never stored to, and words of any value.
#[cfg(feature = "std")]
unsafe impl<const N: usize> ZeroIsNew for crate::rcu::RcuCopy<[u64; N]> {}
// SAFETY: a number.
unsafe impl ZeroIsNew for u32 {}

/// Makes the guard of a robust mutex that the calling thread owns, and whose guard it has forgotten.
///
/// # Safety
/// - So it is, and no other guard exists.
pub unsafe fn robust_guard<T, S: Scope, W: Waiting>(
    mutex: &RobustMutex<T, S, W>,
) -> RobustMutexGuard<'_, T, S, W> {
    RobustMutexGuard::of_owned(mutex)
}

/// Does what [`robust_guard`] does for a mutex whose last owner died with it.
///
/// # Safety
/// - As for [`robust_guard`].
pub unsafe fn robust_recovered<T, S: Scope, W: Waiting>(
    mutex: &RobustMutex<T, S, W>,
) -> Recovered<'_, T, S, W> {
    // SAFETY: the caller keeps the condition.
    Recovered::of(unsafe { robust_guard(mutex) })
}

/// Does what [`robust_guard`] does for a mutex whose last owner a fork left behind.
///
/// # Safety
/// - As for [`robust_guard`].
pub unsafe fn robust_orphaned<T, S: Scope, W: Waiting>(
    mutex: &RobustMutex<T, S, W>,
) -> Orphaned<RobustMutexGuard<'_, T, S, W>> {
    // SAFETY: the caller keeps the condition.
    Orphaned::new(unsafe { robust_guard(mutex) }, 0)
}

/// Locks. False if the owner was gone after a fork: the calling thread owns the lock then, and what it protects may be half
/// changed.
#[cfg(feature = "lock_api")]
pub fn lock_or_adopt<S: Scope>(mutex: &crate::sync::RawMutex<S>) -> bool {
    mutex.lock_or_adopt()
}

/// Returns what an inline section adds the offset of a slot to, which never changes; null if there is no memory.
pub fn base_of<const N: usize, I: SlotIndex>(counters: &CounterVec<N, I>) -> *const u8 {
    counters.base()
}

/// Returns the address of a cell's words, or of their differences from the image, under the calling thread's slot: a hint.
pub fn words_here<const WORDS: usize, I: SlotIndex>(
    cell: &Cell<'_, WORDS, I>,
) -> Option<*const AtomicU64> {
    cell.here()
}

/// Starts a recording of events with options as `CORELOCAL_TRACE` has them.
///
/// # Errors
/// Says in words what is wrong.
#[cfg(feature = "std")]
pub fn trace_start(options: &str) -> Result<(), std::string::String> {
    crate::trace::start_as(options)
}

/// Returns where a site's state is. While its two upper bits are 10 the site is off.
pub fn site_state(site: &crate::trace::Site) -> *const u32 {
    site.state()
}

/// What inline sections of other languages read: where the thread's rseq area and its concurrency id are, from the thread
/// pointer, and the table from ids to slots.
///
/// Final from the first call on, and the same for all threads.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct InlineWords {
    /// The offset of the rseq area from the thread pointer. Never 0.
    pub area: isize,
    /// The offset of the concurrency id from the thread pointer.
    pub id: isize,
    /// A word for each concurrency id: see `rseq/operand.rs`.
    pub offsets: usize,
}

/// Returns those words. `None` where this processor has no sections.
pub fn inline_words() -> Option<InlineWords> {
    let _ = sys::rseq::register_this_thread();
    let index = Cid::settled_index().filter(|_| sys::rseq::has_sections())?;
    Some(InlineWords { area: index.area, id: index.id, offsets: index.offsets.addr() })
}

/// Keeps the object with this address of code or data loaded for ever: see `sys/process/nodelete.rs`. False if it may be
/// unloaded.
pub fn stays_loaded(address: usize) -> bool {
    sys::process::nodelete::stays_loaded(address)
}
