//! What this layer needs from the processor: the thread pointer, the thread's own area in static
//! TLS, libc's weak symbols, the system call. One file per architecture, all with the same
//! functions.

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, loom, corelocal_model))))]
#[path = "arch/x86_64.rs"]
mod imp;

#[cfg(not(all(
    target_arch = "x86_64",
    target_os = "linux",
    not(any(miri, loom, corelocal_model))
)))]
#[path = "arch/portable.rs"]
mod imp;

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, loom, corelocal_model))))]
pub(crate) mod probes;

#[cfg(not(any(
    loom,
    all(target_arch = "x86_64", target_os = "linux", not(any(miri, corelocal_model)))
)))]
#[path = "arch/no_probes.rs"]
pub(crate) mod probes;

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) mod tsc;

#[cfg(miri)]
mod miri;

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
    /// The thread's lease, for `sys/thread.rs`.
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
    HAS_OWN_WORDS, increment_own_word_pair, own_word_pair, read_own_word_pair,
    take_number_of_own_word,
};
#[cfg(not(loom))]
pub(crate) use imp::{address_here, load_here, opaque, thread_pointer};
pub(crate) use imp::{own_word, read_own_word};
