//! Heap profiles for programs in any language: on request, at the program's end, and on a signal.
//!
//! Invariants:
//! - Files are written by raw system calls, also in signal handlers.
//! - A process without a profile writes no file.

use core::ffi::{CStr, c_char, c_int};
use core::fmt::Write as _;

use corelocal::alloc::profile;

use super::info;
use super::text_output::Out;

/// Writes the profile to `path`, or, if `path` is null, to the process's next file, whose name `CORELOCAL_MALLOC`
/// determines. Returns 0, or -1 and `errno`, which is `EINVAL` if there is no profile. Allocates nothing.
///
/// # Safety
/// - `path` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_malloc_profile(path: *const c_char) -> c_int {
    let written = if path.is_null() {
        profile::dump_next()
    } else {
        // SAFETY: `path` is not null, so it is a C string.
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

/// Writes the next file, if there is a profile, and reports a failure on the stderr that the program started with,
/// never in a file of the program's. `errno` changes only if writing fails.
pub(crate) fn dump() {
    if !profile::is_on() {
        return;
    }
    if let (Err(why), Some(fd)) = (profile::dump_next(), info::standard_error()) {
        let mut out = Out::to_file(fd);
        let why = why.name().unwrap_or("an error");
        // If standard error fails as well, nothing more can be done.
        let _ = writeln!(out, "corelocal malloc: cannot write a profile: {why}");
        let _ = out.flush();
    }
}
