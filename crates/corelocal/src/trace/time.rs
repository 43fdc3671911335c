//! The times of records: readings of the cpu's counter, or nanoseconds.
//!
//! ```text
//!                        an event                                a context
//!   counted              the counter, read by the section        the counter
//!   not counted          CLOCK_MONOTONIC                         the same
//!   coarse times         CLOCK_MONOTONIC at the last timer tick  CLOCK_MONOTONIC
//! ```
//! # Invariants
//! 1. The unit is chosen before the recording is there, and stays.
//! 2. The times of a buffer's records may go back by a timer tick where they are coarse, and where they are not counted by what
//!    a signal handler takes that records between the reading and the section. Readers take the latest so far. The
//!    events of a thread that comes to another buffer are behind a context there, whose time is exact. So what a thread
//!    records keeps its order. Where threads have no numbers, which tell contexts apart, all times are exact.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::clock::{self, Ticks};

/// Whether times are coarse. Relaxed: partner is `publish` of the recording (1).
static IS_COARSE: AtomicBool = AtomicBool::new(false);

/// Chooses the unit.
pub(super) fn choose(is_coarse: bool) {
    IS_COARSE.store(is_coarse, Ordering::Relaxed);
}

/// Returns `true` if times are those of the last timer tick.
pub(super) fn is_coarse() -> bool {
    IS_COARSE.load(Ordering::Relaxed)
}

/// Returns `true` if times are readings of the counter.
pub(super) fn is_counted() -> bool {
    !is_coarse() && clock::ticks_are_counted()
}

/// Returns the time of an event that comes now.
#[inline(never)]
pub(super) fn of_event() -> u64 {
    if is_coarse() { clock::coarse() } else { Ticks::now().as_raw() }
}

/// Returns the time of a context that begins now.
pub(super) fn of_context() -> u64 {
    if is_coarse() { clock::monotonic() } else { Ticks::now().as_raw() }
}

/// Returns a time in the unit of the records and the same of CLOCK_MONOTONIC.
pub(super) fn both() -> [u64; 2] {
    both_in(is_counted())
}

/// Returns the same in another unit, as another process may have chosen it.
pub(super) fn both_in(is_counted: bool) -> [u64; 2] {
    let ticks = Ticks::now_ordered().as_raw();
    let monotonic = clock::monotonic();
    [if is_counted { ticks } else { monotonic }, monotonic]
}
