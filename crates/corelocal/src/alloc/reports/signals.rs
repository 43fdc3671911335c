//! Signals that ask for a profile or for statistics, as named by `CORELOCAL_MALLOC`. A program that later installs a
//! handler of its own for such a signal replaces this one.
//!
//! `corelocal heap` sends the signal of profiles with a value, [`PROFILE_AT_END`], to a program that runs for a while: from
//! then on a signal that ends it writes a profile first. Not from the start, since programs look once which signals are the
//! default, and install their handlers for those alone: Python's KeyboardInterrupt is such a handler.
//!
//! Invariants:
//! - The handler allocates nothing, takes no lock, and preserves `errno`.
//! - It runs on the thread's normal stack: alternate stacks may be too short.
//! - A signal that the program ignores or handles is left alone. One that we handle still ends the program, as before, and
//!   the second one does at once.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;

use super::{standard_error, write_profile};
use crate::alloc::config;

/// The value with the signal of profiles: a profile is wanted when another signal ends the process. `corelocal heap` has the
/// same.
const PROFILE_AT_END: usize = 0x656e64;

/// Installs the handlers.
pub(super) fn at_load() {
    let options = config::reports();
    for signal in [options.profile_signal(), options.stats_signal()].into_iter().flatten() {
        handle(signal, came as Handler as usize, libc::SA_RESTART | libc::SA_SIGINFO);
    }
}

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Installs a handler that meets the invariants. A signal that cannot be caught is refused.
fn handle(signal: c_int, handler: usize, flags: c_int) {
    // SAFETY: zero is a valid action, with no signals that wait; the handler meets the invariants above.
    unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        libc::sigaction(signal, &action, core::ptr::null_mut());
    }
}

/// Has the end by one of these signals write a profile from now on.
fn profile_at_end() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: zero is a valid action, which is written to.
        let before = unsafe {
            let mut before: libc::sigaction = MaybeUninit::zeroed().assume_init();
            libc::sigaction(signal, core::ptr::null(), &mut before);
            before.sa_sigaction
        };
        if before == libc::SIG_DFL {
            let end = end as extern "C" fn(c_int) as usize;
            handle(signal, end, libc::SA_RESTART | libc::SA_RESETHAND);
        }
    }
}

/// Puts the default is in place again.
extern "C" fn end(signal: c_int) {
    write_profile();
    // SAFETY: a number. The signal comes when this handler returns.
    unsafe { libc::raise(signal) };
}

extern "C" fn came(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the thread's own `errno`.
    let errno = unsafe { *libc::__errno_location() };
    let options = config::reports();
    // SAFETY: the kernel gives a handler with SA_SIGINFO a valid siginfo, with a value if the code says so.
    let is_for_end = unsafe {
        (*info).si_code == libc::SI_QUEUE && (*info).si_value().sival_ptr.addr() == PROFILE_AT_END
    };
    if options.profile_signal() == Some(signal) {
        if is_for_end {
            profile_at_end();
        } else {
            write_profile();
        }
    }
    if options.stats_signal() == Some(signal) {
        standard_error::write_stats();
    }
    // SAFETY: the thread's own `errno`.
    unsafe { *libc::__errno_location() = errno };
}
