//! Decides whether a file that other users could write to is believed: shared objects, clock pages, lock files,
//! profiles.
//!
//! The owner of a file may write to it, change its mode and cut it short, at any time; so may a user that its mode
//! allows to write. So a file is judged by its open descriptor, never by its path, which may lead elsewhere a moment
//! later. A file's size is checked by its format, which knows it.
//!
//! # Invariants
//! 1. This module alone decides whom the library believes.

use super::shared_file::{FileStatus, status_by_descriptor, user};
use crate::sys::errno::Errno;
use core::ffi::c_int;

/// The user id of root.
const ROOT: u32 = 0;

/// The users whose files are trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owners {
    /// This process's user.
    Own,
    /// This process's user and root, which control this process anyway.
    OwnOrRoot,
    /// Those two and a third user.
    OwnOrRootOr(u32),
    /// Any user. The file's content is then not trusted.
    Any,
}

/// The requirements that a file must meet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) owners: Owners,
    /// The permission bits that the file must not have. An access control list shows in the group's bits.
    pub(crate) refused_mode: u32,
    /// Whether the file may be a character device, whose content comes from its driver.
    pub(crate) may_be_device: bool,
}

/// The write permissions of group and others.
pub(crate) const OTHERS_WRITE: u32 = 0o022;
/// All permissions of group and others.
pub(crate) const OTHERS_ALL: u32 = 0o077;

/// The reason why a file is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// A system call failed.
    System(Errno),
    /// The file is neither regular nor an allowed device.
    Kind,
    /// The file belongs to another user.
    Owner(FileStatus),
    /// The file's mode gives other users rights.
    Mode(FileStatus),
    /// The file has this many names.
    Linked(u64),
}

impl From<Errno> for Refused {
    fn from(error: Errno) -> Refused {
        Refused::System(error)
    }
}

impl Owners {
    /// Returns `true` if a file of this user is believed.
    pub(crate) fn include(self, owner: u32) -> bool {
        let is_own = owner == user();
        match self {
            Owners::Own => is_own,
            Owners::OwnOrRoot => is_own || owner == ROOT,
            Owners::OwnOrRootOr(third) => is_own || owner == ROOT || owner == third,
            Owners::Any => true,
        }
    }
}

impl Rule {
    /// Regular files of this process's user or root, with one name, that no other user may write to.
    pub(crate) const TRUSTED: Rule =
        Rule { owners: Owners::OwnOrRoot, refused_mode: OTHERS_WRITE, may_be_device: false };

    /// Judges a file.
    pub(crate) fn judge(&self, status: &FileStatus) -> Result<(), Refused> {
        let is_device = status.is_device && self.may_be_device;
        if !status.is_regular && !is_device {
            return Err(Refused::Kind);
        }
        if !self.owners.include(status.owner) {
            return Err(Refused::Owner(*status));
        }
        // The rights to a device are the system's choice.
        if status.is_regular && status.mode & self.refused_mode != 0 {
            return Err(Refused::Mode(*status));
        }
        // A hard link puts a file under a name that its owner did not choose.
        if status.is_regular && status.links > 1 {
            return Err(Refused::Linked(status.links));
        }
        Ok(())
    }
}

/// Returns `true` if an open file may be loaded as code: a regular file of this process's user or root, with one name,
/// that no other user may write to. For the command.
#[doc(hidden)]
pub fn is_trusted_file(descriptor: c_int) -> bool {
    status_by_descriptor(descriptor).is_ok_and(|status| Rule::TRUSTED.judge(&status).is_ok())
}

/// Returns `true` if no other user can give names in a folder of this owner, group and mode to other files. In a folder
/// that all may write to, as /tmp, that holds for files of this user if it is sticky. The user's own group is believed,
/// since distributions give each user one and let it write. For the command.
#[doc(hidden)]
pub fn is_trusted_folder(owner: u32, group: u32, mode: u32) -> bool {
    const STICKY: u32 = 0o1000;
    // SAFETY: no preconditions.
    let own_group = unsafe { libc::getegid() };
    let is_group_out = mode & 0o020 == 0 || group == own_group || group == ROOT;
    let is_closed = mode & 0o002 == 0 && is_group_out;
    Owners::OwnOrRoot.include(owner) && (is_closed || mode & STICKY != 0)
}

#[cfg(all(test, not(loom)))]
mod tests;
