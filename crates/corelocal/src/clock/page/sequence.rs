//! The protocol of every clock page: a sequence number that is odd while the content changes.
//!
//! The writer makes the number odd, stores the content, and makes the number even. A reader copies the content
//! between two reads of the number, and accepts the copy if both returned the same even one. So readers do not write,
//! need no write permission, and cost the writer nothing.
//!
//! ```text
//! writer                                  reader
//!   sequence = odd        (relaxed)         first = sequence   (acquire)
//!   fence(release)                          copy the content   (relaxed)
//!   content               (relaxed)         fence(acquire)
//!   sequence = next even  (release)         first == sequence  (relaxed)?
//! ```
//!
//! It relies on two pairs. *Release store of the even number, acquire load of it*: a reader that sees the number sees
//! the content it stands for, or a later one. *Release fence after the odd number, acquire fence before the second
//! read*: a reader that copied any word of a later content sees, at the second read, that publication's odd number or
//! a later one, and discards the copy. Known implementations have left out each of these; `sequence/loom.rs` has
//! those mistakes as models that must fail.
//!
//! Invariants:
//! 1. One writer at a time; the writer of a file holds its lock (`writer.rs`). Two writers would mix contents. Memory
//!    safety does not depend on it, since every word is an atomic.
//! 2. A writer may end at any instruction. The number is then odd, and stays odd until another writer has published a
//!    whole content: readers never accept what the dead one left.
//! 3. A reader ends after a bounded number of attempts, whatever the writer does.

use super::ReadError;
use crate::primitive::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// A sequence number as a reader saw it. Equal marks mean that nothing was published in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The number that the encoding has.
    pub(super) number: u32,
    /// Its extension, where the encoding's own is narrow and ours stands beside it; else 0.
    pub(super) wide: u64,
}

impl Mark {
    /// A mark that no page has: an extension is 0 where it is unused, and never reaches this value where it is used.
    pub(super) const NONE: Mark = Mark { number: 0, wide: u64::MAX };

    pub(super) fn is_odd(self) -> bool {
        self.number & 1 != 0
    }
}

/// The sequence number of a page.
pub(super) trait Sequence {
    fn load(&self, order: Ordering) -> Mark;
    fn store(&self, mark: Mark, order: Ordering);

    /// Returns the number after `mark`: of the other parity, and not seen again for as long as can be.
    fn next(mark: Mark) -> Mark {
        Mark { number: mark.number.wrapping_add(1), wide: mark.wide.wrapping_add(1) }
    }
}

impl Sequence for AtomicU32 {
    fn load(&self, order: Ordering) -> Mark {
        Mark { number: self.load(order), wide: 0 }
    }

    fn store(&self, mark: Mark, order: Ordering) {
        self.store(mark.number, order);
    }
}

/// The maximum number of attempts by a reader. A publication takes some ten nanoseconds, and so does an attempt. A
/// reader that fails this often has met a writer that was interrupted, has died, or publishes continuously.
#[cfg(not(loom))]
pub(super) const ATTEMPTS: u32 = 1000;
#[cfg(loom)]
pub(super) const ATTEMPTS: u32 = 1;

/// Publishes what `content` stores, which it does with [`put`] and [`put32`] alone.
#[inline(always)]
pub(super) fn write<S: Sequence>(sequence: &S, content: impl FnOnce()) {
    // Relaxed: the one writer's own number (1), or a dead predecessor's, which the lock ordered.
    let last = sequence.load(Ordering::Relaxed);
    // After an odd number, which a writer left that died (2), comes the next odd one.
    let odd = if last.is_odd() { S::next(S::next(last)) } else { S::next(last) };
    sequence.store(odd, Ordering::Relaxed);
    stopping_point();
    // Partner: the acquire fence in `read`.
    fence(Ordering::Release);
    content();
    // Release: partner is the acquire load in `read`.
    sequence.store(S::next(odd), Ordering::Release);
    stopping_point();
}

/// Returns what `copy` reads, in one piece, and the mark it belongs to. `copy` may run several times.
///
/// # Errors
/// [`ReadError::Odd`] or [`ReadError::Changing`] after a bounded number of attempts.
#[inline(always)]
pub(super) fn read<S: Sequence, R>(
    sequence: &S,
    mut copy: impl FnMut() -> R,
) -> Result<(Mark, R), ReadError> {
    for _ in 0..ATTEMPTS {
        // Acquire: partner is the release store of the even number in `write`.
        let mark = sequence.load(Ordering::Acquire);
        if !mark.is_odd() {
            let content = copy();
            if is_current(sequence, mark) {
                return Ok((mark, content));
            }
        }
        core::hint::spin_loop();
    }
    // Relaxed: only the name of the error depends on it.
    let odd = sequence.load(Ordering::Relaxed).is_odd();
    Err(if odd { ReadError::Odd } else { ReadError::Changing })
}

/// Returns `true` if nothing has begun to be published since `mark`, as seen after all that the caller has read.
#[inline(always)]
pub(super) fn is_current<S: Sequence>(sequence: &S, mark: Mark) -> bool {
    // Partner: the release fence in `write`.
    fence(Ordering::Acquire);
    sequence.load(Ordering::Relaxed) == mark
}

/// Stores a word of content.
#[inline(always)]
pub(super) fn put(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Relaxed);
    stopping_point();
}

/// Stores a short word of content.
#[inline(always)]
pub(super) fn put32(word: &AtomicU32, value: u32) {
    word.store(value, Ordering::Relaxed);
    stopping_point();
}

/// Loads a word of content.
#[inline(always)]
pub(super) fn get(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

/// Loads a short word of content.
#[inline(always)]
pub(super) fn get32(word: &AtomicU32) -> u32 {
    word.load(Ordering::Relaxed)
}

/// Marks a point at which a writer may die: after each store. Tests make it so (`crash_test.rs`).
#[inline(always)]
pub(super) fn stopping_point() {
    #[cfg(all(test, not(loom)))]
    super::crash_test::point();
}
