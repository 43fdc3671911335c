//! The results of critical sections.
//!
//! A section returns one word. If it committed, the word is the address of the slot it ran in (or of its descriptor,
//! if it has no slot). Otherwise it is the number of an exit. So a caller that runs it inline needs one compare.

use core::mem::MaybeUninit;

/// The way in which a critical section ended, in the section's own encoding: see [`Outcome`].
#[derive(Clone, Copy)]
pub(crate) struct Exit(pub(super) u64);

impl Exit {
    /// The exit of a thread without a registration.
    pub(crate) const COLD: Exit = Exit(Exit::UNAVAILABLE);
    pub(super) const ABORTED: u64 = 1;
    pub(super) const UNAVAILABLE: u64 = 2;
    pub(super) const MISMATCH: u64 = 3;

    /// It committed or mismatched, so the operation is complete. One compare.
    #[inline(always)]
    fn is_done(self) -> bool {
        self.0 > Exit::UNAVAILABLE
    }

    /// It committed, given that it is done. One compare.
    #[inline(always)]
    pub(crate) fn is_committed(self) -> bool {
        self.0 != Exit::MISMATCH
    }

    /// It committed: it neither mismatched nor needs the cold path. One compare.
    #[inline(always)]
    pub(crate) fn is_straight(self) -> bool {
        self.0 > Exit::MISMATCH
    }

    /// Returns the slot it ran in, if it committed.
    #[inline(always)]
    pub(crate) fn slot(self) -> *mut u8 {
        core::ptr::with_exposed_provenance_mut(self.0 as usize)
    }

    #[inline(always)]
    pub(super) fn outcome(self) -> Outcome {
        match self.0 {
            Exit::ABORTED => Outcome::Aborted,
            Exit::UNAVAILABLE => Outcome::Unavailable,
            Exit::MISMATCH => Outcome::Mismatch,
            _slot => Outcome::Committed,
        }
    }
}

/// The four ways a critical section ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The committing store was made, exactly once.
    Committed,
    /// The slot's word did not compare as the section requires. Nothing was stored.
    Mismatch,
    /// The kernel aborted it: preempted, migrated or signalled. Nothing was stored.
    Aborted,
    /// It cannot run: the thread is not registered, its id has no slot, or the object has no memory. Nothing was
    /// stored.
    Unavailable,
}

/// The result of a section that returns a word. The word is valid only if the section committed.
pub(crate) type Yielded = (Exit, u64);

/// Like [`Yielded`], for a section that returns an item: bytes of any type, possibly with padding.
pub(crate) type Popped = (Exit, MaybeUninit<u64>);

/// The words that a section loads. They are valid only if it was not aborted.
pub(crate) type Loaded<const N: usize> = (Exit, [MaybeUninit<u64>; N]);

/// The results of critical sections.
pub(crate) trait Ended: Copy {
    #[doc(hidden)]
    fn exit(self) -> Exit;

    /// It committed or mismatched, so the operation is complete.
    #[inline(always)]
    fn is_done(self) -> bool {
        self.exit().is_done()
    }
}

impl Ended for Exit {
    #[inline(always)]
    fn exit(self) -> Exit {
        self
    }
}

impl Ended for Yielded {
    #[inline(always)]
    fn exit(self) -> Exit {
        self.0
    }
}

impl<const N: usize> Ended for Loaded<N> {
    #[inline(always)]
    fn exit(self) -> Exit {
        self.0
    }
}

impl Ended for Popped {
    #[inline(always)]
    fn exit(self) -> Exit {
        self.0
    }
}
