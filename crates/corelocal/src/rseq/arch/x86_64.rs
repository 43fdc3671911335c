//! The sections in x86-64 assembly.

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
