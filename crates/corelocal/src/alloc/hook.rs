//! The hook of cold paths: what a program runs when its malloc takes memory or is given some.
//!
//! # Invariants
//! 1. The hook runs on a thread that allocates or frees, while that thread holds nothing of the malloc's; its
//!    argument says which of both. libc calls `free` while it holds locks of its own, so a hook for frees must not
//!    call libc functions that take locks.
//! 2. A thread that runs the hook does not run it again inside.

use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::layout::range::Range;
use crate::sys::arch::{self, own_words};
use crate::sys::try_lock::TryLock;

/// The hook; null until there is one.
static HOOK: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
static HOOK_AT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The moment in the cold path at which the hook is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Moment {
    /// Memory was taken: a batch of objects or a large object. The hook may allocate, and start threads.
    Taken,
    /// Memory was freed. libc may hold locks that starting a thread would need, so the hook must not start one.
    Given,
}

/// Sets a hook that is called whenever a core's cache is refilled or spilled, or a large object is made or freed,
/// once the malloc has used `bytes`. It runs on the thread that does this, possibly in a signal handler.
///
/// It replaces what the malloc does then by itself from 32 MiB on: [giving back idle
/// memory](crate::alloc#memory-that-goes-back-to-the-kernel). A hook that shall do so calls
/// [`release_by_time`](crate::alloc::release_by_time), which has an example.
///
/// The hook is not re-entered: allocations and frees inside it do not call it.
pub fn set_cold_hook(bytes: usize, hook: fn(Moment)) {
    HOOK.store(hook as *mut (), Ordering::Relaxed);
    // Release: partner is the Acquire in `call_hook_at`.
    HOOK_AT.store(bytes, Ordering::Release);
}

/// Sets the hook that is called from `bytes` on unless the program sets one.
pub(super) fn set_default(bytes: usize, hook: fn(Moment)) {
    let null = core::ptr::null_mut();
    if HOOK.compare_exchange(null, hook as *mut (), Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        // Release: partner is the Acquire in `call_hook_at`. It fails if the program was faster.
        let _ = HOOK_AT.compare_exchange(usize::MAX, bytes, Ordering::Release, Ordering::Relaxed);
    }
}

/// Calls the hook after memory was taken from the middle or back end.
#[inline]
pub(super) fn after_growth(range: Range) {
    call_hook_at(range, Moment::Taken);
}

/// Calls the hook after memory was given to the middle or back end.
#[inline]
pub(super) fn after_giving(range: Range) {
    call_hook_at(range, Moment::Given);
}

#[inline]
fn call_hook_at(range: Range, moment: Moment) {
    // Acquire: partner is the Release in `set_cold_hook`.
    if range.high_water() >= HOOK_AT.load(Ordering::Acquire) {
        call_hook(moment);
    }
}

/// `extern "C"`: a panic of the hook ends the process here, since it must not unwind out of an allocator.
#[cold]
extern "C" fn call_hook(moment: Moment) {
    let hook = HOOK.load(Ordering::Relaxed);
    // SAFETY: a function of this type was stored before `HOOK_AT` was set.
    let hook = unsafe { core::mem::transmute::<*mut (), fn(Moment)>(hook) };
    let Some(is_running) = arch::own_word(own_words::HOOK) else {
        // The thread has no words of its own: run the hook on one thread at a time, and never re-entered.
        static RUNS: TryLock = TryLock::new();
        if let Some(_held) = RUNS.try_lock() {
            hook(moment);
        }
        return;
    };
    // Relaxed: used only by this thread and its signal handlers.
    if is_running.load(Ordering::Relaxed) == 0 {
        is_running.store(1, Ordering::Relaxed);
        hook(moment);
        is_running.store(0, Ordering::Relaxed);
    }
}
