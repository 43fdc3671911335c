//! The process: its program, its environment, and what its variables say.

pub(crate) mod environment;
pub(crate) mod nodelete;
#[cfg(not(loom))]
pub(crate) mod program;
pub(crate) mod words;
