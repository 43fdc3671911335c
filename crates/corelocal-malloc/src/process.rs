//! `vfork`, whose children allocate, though POSIX says that they must not.

/// `vfork(2)`, whose child may use this malloc.
///
/// # Safety
/// As `vfork(2)`, but for that.
// Unwinding, which does not occur, would have to be stopped in "C": by a call, for which there would be a frame.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn vfork() -> libc::pid_t {
    // SAFETY: nothing else is done here, so there is nothing to have a frame for; the rest is the caller's promise.
    unsafe { corelocal::sys::vfork() }
}

/// The name that glibc has for it as well.
///
/// # Safety
/// As [`vfork`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __vfork() -> libc::pid_t {
    // SAFETY: as in `vfork`.
    unsafe { corelocal::sys::vfork() }
}
