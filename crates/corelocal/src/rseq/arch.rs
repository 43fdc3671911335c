//! The critical sections of `rseq.rs`, one file per architecture, all with the same functions. `model.rs` is for
//! architectures without sections, Miri and loom.

/// Defines the functions of sections. Each is called with the index and the object.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, loom, corelocal_model))))]
macro_rules! functions {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($index:ident, $object:ident $(, $operand:ident: $type:ty)*) -> $ended:ty $body:block
    )+) => {
        $(
            #[doc = concat!("Runs the critical section `", stringify!($name), "` of `rseq.rs`.")]
            $(#[$doc])*
            ///
            /// # Safety
            /// - The conditions of the function of that name in `rseq.rs` hold.
            #[inline(always)]
            pub(crate) unsafe fn $name(
                $index: Index,
                $object: &Slots,
                $($operand: $type),*
            ) -> $ended $body
        )+
    };
}

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, loom, corelocal_model))))]
mod x86_64;
#[cfg(all(
    target_arch = "x86_64",
    target_os = "linux",
    not(any(miri, loom, corelocal_model))
))]
use x86_64 as imp;

#[cfg(not(all(
    target_arch = "x86_64",
    target_os = "linux",
    not(any(miri, loom, corelocal_model))
)))]
#[path = "arch/model.rs"]
mod imp;

pub(super) use imp::*;
