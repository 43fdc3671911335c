//! The sections in AArch64 assembly.
//!
//! Orderings that x86-64 has without asking:
//! - What other threads read once they see the commit is stored before it: the commit is a `stlr`. Its partner is an
//!   Acquire load, named where it is. Sections on counts and on stacks commit by a plain store: what follows on the slot
//!   runs on the same cpu, or behind the kernel's barriers of a switch, or behind a fence.
//! - What other threads have stored with Release, and the section's stores depend on, is loaded by `ldar`.
//! - The address of the slot depends on the loads of the id's offset and of the object's base. Processors keep the
//!   order of a load and an access whose address depends on it, so what was ready before both were published is ready
//!   here.

#[macro_use]
mod frame;

mod guarded;
mod limited_stacks;
mod queues;
mod stacks;
mod trace;
mod words;

pub(crate) use guarded::*;
pub(crate) use limited_stacks::*;
pub(crate) use queues::*;
pub(crate) use stacks::*;
pub(crate) use trace::*;
pub(crate) use words::*;
