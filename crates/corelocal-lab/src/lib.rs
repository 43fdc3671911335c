//! Checkers for restartable sequences, for corelocal and for all other programs that use them; models of the kernel.
//!
//! The kernel may abort a critical section (rseq) at any of its instructions. Compilers do not know this, and a test
//! meets the wrong moment once in a million runs. So this crate works on the machine code itself: [`check`] reads it
//! without running it, and [`torture`] runs it and disturbs it at every instruction.
//!
//! [`sim`] has the kernel's halves of these protocols as models, and explores all their interleavings.

pub mod check;
pub mod sim;
pub mod torture;
