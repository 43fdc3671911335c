//! Memory of one malloc that another one is given back to.
//!
//! Invariant: an object goes back by a function that was not found by its plain name, once.

use std::ffi::{CStr, CString, c_void};

use crate::Outcome;

type Free = unsafe extern "C" fn(*mut c_void);
type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;

/// Returns the address of a function of a library that is opened, and stays.
fn function(library: &CStr, flags: i32, name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: names that end with a zero byte.
    let found = unsafe {
        let handle = libc::dlopen(library.as_ptr(), libc::RTLD_NOW | flags);
        if handle.is_null() {
            return Err(format!("{library:?} cannot be opened"));
        }
        libc::dlsym(handle, name.as_ptr())
    };
    if found.is_null() { Err(format!("{library:?} has no {name:?}")) } else { Ok(found) }
}

/// Returns an object of 64 bytes, all of them and those of the object before it 0, as is what lies between them.
fn object_among_zeros() -> Result<*mut c_void, String> {
    // SAFETY: takes numbers.
    let all: Vec<_> = (0..1000).map(|_| unsafe { libc::calloc(1, 64) }).collect();
    let has_neighbour = |at: &&*mut c_void| all.contains(&at.wrapping_byte_sub(64));
    Ok(all.iter().find(has_neighbour).copied().unwrap_or(all[0]))
}

/// `handle_free`: by libc's own. `handle_malloc`: from libc's own. `library PATH` and `deepbind PATH`: by that of a
/// library.
pub fn mixed(words: &[String]) -> Outcome {
    let libc_so = c"libc.so.6";
    let path = || {
        let path = words.get(1).ok_or("a library is missing")?;
        CString::new(path.as_str()).map_err(|error| error.to_string())
    };
    let give_back = match words.first().map_or("", String::as_str) {
        "handle_free" => function(libc_so, libc::RTLD_NOLOAD, c"free")?,
        "library" => function(&path()?, 0, c"give_back")?,
        "deepbind" => function(&path()?, libc::RTLD_DEEPBIND, c"give_back")?,
        "handle_malloc" => {
            let take = function(libc_so, libc::RTLD_NOLOAD, c"malloc")?;
            // SAFETY: of this type in C; the object goes back once.
            unsafe {
                let take = std::mem::transmute::<*mut c_void, Malloc>(take);
                libc::free(std::hint::black_box(take(64)));
            }
            return Ok("went back".to_owned());
        }
        other => return Err(format!("no way `{other}`")),
    };
    let object = object_among_zeros()?;
    // SAFETY: of this type in C; the object goes back once.
    unsafe { std::mem::transmute::<*mut c_void, Free>(give_back)(object) };
    Ok("went back".to_owned())
}
