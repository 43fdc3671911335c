//! What this layer needs from the processor: the thread pointer, the thread's own area in static
//! TLS, libc's weak symbols, the system call. One file per architecture, all with the same
//! functions.

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, loom, corelocal_model))))]
#[path = "x86_64.rs"]
mod imp;

#[cfg(not(all(
    target_arch = "x86_64",
    target_os = "linux",
    not(any(miri, loom, corelocal_model))
)))]
#[path = "portable.rs"]
mod imp;

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) mod tsc;

#[cfg(miri)]
mod miri;

pub(super) use imp::*;
