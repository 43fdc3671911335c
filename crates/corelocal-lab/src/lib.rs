//! Checkers for restartable sequences, for corelocal and for every other program that has some.
//!
//! A critical section of the kernel's rseq facility can be abandoned at any of its instructions. A
//! compiler knows nothing of it and a test meets the bad moment once in a million runs, so this
//! crate looks at the machine code itself: [`check`] reads it without running it, [`torture`] runs it
//! and disturbs it at every instruction.
//!
//! [`callers`] finds the callers in the copy of a stack, by a program's files. [`input`] reads files that a user
//! names.

pub mod callers;
pub mod check;
mod demangle;
pub mod input;
pub mod torture;
