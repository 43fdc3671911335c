//! Barriers: what it costs that all threads have come, once they go on.
//!
//! Invariants:
//! - Threads do nothing between two meetings.
//! - One thread of each meeting is told that it is the one; how often is compared with how many meetings there
//!   were. A barrier that lets threads through early has had other ones.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

use anyhow::ensure;
use corelocal::sync;
use corelocal_support::schema::{self, Better, Row};

use super::checked::agree;
use super::lockstep::{Lockstep, Steps, lockstep, together};
use crate::contest::{Contest, Context, Table};

/// The table.
pub struct Barriers;

const BASELINE: &str = "pthread";
const THREADS: &[usize] = &[2, 32];

impl Table for Barriers {
    fn id(&self) -> &'static str {
        "barriers"
    }

    fn title(&self) -> &'static str {
        "Barrier"
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        Ok(self.on(THREADS).measure(cx))
    }
}

impl Barriers {
    fn on(&self, threads: &[usize]) -> Contest<Lockstep> {
        let about = "The time from one meeting of all threads to the next, without other work. cpu us: the sum \
             of all threads.";
        Contest::new(self, about)
            .unit("us", Better::Lower)
            .baseline(BASELINE)
            .over("threads", threads)
            .row(Row::new("std", "std Barrier"), lockstep(meetings::<std::sync::Barrier>))
            .row(Row::new(BASELINE, "pthread"), lockstep(meetings::<Pthread>))
            .row(Row::ours("barrier", "corelocal Barrier"), lockstep(meetings::<sync::Barrier>))
            .row(
                Row::ours("barrier-shared", "corelocal Barrier, shared"),
                lockstep(meetings::<sync::Barrier<sync::Shared>>),
            )
    }
}

/// A place for so many threads to meet.
trait Meeting: Sized + Send + Sync + 'static {
    /// # Errors
    /// There is none of this kind here.
    fn new(threads: usize) -> anyhow::Result<Self>;

    /// Waits for the others; whether this thread is the one of this meeting.
    fn meet(&self) -> bool;
}

macro_rules! meeting {
    ($($Barrier:ty: $new:ident;)*) => {
        $(impl Meeting for $Barrier {
            fn new(threads: usize) -> anyhow::Result<Self> {
                Ok(<$Barrier>::$new(threads.try_into()?))
            }

            fn meet(&self) -> bool {
                self.wait().is_leader()
            }
        })*
    };
}

meeting! {
    std::sync::Barrier: new;
    sync::Barrier: new;
    sync::Barrier<sync::Shared>: with_scope;
}

/// libc's. Its memory does not move once it is initialised.
struct Pthread(Box<UnsafeCell<libc::pthread_barrier_t>>);

// SAFETY: it is made for several threads.
unsafe impl Send for Pthread {}
// SAFETY: a barrier is for use by several threads.
unsafe impl Sync for Pthread {}

impl Meeting for Pthread {
    fn new(threads: usize) -> anyhow::Result<Self> {
        // SAFETY: bytes of integers, whatever they are.
        let barrier = Box::new(UnsafeCell::new(unsafe { MaybeUninit::zeroed().assume_init() }));
        // SAFETY: room for one, not in use; no attributes.
        let failed = unsafe {
            libc::pthread_barrier_init(barrier.get(), std::ptr::null(), threads.try_into()?)
        };
        ensure!(failed == 0, "this libc has no such barrier");
        Ok(Self(barrier))
    }

    fn meet(&self) -> bool {
        // SAFETY: initialised, at a fixed address.
        unsafe { libc::pthread_barrier_wait(self.0.get()) == libc::PTHREAD_BARRIER_SERIAL_THREAD }
    }
}

impl Drop for Pthread {
    fn drop(&mut self) {
        // SAFETY: it is no longer used.
        unsafe { libc::pthread_barrier_destroy(self.0.get()) };
    }
}

/// Meetings of so many threads.
fn meetings<M: Meeting>(threads: usize) -> anyhow::Result<Steps> {
    let place = M::new(threads)?;
    Ok(Box::new(move |steps| {
        let (took, chosen) = together(&vec![None; threads], |_| {
            (0..steps).map(|_| u64::from(place.meet())).sum::<u64>()
        })?;
        agree(steps, chosen.iter().sum())?;
        Ok(took)
    }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use corelocal_support::measure::engine::Plan;
    use corelocal_support::schema::Machine;

    #[test]
    fn every_row() {
        let plan = Plan { slice: Duration::from_millis(1), ..Plan::QUICK };
        let table = Barriers.on(&[2, 7]).measure(&Context::new(plan, &Machine::default()));
        assert_eq!(table.rows.len(), 4);
        for row in &table.rows {
            assert_eq!(row.points.len(), 2, "{}: {:?}", row.id, row.unavailable);
        }
    }

    #[test]
    fn who_does_not_wait_leaves_the_table() {
        struct Open;
        impl Meeting for Open {
            fn new(_: usize) -> anyhow::Result<Self> {
                Ok(Open)
            }

            fn meet(&self) -> bool {
                true
            }
        }
        assert!(meetings::<Open>(2).unwrap()(5).is_err());
    }
}
