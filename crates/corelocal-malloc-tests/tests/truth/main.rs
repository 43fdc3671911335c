//! Whether a malloc does what C, POSIX and glibc say, and whether programs run with it.
//!
//! Each program of `try-malloc` runs with libc's malloc, which shows that the program is right, and with
//! corelocal's, by `LD_PRELOAD`: the one beside the program, as a build leaves it, or the one that
//! `CORELOCAL_MALLOC_LIBRARY` names, which may be any malloc.
//!
//! Invariants:
//! - A library that is not preloaded after all is a failure: nothing is tested twice without one.
//! - Every program has a time limit, against hangs only.

mod background;
mod compile;
mod instructions;
mod limits;
mod operators;
mod probes;
mod programs;
mod run;
mod tracer;
mod tries;

/// Says that a test could not run here; `ci/test` counts such lines.
fn skip(test: &str, reason: &str) {
    eprintln!("skipped: {test}: {reason}");
}
