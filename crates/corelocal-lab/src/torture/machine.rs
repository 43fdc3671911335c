//! What disturbing a thread needs from the processor: breakpoints, registers, instructions. One file per architecture,
//! with the same names.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[path = "machine/x86_64.rs"]
mod imp;

#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
#[path = "machine/aarch64.rs"]
mod imp;

#[cfg(all(target_arch = "riscv64", target_os = "linux"))]
#[path = "machine/riscv64.rs"]
mod imp;

#[cfg(not(all(
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"),
    target_os = "linux"
)))]
#[path = "machine/unsupported.rs"]
mod imp;

pub use imp::*;
