//! Who holds something, in a few bits, so that a forked child knows what nobody will ever let go of.
//!
//! A tag is a hash of the thread and the lowest bits of how many forks there were (`sys/forks.rs`):
//!
//! ```text
//!   BITS - 1                    5   4          0
//!   hash of the thread              generation
//! ```
//!
//! # Invariants
//! 1. A thread of this process that holds something is never taken for one that is gone, but for what
//!    `sys/forks.rs` says of a child whose first thread holds something from before the fork.
//! 2. Tags of two threads may be alike: about one pair in 2^(BITS - 5). Then neither is gone for the other.
//!    One of 32 forks ago is taken for one of now.

use crate::sys::forks::{self, Identity};

/// Of the generation.
pub(super) const GENERATION_BITS: u32 = 5;
const GENERATIONS: u32 = 1 << GENERATION_BITS;
/// Of the generation in an identity's number, below the thread (`sys/forks.rs`).
const FORKS_BITS: u32 = 16;

/// Who a tag names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// This thread, or one that looks alike.
    Me,
    /// Another thread of this process.
    Other,
    /// A thread that a fork left behind.
    Gone,
}

/// The lowest bits of how many forks there were.
#[inline(always)]
pub(super) fn generation() -> u32 {
    forks::generation() % GENERATIONS
}

/// The calling thread's tag; its lowest bits are the generation.
#[inline(always)]
pub(super) fn tag<const BITS: u32>() -> u32 {
    const { assert!(BITS > GENERATION_BITS && BITS < 32) };
    let me = Identity::of_this_thread().number();
    // Stacks are megabytes apart, so the lower bits of threads are much alike: the upper ones go there.
    let thread = (me >> FORKS_BITS) as u32;
    let hash = (thread ^ thread >> (BITS - GENERATION_BITS)) % (1 << (BITS - GENERATION_BITS));
    (hash * GENERATIONS) | (me as u32 % GENERATIONS)
}

/// The generation in a tag.
#[inline(always)]
pub(super) fn generation_of(tag: u32) -> u32 {
    tag % GENERATIONS
}

/// Who that is.
#[cold]
pub(super) fn who<const BITS: u32>(tag: u32) -> Holder {
    if cfg!(loom) {
        // Nobody forks in a model, and all threads look alike.
        return Holder::Other;
    }
    let me = self::tag::<BITS>();
    let is_now = (tag ^ me) % GENERATIONS == 0;
    let is_alike = tag / GENERATIONS == me / GENERATIONS;
    match (is_alike, is_now) {
        (true, true) => Holder::Me,
        (true, false) if is_first_thread() => Holder::Me,
        (false, true) => Holder::Other,
        _ => Holder::Gone,
    }
}

/// Whether the calling thread is the one that forked, or that the program began with.
#[cold]
pub(super) fn is_first_thread() -> bool {
    let me = Identity::of_this_thread();
    // Whoever looks like me and is of another generation is gone, unless I am that one.
    !Identity::of_number(me.number() ^ 1).is_gone(me)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const BITS: u32 = 28;

    #[test]
    fn who_it_is() {
        let mine = tag::<BITS>();
        assert!(mine < 1 << BITS && generation_of(mine) == generation());
        let number = Identity::of_this_thread().number();
        assert_eq!((number % (1 << FORKS_BITS)) as u32, forks::generation());
        assert_eq!(who::<BITS>(mine), Holder::Me);
        let other = std::thread::spawn(tag::<BITS>).join().unwrap();
        assert_ne!(other, mine);
        assert_eq!(who::<BITS>(other), Holder::Other);
        assert_eq!(who::<BITS>(other ^ 1), Holder::Gone);
        // A test's thread is not its process's first one.
        assert!(!is_first_thread());
        assert_eq!(who::<BITS>(mine ^ 1), Holder::Gone);
    }
}
