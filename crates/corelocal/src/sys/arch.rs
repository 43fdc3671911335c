//! What this layer needs from the processor: the thread pointer, the thread's own area in static TLS, libc's weak
//! symbols, the system call. One file per architecture, all with the same functions.

/// Chooses items by whether this is a processor with critical sections, on a system that has them.
macro_rules! by_sections {
    (with { $($with:item)* } without { $($without:item)* }) => {
        $(
            #[cfg(all(
                any(
                    target_arch = "x86_64",
                    all(target_arch = "aarch64", target_endian = "little", target_pointer_width = "64"),
                    target_arch = "riscv64"
                ),
                target_os = "linux",
                not(any(miri, loom, corelocal_model))
            ))]
            $with
        )*
        $(
            #[cfg(not(all(
                any(
                    target_arch = "x86_64",
                    all(target_arch = "aarch64", target_endian = "little", target_pointer_width = "64"),
                    target_arch = "riscv64"
                ),
                target_os = "linux",
                not(any(miri, loom, corelocal_model))
            )))]
            $without
        )*
    };
}
pub(crate) use by_sections;

by_sections! {
    with {
        #[cfg_attr(target_arch = "x86_64", path = "arch/x86_64.rs")]
        #[cfg_attr(target_arch = "aarch64", path = "arch/aarch64.rs")]
        #[cfg_attr(target_arch = "riscv64", path = "arch/riscv64.rs")]
        mod imp;
        #[cfg(not(target_arch = "x86_64"))]
        mod atomic_words;
        mod own_area;

        /// The length of our own rseq area in bytes: the largest registration that it can hold.
        pub(crate) const OWN_AREA_LEN: usize = 64;
        /// Its alignment. Not more than that of a thread's own data in glibc (2.36 was tried): an object with more cannot
        /// be loaded by `dlopen`. A longer registration needs more (Linux 7.0); the original one needs 32.
        pub(crate) const OWN_AREA_ALIGN: usize = if cfg!(target_arch = "x86_64") { 64 } else { 32 };

        pub(super) use own_area::thread_address;
        pub(crate) use own_area::{HAS_OWN_WORDS, own_word, own_word_pair, read_own_word};
    }
    without {
        #[path = "arch/portable.rs"]
        mod imp;

        /// The length of our own rseq area: there is none.
        pub(crate) const OWN_AREA_LEN: usize = 0;
        pub(crate) const OWN_AREA_ALIGN: usize = 0;

        #[cfg(not(loom))]
        pub(crate) use imp::{HAS_OWN_WORDS, own_word_pair};
        pub(crate) use imp::{own_word, read_own_word};
    }
}

#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_os = "linux",
    not(any(miri, loom, corelocal_model))
))]
pub(crate) mod probes;

#[cfg(not(any(
    loom,
    all(
        any(target_arch = "x86_64", target_arch = "aarch64"),
        target_os = "linux",
        not(any(miri, corelocal_model))
    )
)))]
#[path = "arch/no_probes.rs"]
pub(crate) mod probes;

pub(crate) mod stacks;

#[cfg_attr(all(target_arch = "x86_64", not(miri)), path = "arch/counter/x86_64.rs")]
#[cfg_attr(
    all(target_arch = "aarch64", target_os = "linux", not(miri)),
    path = "arch/counter/aarch64.rs"
)]
#[cfg_attr(
    not(all(
        any(target_arch = "x86_64", all(target_arch = "aarch64", target_os = "linux")),
        not(miri)
    )),
    path = "arch/counter/none.rs"
)]
pub(crate) mod counter;

#[cfg(miri)]
mod miri;

/// The id that our own area shows until the kernel writes one. Ids are below it: x86-64 and arm64 kernels can be built
/// for at most so many cpus.
pub(crate) const NO_ID: u32 = 8192;

/// The words that a thread has for itself, in static TLS behind its rseq area (`own_word`), by the file that uses them.
pub(crate) mod own_words {
    /// The thread's lease, for `sys/thread.rs`.
    pub(crate) const LEASE: usize = 0;
    /// The thread's name as an owner of locks, for `sync/mutex/owner.rs`.
    pub(crate) const NAME: usize = 1;
    /// The first of the words of `sys/thread/id.rs`; they end where the next ones begin.
    pub(crate) const NUMBER: usize = 2;
    /// The two words of `sys/thread/serial.rs`.
    pub(crate) const SERIAL: usize = 14;
    /// The word of `alloc/hook.rs`.
    #[cfg(not(loom))]
    pub(crate) const HOOK: usize = 16;
    /// Fallbacks that the thread has counted and not yet added to the total, for `sys/thread.rs`.
    pub(crate) const FALLBACKS: usize = 17;
    /// `rcu/survivors.rs`: guards that the thread has begun, and has ended; two words each.
    pub(crate) const GUARDS_BEGUN: usize = 18;
    pub(crate) const GUARDS_ENDED: usize = 24;
    /// `trace/span.rs`: spans that the thread has begun, and two words of the one that it is in.
    pub(crate) const SPANS_BEGUN: usize = 20;
    pub(crate) const SPAN: usize = 22;
    /// `trace/context.rs`: two words of the thread's context, and how many guards of spans are open.
    pub(crate) const CONTEXT: usize = 26;
    pub(crate) const OPEN_GUARDS: usize = 28;
}

pub(super) use imp::*;
#[cfg(not(loom))]
pub(crate) use imp::{
    address_here, increment_own_word_pair, load_here, opaque, read_own_word_pair,
    take_number_of_own_word, thread_pointer,
};
