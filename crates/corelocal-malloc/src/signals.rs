//! Signals that ask for a profile or for statistics, as named by `CORELOCAL_MALLOC`. A program that later installs a
//! handler of its own for such a signal replaces this one.
//!
//! Invariants:
//! - The handler allocates nothing, takes no lock, and preserves `errno`.
//! - It runs on the thread's normal stack: alternate stacks may be too short.

use core::ffi::c_int;
use core::mem::MaybeUninit;

use super::options::Options;
use super::{info, profile};

/// Installs the handlers.
pub(crate) fn at_load() {
    let options = Options::get();
    for signal in [options.profile_signal(), options.stats_signal()].into_iter().flatten() {
        // SAFETY: zero is a valid action; the handler meets the invariants above. A signal that cannot be caught is
        // refused.
        unsafe {
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            action.sa_sigaction = came as extern "C" fn(c_int) as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &action, core::ptr::null_mut());
        }
    }
}

extern "C" fn came(signal: c_int) {
    // SAFETY: the thread's own `errno`.
    let errno = unsafe { *libc::__errno_location() };
    let options = Options::get();
    if options.profile_signal() == Some(signal) {
        profile::dump();
    }
    if options.stats_signal() == Some(signal) {
        info::to_standard_error();
    }
    // SAFETY: the thread's own `errno`.
    unsafe { *libc::__errno_location() = errno };
}

/// Parses a signal's number, or its name as in kill(1), among those that are usually sent to ask for something.
pub(crate) fn number(text: &[u8]) -> Option<c_int> {
    let name = text.strip_prefix(b"SIG").unwrap_or(text);
    match name {
        b"USR1" => Some(libc::SIGUSR1),
        b"USR2" => Some(libc::SIGUSR2),
        b"HUP" => Some(libc::SIGHUP),
        b"QUIT" => Some(libc::SIGQUIT),
        digits => {
            let number: c_int = core::str::from_utf8(digits).ok()?.parse().ok()?;
            (1..=64).contains(&number).then_some(number)
        }
    }
}
