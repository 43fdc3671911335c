//! A page in a file of a user that is not trusted: copied by system calls, never mapped.
//!
//! The kernel copies a page in no order that could be relied on, so one copy may hold words of two publications and
//! still an even sequence number. Three copies, one after the other, make a reading: if the sequence number is the same
//! even one in all of them, the second copy lies within a time in which nothing was published.
//!
//! # Invariants
//! 1. A copy is as long as the page of its encoding, with the annex if there is one, or it is refused as cut.
//! 2. Nothing in a copy is believed but as the content of a page, of which any bytes are values.

use core::cell::UnsafeCell;
use core::sync::atomic::{Ordering, fence};

use super::layout::FILE_BYTES;
use super::lock_file::Annex;
use super::sequence::Mark;
use super::{Encoding, ReadError};
use crate::sys::file::shared_file::SharedFile;

/// The number of times that a reading is tried. A publication takes some ten nanoseconds and the copies a microsecond:
/// a reading that fails so often met a writer that does nothing but publish, or ended within a publication.
const ATTEMPTS: u32 = 100;

/// A file of an untrusted user, which is copied for each reading.
pub(super) struct Untrusted {
    file: SharedFile,
}

/// The first bytes of a file, aligned as a page of memory is.
#[repr(C, align(64))]
pub(super) struct PageCopy(UnsafeCell<[u8; FILE_BYTES]>);

impl PageCopy {
    pub(super) fn new() -> PageCopy {
        PageCopy(UnsafeCell::new([0; FILE_BYTES]))
    }

    /// Returns the page in it, and the annex if there is one.
    pub(super) fn parts<P: Encoding>(&self, has_annex: bool) -> (&P, Option<&Annex>) {
        const { assert!(align_of::<P>() <= 64 && size_of::<P>() <= FILE_BYTES) };
        let at = self.0.get().cast::<u8>();
        // SAFETY: aligned and within the copy, the annex by `ANNEX_AT` (`Layout`); both are atomics, of which any
        // bytes are values (2), and nothing writes to the copy while it is borrowed.
        unsafe { (&*at.cast(), has_annex.then(|| &*at.add(P::ANNEX_AT).cast())) }
    }
}

impl Untrusted {
    pub(super) fn new(file: SharedFile) -> Untrusted {
        Untrusted { file }
    }

    /// Copies the file's first page.
    pub(super) fn copy<P: Encoding>(
        &self,
        has_annex: bool,
        into: &mut PageCopy,
    ) -> Result<(), ReadError> {
        let read = self.file.read_head(into.0.get_mut()).map_err(|_| ReadError::Cut)?;
        // The kernel loads the page's words in this thread, so this orders them before those of the next copy. Its
        // partner is the release fence in `sequence::write`.
        fence(Ordering::Acquire);
        let annex_end = if has_annex { P::ANNEX_AT + size_of::<Annex>() } else { 0 };
        // (1)
        if read < annex_end.max(size_of::<P>()) { Err(ReadError::Cut) } else { Ok(()) }
    }

    /// Returns what the page says, and what `clock` says at a moment when it says that.
    pub(super) fn read<P: Encoding, R>(
        &self,
        has_annex: bool,
        mut clock: impl FnMut() -> R,
    ) -> Result<(Mark, R, P::Content), ReadError> {
        let mut copy = PageCopy::new();
        let mut is_odd = false;
        let mark = |copy: &mut PageCopy| {
            self.copy::<P>(has_annex, copy)?;
            let (page, annex) = copy.parts::<P>(has_annex);
            Ok(page.mark(annex))
        };
        for _ in 0..ATTEMPTS {
            let first = mark(&mut copy)?;
            is_odd = first.is_odd();
            if is_odd || mark(&mut copy)? != first {
                continue;
            }
            let (page, annex) = copy.parts::<P>(has_annex);
            let read = page.read_with(annex, &mut clock);
            // After the clock, and before a doubt is reported that a torn copy would raise.
            if mark(&mut copy)? == first {
                return read;
            }
        }
        Err(if is_odd { ReadError::Odd } else { ReadError::Changing })
    }
}
