//! A page in a file, published by one process at a time.
//!
//! Way of a file: written whole under another name, then given its own, so that no reader sees half of it; mapped,
//! published to. A publisher never cuts, replaces or removes a page: readers have it mapped. The next writer takes it
//! over as the last one left it and goes on counting.
//!
//! # One writer
//! A writer holds a lock on a file of its own, `FILE.lock`, whose mode is 0600. It cannot be on the page: every user
//! that may read a file may lock it for reading (`fcntl(2)`), and so would keep the next writer out for ever. The lock
//! file stays when its holder ends: if it were removed, two processes could each lock a file of that name.
//!
//! A page that was renamed while it is published has another lock file under its new name. So its writer locks the
//! page, too, where no reader's lock is in the way.
//!
//! # Other users
//! A user that may write to the page's directory can take the names first or replace the files. Such files are refused
//! by publishers and readers (`sys/file/trust.rs`), so nothing is published then: a directory of the publisher's own is
//! the place.
//!
//! # A writer's death
//! Between two publications it leaves an even number: the next writer's first publication is one like any
//! other. Within one it leaves an odd number, which tells readers to stay away ([`ReadError::Odd`]); the next
//! writer counts it as a disruption and leaves the number odd until its own first publication is whole.
//!
//! # Invariants
//! 1. A publisher holds the lock of `FILE.lock`, and the name still stood for that file afterwards. The kernel drops
//!    the lock when its process ends.
//! 2. The page and the lock file belong to this user, no other user may write to them, and they have one name each when
//!    they are opened.
//! 3. A forked child does not publish: it has the memory, the descriptor and with it the lock, but the
//!    generation of the process differs (`sys/forks.rs`).

use core::ffi::CStr;
use core::fmt;

#[cfg(doc)]
use super::ReadError;
use super::layout::FILE_BYTES;
use super::lock_file::Annex;
use super::reader::{annex_in, examine, page_in};
use super::sequence::Mark;
use super::{Encoding, PublishError, Refusal};
use crate::sys::Errno;
use crate::sys::file::PathBuf;
use crate::sys::file::shared_file::{self, FileStatus, Mapping, SharedFile};
use crate::sys::file::trust::{self, Owners, Refused, Rule};
use crate::sys::forks;

/// The number of times that a file is reopened because it was replaced meanwhile.
const REPLACEMENTS: u32 = 8;

/// The mode of a page's file: its user writes, all users read.
const PAGE_MODE: u32 = 0o644;
/// The mode of the lock file: for its user alone, since locking needs the right to read.
const LOCK_MODE: u32 = 0o600;

/// The writer of a page in a file. There is one at a time.
///
/// Dropping it releases the file and leaves the last content in it. To inform readers at once, first publish a state
/// which says that the clock is no longer maintained.
///
/// In a forked child [`publish`](Publisher::publish) is refused. If the parent dies before it drops the publisher,
/// the child keeps the lock until it ends or calls `exec`.
pub struct Publisher<P: Encoding> {
    mapping: Mapping,
    lock: SharedFile,
    /// The page's file, which is locked too unless another user holds a read lock on it.
    page: SharedFile,
    /// The generation of the process (3).
    generation: u32,
    recovered: bool,
    last: Option<P::Content>,
    /// The file's device, inode and length.
    file: (u64, u64, u64),
}

impl<P: Encoding> Publisher<P> {
    /// Takes over the page in the file `path`, or makes the file, for its user to write and for all users to read.
    /// Beside it lies `path.lock`, which stays. A file in `/run` or another tmpfs costs no disk writes.
    ///
    /// The place for it is a directory that only this user may write to: a subdirectory of `/run` for root, of
    /// `XDG_RUNTIME_DIR` for other users.
    ///
    /// # Errors
    /// [`Refusal::Held`] if another process, or another publisher of this one, publishes there, or to the same file
    /// under a name that it had before;
    /// [`Refusal::Unsafe`] if the file is another user's or others may write to it; [`Refusal::Lock`] if that is so of
    /// the lock file; [`Refusal::Linked`] if the file has several names; [`Refusal::NotOurs`], [`Refusal::Foreign`] and
    /// others if it is there and no page that a publisher made; [`Refusal::System`] if the kernel refuses.
    pub fn create(path: &CStr) -> Result<Publisher<P>, Refusal> {
        if path.to_bytes().last().is_none_or(|&last| last == b'/') {
            return Err(Refusal::NotAFile);
        }
        let lock = lock(PathBuf::join(&[path.to_bytes(), b".lock"])?.as_c_str())?;
        let file = open_or_make::<P>(path)?;
        let status = file.status()?;
        // As a user leaves it that empties the file. Readers that have it mapped can go on.
        if status.len == 0 {
            file.write_first(&first_image::<P>())?;
        }
        if !examine::<P>(&file, &file.status()?)? {
            return Err(Refusal::NotOurs);
        }
        // (1) Another user's lock for reading is no publisher's, and keeps none out.
        if !file.lock()? && file.has_writer()? {
            return Err(Refusal::Held(file.holder()));
        }
        let mapping = file.map(FILE_BYTES, true)?;
        let FileStatus { identity: (device, inode), len, .. } = file.status()?;
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
        let (opened, file) = (file, (device, inode, len));
        Ok(Publisher { mapping, lock, page: opened, generation, recovered, last, file })
    }

    /// Publishes a content. Wait-free. Async-signal-safe, unless the signal interrupted another `publish` of the same
    /// publisher, which borrowing rules out in safe code.
    ///
    /// # Errors
    /// [`PublishError::Forked`] in a child of the process that made this publisher.
    ///
    /// # Memory ordering
    /// What happened before this call happens before a read of this content.
    #[inline]
    pub fn publish(&mut self, content: &P::Content) -> Result<(), PublishError> {
        self.publish_under(None, content)
    }

    /// Does what [`publish`](Publisher::publish) does, under a disruption marker of the hypervisor, read before the
    /// content's clocks were. A [`Subscriber`](super::Subscriber) that can read the hypervisor's page does not
    /// believe the content when that has another marker, even if the writer is gone.
    ///
    /// # Errors
    /// As for [`publish`](Publisher::publish).
    #[inline]
    pub fn publish_under(
        &mut self,
        marker: Option<u64>,
        content: &P::Content,
    ) -> Result<(), PublishError> {
        // (3)
        if forks::generation() != self.generation {
            return Err(PublishError::Forked);
        }
        let (page, annex) = self.parts();
        page.publish(Some(annex), content);
        annex.set_marker(marker);
        Ok(())
    }

    /// Returns what the last writer before this one published last; `None` if there was none, or if it died in a
    /// publication.
    pub fn last(&self) -> Option<&P::Content> {
        self.last.as_ref()
    }

    /// Returns device, inode and length of the file, by its descriptor when it was mapped: tells whether a path leads
    /// to this file, and whether all of it is there.
    pub fn file(&self) -> (u64, u64, u64) {
        self.file
    }

    /// Returns `true` if the last writer before this one died in a publication.
    pub fn has_recovered(&self) -> bool {
        self.recovered
    }

    /// Returns how often that has happened to the file.
    pub fn recoveries(&self) -> u64 {
        self.parts().1.recoveries()
    }

    #[inline(always)]
    fn parts(&self) -> (&P, &Annex) {
        // SAFETY: `create` mapped it, readable and writable.
        unsafe { (page_in(&self.mapping), annex_in::<P>(&self.mapping)) }
    }
}

/// Returns the lock file, locked (1).
fn lock(path: &CStr) -> Result<SharedFile, Refusal> {
    // (2) Reading suffices for a lock.
    let rule = Rule { owners: Owners::Own, refused_mode: trust::OTHERS_ALL, ..Rule::TRUSTED };
    for _ in 0..REPLACEMENTS {
        let file = match SharedFile::open_writable(path, &rule) {
            Ok((file, _)) => file,
            Err(Refused::System(Errno::ENOENT)) => match SharedFile::create_for(path, LOCK_MODE) {
                Ok(file) => file,
                // Made meanwhile.
                Err(Errno::EEXIST) => continue,
                Err(error) => return Err(error.into()),
            },
            Err(error) => {
                return Err(match shared_file::status_of(path) {
                    // Not as the rule demands, a link, or what another user put there.
                    Ok(status) if rule.judge(&status).is_err() => {
                        Refusal::Lock { owner: status.owner, mode: status.mode }
                    }
                    _ => error.into(),
                });
            }
        };
        if !file.lock()? {
            return Err(Refusal::Held(file.holder()));
        }
        match shared_file::status_of(path) {
            Ok(named) if named.identity == file.status()?.identity => return Ok(file),
            Ok(_) | Err(Errno::ENOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Refusal::Replaced)
}

/// Returns the page's file, which is whole if it is new. For the holder of the lock.
fn open_or_make<P: Encoding>(path: &CStr) -> Result<SharedFile, Refusal> {
    // (2)
    let rule = Rule { owners: Owners::Own, ..Rule::TRUSTED };
    for _ in 0..REPLACEMENTS {
        match SharedFile::open_writable(path, &rule) {
            Ok((file, _)) => return Ok(file),
            Err(Refused::System(Errno::ENOENT)) => {}
            Err(error) => {
                return Err(match shared_file::status_of(path) {
                    Ok(FileStatus { is_regular: true, owner, mode, .. })
                        if !rule.owners.include(owner) =>
                    {
                        Refusal::Unsafe { owner, mode }
                    }
                    _ => error.into(),
                });
            }
        }
        let (folder, name) = path.to_bytes().split_at(name_at(path));
        let draft = PathBuf::join(&[folder, b".", name, b".new"])?;
        let draft = draft.as_c_str();
        // A writer left it that was killed here.
        match shared_file::unlink(draft) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let file = SharedFile::create_for(draft, PAGE_MODE)?;
        let named = file
            .write_first(&first_image::<P>())
            .and_then(|()| shared_file::rename_new(draft, path));
        match named {
            Ok(()) => return Ok(file),
            Err(error) => {
                // The first error is the one to report.
                let _ = shared_file::unlink(draft);
                if error != Errno::EEXIST {
                    return Err(error.into());
                }
            }
        }
    }
    Err(Refusal::Replaced)
}

/// Returns where the name of the file begins in its path.
fn name_at(path: &CStr) -> usize {
    path.to_bytes().iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1)
}

/// Returns a file's first content.
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
            self.page.unlock();
            self.lock.unlock();
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
