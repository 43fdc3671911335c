//! The heap profile, for programs in any language: when they ask for it, at their end, and when a signal comes.
//!
//! Invariants:
//! - Files are written by raw system calls, in signal handlers too.
//! - A process that has no profile writes no file.

use core::ffi::{CStr, c_char, c_int};
use core::fmt::Write as _;

use corelocal::alloc::profile;

use super::info;
use super::text_output::Out;

/// Writes the profile to a file, or to the next one of the process, whose name `CORELOCAL_MALLOC` says, if `path` is
/// null. 0; or -1 and `errno`, which is `EINVAL` if there is no profile. Allocates nothing.
///
/// # Safety
/// `path` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_malloc_profile(path: *const c_char) -> c_int {
    let written = if path.is_null() {
        profile::dump_next()
    } else {
        // SAFETY: the caller's promise.
        profile::dump(unsafe { CStr::from_ptr(path) })
    };
    match written {
        Ok(()) => 0,
        Err(why) => {
            // SAFETY: the thread's own `errno`.
            unsafe { *libc::__errno_location() = why.0 };
            -1
        }
    }
}

/// Writes the next file, if there is a profile, and says on stderr if that fails: on the one that the program began with,
/// in none of the program's own files. `errno` stays, as far as writing does not fail.
pub(crate) fn dump() {
    if !profile::is_on() {
        return;
    }
    if let (Err(why), Some(fd)) = (profile::dump_next(), info::standard_error()) {
        let mut out = Out::to_file(fd);
        let why = why.name().unwrap_or("an error");
        // Where standard error fails, nothing more can be done.
        let _ = writeln!(out, "corelocal malloc: cannot write a profile: {why}");
        let _ = out.flush();
    }
}
