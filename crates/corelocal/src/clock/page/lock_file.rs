//! What our writers keep beside a page in a file, for each other and for our readers.
//!
//! The encodings are others' and have no room for it; it stands behind what they define, where their own
//! readers do not look. A file without an annex is another program's: it is read, never written.
//!
//! Invariants:
//! 1. The tag is there from the file's first byte on, and never changes.
//! 2. The other words are the writer's alone (the file's lock). `wide` is part of the sequence number.
//! 3. The marker is stored after the publication that it belongs to. A reader that loads it before it looks at the
//!    sequence number never has a later marker than content; it may have an earlier one, which is a doubt.

use crate::primitive::atomic::{AtomicU64, Ordering};

/// Words behind the content, for our own readers and writers: see the module's text.
#[repr(C)]
#[derive(Debug)]
pub struct Annex {
    tag: AtomicU64,
    /// The number of times a writer found that its predecessor had died in a publication.
    recoveries: AtomicU64,
    /// The extension of a narrow sequence number.
    pub(super) wide: AtomicU64,
    /// The hypervisor's disruption marker under which the page was published, plus one; 0: none.
    marker: AtomicU64,
}

impl Annex {
    /// Returns the first bytes of the annex of an encoding of this number.
    pub(super) fn tag(encoding: u8) -> [u8; 8] {
        let version = 1;
        [b'c', b'o', b'r', b'e', b'l', b'o', version, encoding]
    }

    pub(super) fn recoveries(&self) -> u64 {
        // Relaxed: a number by itself.
        self.recoveries.load(Ordering::Relaxed)
    }

    pub(super) fn count_recovery(&self) {
        // No read-modify-write: the writer is alone (2).
        self.recoveries.store(self.recoveries().wrapping_add(1), Ordering::Relaxed);
    }

    /// Partner of the Acquire in `marker`. (3)
    pub(super) fn set_marker(&self, marker: Option<u64>) {
        let word = marker.map_or(0, |marker| marker.wrapping_add(1).max(1));
        self.marker.store(word, Ordering::Release);
    }

    /// Returns what `set_marker` stored: 0 for no marker.
    #[inline(always)]
    pub(super) fn marker(&self) -> u64 {
        // Acquire: partner is the Release in `set_marker`, before which the content was published.
        self.marker.load(Ordering::Acquire)
    }

    /// Returns `true` if this word is of that marker.
    #[inline(always)]
    pub(super) fn is_marker(word: u64, marker: u64) -> bool {
        word == marker.wrapping_add(1).max(1)
    }
}
