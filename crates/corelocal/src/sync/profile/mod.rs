//! Who waits for which lock, how long, and who made others wait.
//!
//! A profile is off unless somebody wants it, and then costs nothing: fast paths know nothing of it, and each slow
//! path loads one word. It can be wanted in three ways:
//!
//! - The program calls [`start`], and [`stop`] when it has seen enough.
//! - The environment of the program says `CORELOCAL_LOCKS=on`; or `ready`, and somebody switches it on later; or
//!   the name of a folder, absolute, in which each process leaves its profile in a file of its own.
//! - The command `corelocal locks PROGRAM` runs a program with that variable, and prints a table;
//!   `corelocal locks PROCESS` looks at a process that has a profile.
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
//! A wait is a call that did not get what it wanted at once: it looked again for a moment, or slept, or both. What is
//! kept of each lock is how many waits there were, how often a thread went to sleep in them (or tried to), how long they were (all
//! together, the longest, and a histogram), and two stacks: that of the thread that waited longest, when it went on;
//! and that of the worst holder.
//!
//! The worst holder is the one that let go at the end of the longest time in which somebody waited and nobody who
//! waited got the lock. Mostly it has held it for all that time. If it was a thread that locks and unlocks again
//! and again while others are on their way, then it is that one. Who lets go while others only look again, and
//! nobody sleeps yet, does not learn that they waited, and is not told of.
//!
//! Locks are told apart by address and [`Kind`]. One that takes the place of another one that is gone is taken for it.
//! There is room for 1024; waits for others are [counted](Profile::missed), and nothing else. To wait for several
//! things at once (`wait_any`) is not counted. Of a lock that several processes share, each has its own waits in its
//! profile, and the holders among its own threads.
//!
//! # What it costs while it is on
//! Each wait reads the clock twice and adds to a few words that all who wait for that lock share. Whoever sets a
//! record copies its stack, 16 KiB at most, in about two microseconds, with the lock in its hand; records
//! become rare soon. The page takes 5 MiB.
//!
//! The stacks are copied as they are, with whatever was on them. The page is readable to the user of the process
//! and to nobody else.
//!
//! # Deadlocks
//! In which order mutexes are locked, and which threads wait for each other, is another record: [`order`].
//!
//! # After fork
//! A child makes a page of its own if the environment wants one. Else it has none.
//!
//! # Signals
//! All of it is async-signal-safe.

mod contended_hold;
#[cfg(not(loom))]
mod files;
mod histogram;
#[cfg(not(loom))]
mod hooks;
#[cfg(loom)]
#[path = "hooks_loom.rs"]
mod hooks;
mod kind;
pub mod order;
#[cfg(not(loom))]
mod page;
#[cfg(not(loom))]
mod process_page;
#[cfg(not(loom))]
mod record;
mod sequence;
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

/// Begins to record, in this process: until as many have called [`stop`] as this.
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
/// There is no memory for it; `EFBIG` past the limit of a file's size (`ulimit -f`); `EAGAIN` if another thread makes the page right now.
#[cfg(not(loom))]
pub fn start() -> Result<(), Errno> {
    process_page::get_or_make().map(|page| page.want(now()))
}

/// Takes back one [`start`].
#[cfg(not(loom))]
pub fn stop() {
    if let Some(page) = process_page::get() {
        page.want_no_more();
    }
}

/// Whether this process records, be it that somebody else wants it.
#[cfg(not(loom))]
pub fn is_on() -> bool {
    process_page::page_in_use().is_some()
}

/// Nanoseconds of the monotonic clock.
#[cfg(not(loom))]
fn now() -> u64 {
    crate::sys::kernel_clock::nanoseconds(libc::CLOCK_MONOTONIC)
}
