//! Signals: threads that handle none, and handlers for signals that the program does not use.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::ptr;

/// Runs `f` with all signals blocked, so that a thread that it makes handles none of the program's.
pub(crate) fn without<T>(f: impl FnOnce() -> T) -> T {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: places for results, initialised in this order.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let result = f();
    // SAFETY: the mask that the call above has stored.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    result
}

/// Calls `sigaction(signal, NULL, action)`, see sigaction(2).
///
/// Whether the signal can be handled, and is not handled or ignored by the program.
#[cfg(not(any(loom, miri)))]
#[doc(alias = "sigaction")]
pub(crate) fn is_default(signal: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a place for a result, of which zeros are a valid value.
    let (failed, action) = unsafe {
        (libc::sigaction(signal, ptr::null(), action.as_mut_ptr()), action.assume_init())
    };
    failed == 0
        && action.sa_sigaction == libc::SIG_DFL
        && !matches!(signal, libc::SIGKILL | libc::SIGSTOP)
}

/// Calls `sigaction(signal, action, NULL)`, see sigaction(2).
///
/// Handles a signal. Interrupted calls go on where the kernel can do that. False: it cannot be handled.
#[cfg(not(any(loom, miri)))]
#[doc(alias = "sigaction")]
pub(crate) fn handle(signal: c_int, handler: extern "C" fn(c_int)) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: zeros are a valid action; the handler is a function that stays.
    unsafe {
        let action = action.assume_init_mut();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigaction(signal, action, ptr::null_mut()) == 0
    }
}
