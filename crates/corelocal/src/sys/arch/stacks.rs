//! What a copy of a stack is read by: registers, and what return addresses look like. One file per architecture.

/// The number of registers in a record: the program counter, the stack pointer, the frame pointer, and five that
/// depend on the architecture.
pub(crate) const REGISTERS: usize = 8;

#[cfg_attr(
    all(target_arch = "x86_64", target_os = "linux", not(any(miri, loom, corelocal_model))),
    path = "stacks/x86_64.rs"
)]
#[cfg_attr(
    all(target_arch = "aarch64", target_os = "linux", not(any(miri, loom, corelocal_model))),
    path = "stacks/aarch64.rs"
)]
#[cfg_attr(
    not(all(
        any(target_arch = "x86_64", target_arch = "aarch64"),
        target_os = "linux",
        not(any(miri, loom, corelocal_model))
    )),
    path = "stacks/none.rs"
)]
mod imp;

pub(crate) use imp::*;
