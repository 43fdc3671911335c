//! Functions of Linux's libc that fail here, as under a kernel without them: the library falls back, or returns the
//! error.

#![allow(
    missing_docs,
    clippy::missing_safety_doc,
    clippy::too_many_arguments,
    reason = "functions of others"
)]

use super::names::*;

macro_rules! refused {
    ($($name:ident$(<$($kind:ident),*>)?($($parameter:ty),*) -> $result:ty = $value:expr;)*) => { $(
        pub unsafe fn $name$(<$($kind),*>)?($(_: $parameter),*) -> $result {
            $value
        }
    )* };
}
type Handler = Option<unsafe extern "C" fn()>;

refused! {
    adjtimex<A>(A) -> c_int = -1;
    close<A>(A) -> c_int = -1;
    fchmod<A, B>(A, B) -> c_int = -1;
    fchown<A, B, C>(A, B, C) -> c_int = -1;
    fcntl<A, B, C>(A, B, C) -> c_int = -1;
    fork() -> pid_t = -1;
    fstat<A, B>(A, B) -> c_int = -1;
    fstatfs<A, B>(A, B) -> c_int = -1;
    ftruncate<A, B>(A, B) -> c_int = -1;
    getauxval<A>(A) -> c_ulong = 0;
    getegid() -> uid_t = 0;
    geteuid() -> uid_t = 0;
    linkat<A, B, C, D, E>(A, B, C, D, E) -> c_int = -1;
    lstat<A, B>(A, B) -> c_int = -1;
    memfd_create<A, B>(A, B) -> c_int = -1;
    mmap(*mut c_void, usize, c_int, c_int, c_int, off_t) -> *mut c_void = MAP_FAILED;
    munmap(*mut c_void, usize) -> c_int = -1;
    open<A, B, C>(A, B, C) -> c_int = -1;
    posix_fallocate<A, B, C>(A, B, C) -> c_int = ENOSYS;
    pread(c_int, *mut c_void, usize, off_t) -> isize = -1;
    pthread_atfork(Handler, Handler, Handler) -> c_int = ENOSYS;
    pthread_key_create<A, B>(A, B) -> c_int = ENOSYS;
    pthread_key_delete<A>(A) -> c_int = ENOSYS;
    pthread_mutex_destroy<A>(A) -> c_int = ENOSYS;
    pthread_mutex_init<A, B>(A, B) -> c_int = ENOSYS;
    pthread_mutex_lock<A>(A) -> c_int = ENOSYS;
    pthread_mutex_unlock<A>(A) -> c_int = ENOSYS;
    pthread_mutexattr_destroy<A>(A) -> c_int = ENOSYS;
    pthread_mutexattr_init<A>(A) -> c_int = ENOSYS;
    pthread_mutexattr_setpshared<A, B>(A, B) -> c_int = ENOSYS;
    pthread_mutexattr_setrobust<A, B>(A, B) -> c_int = ENOSYS;
    pthread_setspecific(pthread_key_t, *const c_void) -> c_int = ENOSYS;
    pwrite(c_int, *const c_void, usize, off_t) -> isize = -1;
    pthread_sigmask(c_int, *const sigset_t, *mut sigset_t) -> c_int = ENOSYS;
    sigaction(c_int, *const super::names::sigaction, *mut super::names::sigaction) -> c_int = -1;
    sigfillset(*mut sigset_t) -> c_int = -1;
    syscall<A, B, C, D, E, F>(A, B, C, D, E, F) -> c_long = -1;
    uname<A>(A) -> c_int = -1;
    unlink<A>(A) -> c_int = -1;
}
