//! Objects that processes of several users map.
//!
//! Each user that may write to an object can write arbitrary bytes to it. So its type is [`TamperSafe`], and it has
//! no links. The remaining risk is the file's length: a user that may write to a named file may truncate it, and an
//! access beyond its end is SIGBUS. Nameless memory can be sealed against that, and is then safe whatever user made
//! it.
//!
//! # Invariants
//! 1. An object of another user is [`TamperSafe`].
//! 2. A file from an untrusted descriptor is sealed before its length is read.

use core::ffi::c_int;

use super::{SharedBox, SharedError, TamperSafe};
use crate::sys::file::shared_file::SharedFile;
use crate::sys::file::trust::{Owners, Rule};

/// The mode of a file whose owner and group may read and write.
const GROUP_MODE: u32 = 0o660;

impl<T: TamperSafe> SharedBox<T> {
    /// Creates a named object that all members of a group may open, with [`open_of_user`](SharedBox::open_of_user): a
    /// file in /dev/shm of mode 0660.
    ///
    /// # Safety
    /// - As long as a box for it exists, no member of the group truncates the file: a process that then accesses it
    ///   is ended by SIGBUS. For members that are not trusted so far there are
    ///   [`create_nameless`](SharedBox::create_nameless) and [`from_untrusted`](SharedBox::from_untrusted).
    ///
    /// # Errors
    /// As for [`create`](SharedBox::create). [`SharedError::Kernel`] with `EPERM` if this process is not a member of
    /// the group.
    pub unsafe fn create_for_group(name: &str, group: u32, value: T) -> Result<Self, SharedError> {
        Self::create_named(name, value, |file: &SharedFile| {
            // In this order: the file's first group gets no rights.
            file.set_group(group)?;
            file.set_mode(GROUP_MODE)
        })
    }

    /// Opens the named object of the user `owner` or of this process's user, made with
    /// [`create_for_group`](SharedBox::create_for_group).
    ///
    /// # Safety
    /// - As long as a box for it exists, no user that may write to the file truncates it.
    ///
    /// # Errors
    /// As for [`open`](SharedBox::open), except for its mode. [`SharedError::Owner`] if it belongs to a third user.
    pub unsafe fn open_of_user(name: &str, owner: u32) -> Result<Self, SharedError> {
        let owners = Owners::OwnOrRootOr(owner);
        Self::open_by(name, &Rule { owners, refused_mode: 0, ..Rule::TRUSTED })
    }

    /// Maps the object of a descriptor that came from an untrusted user: nameless memory, of
    /// [`create_nameless`](SharedBox::create_nameless). The descriptor stays the caller's.
    ///
    /// ```
    /// use corelocal::sync::shared::SharedBox;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// // SAFETY: all that get the descriptor use it as this type.
    /// let made = unsafe { SharedBox::create_nameless(AtomicU64::new(7)) }?;
    /// // In a process of another user, to which the descriptor was sent through a socket:
    /// // SAFETY: the descriptor is open, and for this use.
    /// let theirs = unsafe { SharedBox::<AtomicU64>::from_untrusted(made.descriptor()) }?;
    /// assert_eq!(theirs.load(Ordering::Relaxed), 7);
    /// # Ok::<(), corelocal::sync::shared::SharedError>(())
    /// ```
    ///
    /// # Safety
    /// - The descriptor is not of a file that other code of this process has mapped or relies on.
    ///
    /// The other user need not be trusted in any respect.
    ///
    /// # Errors
    /// - [`SharedError::Unsealed`] if the file can be truncated, or is of huge pages, which the kernel may run out
    ///   of.
    /// - The other variants of [`SharedError`] if the file does not hold such an object.
    pub unsafe fn from_untrusted(descriptor: c_int) -> Result<Self, SharedError> {
        let file = SharedFile::duplicate(descriptor)?;
        // Sealed before its length is read (invariant 2).
        if !file.is_sealed() {
            return Err(SharedError::Unsealed);
        }
        let owners = Owners::Any;
        Self::check(file, &Rule { owners, refused_mode: 0, ..Rule::TRUSTED })
    }
}
