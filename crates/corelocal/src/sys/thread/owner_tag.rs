//! An owner in a few bits, such that a forked child recognises locks whose owners do not exist in it.
//!
//! A tag is a hash of the thread and the lowest bits of the generation (`sys/forks.rs`):
//!
//! ```text
//!   BITS - 1                    5   4          0
//!   hash of the thread              generation
//! ```
//!
//! # Invariants
//! 1. A thread of this process that holds a lock never counts as gone, for any thread; nor does the thread that
//!    forked, in its child (`sys/forks.rs`).
//! 2. The tags of two threads may be equal: about one pair in 2^(BITS - 5). Then neither counts as gone for the
//!    other.
//! 3. A tag of 32 forks ago looks like a current one, and so counts as that of a present thread.

use crate::sys::forks::{self, Identity};

/// The number of bits of the generation.
pub(crate) const GENERATION_BITS: u32 = 5;
const GENERATIONS: u32 = 1 << GENERATION_BITS;

/// The thread that a tag names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// This thread, or one that looks alike.
    Me,
    /// Another thread of this process.
    Other,
    /// A thread that a fork left behind.
    Gone,
}

/// Returns the lowest bits of how many forks there were.
#[inline(always)]
pub(crate) fn generation() -> u32 {
    forks::generation() % GENERATIONS
}

/// Returns the calling thread's tag; its lowest bits are the generation.
#[inline(always)]
pub(crate) fn tag<const BITS: u32>() -> u32 {
    let me = Identity::of_this_thread();
    (hash::<BITS>(me.thread()) * GENERATIONS) | (me.number() as u32 % GENERATIONS)
}

/// Returns what a tag says of a thread.
#[inline(always)]
fn hash<const BITS: u32>(thread: u64) -> u32 {
    const { assert!(BITS > GENERATION_BITS && BITS < 32) };
    // Stacks are megabytes apart, so the lower bits of threads are much alike: the upper ones go there.
    let thread = thread as u32;
    (thread ^ thread >> (BITS - GENERATION_BITS)) % (1 << (BITS - GENERATION_BITS))
}

/// Returns the generation in a tag.
#[inline(always)]
pub(crate) fn generation_of(tag: u32) -> u32 {
    tag % GENERATIONS
}

/// Returns a tag that a fork left behind, whichever generation this process is: that of the calling thread in
/// generation 0.
#[cfg(all(test, not(loom)))]
pub(crate) fn gone_tag<const BITS: u32>() -> u32 {
    tag::<BITS>() & !(GENERATIONS - 1)
}

/// Returns the thread with this tag.
#[cold]
pub(crate) fn who<const BITS: u32>(tag: u32) -> Holder {
    if cfg!(loom) {
        // Loom models do not fork, and all threads have the same identity.
        return Holder::Other;
    }
    let me = self::tag::<BITS>();
    let is_now = (tag ^ me) % GENERATIONS == 0;
    let is_alike = tag / GENERATIONS == me / GENERATIONS;
    if !is_now && is_left_behind::<BITS>(tag) {
        return Holder::Gone;
    }
    match is_alike && (is_now || is_first_thread()) {
        true => Holder::Me,
        false => Holder::Other,
    }
}

/// Returns `true` if a thread that a fork left behind has this tag, which is not of this generation.
fn is_left_behind<const BITS: u32>(tag: u32) -> bool {
    let now = forks::generation();
    let age = now.wrapping_sub(tag) % GENERATIONS;
    // Generations begin anew after 2^16, which leaves a doubt.
    now.checked_sub(age).is_some_and(|then| {
        forks::is_left_behind(then, |thread| hash::<BITS>(thread) == tag / GENERATIONS)
    })
}

/// Returns `true` if this process began with the calling thread: it is the one that forked, or that the program began
/// with.
#[cold]
pub(crate) fn is_first_thread() -> bool {
    forks::is_first_thread()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const BITS: u32 = 28;

    #[test]
    fn who_it_is() {
        let mine = tag::<BITS>();
        assert!(mine < 1 << BITS && generation_of(mine) == generation());
        assert_eq!(who::<BITS>(mine), Holder::Me);
        let other = std::thread::spawn(tag::<BITS>).join().unwrap();
        assert_ne!(other, mine);
        assert_eq!(who::<BITS>(other), Holder::Other);
        let gone = std::thread::spawn(gone_tag::<BITS>).join().unwrap();
        assert_eq!(who::<BITS>(gone), Holder::Gone);
        // A test's thread is not its process's first one.
        assert!(!is_first_thread());
        assert_eq!(who::<BITS>(gone_tag::<BITS>()), Holder::Gone);
    }
}
