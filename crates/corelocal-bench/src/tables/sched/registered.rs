//! Whether the calling thread has an rseq area registered with the kernel, by libc or by this library.
//!
//! `__rseq_size` is missing in older libcs, and the library registers a thread when it is asked, so this asks the
//! kernel.
//!
//! Invariant: asking changes nothing.

use std::io;

use corelocal::sys::Errno;

/// Length of the first registrations, which every kernel accepts.
const LEN: u32 = 32;

/// An aligned address outside of user space.
const NOWHERE: usize = usize::MAX - 4095;

/// Tries to register an area that cannot be registered: a thread that has one already is told
/// `EINVAL`, since a thread has one area only; another gets as far as the address, `EFAULT`
/// (`kernel/rseq.c`, Linux 4.18 and later).
///
/// # Errors
///
/// What else the call gave: `ENOSYS` or `EPERM` where it is refused.
pub fn is_registered() -> Result<bool, Errno> {
    // SAFETY: the kernel rejects the address before it stores or reads anything there.
    let returned = unsafe { libc::syscall(libc::SYS_rseq, NOWHERE, LEN, 0, 0) };
    let errno = Errno(io::Error::last_os_error().raw_os_error().unwrap_or(0));
    match (returned, errno) {
        (-1, Errno::EFAULT) => Ok(false),
        (-1, Errno::EINVAL) => Ok(true),
        _ => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use corelocal::sys::{Owner, Registration};

    use super::*;

    #[test]
    fn the_kernel_and_the_library_agree() {
        thread::spawn(|| match is_registered() {
            Err(errno) => eprintln!("skipped: the_kernel_and_the_library_agree: {errno}"),
            Ok(before) => {
                assert_eq!(is_registered(), Ok(before), "asking has registered the thread");
                let owner = Registration::of_this_thread().owner;
                assert_eq!(before, owner == Owner::Libc);
                assert_eq!(is_registered(), Ok(owner != Owner::Nobody));
            }
        })
        .join()
        .unwrap();
    }
}
