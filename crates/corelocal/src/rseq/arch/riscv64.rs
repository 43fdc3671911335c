//! The sections in RISC-V assembly, for RV64 with multiplication and atomics: no extension besides is needed.
//!
//! Orderings that x86-64 has without asking:
//! - What other threads read once they see the commit is stored before it: `fence rw, w` stands before the commit. Its
//!   partner is an Acquire load, named where it is. Sections on counts and on stacks commit without one: what follows
//!   on the slot runs on the same cpu, or behind the kernel's barriers of a switch, or behind a fence.
//! - What other threads have stored with Release, and the section's stores depend on, is loaded before `fence r, rw`.
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
