//! Error numbers and versions.

use core::ffi::{CStr, c_char, c_int};

/// The version of the headers, as 10000 times the major number, plus 100 times the minor one, plus the patch.
pub const CORELOCAL_VERSION: u32 = 100;

const _: () = assert!(CORELOCAL_VERSION == of(env!("CARGO_PKG_VERSION")));

const fn of(version: &str) -> u32 {
    let bytes = version.as_bytes();
    let (mut at, mut part, mut all) = (0, 0, 0);
    while at < bytes.len() {
        if bytes[at] == b'.' {
            (all, part) = ((all + part) * 100, 0);
        } else {
            part = part * 10 + (bytes[at] - b'0') as u32;
        }
        at += 1;
    }
    all + part
}

/// Returns the version of the library that runs, in the form of CORELOCAL_VERSION. Before 1.0 a program runs with the minor
/// version that it was compiled with; from then on with all later ones of the same major version.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_version() -> u32 {
    CORELOCAL_VERSION
}

macro_rules! messages {
    ($($name:ident: $text:literal,)+) => {
        fn message(errno: c_int) -> &'static CStr {
            match errno {
                0 => c"no error",
                $(libc::$name => $text,)+
                _ => c"an error of a system call: see errno(3)",
            }
        }
    };
}

messages! {
    EPERM: c"EPERM: the calling thread does not own the lock",
    ESRCH: c"ESRCH: the owner of the lock has ended without unlocking it",
    EAGAIN: c"EAGAIN: the calling thread holds as many robust locks as the kernel finds (2048): unlock one first",
    ENOMEM: c"ENOMEM: no memory",
    EBUSY: c"EBUSY: the lock is owned",
    EINVAL: c"EINVAL: an argument is out of its range",
    ENOSPC: c"ENOSPC: the container of this core, the area or the disk is full, or there is no memory for the container",
    ENOTSUP: c"ENOTSUP: the header has another layout than the library, or this processor has no critical sections",
    EALREADY: c"EALREADY: there is a recording: a process has one",
    ERANGE: c"ERANGE: there is no element of this number",
    EDEADLK: c"EDEADLK: the calling thread would wait for itself",
    ENOSYS: c"ENOSYS: the kernel is too old, or a seccomp filter refuses a system call",
    ENODATA: c"ENODATA: there is nothing, or the clock is not synchronised: start a time daemon (chrony, ntpd, ptp4l)",
    ETIMEDOUT: c"ETIMEDOUT: the time is up",
    ESTALE: c"ESTALE: the machine slept or was moved, and the realtime clock was not set right since",
    EIO: c"EIO: input or output failed",
    EOWNERDEAD: c"EOWNERDEAD: the lock is acquired, and its last owner died with it: make the data consistent",
    ENOTRECOVERABLE: c"ENOTRECOVERABLE: an owner died, and the data was not made consistent again",
}

/// Returns what an error number says that a function of this library returned, negative or not. A static text; it may be
/// called by any thread and in signal handlers.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_strerror(error: c_int) -> *const c_char {
    message(error.checked_abs().unwrap_or(c_int::MAX)).as_ptr()
}
