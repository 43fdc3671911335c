//! `vfork`, whose children may allocate although POSIX forbids it.

/// `vfork(2)`, whose child may use this malloc.
///
/// # Safety
/// - The conditions of `vfork(2)`, except that the child may use this malloc.
// "C-unwind": "C" would have to stop unwinding, which cannot occur, with a call and a stack frame.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn vfork() -> libc::pid_t {
    // SAFETY: the caller meets the conditions of `vfork`; this function has no stack frame that the child could
    // destroy.
    unsafe { corelocal::sys::vfork() }
}

/// glibc's other name for [`vfork`].
///
/// # Safety
/// - The conditions of [`vfork`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __vfork() -> libc::pid_t {
    // SAFETY: the caller meets the conditions of `vfork`; this function has no stack frame that the child could
    // destroy.
    unsafe { corelocal::sys::vfork() }
}
