//! Libraries that take memory when they are loaded and give it back when they go, loaded and unloaded on
//! several threads; what one has left to the program is there when the library is not.

use std::ffi::{CString, c_int, c_void};

use crate::Outcome;
use crate::cross::on_threads;

/// Opens the libraries that are named so many times, on four threads.
pub fn run(words: &[String], times: u64) -> Outcome {
    let libraries: Vec<CString> = words
        .iter()
        .filter(|word| word.parse::<u64>().is_err())
        .map(|word| CString::new(word.as_str()).map_err(|error| error.to_string()))
        .collect::<Result<_, _>>()?;
    let work = |_| -> Result<(), String> {
        (0..times).try_for_each(|_| libraries.iter().try_for_each(once))
    };
    on_threads(4, work).map(|()| format!("{} libraries, 4 x {times} times", libraries.len()))
}

fn once(library: &CString) -> Result<(), String> {
    // SAFETY: a name that ends with a zero byte.
    let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Err(format!("{library:?} cannot be loaded"));
    }
    // SAFETY: a valid handle, and names that end with a zero byte.
    let (take, check) = unsafe {
        (
            libc::dlsym(handle, c"library_takes".as_ptr()),
            libc::dlsym(handle, c"library_checks".as_ptr()),
        )
    };
    let mut kept = std::ptr::null_mut();
    if !take.is_null() && !check.is_null() {
        // SAFETY: functions of these types: they are the test's own.
        let (take, check) = unsafe {
            (
                std::mem::transmute::<*mut c_void, extern "C" fn(usize) -> *mut c_void>(take),
                std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(check),
            )
        };
        kept = take(777);
        if kept.is_null() || check() != 0 {
            return Err(format!("{library:?} finds its memory changed"));
        }
    }
    // SAFETY: opened above.
    if unsafe { libc::dlclose(handle) } != 0 {
        return Err(format!("{library:?} cannot be unloaded"));
    }
    if !kept.is_null() {
        // SAFETY: 777 bytes that the library took, wrote to and left.
        let bytes = unsafe { std::slice::from_raw_parts(kept.cast::<u8>(), 777) };
        if bytes.iter().any(|&byte| byte != 0x5a) {
            return Err(format!("what {library:?} left has changed"));
        }
        // SAFETY: the library allocated it and left it; freed once.
        unsafe { libc::free(kept) };
    }
    Ok(())
}
