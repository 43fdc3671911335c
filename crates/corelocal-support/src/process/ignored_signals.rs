//! Signals that the caller has this process ignore, and that it must not ignore itself.
//!
//! A process that execs another one leaves it its ignored signals. Where SIGCHLD is ignored, the kernel keeps no exit
//! status of a child and frees its number at once: wait(2) fails with ECHILD, and the number may be another process's.
//! Rust's runtime ignores SIGPIPE before `main`, and gives it its default in each process that it starts.
//!
//! Invariants:
//! 1. From [`begin`] on, SIGCHLD is not ignored: a child's number is its own until it is waited for.
//! 2. A program of the user ignores SIGCHLD and SIGPIPE exactly where the caller had this process ignore them.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::process::signals::is_ignored;

/// The caller has SIGCHLD ignored.
static CHLD: AtomicBool = AtomicBool::new(false);
/// The caller has SIGPIPE ignored.
static PIPE: AtomicBool = AtomicBool::new(false);

/// Looks at SIGPIPE before Rust's runtime changes it.
#[used]
// SAFETY: the section holds the addresses of functions that the C library calls before `main`; this one needs nothing
// that begins later.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = {
    extern "C" fn look() {
        PIPE.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
    }
    look
};

/// Gives SIGCHLD its default (1). For the start of `main`, before there are children or threads.
pub fn begin() {
    // Relaxed, as all here: the words carry no other data.
    CHLD.store(is_ignored(libc::SIGCHLD), Ordering::Relaxed);
    if CHLD.load(Ordering::Relaxed) {
        // SAFETY: the default disposition runs no code of this process.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    }
}

/// Lets a program of the user begin with the signals ignored that the caller has ignored (2).
pub fn give_to(command: &mut Command) {
    for (signal, was_ignored) in [(libc::SIGCHLD, &CHLD), (libc::SIGPIPE, &PIPE)] {
        if !was_ignored.load(Ordering::Relaxed) {
            continue;
        }
        let ignore = move || {
            // SAFETY: no code of this process is run for the signal.
            match unsafe { libc::signal(signal, libc::SIG_IGN) } {
                libc::SIG_ERR => Err(io::Error::last_os_error()),
                _ => Ok(()),
            }
        };
        // SAFETY: between fork and exec it calls signal(2) and reads errno, which a signal handler may do, too.
        unsafe { command.pre_exec(ignore) };
    }
}
