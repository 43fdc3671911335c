//! The critical sections of `rseq.rs`, one file per architecture, all with the same functions. `model.rs` is for
//! architectures without sections, Miri and loom.

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, loom, corelocal_model))))]
#[path = "arch/x86_64.rs"]
mod imp;

#[cfg(not(all(
    target_arch = "x86_64",
    target_os = "linux",
    not(any(miri, loom, corelocal_model))
)))]
#[path = "arch/model.rs"]
mod imp;

pub(super) use imp::*;
