//! The two words of a mutex, of which an uncontended lock uses only the first. What is done with them is in `lock.rs`.
//!
//! ```text
//!   word    31 STARVED   30 FAIR   29 WAKING   28 WAITERS   27..0 owner's tag, 0 if free
//!   queue   31 FENCED   30..16 guests   15..1 waiters   0 TOKEN     what threads sleep on
//! ```
//!
//! | bits of the word | meaning |
//! |---|---|
//! | 0 | The lock is free and no thread waits. |
//! | tag | The owner holds the lock, and no thread waits. |
//! | tag, WAITERS | The owner holds the lock, and threads sleep or are about to sleep. |
//! | WAITERS, WAKING | The lock is free, and a waiter is on its way to take it. |
//! | tag, WAITERS, WAKING | The lock was taken while a waiter was on its way; the unlock wakes no other. |
//! | STARVED | A waiter has waited for [`PATIENCE`](crate::sync::machinery::fairness): threads that have not slept leave a free lock alone. |
//! | FAIR | The owner asked for a hand-off: the same as STARVED, for one unlock. |

use crate::sync::machinery::futex::Futex;
use crate::sync::machinery::scope::Scope;

/// The number of bits of an owner's tag.
pub(super) const OWNER_BITS: u32 = 28;
/// The owner's tag in a word.
pub(super) const MASK: u32 = (1 << OWNER_BITS) - 1;

// The word.
pub(super) const STARVED: u32 = 1 << 31;
pub(super) const FAIR: u32 = 1 << 30;
pub(super) const WAKING: u32 = 1 << 29;
pub(super) const WAITERS: u32 = 1 << 28;
pub(super) const FLAGS: u32 = STARVED | FAIR | WAKING | WAITERS;
const _: () = assert!(FLAGS & MASK == 0);

// The queue.
pub(super) const TOKEN: u32 = 1;
pub(super) const WAITER: u32 = 1 << 1;
pub(super) const GUEST: u32 = 1 << 16;
pub(super) const FENCED: u32 = 1 << 31;
pub(super) const MOST_WAITERS: u32 = (1 << 15) - 1;
pub(super) const MOST_GUESTS: u32 = (1 << 15) - 1;

/// Returns `true` if no thread owns the lock.
pub(super) fn is_free(word: u32) -> bool {
    word & MASK == 0
}

/// Returns `true` if the lock, if free, is reserved for threads that have slept.
pub(super) fn is_reserved(word: u32) -> bool {
    word & (STARVED | FAIR) != 0
}

/// Returns `true` if the unlock of a lock with this word must give a token.
pub(super) fn wants_token(word: u32) -> bool {
    word & (WAITERS | WAKING) == WAITERS
}

/// Returns `true` if no thread waits.
pub(super) fn is_deserted(queue: u32) -> bool {
    queue & !(TOKEN | FENCED) == 0
}

/// Returns how many threads wait.
pub(super) fn waiters(queue: u32) -> u32 {
    queue >> 1 & MOST_WAITERS
}

/// Returns how many guests there are (`lock.rs`).
pub(super) fn guests(queue: u32) -> u32 {
    queue >> 16 & MOST_GUESTS
}

/// Proof that the lock was taken.
#[derive(Clone, Copy)]
pub(in crate::sync) struct Taken {
    /// The owner's tag.
    pub(super) tag: u32,
}

/// The reason why the lock was not taken.
#[derive(Clone, Copy)]
pub(super) enum NotTaken {
    /// Another thread owns it, and the deadline has passed.
    TooLate,
    /// Its owner, with this tag, did not survive a fork.
    HolderGone(u32),
}

/// The lock. All bytes 0 is a free one.
#[repr(C)]
pub struct Lock<S: Scope> {
    pub(super) word: Futex<S>,
    pub(super) queue: Futex<S>,
    /// Whether patience ends in this model.
    #[cfg(loom)]
    pub(super) is_timed: bool,
    /// Whether critical sections are available in this model.
    #[cfg(loom)]
    pub(super) has_sections: bool,
    /// Whether the kernel refuses fences in this model.
    #[cfg(loom)]
    pub(super) refuses_fences: bool,
}

impl<S: Scope> Lock<S> {
    /// Creates a free lock.
    #[cfg(not(loom))]
    pub(in crate::sync) const fn new() -> Self {
        Lock { word: Futex::new(0), queue: Futex::new(0) }
    }

    /// Creates a free lock.
    #[cfg(loom)]
    pub(in crate::sync) fn new() -> Self {
        let (word, queue) = (Futex::new(0), Futex::new(0));
        Lock { word, queue, is_timed: false, has_sections: false, refuses_fences: false }
    }
}
