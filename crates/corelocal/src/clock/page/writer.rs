//! A page in a file, published by one process at a time.
//!
//! Way of a file: made empty, then given its whole first content by one write, so that nobody sees half of
//! it; locked by its writer, mapped, published to. It is never cut, replaced or removed: readers have it
//! mapped. The next writer takes it over as the last one left it and goes on counting.
//!
//! # A writer's death
//! Between two publications it leaves an even number: the next writer's first publication is one like any
//! other. Within one it leaves an odd number, which tells readers to stay away ([`Doubt::Odd`]); the next
//! writer counts it as a disruption and leaves the number odd until its own first publication is whole.
//!
//! # Invariants
//! 1. Who publishes holds the file's lock, got after the file was opened, and the path still led to that
//!    file afterwards. The kernel drops the lock when its process ends.
//! 2. The file belongs to this user, and nobody else may write to it: it neither shrinks nor lies.
//! 3. A forked child does not publish: it has the memory, the descriptor and with it the lock, but the
//!    generation of the process differs (`sys/forks.rs`).

use core::ffi::CStr;
use core::fmt;

#[cfg(doc)]
use super::Doubt;
use super::annex::Annex;
use super::layout::FILE_BYTES;
use super::reader::{annex_in, examine, page_in};
use super::sequence::Mark;
use super::{Encoding, PublishError, Refusal};
use crate::sys::Errno;
use crate::sys::forks;
use crate::sys::shared_file::{self, Mapping, SharedFile};

/// How often a file is opened again because somebody replaced it meanwhile.
const REPLACEMENTS: u32 = 8;

/// The writer of a page in a file, of which there is one at a time.
///
/// Dropping it lets the file go and leaves the last content in it; before, publish a state that says that
/// nobody keeps the clock right any more, if readers shall know at once.
///
/// In a forked child [`publish`](Publisher::publish) is refused. The child keeps the lock, though, until it
/// ends or calls `exec`, should the parent die before it drops the publisher.
pub struct Publisher<P: Encoding> {
    mapping: Mapping,
    file: SharedFile,
    /// Of the process (3).
    generation: u32,
    recovered: bool,
    last: Option<P::Content>,
}

impl<P: Encoding> Publisher<P> {
    /// Takes over the page in the file `path`, or makes the file, for its user to write and for everybody
    /// to read. A file in `/dev/shm` or another tmpfs costs no disk writes.
    ///
    /// # Errors
    /// [`Refusal::Held`] if another process, or another publisher of this one, publishes there;
    /// [`Refusal::Unsafe`] if the file is another user's or others may write to it; [`Refusal::NotOurs`],
    /// [`Refusal::Foreign`] and others if it is there and no page that a publisher made;
    /// [`Refusal::System`] if the kernel refuses.
    pub fn create(path: &CStr) -> Result<Publisher<P>, Refusal> {
        for _ in 0..REPLACEMENTS {
            let (file, is_new) = match SharedFile::create(path) {
                Ok(file) => (file, true),
                Err(Errno::EEXIST) => match SharedFile::open_writable(path) {
                    Ok(file) => (file, false),
                    // Removed meanwhile.
                    Err(Errno::ENOENT) => continue,
                    Err(error) => return Err(error.into()),
                },
                Err(error) => return Err(error.into()),
            };
            if let Some(publisher) = Self::take_over(path, file, is_new)? {
                return Ok(publisher);
            }
        }
        Err(Refusal::Replaced)
    }

    /// `None` if the path leads to another file by now.
    fn take_over(
        path: &CStr,
        file: SharedFile,
        is_new: bool,
    ) -> Result<Option<Publisher<P>>, Refusal> {
        let status = file.status()?;
        if !status.is_regular {
            return Err(Refusal::NotAFile);
        }
        let (owner, mode) = (status.owner, status.mode);
        if !is_new && (owner != shared_file::user() || mode & 0o022 != 0) {
            return Err(Refusal::Unsafe { owner, mode });
        }
        if !file.lock()? {
            return Err(Refusal::Held(file.holder()));
        }
        // (1) Who made the path lead elsewhere may have another writer there.
        match shared_file::status_of(path) {
            Ok(named) if named.identity == status.identity => {}
            Ok(_) | Err(Errno::ENOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        // Under the lock: whoever made the file may have written to it meanwhile.
        let status = file.status()?;
        if status.len == 0 {
            file.write_first(&first_image::<P>())?;
        }
        if !examine::<P>(&file, &status)? {
            return Err(Refusal::NotOurs);
        }
        let mapping = file.map(FILE_BYTES, true)?;
        // SAFETY: just mapped, readable and writable.
        let (page, annex) = unsafe { (page_in::<P>(&mapping), annex_in::<P>(&mapping)) };
        let recovered = page.mark(Some(annex)).is_odd();
        if recovered {
            annex.count_recovery();
        }
        let read = page.read(Some(annex)).ok();
        // Under number 0 nothing was published yet, though some encodings can say so.
        let last = read.filter(|(mark, _)| *mark != Mark::default()).map(|(_, content)| content);
        let generation = forks::generation();
        Ok(Some(Publisher { mapping, file, generation, recovered, last }))
    }

    /// Publishes. Wait-free. Async-signal-safe, unless the signal interrupted another `publish` of the same
    /// publisher, which borrowing rules out in safe code.
    ///
    /// # Errors
    /// [`PublishError::Forked`] in a child of the process that made this publisher.
    ///
    /// # Memory ordering
    /// Who reads this content sees what happened before this call.
    #[inline]
    pub fn publish(&mut self, content: &P::Content) -> Result<(), PublishError> {
        // (3)
        if forks::generation() != self.generation {
            return Err(PublishError::Forked);
        }
        let (page, annex) = self.parts();
        page.publish(Some(annex), content);
        Ok(())
    }

    /// What the last writer before this one published last; `None` if there was none, or if it died in a
    /// publication.
    pub fn last(&self) -> Option<&P::Content> {
        self.last.as_ref()
    }

    /// Whether the last writer before this one died in a publication.
    pub fn has_recovered(&self) -> bool {
        self.recovered
    }

    /// How often that has happened to the file.
    pub fn recoveries(&self) -> u64 {
        self.parts().1.recoveries()
    }

    #[inline(always)]
    fn parts(&self) -> (&P, &Annex) {
        // SAFETY: `take_over` mapped it, readable and writable.
        unsafe { (page_in(&self.mapping), annex_in::<P>(&self.mapping)) }
    }
}

/// A file's first content.
fn first_image<P: Encoding>() -> [u8; FILE_BYTES] {
    let mut image = [0; FILE_BYTES];
    P::format(&mut image);
    image[P::ANNEX_AT..][..8].copy_from_slice(&Annex::tag(P::NUMBER));
    image
}

impl<P: Encoding> Drop for Publisher<P> {
    fn drop(&mut self) {
        // In a child the lock is the parent's as well, and stays.
        if forks::generation() == self.generation {
            self.file.unlock();
        }
    }
}

impl<P: Encoding> fmt::Debug for Publisher<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher")
            .field("encoding", &P::NAME)
            .field("recoveries", &self.recoveries())
            .finish_non_exhaustive()
    }
}
