//! Guards from before a fork, in the child.
//!
//! A domain's counts are in memory that a fork wipes, so the child counts no reader of its parent. Guards of threads
//! that do not exist in the child are forgotten in this way. But the thread that forked may have guards, too. It is the
//! first thread of the child, and its guards still protect. So each thread counts its guards, of all domains, in two
//! words of its static TLS: one for begins, one for ends. (Where threads have no such words, in one of many words that
//! its identity selects. If it shares that with another thread, the child may wait for guards of that thread.) The fork
//! copies them, and the child derives from them how many guards from before it are left.
//!
//! # Invariants
//! 1. A thread counts a guard's begin before it loads the domain's word, and its end likewise. Script, for a signal
//!    handler that forks in between: in the child the word is another one, so the thread takes the cold path, with the
//!    guard's begin or end counted. If the handler comes before the count, the child's thread counts; if it comes after
//!    the load, the count was copied. Either way the thread's count is right in the child, and the domain's own count
//!    goes to a group of readers that the child does not use (`domain.rs`, invariant 2).
//! 2. The guards that the first thread of a child has at any moment are at least those that it has left from before the
//!    fork. These only become fewer. So the smallest number that the thread has seen since the fork is an upper bound,
//!    which it publishes in [`LEFT`]. While that is above 0, no grace period of the child ends, and all guards of the child
//!    begin and end in the cold path, where the first thread publishes again.
//! 3. The bound reaches 0 at the latest when the thread has no guard at all. A thread of the child that always has a
//!    guard, each begun before the last one ends, keeps it above 0.
//!    The first publication is made by a handler of pthread_atfork(3), so other threads need not wait for the first one
//!    to use RCU. A child that was made without libc's `fork` waits for that.
//! 4. [`LEFT`] is in memory that a fork wipes, and has the generation of the process that it is about. So a thread that
//!    a fork interrupts while it publishes says nothing about the child.
//! 5. In the first generation there are no such guards.

use crate::primitive::global::{AtomicU32, AtomicU64, Ordering};
use crate::sys::arch::{self, HAS_OWN_WORDS, own_words};
use crate::sys::forks::wipe_on_fork::WipeOnFork;
use crate::sys::forks::{self, Identity};

/// ```text
///   63       48 47                                    0
///   generation  guards from before the fork, or more
/// ```
/// A word of another generation says nothing. (4)
// SAFETY: an integer.
static LEFT: WipeOnFork<AtomicU64> = unsafe { WipeOnFork::new() };

const GENERATION_SHIFT: u32 = 48;

/// Counts a guard of the calling thread that begins. Before the domain's word is loaded. (1)
#[inline(always)]
pub(super) fn begin() {
    if HAS_OWN_WORDS {
        arch::increment_own_word_pair::<{ own_words::GUARDS_BEGUN }>();
    } else {
        selected().fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts a guard of the calling thread that ends. Before the domain's word is loaded. (1)
#[inline(always)]
pub(super) fn end() {
    if HAS_OWN_WORDS {
        arch::increment_own_word_pair::<{ own_words::GUARDS_ENDED }>();
    } else {
        selected().fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the number of guards that the calling thread has, of all domains, or more.
pub(super) fn of_this_thread() -> u64 {
    // The ends first: guards that a signal handler begins and ends in between are counted as begun at least.
    let word = |at| arch::own_word_pair(at).map(|word| word.load(Ordering::Relaxed));
    match (word(own_words::GUARDS_ENDED), word(own_words::GUARDS_BEGUN)) {
        (Some(ended), Some(begun)) => begun.wrapping_sub(ended),
        _ => selected().load(Ordering::Relaxed),
    }
}

/// Returns where the calling thread counts its guards if it has no words of its own.
fn selected() -> &'static AtomicU64 {
    const WORDS: usize = 4096;
    static GUARDS: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
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
        // the handlers of an object that is. Refused for lack of memory, `are_gone` publishes.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    }
}

/// Runs in the child's first thread.
unsafe extern "C" fn forked() {
    publish();
}

/// Publishes the number of guards that the calling thread has now, the first thread of its process, unless a smaller
/// one is known. (2)
fn publish() {
    let Some(left) = LEFT.known() else { return };
    loop {
        let generation = forks::generation();
        // Relaxed: the number is all there is to see.
        let known = left.load(Ordering::Relaxed);
        let tag = u64::from(generation) << GENERATION_SHIFT;
        let now = tag | of_this_thread().min((1 << GENERATION_SHIFT) - 1);
        let is_known = known >> GENERATION_SHIFT == u64::from(generation);
        // Release: partner is the Acquire in `left`. Accesses under guards that have ended come before.
        let is_published = is_known && known <= now
            || left.compare_exchange(known, now, Ordering::Release, Ordering::Relaxed).is_ok();
        // A signal handler may have forked meanwhile. (4)
        if is_published && forks::generation() == generation {
            return;
        }
    }
}

/// Returns how many guards from before the fork the first thread of this process still has, or more; `None` if that is
/// not known.
fn left(generation: u32) -> Option<u64> {
    // Acquire: partner is the Release in `publish`.
    let word = LEFT.known()?.load(Ordering::Acquire);
    (word >> GENERATION_SHIFT == u64::from(generation)).then_some(word % (1 << GENERATION_SHIFT))
}

/// Returns the number of guards that keep grace periods of this process from ending since its fork, or 0 if that is not
/// known.
pub(super) fn known() -> i64 {
    left(forks::generation()).unwrap_or(0) as i64
}

/// Returns `true` if no thread of this process has a guard from before its fork.
#[inline]
pub(super) fn are_gone() -> bool {
    forks::is_first_generation() || are_gone_in_a_child()
}

#[cold]
fn are_gone_in_a_child() -> bool {
    // Else domains' counts are not wiped either, and the child waits for all guards that its parent had.
    if !forks::are_told_apart() {
        return true;
    }
    let generation = forks::generation();
    if left(generation) == Some(0) {
        return true;
    }
    if forks::is_first_thread() {
        publish();
    }
    left(generation) == Some(0)
}
