//! Children that are forked from a process with other threads, and say what is wrong by their exit code.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Longer than any test.
#[allow(dead_code, reason = "each test binary uses some of them")]
pub const FOR_EVER: Duration = Duration::from_secs(1 << 30);

/// Forks; the child runs `body`, which says what is wrong, and has ten seconds for it.
pub fn fork(body: impl FnOnce() -> Result<(), u8>) {
    // SAFETY: what `body` does, and the end of the child without destructors.
    match unsafe { libc::fork() } {
        -1 => panic!("no child"),
        0 => {
            // SAFETY: a child that sleeps on is ended by the signal, which the parent sees.
            unsafe { libc::alarm(10) };
            let wrong = body().err().unwrap_or(0);
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(wrong)) };
        }
        child => {
            let mut status = -1;
            // SAFETY: the child is ours, `status` writable.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "a child complained ({}), or slept on", status >> 8);
        }
    }
}

pub fn check(right: bool, wrong: u8) -> Result<(), u8> {
    if right { Ok(()) } else { Err(wrong) }
}

/// What a panic of `body` says.
#[allow(dead_code, reason = "each test binary uses some of them")]
pub fn panic_of<R>(body: impl FnOnce() -> R) -> Option<String> {
    let caught = catch_unwind(AssertUnwindSafe(|| drop(body()))).err()?;
    let text = caught.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| caught.downcast_ref::<String>().cloned())
}
