//! How sections end, and what they give back.
//!
//! A section leaves one word: the address of the slot it ran in if it committed (of its descriptor, if it has no
//! slot), else the number of an exit.
//! So whoever runs it inline asks what it needs to know with one compare.

use core::mem::MaybeUninit;

/// How a critical section ended, as the section says it: see [`Outcome`].
#[derive(Clone, Copy)]
pub(crate) struct Exit(pub(super) u64);

impl Exit {
    /// As of a thread that nobody registered.
    pub(crate) const COLD: Exit = Exit(Exit::UNAVAILABLE);
    pub(super) const ABORTED: u64 = 1;
    pub(super) const UNAVAILABLE: u64 = 2;
    pub(super) const MISMATCH: u64 = 3;

    /// It committed or mismatched; nothing remains to be done. One compare.
    #[inline(always)]
    fn is_done(self) -> bool {
        self.0 > Exit::UNAVAILABLE
    }

    /// It committed, provided it is done. One compare.
    #[inline(always)]
    pub(crate) fn is_committed(self) -> bool {
        self.0 != Exit::MISMATCH
    }

    /// It committed, whatever else could have been: neither mismatched nor call for the cold path. One
    /// compare.
    #[inline(always)]
    pub(crate) fn is_straight(self) -> bool {
        self.0 > Exit::MISMATCH
    }

    /// The slot it ran in, where it committed.
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
    /// The slot's word did not compare as the section demands. Nothing was stored.
    Mismatch,
    /// The kernel aborted it: preempted, migrated or signalled. Nothing was stored.
    Aborted,
    /// It cannot run: the thread is not registered, its id has no slot, or the object no memory.
    /// Nothing was stored.
    Unavailable,
}

/// The end of a section that yields a word: the word is what the section says where it committed, and
/// means nothing elsewhere.
pub(crate) type Yielded = (Exit, u64);

/// As [`Yielded`], of a section that yields an item: bytes of any type, some of them padding perhaps.
pub(crate) type Popped = (Exit, MaybeUninit<u64>);

/// What sections give back.
pub(crate) trait Ended: Copy {
    #[doc(hidden)]
    fn exit(self) -> Exit;

    /// It committed or mismatched; nothing remains to be done.
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

impl Ended for Popped {
    #[inline(always)]
    fn exit(self) -> Exit {
        self.0
    }
}
