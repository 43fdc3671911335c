//! The program's own limit for its heap, and the hook that runs when memory is missing.
//!
//! The limit is for what is mapped for objects, like `RLIMIT_DATA`: beyond it the malloc treats a request as if the
//! kernel had refused it. So idle memory is given back and unmapped first, and then the allocation fails.
//!
//! # Invariants
//! 1. What is mapped for objects never grows beyond the limit: chunks are counted before they are mapped.
//! 2. The hook runs while the calling thread holds nothing of the malloc's, and not inside itself on that thread.

use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::layout::chunk::CHUNK;
use super::layout::header::Header;
use crate::sys::arch::{self, own_words};
use crate::sys::try_lock::TryLock;

const R: Ordering = Ordering::Relaxed;

/// The most chunks that may be mapped.
static MOST: AtomicUsize = AtomicUsize::new(usize::MAX);
/// The hook; null: none.
static HOOK: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Sets a hard limit for the memory that is mapped for objects, spans and idle memory included; `None`, the default, for
/// none. An allocation that would need more [gives idle memory back](crate::alloc#errors) and then fails.
///
/// Counts in chunks of 64 KiB, rounded down. If more is mapped already it stays, and nothing further is mapped until
/// less is. Without the malloc's own tables, which take some hundredths. Async-signal-safe.
///
/// ```
/// use corelocal::alloc;
///
/// alloc::set_limit(Some(512 << 20));
/// assert!(alloc::allocate(600 << 20).is_null());
/// # alloc::set_limit(None);
/// ```
pub fn set_limit(bytes: Option<usize>) {
    MOST.store(bytes.map_or(usize::MAX, |bytes| bytes / CHUNK), R);
}

/// Returns the limit in bytes.
pub fn limit() -> Option<usize> {
    Some(MOST.load(R)).filter(|most| *most != usize::MAX).map(|most| most * CHUNK)
}

/// Counts chunks that are about to be mapped; false if the limit forbids it, and then they are not counted.
pub(super) fn count(header: &Header, chunks: usize) -> bool {
    // Relaxed: a count. Threads that count at once see each other's chunks, so none goes beyond the limit.
    let before = header.opened.fetch_add(chunks, R);
    let may = before.saturating_add(chunks) <= MOST.load(R);
    if !may {
        header.opened.fetch_sub(chunks, R);
    }
    may
}

/// Sets a hook that is called with the size of an allocation before it fails for want of memory, after caches were
/// emptied and idle memory was given back. If it returns true, because the program has freed something, the allocation is
/// tried again; false lets it fail. `None`, the default: none.
///
/// The hook may allocate and free. It runs on the thread that allocates, possibly in a signal handler, and is not called
/// for allocations inside itself, nor for sizes beyond the range of 1 TiB. A panic of it ends the process. The allocation
/// is tried as often as it returns true.
///
/// ```
/// use corelocal::alloc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// static MISSED: AtomicUsize = AtomicUsize::new(0);
/// alloc::set_out_of_memory_hook(Some(|size| {
///     MISSED.fetch_add(size, Ordering::Relaxed);
///     false
/// }));
/// alloc::set_limit(Some(64 << 20));
/// assert!(alloc::allocate(100 << 20).is_null());
/// assert_eq!(MISSED.load(Ordering::Relaxed), 100 << 20);
/// # alloc::set_out_of_memory_hook(None);
/// # alloc::set_limit(None);
/// ```
pub fn set_out_of_memory_hook(hook: Option<fn(usize) -> bool>) {
    // Release: partner is the Acquire in `may_try_again`; what the hook uses is there.
    HOOK.store(hook.map_or(core::ptr::null_mut(), |hook| hook as *mut ()), Ordering::Release);
}

/// Calls the hook. Returns whether to try again.
///
/// `extern "C"`: a panic of the hook ends the process here, since it must not unwind out of an allocator.
#[cold]
pub(super) extern "C" fn may_try_again(size: usize) -> bool {
    // Acquire: partner is the Release in `set_out_of_memory_hook`.
    let hook = HOOK.load(Ordering::Acquire);
    if hook.is_null() {
        return false;
    }
    // SAFETY: `set_out_of_memory_hook` stored a function of this type.
    let hook = unsafe { core::mem::transmute::<*mut (), fn(usize) -> bool>(hook) };
    let Some(is_running) = arch::own_word(own_words::HOOK) else {
        // The thread has no words of its own: one thread at a time.
        static RUNS: TryLock = TryLock::new();
        return RUNS.try_lock().is_some_and(|_held| hook(size));
    };
    // Relaxed: used only by this thread and its signal handlers. Also set in the hook of cold paths.
    if is_running.load(R) != 0 {
        return false;
    }
    is_running.store(1, R);
    let again = hook(size);
    is_running.store(0, R);
    again
}
