//! Children that are forked from a process with other threads, and say what is wrong by their exit code.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::forked::{self, End};

/// Longer than any test.
#[allow(dead_code, reason = "each test binary uses some of them")]
pub const FOR_EVER: Duration = Duration::from_secs(1 << 30);

/// Forks; the child runs `body`, which says what is wrong, and has ten seconds for it.
pub fn fork(body: impl FnOnce() -> Result<(), u8>) {
    let child = forked::fork(|| {
        // SAFETY: a child that sleeps on is ended by the signal, which the parent sees.
        unsafe { libc::alarm(10) };
        body().err().map_or(0, i32::from)
    });
    assert_eq!(child.wait(), End::Code(0), "a child complained, or slept on");
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
