//! Data that is local to the core it runs on.
//!
//! The kernel publishes state in memory so that a program need not ask: the cpu it runs on and a
//! critical section that restarts when it is moved (rseq), a compact concurrency id (mm_cid), clock
//! pages, private futexes. This library builds on them data structures whose fast paths make no
//! system call, lock no bus and share no cache line.
//!
//! ```
//! use corelocal::percpu::Counter;
//!
//! static HITS: Counter = Counter::new();
//!
//! HITS.add(1); // from any thread, from a signal handler, registered with the kernel or not
//! assert_eq!(HITS.get(), 1);
//! ```
//!
//! # Layers
//! A module uses only those below it:
//!
//! | module | holds |
//! |---|---|
//! | `trace` | events and spans, in buffers of each core |
//! | [`rcu`] | data that is read all the time and replaced now and then |
//! | `alloc` | memory: a malloc whose caches belong to cores, not to threads |
//! | [`clock`] | time, read in place |
//! | [`sync`] | locks and their kin |
//! | [`percpu`] | typed, safe data with a slot for each core |
//! | [`cid`] | which slot am I: concurrency id or cpu number |
//! | [`rseq`] | the critical sections, each specified once; the ids in place |
//! | [`sys`] | the kernel as it is: rseq area, membarrier, futex, topology, vDSO, [`sys::Caps`] |
//!
//! # The world without the feature
//! Everything works on every Linux since 5.10 and any libc, as does a program under valgrind, in a
//! container or behind a seccomp filter that refuses rseq. What changes is the cost:
//! [`sys::Caps`] and the command `corelocal doctor` tell which fast paths are active and why.
//! `CORELOCAL_RSEQ=off` in the environment switches them off.
//!
//! On systems that are not Linux the library compiles too, so that programs for Linux can be developed there: atomics, std's
//! clocks and std's parking take the kernel's place. `alloc` is the system's allocator, `trace` and memory that processes
//! share are missing.
#![no_std]
// The portable model answers "unavailable" without a look at its operands.
#![cfg_attr(any(miri, loom, corelocal_model, not(target_arch = "x86_64")), allow(dead_code))]
#![cfg_attr(not(target_os = "linux"), allow(dead_code, unused_imports, unused_macros))]

#[cfg(any(test, loom, feature = "std", not(target_os = "linux")))]
extern crate std;

#[macro_use]
mod primitive;

// Elsewhere `libc::NAME` is a name of this crate's stand-in.
#[cfg(not(target_os = "linux"))]
extern crate self as libc;
#[cfg(any(not(target_os = "linux"), all(test, not(any(loom, miri)))))]
#[cfg_attr(test, allow(dead_code, reason = "its tests alone use it here"))]
mod elsewhere;
#[cfg(not(target_os = "linux"))]
use elsewhere::{kernel::*, names::*, refused::*};

#[cfg(all(test, loom))]
mod explore;
#[cfg(test)]
mod scaled;

#[cfg(all(target_os = "linux", not(any(loom, miri))))]
pub mod alloc;
#[cfg(not(target_os = "linux"))]
pub use elsewhere::alloc;
/// The parts of the malloc that models explore.
#[cfg(loom)]
mod alloc {
    mod central {
        mod deferred_spans;
        mod orphans;
    }
    mod layout {
        mod bits;
        mod sleeper;
    }
    mod page_heap {
        mod large_state;
    }
}
pub mod cid;
pub mod clock;
#[cfg(all(target_os = "linux", not(any(loom, miri))))]
#[doc(hidden)]
pub mod foreign;
pub mod percpu;
pub mod rcu;
pub mod rseq;
pub mod sync;
pub mod sys;
#[cfg(all(target_os = "linux", not(any(loom, miri))))]
pub mod trace;
