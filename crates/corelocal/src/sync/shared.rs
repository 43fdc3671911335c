//! Objects in memory that several processes map.
//!
//! A [`SharedBox`] holds one object. The first process makes it, and the others find it: by a name, or by a
//! descriptor that was inherited or sent. It opens objects of its own user and of root only. For objects of other
//! users there are separate functions, for types that are [`TamperSafe`]. The object's type must be [`SharedSafe`]:
//! numbers, the locks whose names begin with `Shared`, and structures of those.
//!
//! ```
//! use std::time::Duration;
//! use corelocal::sync::shared::*;
//! use corelocal::sync::*; // both at once: names differ
//!
//! #[repr(C)]
//! struct Table {
//!     sum: SharedMutex<u64>,
//!     ready: SharedManualEvent,
//! }
//!
//! // SAFETY: `repr(C)`, and made of such types; the name changes with the fields.
//! unsafe impl SharedSafe for Table {
//!     const LAYOUT: u64 =
//!         layout("Table 1", &[SharedMutex::<u64>::LAYOUT, SharedManualEvent::LAYOUT]);
//! }
//!
//! let table =
//!     Table { sum: SharedMutex::with_scope(0), ready: SharedManualEvent::with_scope(false) };
//! // SAFETY: only the child inherits its descriptor.
//! let table = unsafe { SharedBox::create_nameless(table) }?;
//! // SAFETY: the child uses the table and ends.
//! if unsafe { libc::fork() } == 0 {
//!     // Another process, which maps it at another address.
//!     // SAFETY: only parent and child have the descriptor.
//!     if let Ok(mine) = unsafe { SharedBox::<Table>::from_descriptor(table.descriptor()) } {
//!         *mine.sum.lock() += 7;
//!         mine.ready.set();
//!     }
//!     // SAFETY: ends the child.
//!     unsafe { libc::_exit(0) };
//! }
//! assert!(!table.ready.wait_for(Duration::from_secs(30)).timed_out());
//! assert_eq!(*table.sum.lock(), 7);
//! # Ok::<(), SharedError>(())
//! ```

mod boxed;
mod error;
mod header;
mod kinds;
mod name;
mod safe;
mod tamper;
mod users;

pub use boxed::SharedBox;
pub use error::SharedError;
pub use kinds::{
    SharedAutoEvent, SharedBarrier, SharedCondvar, SharedLatch, SharedManualEvent, SharedMutex,
    SharedParker, SharedPiCondvar, SharedPiMutex, SharedRobustMutex, SharedRobustPiMutex,
    SharedRwLock, SharedSemaphore, SharedWaitGroup,
};
pub use safe::{SharedSafe, layout};
pub use tamper::TamperSafe;
