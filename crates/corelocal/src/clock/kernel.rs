//! What the kernel and its hypervisor publish of their clocks.

#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_os = "linux",
    not(any(miri, loom))
))]
pub(in crate::clock) mod page;
#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_os = "linux",
    not(any(miri, loom))
))]
pub(in crate::clock) mod paravirtual;
#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_os = "linux",
    not(any(miri, loom))
))]
pub(in crate::clock) mod probe;
pub(in crate::clock) mod vdso;
