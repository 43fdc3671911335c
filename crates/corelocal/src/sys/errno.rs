//! The error number of a system call.
//!
//! `std::io::Error` is not available in a `no_std` crate, and a plain number is hard to read. This type prints the
//! number's name and its usual cause *for the calls this crate makes*.
//!
//! Invariant: the value is positive, one of the `E*` constants of the target.

use core::fmt;

/// A Linux error number, such as `ENOSYS`.
///
/// ```
/// use corelocal::sys::Errno;
///
/// assert_eq!(
///     Errno::ENOSYS.to_string(),
///     "ENOSYS: system call not implemented (kernel too old, or a seccomp filter)"
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident: $text:literal,)*) => {
        impl Errno {
            $(
                #[doc = concat!("`", stringify!($name), "`: ", $text, ".")]
                pub const $name: Errno = Errno(libc::$name);
            )*

            /// Returns the constant's name, for the errors that the calls of this crate return.
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Errno::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }

            /// Returns what usually causes it here, in a few words.
            pub const fn describe(self) -> Option<&'static str> {
                match self {
                    $(Errno::$name => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

errnos! {
    EPERM: "operation not permitted (not the owner, not registered, or a seccomp filter)",
    ENOENT: "no such file or directory",
    ESRCH: "no such thread (the owner has died)",
    EINTR: "interrupted by a signal",
    EIO: "input/output error",
    E2BIG: "argument list too long",
    EBADF: "bad file descriptor",
    EAGAIN: "try again (the value had changed, or the owner is just exiting)",
    ENOMEM: "out of memory",
    EACCES: "permission denied",
    EEXIST: "file exists",
    ENOSPC: "no space left on the device",
    EFBIG: "file too large (beyond the limit of this process, `ulimit -f`, or of the file system)",
    EFAULT: "bad address",
    EBUSY: "resource busy",
    ENOTDIR: "not a directory",
    EINVAL: "invalid argument (or a feature this kernel does not have)",
    EMFILE: "too many open files in this process",
    ENFILE: "too many open files on this machine",
    EDEADLK: "the calling thread already owns this lock",
    ENAMETOOLONG: "file name too long",
    ENOSYS: "system call not implemented (kernel too old, or a seccomp filter)",
    ELOOP: "too many symbolic links",
    ETIMEDOUT: "timed out",
}

impl Errno {
    /// Returns the error of the libc function that the calling thread called last and that failed.
    pub(crate) fn last() -> Errno {
        // SAFETY: the address of the thread's own `errno`.
        Errno(unsafe { *libc::__errno_location() })
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name(), self.describe()) {
            (Some(name), Some(text)) => write!(f, "{name}: {text}"),
            _ => write!(f, "error number {}", self.0),
        }
    }
}

impl core::error::Error for Errno {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn names_and_numbers() {
        assert_eq!(Errno(libc::EPERM).name(), Some("EPERM"));
        assert!(Errno(libc::ESRCH).to_string().starts_with("ESRCH: no such thread"));
        assert_eq!(Errno(4000).name(), None);
        assert_eq!(Errno(4000).to_string(), "error number 4000");
    }
}
