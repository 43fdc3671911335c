//! An object in memory that several processes map, made whole by one of them.
//!
//! # Whose objects are opened
//! A user that may write to the file makes the object whatever it likes, also while a thread of this process uses it:
//! links of robust mutexes, which libc and the kernel follow, and the data. So a box opens a file of its own user or of
//! root only, that nobody else may write to, and by its descriptor: the path may lead elsewhere the next moment. A file
//! of several names is refused too, since a hard link puts an object under a name that its maker did not give it. For
//! objects of other users there is `users.rs`.
//!
//! # Invariants
//! 1. Others see a name only when the object under it is complete: it is made in a file without a name, which
//!    then gets this one, unless it is taken (`link(2)`). Where there are no such files it is one of another
//!    name, `.NAME.THREAD.NUMBER`, which is not opened, and is left behind by a process that is killed meanwhile;
//!    it is renamed, so that the object has one name at any time.
//! 2. The mapping is as long as the file was when it was checked, and stays as long as the box does.
//! 3. The object is written once, before anybody else knows of it, and never dropped.

use core::ffi::{CStr, c_int};
use core::marker::PhantomData;
use core::ops::Deref;

use super::header::{self, Header};
use super::name::{self, Path};
use super::{SharedError, SharedSafe};
use crate::sys::shared_file::{self, Mapping, SharedFile};
use crate::sys::trust::Rule;
use crate::sys::{Errno, thread_id};

/// Owner only.
const MODE: u32 = 0o600;
/// How many drafts of one thread can lie about, of processes that were killed.
const ATTEMPTS: u32 = 1000;

/// An object in memory that several processes map.
///
/// ```
/// use corelocal::sync::shared::SharedBox;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// let name = format!("corelocal-example-{}", std::process::id());
/// // SAFETY: nobody else uses this name, or writes to the file.
/// let hits = unsafe { SharedBox::<AtomicU64>::open_or_create(&name, || AtomicU64::new(0)) }?;
/// hits.fetch_add(1, Ordering::Relaxed); // by any process
/// SharedBox::<AtomicU64>::unlink(&name)?;
/// # Ok::<(), corelocal::sync::shared::SharedError>(())
/// ```
///
/// The object is never dropped: its memory goes with the last box and the name.
///
/// # Names
/// A name is one file's in /dev/shm: 1 to 200 bytes, none of them `/` or NUL, and the first one not a dot; else
/// [`SharedError::BadName`]. Unlike `shm_open(3)` it begins with no slash. All processes that see the same /dev/shm share
/// one set of names: begin yours with the name of your program.
pub struct SharedBox<T: SharedSafe + Sync> {
    mapping: Mapping,
    file: SharedFile,
    object: PhantomData<T>,
}

impl<T: SharedSafe + Sync> SharedBox<T> {
    const HEADER: Header = Header::of::<T>();

    /// Makes an object of a new name, for processes of the same user: a file in /dev/shm, of mode 0600. For those of
    /// other users there is [`create_for_group`](Self::create_for_group).
    ///
    /// # Safety
    /// As long as there is a box for it:
    /// - nobody writes to the file but through boxes of this type, and nobody cuts it short. Other users cannot,
    ///   unless they are given the right;
    /// - the threads of all processes that use it have numbers of one pid namespace, if there are locks in it
    ///   that name their owner;
    /// - a box is not dropped while a thread of its process owns a robust mutex in it, and what a guard of such a
    ///   mutex gave out is not used after its thread has ended (see [`RobustMutex`](crate::sync::RobustMutex::new)).
    ///   Guards borrow the box and stay in their thread, so this is about guards that are forgotten.
    ///
    /// # Errors
    /// [`SharedError::Exists`]; [`SharedError::BadName`]; [`SharedError::Kernel`] with `ENOSPC`, say.
    pub unsafe fn create(name: &str, value: T) -> Result<Self, SharedError> {
        Self::create_named(name, value, |_| Ok(()))
    }

    /// `share` gives other users rights to the file, before it has its name.
    pub(super) fn create_named(
        name: &str,
        value: T,
        share: impl FnOnce(&SharedFile) -> Result<(), Errno>,
    ) -> Result<Self, SharedError> {
        let path = Path::of(name)?;
        let Ok(file) = SharedFile::create_unlinked(name::DIRECTORY, MODE) else {
            return Self::create_by_draft(name, &path, value, share);
        };
        let made = Self::fill(file, value)?;
        share(&made.file)?;
        made.file.link(path.as_c_str())?;
        Ok(made)
    }

    fn create_by_draft(
        name: &str,
        path: &Path,
        value: T,
        share: impl FnOnce(&SharedFile) -> Result<(), Errno>,
    ) -> Result<Self, SharedError> {
        let (draft, file) = draft(name)?;
        let made = Self::fill(file, value).and_then(|made| {
            share(&made.file)?;
            shared_file::rename_new(draft.as_c_str(), path.as_c_str())?;
            Ok(made)
        });
        if made.is_err() {
            // The first error is the one to report.
            let _ = shared_file::unlink(draft.as_c_str());
        }
        made
    }

    /// Opens the object of a name, which must be of a process of the same user or of root.
    ///
    /// # Safety
    /// As for [`create`](Self::create).
    ///
    /// # Errors
    /// [`SharedError::NotFound`]; [`SharedError::Owner`] and [`SharedError::Mode`] if other users may write to it, for
    /// whose objects there is [`open_of_user`](Self::open_of_user); [`SharedError::Linked`]; one of the others that
    /// tell what the file is instead.
    pub unsafe fn open(name: &str) -> Result<Self, SharedError> {
        Self::open_by(name, &Rule::TRUSTED)
    }

    /// Opens the object of a name, or makes it. Of several that do so at once one makes it, and the others
    /// open that; what their `value` gave is forgotten.
    ///
    /// # Safety
    /// As for [`create`](Self::create).
    ///
    /// # Errors
    /// As for [`open`](Self::open) and [`create`](Self::create).
    pub unsafe fn open_or_create(
        name: &str,
        mut value: impl FnMut() -> T,
    ) -> Result<Self, SharedError> {
        loop {
            // SAFETY: the caller's promise.
            match unsafe { Self::open(name) } {
                Err(SharedError::NotFound) => {}
                outcome => return outcome,
            }
            // SAFETY: likewise.
            match unsafe { Self::create(name, value()) } {
                // Another was faster. It is there, if it was not taken away again.
                Err(SharedError::Exists) => {}
                outcome => return outcome,
            }
        }
    }

    /// Makes an object without a name. Others get it by its [`descriptor`](Self::descriptor): by fork, or
    /// through a socket. Nobody can cut its file short. A process that has the descriptor may write to the object: one of
    /// another user should get it only if the type is [`TamperSafe`](super::TamperSafe).
    ///
    /// # Safety
    /// As for [`create`](Self::create).
    ///
    /// # Errors
    /// [`SharedError::Kernel`].
    pub unsafe fn create_nameless(value: T) -> Result<Self, SharedError> {
        let made = Self::fill(SharedFile::create_nameless()?, value)?;
        made.file.seal_len()?;
        Ok(made)
    }

    /// Maps the object of a descriptor, which stays the caller's. The object must be of a process of the same user or
    /// of root; for others there is [`from_untrusted`](Self::from_untrusted).
    ///
    /// # Safety
    /// As for [`create`](Self::create).
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub unsafe fn from_descriptor(descriptor: c_int) -> Result<Self, SharedError> {
        Self::check(SharedFile::duplicate(descriptor)?, &Rule::TRUSTED)
    }

    /// Takes the name from an object, which stays for those that have it open.
    ///
    /// # Errors
    /// [`SharedError::NotFound`]; [`SharedError::BadName`]; [`SharedError::Kernel`].
    pub fn unlink(name: &str) -> Result<(), SharedError> {
        Ok(shared_file::unlink(Path::of(name)?.as_c_str())?)
    }

    /// The object's file. It is closed when the box is dropped, and by `exec`.
    pub fn descriptor(&self) -> c_int {
        self.file.descriptor()
    }

    fn fill(file: SharedFile, value: T) -> Result<Self, SharedError> {
        let len = Self::HEADER.file_len();
        file.reserve(len)?;
        let mapping = file.map(len, true)?;
        let head = Self::HEADER.to_bytes();
        // SAFETY: `len` bytes that nobody else knows of (3), of which the head takes the first and the object
        // those from its offset on, which is aligned as the mapping begins with a page.
        unsafe {
            mapping.at().copy_from_nonoverlapping(head.as_ptr(), head.len());
            mapping.at().add(Self::HEADER.offset()).cast::<T>().write(value);
        }
        Ok(SharedBox { mapping, file, object: PhantomData })
    }

    /// The object of a name, in a file that is as the rule demands.
    pub(super) fn open_by(name: &str, rule: &Rule) -> Result<Self, SharedError> {
        let path = Path::of(name)?;
        let opened = SharedFile::open_writable(path.as_c_str(), rule);
        let (file, _) = opened.map_err(|error| match shared_file::status_of(path.as_c_str()) {
            // Its mode keeps us out; whose it is says more.
            Ok(status) if error == Errno::EACCES.into() && !rule.owners.include(status.owner) => {
                SharedError::Owner { found: status.owner }
            }
            _ => error.into(),
        })?;
        Self::check(file, rule)
    }

    /// The object in a file that is as the rule demands.
    pub(super) fn check(file: SharedFile, rule: &Rule) -> Result<Self, SharedError> {
        let status = file.status()?;
        rule.judge(&status)?;
        let mut head = [0; header::LEN];
        let read = file.read_head(&mut head)?;
        Self::HEADER.check(&head[..read], status.len)?;
        let mapping = file.map(Self::HEADER.file_len(), true)?;
        Ok(SharedBox { mapping, file, object: PhantomData })
    }
}

/// A file that nobody opens, for an object that is to have this name.
fn draft(name: &str) -> Result<(Path, SharedFile), SharedError> {
    let mut attempt = 0;
    loop {
        let path = Path::of_draft(name, thread_id::current(), attempt)?;
        let c_path: &CStr = path.as_c_str();
        match SharedFile::create_for(c_path, MODE).map_err(SharedError::from) {
            Ok(file) => return Ok((path, file)),
            Err(SharedError::Exists) if attempt < ATTEMPTS => attempt += 1,
            Err(error) => return Err(error),
        }
    }
}

impl<T: SharedSafe + Sync> Deref for SharedBox<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the file was made for such an object, or checked to be (2, 3); it lives as long as the
        // mapping, which `self` has. What others do to it the maker and the openers vouch for, or the type allows
        // it (`TamperSafe`).
        unsafe { &*self.mapping.at().add(Self::HEADER.offset()).cast::<T>() }
    }
}

impl<T: SharedSafe + Sync + core::fmt::Debug> core::fmt::Debug for SharedBox<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primitive::global::{AtomicU64, Ordering};
    use std::format;

    /// As on a file system that has no files without a name.
    #[test]
    fn made_as_a_draft() {
        let name = format!("corelocal-draft-{}", std::process::id());
        let path = Path::of(&name).unwrap();
        let make = || SharedBox::create_by_draft(&name, &path, AtomicU64::new(7), |_| Ok(()));
        let Ok(made) = make() else {
            std::eprintln!("skipped: made_as_a_draft: nothing can be written to /dev/shm");
            return;
        };
        assert!(matches!(make(), Err(SharedError::Exists)));
        // SAFETY: nobody else knows the name.
        let opened = unsafe { SharedBox::<AtomicU64>::open(&name) }.unwrap();
        made.store(8, Ordering::Relaxed);
        assert_eq!(opened.load(Ordering::Relaxed), 8);
        SharedBox::<AtomicU64>::unlink(&name).unwrap();
        let draft = Path::of_draft(&name, thread_id::current(), 0).unwrap();
        assert!(shared_file::status_of(draft.as_c_str()).is_err());
    }
}
