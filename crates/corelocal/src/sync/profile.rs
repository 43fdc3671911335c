//! Lock profiling: which locks are contended, how long threads wait, and which owners make them wait.
//!
//! A profile is off by default and then costs nothing: fast paths contain no code for it, and each slow path loads
//! one word. There are three ways to turn it on:
//!
//! - The program calls [`start`], and later [`stop`].
//! - The environment contains `CORELOCAL_LOCKS=on`; or `ready`, to be switched on later by another process; or the
//!   absolute path of a directory, in which each process leaves its profile in a file of its own.
//! - The command `corelocal locks PROGRAM` runs a program with that variable, and prints a table; `corelocal locks
//!   PROCESS` shows a running process that has a profile.
//!
//! ```
//! use corelocal::sync::{Mutex, profile::{self, Profile}};
//!
//! static LOCK: Mutex<u32> = Mutex::new(0);
//!
//! profile::start()?;
//! std::thread::scope(|scope| {
//!     let held = LOCK.lock();
//!     scope.spawn(|| *LOCK.lock() += 1);
//!     std::thread::sleep(std::time::Duration::from_millis(20));
//!     drop(held);
//! });
//! profile::stop();
//! for lock in Profile::of_this_process().expect("it was started").locks() {
//!     println!("{:#x} {}: {:?} at most", lock.address, lock.kind.name(), lock.longest);
//! }
//! # Ok::<(), corelocal::sys::Errno>(())
//! ```
//!
//! # What is counted
//! A wait is a call that did not succeed at once: it spun, or slept, or both. For each lock the profile keeps the
//! number of waits, the number of times a thread went to sleep (or tried to), the waiting time (total, longest,
//! histogram), and two stacks: that of the thread that waited longest, when it continued, and that of the worst
//! owner.
//!
//! The worst owner is the one that unlocked at the end of the longest time in which a thread waited and no waiting
//! thread got the lock. Usually it held the lock for all that time. If one thread locked and unlocked repeatedly
//! while others were on their way, it is that thread. An owner that unlocks while others only spin, before any of
//! them sleeps, is not noticed.
//!
//! Locks are identified by address and [`Kind`]. A lock that is placed at the address of an earlier one is taken for
//! it. There is room for 1024 locks; waits for further ones are only [counted](Profile::missed). Waits for several
//! objects at once (`wait_any`) are not counted. For a lock that several processes share, each process has its own
//! waits in its profile, and owners among its own threads.
//!
//! # Cost while it is on
//! Each wait reads the clock twice and updates a few words that all waiters of that lock share. A thread that sets a
//! record copies its stack, up to 16 KiB in about two microseconds, while it owns the lock; records soon become rare.
//! The page takes 5 MiB.
//!
//! Stacks are copied as they are, with all data on them. The page is readable by the user of the process only.
//!
//! # Deadlocks
//! The order in which mutexes are locked, and which threads wait for each other, is a separate record: [`order`].
//!
//! # After fork
//! A child makes a page of its own if the environment asks for one. Otherwise it has none.
//!
//! # Signals
//! All functions are async-signal-safe.

mod contended_hold;
#[cfg(not(loom))]
mod files;
mod histogram;
#[cfg(not(loom))]
mod hooks;
#[cfg(loom)]
#[path = "profile/hooks_loom.rs"]
mod hooks;
mod kind;
pub mod order;
#[cfg(not(loom))]
mod page;
#[cfg(not(loom))]
mod process_page;
#[cfg(not(loom))]
mod record;
#[cfg(not(loom))]
mod trace;
#[cfg(not(loom))]
mod view;

pub use histogram::WaitTimes;
pub(in crate::sync) use hooks::{Wait, let_go};
pub use kind::Kind;
#[cfg(not(loom))]
pub use trace::Stack;
#[cfg(not(loom))]
pub use view::{LockProfile, Profile, ProfileError};

#[cfg(not(loom))]
use crate::sys::Errno;

/// Starts recording in this process, until [`stop`] has been called as often as this.
///
/// ```
/// use corelocal::sync::profile;
///
/// profile::start()?;
/// assert!(profile::is_on());
/// profile::stop();
/// # Ok::<(), corelocal::sys::Errno>(())
/// ```
///
/// # Errors
/// `ENOMEM`; `EFBIG` beyond the file size limit (`ulimit -f`); `EAGAIN` if another thread is making the page right
/// now.
#[cfg(not(loom))]
pub fn start() -> Result<(), Errno> {
    process_page::get_or_make().map(|page| page.want(now()))
}

/// Undoes one [`start`].
#[cfg(not(loom))]
pub fn stop() {
    if let Some(page) = process_page::get() {
        page.want_no_more();
    }
}

/// Returns `true` if this process records, on its own request or another's.
#[cfg(not(loom))]
pub fn is_on() -> bool {
    process_page::page_in_use().is_some()
}

/// Returns the nanoseconds of the monotonic clock.
#[cfg(not(loom))]
fn now() -> u64 {
    crate::sys::kernel_clock::nanoseconds(libc::CLOCK_MONOTONIC)
}
