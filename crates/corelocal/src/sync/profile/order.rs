//! Lock-order recording: finds deadlocks that may happen, and those that are happening.
//!
//! Two threads that lock the same two mutexes in opposite orders may end up waiting for each other. Whether they do
//! is chance; that they might shows in every run in which both orders occur, at whatever times. So the library can
//! record which mutex was held while another one was locked. A cycle of such pairs is a potential deadlock. It also
//! records which thread waits for which mutex, and which thread holds it: a cycle of these is an actual deadlock.
//!
//! ```text
//!   lock, unlock              page of the process               `corelocal locks --order`
//!   hooks.rs      ------->    page.rs: pairs, threads  ------>  view.rs, then cycles of either
//! ```
//!
//! It is on in a process that starts with `CORELOCAL_LOCK_ORDER` in its environment, from its first lock to its end:
//!
//! | `CORELOCAL_LOCK_ORDER` | |
//! |---|---|
//! | not set | off |
//! | `on` | on, in memory without a name |
//! | `/DIRECTORY` | on; each process leaves its record there, in a file of its own |
//!
//! # What is recorded
//! - [`Mutex`](crate::sync::Mutex) and `RawMutex` of scope [`Private`](crate::sync::Private), and types based on
//!   them. Other locks are not recorded: read-write locks, robust mutexes, those with priority inheritance, shared
//!   ones, and locks of std, parking_lot or pthread.
//! - A pair for each mutex that the thread holds when it calls a blocking function, before it waits. Functions that
//!   only try, or have a deadline, can continue without the lock: they make no pair, but what they locked counts as
//!   held.
//! - For each pair, the first time: the thread, and two stacks of up to 2 KiB, where the first mutex was locked and
//!   where the second one was. Later the number of times, whether several threads did it, and which further mutexes
//!   were held every time: two orders that are only used under a third lock cannot deadlock.
//! - For each thread that holds a mutex or waits for one: which one, since when, and where it locked it.
//!
//! A mutex is identified by its address. One that is placed at the address of an earlier one is taken for it, so a
//! cycle of mutexes on the heap may consist of parts that never existed at the same time.
//!
//! There is room for 1024 pairs, 256 threads that hold or wait at the same time, and 16 mutexes held by one thread.
//! Anything beyond is only [counted](Missed).
//!
//! # Cost
//! Nothing while it is off: see `hooks.rs`. While it is on, each lock and unlock takes its slow path, reads the clock
//! and copies 2 KiB of stack: a microsecond or less. The record takes 13 MiB.
//!
//! # After fork
//! A child has a record of its own, which begins empty: it does not contain what the thread that called fork held
//! then.
//!
//! # Signals
//! All functions are async-signal-safe. What a signal handler locks while it interrupts the recording itself is
//! counted as missed.

#[cfg(not(loom))]
mod hooks;
#[cfg(loom)]
#[path = "order/hooks_loom.rs"]
mod hooks;
#[cfg(not(loom))]
mod page;
#[cfg(not(loom))]
mod process_page;
#[cfg(not(loom))]
mod stack_top;
#[cfg(not(loom))]
mod view;

pub(in crate::sync) use hooks::{Blocking, is_off, let_go, took};
#[cfg(not(loom))]
pub use view::{Holding, LockOrder, LockPair, LockThread, Missed};
