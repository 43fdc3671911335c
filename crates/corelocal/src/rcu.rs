//! Read-copy-update (RCU): data that is read all the time and replaced now and then.
//!
//! A reader holds a [`Guard`] while it uses the data. Beginning and ending one adds to two words of the thread's own
//! core, by critical sections: no atomic instruction, no shared cache line, no registration of threads. A writer
//! publishes a new version, waits for a *grace period*, and frees the old version. A grace period has ended when every
//! guard that was there at its beginning has ended.
//!
//! - [`read`] begins a guard in the global [`Domain`]. Programs can have domains of their own, whose guards and grace
//!   periods are independent of each other.
//! - [`synchronize()`] waits for a grace period, [`start_poll`] lets a program look whether one has ended.
//! - With the feature `std`, `Rcu` is a pointer to the current version, and `defer` runs a function after a grace
//!   period. `RcuCopy` is a small value that readers copy without a guard,
//!   `RcuHashMap` a map.
//!
//! ```
//! # #[cfg(feature = "std")] {
//! use std::sync::Arc;
//! use corelocal::rcu::{self, Rcu};
//!
//! let routes = Rcu::new(Arc::new(vec!["a", "b"]));
//! {
//!     let guard = rcu::read();
//!     assert_eq!(routes.load(&guard).len(), 2);
//! } // the guard ends
//! routes.store(Arc::new(vec!["c"])); // the old version is freed when no guard is left that may use it
//! assert_eq!(routes.load_full()[0], "c");
//! # }
//! ```
//!
//! # Cost
//! A guard takes a few nanoseconds. A grace period takes microseconds: one `membarrier(2)` if no guard is there, else
//! two or more, and as long as the longest guard. No reader ever waits.
//!
//! # Which threads
//! Guards work in every thread, in signal handlers, before `main` and at thread exit, and nest. Threads that cannot run
//! critical sections (old kernels, seccomp, valgrind) count by atomics. Where `membarrier(2)` is refused from the
//! start, readers run a full barrier instead.
//!
//! # After fork
//! In the child, guards of threads that do not exist there block nothing. Guards of the thread that forked still
//! protect: no grace period of the child ends until that thread has dropped them, and has once been without any guard.
//!
//! # Design
//! ```text
//!   grace_period.rs   the algorithm and its invariants
//!   readers.rs        what readers and grace periods share
//!   domain.rs         what a domain consists of, and how guards begin
//!   guard.rs          a guard, and how it ends
//!   ticket.rs         a grace period that a program looks at
//!   quiescent.rs      a reader for executors and event loops
//!   synchronize.rs    waits for grace periods
//!   watch.rs          how long one has been waiting
//!   stall.rs          reports of grace periods that take too long
//!   tracked.rs        guards whose threads are known, for such reports
//!   word.rs           the word of a domain, and of a guard
//!   survivors.rs      guards from before a fork, in the child
//!   pointer/          a pointer to the current version
//!   copy.rs           a value that readers copy
//!   map/              a hash map whose readers take no lock
//!   serialize.rs      conversions by serde
//!   deferred/         functions that run after a grace period, their limits, and the thread that runs them
//! ```

#[cfg(all(feature = "std", not(loom)))]
mod copy;
#[cfg(all(feature = "std", not(loom)))]
mod deferred;
#[cfg(not(loom))]
mod domain;
#[cfg(not(loom))]
mod error;
#[cfg_attr(loom, allow(dead_code))]
mod grace_period;
#[cfg(not(loom))]
mod guard;
#[cfg(all(feature = "std", not(loom)))]
mod key;
#[cfg(any(all(feature = "std", not(loom)), all(test, loom)))]
mod map;
#[cfg(all(feature = "std", not(loom)))]
mod pointer;
#[cfg(not(loom))]
mod quiescent;
#[cfg(not(loom))]
mod readers;
#[cfg(all(feature = "serde", feature = "std", not(loom)))]
mod serialize;
#[cfg(not(loom))]
mod stall;
#[cfg(not(loom))]
mod survivors;
#[cfg(not(loom))]
mod synchronize;
#[cfg(not(loom))]
mod ticket;
#[cfg(all(feature = "std", not(loom)))]
mod tracked;
#[cfg(not(loom))]
mod watch;
#[cfg(not(loom))]
mod word;

#[cfg(all(feature = "std", not(loom)))]
pub use copy::RcuCopy;
#[cfg(all(feature = "std", not(loom)))]
pub use deferred::thread::thread_failures;
#[cfg(not(loom))]
pub use domain::Domain;
#[cfg(not(loom))]
pub use error::Error;
#[cfg(not(loom))]
pub use global::*;
#[cfg(not(loom))]
pub use guard::Guard;
#[cfg(all(feature = "std", not(loom)))]
pub use map::{Compute, Iter, Keys, Occupied, Operation, RcuHashMap, Values};
#[cfg(all(feature = "std", not(loom)))]
pub use pointer::{Cache, LazyRcu, NeverNull, NotCurrent, Pointer, Rcu, Shared};
#[cfg(not(loom))]
pub use quiescent::QuiescentReader;
#[cfg(not(loom))]
pub use stall::{Stall, set_stall_hook};
#[cfg(not(loom))]
pub use ticket::Ticket;
#[cfg(all(feature = "std", not(loom)))]
pub use tracked::Reader;

/// The functions of the global domain.
#[cfg(not(loom))]
mod global {
    use super::{Domain, Error, Guard, QuiescentReader, Ticket};
    use core::time::Duration;

    /// The domain of the functions of this module, and of [`Rcu::new`](super::Rcu::new).
    pub static GLOBAL: Domain = Domain::named("global");

    /// Calls [`Domain::read`] of the global domain.
    #[inline(always)]
    pub fn read() -> Guard {
        GLOBAL.read()
    }

    /// Calls [`Domain::quiescent_reader`] of the global domain.
    #[must_use]
    pub fn quiescent_reader() -> QuiescentReader {
        GLOBAL.quiescent_reader()
    }

    /// Calls [`Domain::synchronize`] of the global domain.
    ///
    /// # Errors
    /// As for [`Domain::synchronize`].
    pub fn synchronize() -> Result<(), Error> {
        GLOBAL.synchronize()
    }

    /// Calls [`Domain::synchronize_timeout`] of the global domain.
    ///
    /// # Errors
    /// As for [`Domain::synchronize_timeout`].
    pub fn synchronize_timeout(span: Duration) -> Result<(), Error> {
        GLOBAL.synchronize_timeout(span)
    }

    /// Calls [`Domain::start_poll`] of the global domain.
    #[must_use]
    pub fn start_poll() -> Ticket {
        GLOBAL.start_poll()
    }

    /// Calls [`Domain::defer`] of the global domain.
    #[cfg(feature = "std")]
    pub fn defer(run: impl FnOnce() + Send + 'static) {
        GLOBAL.defer(run);
    }

    /// Calls [`Domain::defer_drop`] of the global domain.
    #[cfg(feature = "std")]
    pub fn defer_drop<T: ?Sized + Send + 'static>(value: std::boxed::Box<T>) {
        GLOBAL.defer_drop(value);
    }

    /// Calls [`Domain::flush`] of the global domain.
    #[cfg(feature = "std")]
    pub fn flush() {
        GLOBAL.flush();
    }

    /// Calls [`Domain::barrier`] of the global domain.
    ///
    /// # Errors
    /// As for [`Domain::barrier`].
    #[cfg(feature = "std")]
    pub fn barrier() -> Result<(), Error> {
        GLOBAL.barrier()
    }
}
