//! The C names, found at run time: so no compiler knows what they promise, and one that a libc lacks is
//! no error of the build.
//!
//! Invariant: a name that is found has the type that C gives it.

use std::ffi::{CStr, CString, c_int, c_void};
use std::mem::transmute_copy;

/// Returns the address of a function. `None` if it is not defined.
pub fn find(name: &str) -> Option<*mut c_void> {
    let name = CString::new(name).ok()?;
    // SAFETY: a valid handle, and a name that ends with a zero byte.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Returns a function of this type.
///
/// # Safety
/// - `F` is a function pointer of the type that the name has in C.
pub unsafe fn function<F>(name: &str) -> Option<F> {
    assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
    // SAFETY: as large as a pointer, and of the right type by the contract.
    find(name).map(|found| unsafe { transmute_copy(&found) })
}

/// Returns the file that `malloc` is in.
pub fn whose() -> String {
    // SAFETY: all-zero bytes are a valid Dl_info.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let Some(malloc) = find("malloc") else { return String::new() };
    // SAFETY: `info` is valid for writes.
    if unsafe { libc::dladdr(malloc, &mut info) } == 0 || info.dli_fname.is_null() {
        return String::new();
    }
    // SAFETY: the loader's name of an object that stays.
    let name = unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy().into_owned();
    std::fs::canonicalize(&name).map_or(name, |path| path.to_string_lossy().into_owned())
}

/// Returns the calling thread's.
pub fn errno() -> c_int {
    // SAFETY: always valid in the calling thread.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's.
pub fn set_errno(value: c_int) {
    // SAFETY: always valid in the calling thread.
    unsafe { *libc::__errno_location() = value };
}
