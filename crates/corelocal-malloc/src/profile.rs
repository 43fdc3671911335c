//! Heap profiles on request, for programs in any language.
//!
//! Invariant: files are written by raw system calls, also in signal handlers.

use core::ffi::{CStr, c_char, c_int};

use corelocal::alloc::profile;

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
