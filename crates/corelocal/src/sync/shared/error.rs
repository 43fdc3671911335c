//! Why an object in shared memory was not made or not found.
//!
//! Invariant: after an error nothing is mapped, and no file was changed.

use core::fmt;

use crate::sys::Errno;
use crate::sys::file::trust::Refused;

/// The reason why there is no [`SharedBox`](super::SharedBox).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SharedError {
    /// Names have 1 to 200 bytes, no `/`, and do not begin with a dot.
    BadName,
    /// An object of this name exists.
    Exists,
    /// No object of this name exists.
    NotFound,
    /// The path names a directory, a device or the like.
    NotAFile,
    /// The file does not begin as an object does: it is something else, or was overwritten.
    Foreign,
    /// The object was made by an incompatible version of this library.
    Version {
        /// The version of the file's header.
        found: u32,
    },
    /// The file is shorter or longer than its object needs: it was cut or written to.
    Length {
        /// The bytes that the file has.
        found: u64,
        /// The bytes that it should have.
        expected: u64,
    },
    /// The object is of another size.
    Size {
        /// The value of the file's object.
        found: u64,
        /// The value of the requested type.
        expected: u64,
    },
    /// The object is aligned in another way.
    Alignment {
        /// The value of the file's object.
        found: u64,
        /// The value of the requested type.
        expected: u64,
    },
    /// The object is of another type, or another version of it.
    Layout {
        /// The value of the file's object.
        found: u64,
        /// [`SharedSafe::LAYOUT`](super::SharedSafe::LAYOUT) of the type asked for.
        expected: u64,
    },
    /// The object belongs to another user, neither this process's nor root, which could do anything to it.
    Owner {
        /// The user's id.
        found: u32,
    },
    /// Others than the object's owner may write to it.
    Mode {
        /// The permission bits.
        found: u32,
    },
    /// The object's file has several names: a hard link to it was made.
    Linked {
        /// The number of names.
        names: u64,
    },
    /// The file's memory could still fail, which would end this process: it is no sealed memory without a name, or one
    /// of huge pages.
    Unsealed,
    /// A byte of the header that must be 0 is not.
    Damaged,
    /// A system call failed.
    Kernel(Errno),
}

impl From<Errno> for SharedError {
    fn from(errno: Errno) -> SharedError {
        match errno {
            Errno::EEXIST => SharedError::Exists,
            Errno::ENOENT => SharedError::NotFound,
            errno => SharedError::Kernel(errno),
        }
    }
}

impl From<Refused> for SharedError {
    fn from(why: Refused) -> SharedError {
        match why {
            Refused::System(error) => error.into(),
            Refused::Kind => SharedError::NotAFile,
            Refused::Owner(status) => SharedError::Owner { found: status.owner },
            Refused::Mode(status) => SharedError::Mode { found: status.mode },
            Refused::Linked(names) => SharedError::Linked { names },
        }
    }
}

impl fmt::Display for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let differ = |f: &mut fmt::Formatter<'_>, what: &str, found: u64, expected: u64| {
            write!(f, "the shared object's {what} is {found}, not {expected}")
        };
        match *self {
            SharedError::BadName => f.write_str(
                "the name must have 1 to 200 bytes, no slash, and no dot at its beginning",
            ),
            SharedError::Exists => f.write_str("there is a shared object of this name already"),
            SharedError::NotFound => f.write_str("there is no shared object of this name"),
            SharedError::NotAFile => f.write_str("this is not a regular file"),
            SharedError::Foreign => f.write_str("the file is not that of a shared object"),
            SharedError::Version { found } => {
                write!(f, "the shared object is of format {found}, which is not known here")
            }
            SharedError::Length { found, expected } => differ(f, "file length", found, expected),
            SharedError::Size { found, expected } => differ(f, "size", found, expected),
            SharedError::Alignment { found, expected } => differ(f, "alignment", found, expected),
            SharedError::Layout { found, expected } => {
                write!(f, "the shared object is of layout {found:#018x}, not {expected:#018x}")
            }
            SharedError::Owner { found } => write!(
                f,
                "the shared object belongs to user {found}, and only objects of this process's own user and of \
                 root are opened by default: remove it, take another name, or share it by \
                 SharedBox::open_of_user"
            ),
            SharedError::Mode { found } => write!(
                f,
                "others than its owner may write to the shared object (its permissions are {found:04o}): take \
                 that right away, or share it by SharedBox::create_for_group and SharedBox::open_of_user"
            ),
            SharedError::Linked { names } => {
                write!(f, "the shared object's file has {names} names: remove all but one of them")
            }
            SharedError::Unsealed => f.write_str(
                "the shared object's file can be cut short or is of huge pages: make the object by \
                 SharedBox::create_nameless",
            ),
            SharedError::Damaged => f.write_str("the header of the shared object is damaged"),
            SharedError::Kernel(errno) => write!(f, "the kernel refuses it: {errno}"),
        }
    }
}

impl core::error::Error for SharedError {}
