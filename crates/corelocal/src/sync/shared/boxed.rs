//! An object in memory that several processes map, complete before others can see it.
//!
//! # Which objects are opened
//! A user that may write to the file can change the object arbitrarily, also while a thread of this process uses it.
//! That includes the links of robust mutexes, which libc and the kernel follow, and the data. So a box opens only
//! files of its own user or of root that no other user may write to. It checks the opened descriptor, because the
//! path may lead elsewhere the next moment. A file with several names is refused too, since a hard link puts an
//! object under a name that its maker did not choose. For objects of other users there is `users.rs`.
//!
//! # Invariants
//! 1. A name becomes visible only when the object under it is complete. It is made in a file without a name, which
//!    then gets the name unless it is taken (`link(2)`). Where the file system has no such files, a draft with
//!    another name, `.NAME.THREAD.NUMBER`, is renamed, so that the object has one name at any time. Drafts are never
//!    opened; a process that is killed meanwhile leaves its draft behind.
//! 2. The mapping has the length that the file had when it was checked, and lives as long as the box.
//! 3. The object is written once, before other threads know of it, and never dropped.

use core::ffi::{CStr, c_int};
use core::marker::PhantomData;
use core::ops::Deref;

use super::header::{self, Header};
use super::name::{self, Path};
use super::{SharedError, SharedSafe};
use crate::sys::Errno;
use crate::sys::file::shared_file::{self, Mapping, SharedFile};
use crate::sys::file::trust::Rule;
use crate::sys::thread::id;

/// The mode of an object's file: its owner alone may read and write.
const MODE: u32 = 0o600;
/// The maximum number of drafts of one thread id that killed processes may have left behind.
const ATTEMPTS: u32 = 1000;

/// An object in memory that several processes map.
///
/// ```
/// use corelocal::sync::shared::SharedBox;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// let name = format!("corelocal-example-{}", std::process::id());
/// // SAFETY: only this program uses this name and writes to the file.
/// let hits = unsafe { SharedBox::<AtomicU64>::open_or_create(&name, || AtomicU64::new(0)) }?;
/// hits.fetch_add(1, Ordering::Relaxed); // by any process
/// SharedBox::<AtomicU64>::unlink(&name)?;
/// # Ok::<(), corelocal::sync::shared::SharedError>(())
/// ```
///
/// The object is never dropped: its memory is freed with the last box and the name.
///
/// # Names
/// A name is that of a file in /dev/shm: 1 to 200 bytes, without `/` and NUL, and not beginning with a dot. Otherwise
/// the error is [`SharedError::BadName`]. Unlike in `shm_open(3)` there is no leading slash. All processes that see
/// the same /dev/shm share one set of names, so begin yours with the name of your program.
pub struct SharedBox<T: SharedSafe + Sync> {
    mapping: Mapping,
    file: SharedFile,
    object: PhantomData<T>,
}

impl<T: SharedSafe + Sync> SharedBox<T> {
    const HEADER: Header = Header::of::<T>();

    /// Creates a named object for processes of the same user: a file in /dev/shm, of mode 0600. For other users there
    /// is [`create_for_group`](Self::create_for_group).
    ///
    /// # Safety
    /// As long as a box for it exists:
    /// - The file is written to through boxes of this type only, and is not truncated. Other users cannot do either,
    ///   unless they are given the right.
    /// - If it contains locks that record their owner, all threads that use them have numbers of one pid namespace.
    /// - A box is not dropped while a thread of its process owns a robust mutex in it. References from a guard of
    ///   such a mutex are not used after its thread has ended (see [`RobustMutex`](crate::sync::RobustMutex::new)).
    ///   Guards borrow the box and stay in their thread, so this concerns forgotten guards only.
    ///
    /// # Errors
    /// - [`SharedError::Exists`] if the name is taken.
    /// - [`SharedError::BadName`].
    /// - [`SharedError::Kernel`] if a system call fails, for example with `ENOSPC`.
    pub unsafe fn create(name: &str, value: T) -> Result<Self, SharedError> {
        Self::create_named(name, value, |_| Ok(()))
    }

    /// `share` may give other users rights to the file, before it gets its name.
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

    /// Opens a named object, which must be of a process of the same user or of root.
    ///
    /// # Safety
    /// - As for [`create`](Self::create).
    ///
    /// # Errors
    /// - [`SharedError::NotFound`] if the name does not exist.
    /// - [`SharedError::Owner`] and [`SharedError::Mode`] if other users may write to it. For such objects there is
    ///   [`open_of_user`](Self::open_of_user).
    /// - [`SharedError::Linked`] if the file has several names.
    /// - The other variants if the file does not hold such an object.
    pub unsafe fn open(name: &str) -> Result<Self, SharedError> {
        Self::open_by(name, &Rule::TRUSTED)
    }

    /// Opens a named object, or creates it. If several processes do so at once, one creates it and the others open
    /// it. The value of the others is dropped.
    ///
    /// # Safety
    /// - As for [`create`](Self::create).
    ///
    /// # Errors
    /// As for [`open`](Self::open) and [`create`](Self::create).
    pub unsafe fn open_or_create(
        name: &str,
        mut value: impl FnMut() -> T,
    ) -> Result<Self, SharedError> {
        loop {
            // SAFETY: the caller keeps the conditions of `create`.
            match unsafe { Self::open(name) } {
                Err(SharedError::NotFound) => {}
                outcome => return outcome,
            }
            // SAFETY: the caller keeps the conditions of `create`.
            match unsafe { Self::create(name, value()) } {
                // Another process was faster. The name exists, unless it was removed again.
                Err(SharedError::Exists) => {}
                outcome => return outcome,
            }
        }
    }

    /// Creates an object without a name. Other processes get it by its [`descriptor`](Self::descriptor): by fork, or
    /// through a socket. Its file cannot be truncated. A process that has the descriptor may write to the object.
    /// Give it to one of another user only if the type is [`TamperSafe`](super::TamperSafe).
    ///
    /// # Safety
    /// - As for [`create`](Self::create).
    ///
    /// # Errors
    /// [`SharedError::Kernel`] if a system call fails.
    pub unsafe fn create_nameless(value: T) -> Result<Self, SharedError> {
        let made = Self::fill(SharedFile::create_nameless()?, value)?;
        made.file.seal_len()?;
        Ok(made)
    }

    /// Maps the object of a descriptor, which stays the caller's. The object must be of a process of the same user or
    /// of root. For others there is [`from_untrusted`](Self::from_untrusted).
    ///
    /// # Safety
    /// - As for [`create`](Self::create).
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub unsafe fn from_descriptor(descriptor: c_int) -> Result<Self, SharedError> {
        Self::check(SharedFile::duplicate(descriptor)?, &Rule::TRUSTED)
    }

    /// Removes an object's name. The object lives on in processes that have it open.
    ///
    /// # Errors
    /// - [`SharedError::NotFound`] if the name does not exist.
    /// - [`SharedError::BadName`].
    /// - [`SharedError::Kernel`] if a system call fails.
    pub fn unlink(name: &str) -> Result<(), SharedError> {
        Ok(shared_file::unlink(Path::of(name)?.as_c_str())?)
    }

    /// Returns the descriptor of the object's file. It is closed when the box is dropped, and by `exec`.
    pub fn descriptor(&self) -> c_int {
        self.file.descriptor()
    }

    fn fill(file: SharedFile, value: T) -> Result<Self, SharedError> {
        let len = Self::HEADER.file_len();
        file.reserve(len)?;
        let mapping = file.map(len, true)?;
        let head = Self::HEADER.to_bytes();
        // SAFETY: `len` bytes that no other thread knows of (invariant 3). The header takes the first of them. The
        // object takes those from its offset on, which is aligned because the mapping is page-aligned.
        unsafe {
            mapping.at().copy_from_nonoverlapping(head.as_ptr(), head.len());
            mapping.at().add(Self::HEADER.offset()).cast::<T>().write(value);
        }
        Ok(SharedBox { mapping, file, object: PhantomData })
    }

    /// Opens a named object in a file that satisfies the rule.
    pub(super) fn open_by(name: &str, rule: &Rule) -> Result<Self, SharedError> {
        let path = Path::of(name)?;
        let opened = SharedFile::open_writable(path.as_c_str(), rule);
        let (file, _) = opened.map_err(|error| match shared_file::status_of(path.as_c_str()) {
            // The mode denies access; its owner explains more.
            Ok(status) if error == Errno::EACCES.into() && !rule.owners.include(status.owner) => {
                SharedError::Owner { found: status.owner }
            }
            _ => error.into(),
        })?;
        Self::check(file, rule)
    }

    /// Maps the object in a file that satisfies the rule.
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

/// Creates a file that is never opened by name, for an object that will get this name.
fn draft(name: &str) -> Result<(Path, SharedFile), SharedError> {
    let mut attempt = 0;
    loop {
        let path = Path::of_draft(name, id::current(), attempt)?;
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
        // SAFETY: the file was made for such an object, or checked to be (invariants 2 and 3). The mapping lives as
        // long as `self`. Changes by others are excluded by the conditions of `create` and `open`, or harmless to the
        // type (`TamperSafe`).
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

    /// As on a file system without nameless files.
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
        // SAFETY: no other process knows the name.
        let opened = unsafe { SharedBox::<AtomicU64>::open(&name) }.unwrap();
        made.store(8, Ordering::Relaxed);
        assert_eq!(opened.load(Ordering::Relaxed), 8);
        SharedBox::<AtomicU64>::unlink(&name).unwrap();
        let draft = Path::of_draft(&name, id::current(), 0).unwrap();
        assert!(shared_file::status_of(draft.as_c_str()).is_err());
    }
}
