//! The system call `rseq(2)`: what it accepts, what it refuses, and what it leaves in the area.
//!
//! Source: kernel/rseq.c, `SYSCALL_DEFINE4(rseq, …)`.

/// Unregisters.
pub const UNREGISTER: i32 = 1;
