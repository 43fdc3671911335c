//! An object at two addresses, and children that use it.

/// Zeroed memory with a `T` in it, mapped twice: what is written at one address is read at the other. It stays
/// mapped.
#[allow(dead_code, reason = "each test binary uses some of them")]
pub fn twice<T: Sync>() -> [&'static T; 2] {
    let len = size_of::<T>().max(1);
    // SAFETY: a name that ends with 0.
    let file = unsafe { libc::memfd_create(c"twice".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(file >= 0);
    // SAFETY: a file of ours.
    assert_eq!(unsafe { libc::ftruncate(file, len as libc::off_t) }, 0);
    let both = [(); 2].map(|()| {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping.
        let at =
            unsafe { libc::mmap(std::ptr::null_mut(), len, access, libc::MAP_SHARED, file, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        // SAFETY: mapped for good and aligned to a page; the types used here are valid when all bytes are 0.
        unsafe { &*at.cast::<T>() }
    });
    assert!(!std::ptr::eq(both[0], both[1]));
    // SAFETY: a file of ours, closed once.
    unsafe { libc::close(file) };
    both
}

/// A forked child that says whether all was well; one that does not end is ended after a minute.
#[allow(dead_code, reason = "each test binary uses some of them")]
pub fn child(body: impl FnOnce() -> bool) -> libc::pid_t {
    // SAFETY: the child uses locks, atomics and system calls, and ends without unwinding.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: the default action of the signal ends it.
        unsafe { libc::alarm(60) };
        let right = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!right.unwrap_or(false))) };
    }
    child
}

/// Waits for a child that must have said that all was well.
#[allow(dead_code, reason = "each test binary uses some of them")]
pub fn succeeds(child: libc::pid_t) {
    let mut status = -1;
    // SAFETY: the child is ours, `status` writable.
    while unsafe { libc::waitpid(child, &mut status, 0) } != child {
        assert_eq!(std::io::Error::last_os_error().kind(), std::io::ErrorKind::Interrupted);
    }
    assert_eq!(status, 0, "the child failed, or had to be ended");
}
