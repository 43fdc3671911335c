//! Guards from before a fork, in the child.
//!
//! A domain's counts are in memory that a fork wipes, so the child counts no reader of its parent. Guards of threads
//! that do not exist in the child are forgotten in this way. But the thread that forked may have guards, too. It is the
//! first thread of the child, and its guards still protect. Each thread counts its guards, of all domains, in two
//! words of its static TLS: one for begins, one for ends. (Where threads have no such words, in one of many words that
//! its identity selects. If it shares that with another thread, the child may wait for guards of that thread.) In the
//! child the first thread publishes how many it has, and
//! counts them down as they end. Until then no grace period of the child ends.
//!
//! # Invariants
//! 1. A thread counts a guard before its domain does, and its end after its domain does. So a guard whose begin or end
//!    was interrupted by a signal handler that forks is among those that the child awaits, and counts itself down in
//!    the child: its word is of an earlier generation (`domain.rs`).
//! 2. [`LEFT`] is in memory that a fork wipes: 0 says that the number is not known yet. Only the first thread of the
//!    process publishes it: in a handler of pthread_atfork(3), else before it ends a guard from before the fork.
//! 3. In the first generation there are no such guards.

use crate::primitive::global::{AtomicU32, Ordering};
use crate::sys::arch::{self, HAS_OWN_WORDS, own_words};
use crate::sys::forks::{self, Identity};
use crate::sys::wipe_on_fork::WipeOnFork;

/// 1 more than the guards that the first thread of the process has from before the fork; 0 if that is not known. (2)
// SAFETY: an integer.
static LEFT: WipeOnFork<AtomicU32> = unsafe { WipeOnFork::new() };

/// Counts a guard of the calling thread that begins.
#[inline(always)]
pub(super) fn begin() {
    if HAS_OWN_WORDS {
        arch::increment_own_word::<{ own_words::GUARDS_BEGUN }>();
    } else {
        selected().fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts a guard of the calling thread that ends.
#[inline(always)]
pub(super) fn end() {
    if HAS_OWN_WORDS {
        arch::increment_own_word::<{ own_words::GUARDS_ENDED }>();
    } else {
        selected().fetch_sub(1, Ordering::Relaxed);
    }
}

/// The guards of the calling thread, of all domains, or more.
pub(super) fn of_this_thread() -> u32 {
    // Relaxed: the thread's own words.
    let word = |at| arch::own_word(at).map(|word| word.load(Ordering::Relaxed));
    match (word(own_words::GUARDS_BEGUN), word(own_words::GUARDS_ENDED)) {
        (Some(begun), Some(ended)) => begun.wrapping_sub(ended),
        _ => selected().load(Ordering::Relaxed),
    }
}

/// Where the calling thread counts its guards if it has no words of its own.
fn selected() -> &'static AtomicU32 {
    const WORDS: usize = 4096;
    static GUARDS: [AtomicU32; WORDS] = [const { AtomicU32::new(0) }; WORDS];
    // Neighbouring threads are a stack apart.
    let thread = Identity::of_this_thread().thread().wrapping_mul(0x9E37_79B9_7F4A_7C15);
    &GUARDS[(thread >> 32) as usize % WORDS]
}

/// Prepares for forks. Called when a domain is first used in a process.
#[cold]
pub(super) fn prepare() {
    static IS_REGISTERED: AtomicU32 = AtomicU32::new(0);
    let _ = (forks::generation(), LEFT.get());
    // Relaxed: libc's list has a lock of its own, and a second handler would do no harm.
    if IS_REGISTERED.swap(1, Ordering::Relaxed) == 0 {
        // SAFETY: the handler stays as long as the program: objects with this library are not unloaded, or libc removes
        // the handlers of an object that is. Refused for lack of memory, the second way of (2) remains.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    }
}

/// Runs in the child's first thread.
unsafe extern "C" fn forked() {
    publish();
}

/// Publishes how many guards from before the fork the calling thread has: the first of its process.
fn publish() {
    let Some(left) = LEFT.known() else { return };
    // Release: partner is the Acquire in `are_gone`. Accesses under guards that have ended come before.
    let _ = left.compare_exchange(0, of_this_thread() + 1, Ordering::Release, Ordering::Relaxed);
}

/// Ends a guard from before the fork, of the calling thread, which is the first one of its process.
#[cold]
pub(super) fn end_one() {
    publish();
    if let Some(left) = LEFT.known() {
        // Release: partner is the Acquire in `are_gone`. Not below 1: a child of the child may count anew.
        let less = |left: u32| (left > 1).then(|| left - 1);
        let _ = left.fetch_update(Ordering::Release, Ordering::Relaxed, less);
    }
    end();
}

/// The guards from before the fork that the first thread of this process still has, or 0 if that is not known.
pub(super) fn left() -> i64 {
    let left = LEFT.known().map_or(0, |left| left.load(Ordering::Relaxed));
    i64::from(left.saturating_sub(1))
}

/// Whether no thread of this process has a guard from before its fork.
pub(super) fn are_gone() -> bool {
    if forks::is_first_generation() {
        return true;
    }
    // Acquire: partners are the Releases above.
    let left = || LEFT.known().map(|left| left.load(Ordering::Acquire));
    if left() == Some(0) && forks::is_first_thread() {
        publish();
    }
    left() == Some(1)
}
