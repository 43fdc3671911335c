//! Objects that processes of several users map.
//!
//! Each user that may write to an object can write anything to it. So its type is [`TamperSafe`], and it has no links.
//! What is left is the file's length: a user that may write to a file with a name may cut it short, and access beyond
//! its end is SIGBUS. Memory without a name can be sealed against that, and is then safe to use whoever made it.
//!
//! # Invariants
//! 1. An object of another user is [`TamperSafe`].
//! 2. A file from an untrusted descriptor was sealed before its length was looked at.

use core::ffi::c_int;

use super::{SharedBox, SharedError, TamperSafe};
use crate::sys::shared_file::SharedFile;
use crate::sys::trust::{Owners, Rule};

/// Owner and group.
const GROUP_MODE: u32 = 0o660;

impl<T: TamperSafe> SharedBox<T> {
    /// Makes an object of a new name that all members of a group may open, with
    /// [`open_of_user`](SharedBox::open_of_user): a file in /dev/shm of mode 0660.
    ///
    /// # Safety
    /// As long as there is a box for it, no member of the group cuts the file short: whoever then uses it is ended by
    /// SIGBUS. For members that are not trusted so far there are [`create_nameless`](SharedBox::create_nameless) and
    /// [`from_untrusted`](SharedBox::from_untrusted).
    ///
    /// # Errors
    /// As for [`create`](SharedBox::create). [`SharedError::Kernel`] with `EPERM` if this process is no member of the
    /// group.
    pub unsafe fn create_for_group(name: &str, group: u32, value: T) -> Result<Self, SharedError> {
        Self::create_named(name, value, |file: &SharedFile| {
            // In this order: the group that it has at first gets no right.
            file.set_group(group)?;
            file.set_mode(GROUP_MODE)
        })
    }

    /// Opens the object of a name that the user `owner` made with
    /// [`create_for_group`](SharedBox::create_for_group), or this process's user.
    ///
    /// # Safety
    /// As long as there is a box for it, no user that may write to the file cuts it short.
    ///
    /// # Errors
    /// As for [`open`](SharedBox::open), but for its mode. [`SharedError::Owner`] if it is a third user's.
    pub unsafe fn open_of_user(name: &str, owner: u32) -> Result<Self, SharedError> {
        let owners = Owners::OwnOrRootOr(owner);
        Self::open_by(name, &Rule { owners, refused_mode: 0, ..Rule::TRUSTED })
    }

    /// Maps the object of a descriptor that came from another user, which is trusted in nothing: memory without a
    /// name, of [`create_nameless`](SharedBox::create_nameless). The descriptor stays the caller's.
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
    /// The descriptor is not one of a file that something else in this process has mapped or relies on. Of the other
    /// user nothing is asked.
    ///
    /// # Errors
    /// [`SharedError::Unsealed`] if the file can be cut short or is of huge pages, which the kernel may run out of; one of the others that tell what it is instead.
    pub unsafe fn from_untrusted(descriptor: c_int) -> Result<Self, SharedError> {
        let file = SharedFile::duplicate(descriptor)?;
        // (2)
        if !file.is_sealed() {
            return Err(SharedError::Unsealed);
        }
        let owners = Owners::Any;
        Self::check(file, &Rule { owners, refused_mode: 0, ..Rule::TRUSTED })
    }
}
