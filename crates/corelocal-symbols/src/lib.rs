//! Symbols and call stacks: of a process that runs, or of a copy of its stack and the program's files.
//!
//! [`callers`] recovers the callers from such a copy. [`demangle`] has the names of functions as their sources have them.
//! [`input`] reads files that a user names.

pub mod callers;
pub mod demangle;
pub mod input;
