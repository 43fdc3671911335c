//! Keeps the object this code is in loaded for ever.
//!
//! After a section the thread's `rseq_cs` still points to the section's descriptor, and the kernel reads
//! it the next time it resumes the thread: one that sleeps now, perhaps, and wakes after a `dlclose`.
//! Unmapped, that is SIGSEGV. Clearing `rseq_cs` would be a store in every operation, and no thread can
//! do it for another. So a shared object with this library in it asks the dynamic linker never to unload
//! it, as `-z nodelete` would; `dlclose` still runs its destructors when the program ends.
//!
//! Invariant: nothing happens in an executable, which stays anyway, nor where there is no dynamic linker.

use core::ffi::{CStr, c_char, c_int, c_void};

use crate::sys::arch;

/// The first fields of `struct link_map` of <link.h>, by which every dynamic linker describes an object.
#[repr(C)]
struct LinkMap {
    addr: usize,
    /// The path of the file; empty for the executable.
    name: *const c_char,
}

/// The value of `RTLD_DL_LINKMAP`, for `dladdr1`.
const LINK_MAP: c_int = 2;

/// The dynamic linker's functions, as weak references: a static program has neither.
pub(in crate::sys) struct Loader {
    pub(in crate::sys) dladdr1: Option<
        unsafe extern "C" fn(*const c_void, *mut libc::Dl_info, *mut *mut c_void, c_int) -> c_int,
    >,
    pub(in crate::sys) dlopen: Option<unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void>,
}

/// Keeps the object that this code is in loaded for ever. Called once, when it is loaded.
pub(in crate::sys) fn loaded_for_ever() {
    // No harm if it fails: then it is as it was.
    let _ = stays_loaded(loaded_for_ever as *const () as usize);
}

/// Keeps the object with this address loaded for ever. False if it may be unloaded.
pub(crate) fn stays_loaded(address: usize) -> bool {
    // Without a dynamic linker nothing is unloaded.
    let Loader { dladdr1: Some(dladdr1), dlopen: Some(dlopen) } = arch::loader() else {
        return true;
    };
    let mut info = core::mem::MaybeUninit::<libc::Dl_info>::uninit();
    let mut map = core::ptr::null_mut();
    let here = core::ptr::without_provenance(address);
    // SAFETY: an address, and valid places for what is told about its object.
    if unsafe { dladdr1(here, info.as_mut_ptr(), &raw mut map, LINK_MAP) } == 0 || map.is_null() {
        // An object that it does not know it does not unload: a static program.
        return true;
    }
    // SAFETY: the linker's entry for a loaded object; its name is a C string that lives as long.
    let name = unsafe { CStr::from_ptr((*map.cast::<LinkMap>()).name) };
    // The handle is kept, on purpose. SAFETY: a C string; `NOLOAD` runs no code of any object.
    name.is_empty()
        || !unsafe {
            dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE)
        }
        .is_null()
}
