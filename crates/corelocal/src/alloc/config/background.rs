//! Which processes get a background thread, as `CORELOCAL_MALLOC` says.
//!
//! Invariant: of several words the highest one counts.

/// The processes that get a background thread. The highest one that was asked for counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(in crate::alloc) enum Background {
    /// Those with several threads, if the program allows it.
    Several,
    /// All.
    Yes,
    /// All, and forked children of processes that had one.
    Children,
    /// None.
    No,
}

impl Background {
    pub(in crate::alloc) const ALL: [Background; 4] =
        [Background::Several, Background::Yes, Background::Children, Background::No];

    pub(super) fn of_word(word: &[u8]) -> Option<Background> {
        match word {
            b"background:yes" => Some(Background::Yes),
            b"background:children" => Some(Background::Children),
            b"background:no" => Some(Background::No),
            _ => None,
        }
    }
}
