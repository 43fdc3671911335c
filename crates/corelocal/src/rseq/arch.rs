//! The critical sections of `rseq.rs`, in one folder per architecture, all with the same functions. `model.rs` is for
//! architectures without sections, Miri and loom.

crate::sys::arch::by_sections! {
    with {
        #[macro_use]
        mod functions;

        #[cfg(target_arch = "x86_64")]
        mod x86_64;
        #[cfg(target_arch = "x86_64")]
        use x86_64 as imp;

        #[cfg(target_arch = "aarch64")]
        mod aarch64;
        #[cfg(target_arch = "aarch64")]
        use aarch64 as imp;

        #[cfg(target_arch = "riscv64")]
        mod riscv64;
        #[cfg(target_arch = "riscv64")]
        use riscv64 as imp;
    }
    without {
        #[path = "arch/model.rs"]
        mod imp;
    }
}

pub(super) use imp::*;
