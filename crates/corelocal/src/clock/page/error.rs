//! What can go wrong with a page, told apart: with its content ([`ReadError`]), with its file ([`Refusal`]),
//! with its publication ([`PublishError`]).

use core::fmt;

use super::status::Status;
use crate::sys::Errno;
use crate::sys::file::trust::Refused;

/// The reason why a page gave no time.
///
/// ```
/// use corelocal::clock::page::{ReadError, pvclock};
///
/// assert_eq!(pvclock::Page::new().read(|| 0), Err(ReadError::Blank));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReadError {
    /// The sequence number stayed odd: the writer is interrupted in a publication, or died in one.
    Odd,
    /// The page changed during every attempt to read it.
    Changing,
    /// No content was published yet, or none that tells a time.
    Blank,
    /// The page is not valid for every cpu: the counters are not known to agree.
    Unstable,
    /// A field has an impossible value.
    Malformed,
    /// The point lies in the future, or too far in the past for the elapsed time to be computed.
    Range,
    /// The writer states that its clock cannot be trusted.
    Untrusted(Status),
    /// The page states no maximum error.
    Unbounded,
    /// The content's validity has expired: its writer has ended.
    Expired,
    /// The file, which is read anew each time, was cut short or cannot be read any more: open it again.
    Cut,
    /// Readers must compare the disruption marker with the hypervisor's, which cannot be read.
    Unwatched,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReadError::Odd => {
                "the clock page is in the middle of a publication: its writer is interrupted, or died"
            }
            ReadError::Changing => "the clock page changed during every attempt to read it",
            ReadError::Blank => "the clock page tells no time yet",
            ReadError::Unstable => "the clock page does not speak for every cpu",
            ReadError::Malformed => "the clock page holds a value that it cannot have",
            ReadError::Range => "the clock page's point is too far away from now, or in the future: the counter was set back",
            ReadError::Untrusted(status) => {
                return write!(f, "the clock page's writer says: {status}");
            }
            ReadError::Unbounded => "the clock page does not tell how far off it may be",
            ReadError::Cut => "the clock page's file was cut short: open it again",
            ReadError::Expired => "the clock page was not published for too long: its writer has ended",
            ReadError::Unwatched => {
                "the clock page's disruption marker cannot be compared with the hypervisor's: make \
                 /dev/vmclock0 readable"
            }
        })
    }
}

impl core::error::Error for ReadError {}

/// The reason why a file is not taken for a clock page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// A system call failed on it.
    System(Errno),
    /// Another writer has locked it: the process with this number in its own namespace, if it stated one.
    Held(Option<u32>),
    /// The path names a directory, a FIFO or a device.
    NotAFile,
    /// The file is too short: it has this many bytes.
    Short(u64),
    /// The file has another encoding.
    Foreign,
    /// The file has an unknown version of this encoding.
    Version(u16),
    /// The header states an impossible length.
    Size(u64),
    /// It belongs to this other user, which is not root, or others may write to it: what it says, and whether it is
    /// still there at the next look, would be up to them.
    Unsafe {
        /// The id of the owning user.
        owner: u32,
        /// The permission bits.
        mode: u32,
    },
    /// The lock file beside it is no regular file of this user, or others may open it, or it has several names.
    Lock {
        /// The id of the owning user.
        owner: u32,
        /// The permission bits.
        mode: u32,
    },
    /// The file has this many hard links: another user may have made one.
    Linked(u64),
    /// Another program made the file, and may be writing to it without a lock.
    NotOurs,
    /// The file was replaced repeatedly while it was opened.
    Replaced,
}

impl From<Errno> for Refusal {
    fn from(error: Errno) -> Refusal {
        Refusal::System(error)
    }
}

impl From<Refused> for Refusal {
    fn from(why: Refused) -> Refusal {
        match why {
            Refused::System(error) => Refusal::System(error),
            Refused::Kind => Refusal::NotAFile,
            Refused::Owner(status) | Refused::Mode(status) => {
                Refusal::Unsafe { owner: status.owner, mode: status.mode }
            }
            Refused::Linked(names) => Refusal::Linked(names),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::System(error) => write!(f, "{error}"),
            Refusal::Held(Some(process)) => {
                write!(f, "process {process} publishes there already: end it first, or use another file")
            }
            Refusal::Held(None) => {
                f.write_str("another process publishes there already: end it first, or use another file")
            }
            Refusal::NotAFile => {
                f.write_str("neither a regular file nor a hypervisor's page; name one of them")
            }
            Refusal::Short(len) => write!(f, "no clock page: it has {len} bytes only"),
            Refusal::Foreign => f.write_str("no clock page of this encoding"),
            Refusal::Version(version) => {
                write!(f, "a clock page of version {version}, which this library does not know")
            }
            Refusal::Size(size) => write!(f, "a damaged clock page: it claims to have {size} bytes"),
            Refusal::Unsafe { owner, mode } if mode & 0o022 != 0 => write!(
                f,
                "not to be trusted: others may write to it (it belongs to user {owner}, with permissions \
                 {mode:04o}); remove it, or take that right away with `chmod go-w`"
            ),
            Refusal::Unsafe { owner, .. } => write!(
                f,
                "not to be trusted: it belongs to user {owner}, and only pages of this process's own user and, \
                 by readers, of root are believed; remove it, and publish as one of them"
            ),
            Refusal::Lock { owner, mode } => write!(
                f,
                "its lock file, the name with .lock behind it, is not this user's alone: it belongs to user \
                 {owner} with permissions {mode:04o}; remove it, or take a directory that only this user may \
                 write to, below /run or $XDG_RUNTIME_DIR"
            ),
            Refusal::Linked(names) => {
                write!(
                    f,
                    "it has {names} names, and another user may have added this one: remove it, or take a directory \
                     that only this user may write to, below /run or $XDG_RUNTIME_DIR"
                )
            }
            Refusal::NotOurs => f.write_str(
                "a clock page of another program, which may still write to it: end that, and remove the \
                 file first",
            ),
            Refusal::Replaced => f.write_str("the file was replaced again and again"),
        }
    }
}

impl core::error::Error for Refusal {}

/// The reason why nothing was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PublishError {
    /// This process is a forked child of the one that the publisher belongs to.
    Forked,
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the publisher belongs to the parent of this process: create another one")
    }
}

impl core::error::Error for PublishError {}
