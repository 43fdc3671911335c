//! Mutual exclusion: what one turn costs, and how fairly the turns are distributed.
//!
//! Invariants:
//! - A turn is lock, one addition to a protected word, unlock; no work in between turns. Each contestant counts in a
//!   plain word, so one that does not exclude leaves the table.
//! - pthread's locks are told their kind when they are made, and the result is checked.

pub mod foreign;
mod pthread;

use std::cell::Cell;
use std::sync::Arc;

use corelocal::sync;
use corelocal_support::schema::{self, Row};

use self::foreign::{Absl, Foreign, Library, Nsync};
use super::checked::{Checked, Made, Subject, agree, contending};
use crate::contest::threads::Crew;
use crate::contest::{Contest, Context, Table};

/// The table.
pub struct Locks;

const BASELINE: &str = "parking-lot";
const THREADS: &[usize] = &[1, 2, 32];

impl Table for Locks {
    fn id(&self) -> &'static str {
        "locks"
    }

    fn title(&self) -> &'static str {
        "Contended mutex"
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        Ok(self.on(THREADS).measure(cx))
    }
}

impl Locks {
    fn on(&self, threads: &[usize]) -> Contest<Checked<Crew<'static>>> {
        let about = "Cpu time for locking, adding one and unlocking, without other work. most/least: the turns \
             of the thread with the most over those of the thread with the fewest. longest ms: the longest time \
             that a thread waited for its turn, or was not running. The sum is checked.";
        Contest::new(self, about)
            .baseline(BASELINE)
            .tile("A mutex that many threads want", "mutex", &[BASELINE])
            .over("threads", threads)
            .row(Row::new("std", "std Mutex"), contending(turns::<std::sync::Mutex<u64>>))
            .row(
                Row::new(BASELINE, "parking_lot Mutex"),
                contending(turns::<parking_lot::Mutex<u64>>),
            )
            .row(
                Row::new("parking-lot-fair", "parking_lot FairMutex"),
                contending(turns::<parking_lot::FairMutex<u64>>),
            )
            .row(
                Row::new("parking-lot-reentrant", "parking_lot ReentrantMutex"),
                contending(turns::<parking_lot::ReentrantMutex<Cell<u64>>>),
            )
            .row(Row::new("usync", "usync Mutex"), contending(turns::<usync::Mutex<u64>>))
            .row(Row::new("nsync", "nsync"), contending(turns::<Foreign<u64, Nsync>>))
            .row(Row::new("absl", "absl::Mutex"), contending(turns::<Foreign<u64, Absl>>))
            .row(Row::new("pthread", "pthread"), contending(|| pthread::turns(&[])))
            .row(
                Row::new("pthread-shared", "pthread, shared"),
                contending(|| pthread::turns(&[pthread::Kind::Shared])),
            )
            .row(
                Row::new("pthread-robust", "pthread, robust"),
                contending(|| pthread::turns(&[pthread::Kind::Robust])),
            )
            .row(
                Row::new("pthread-pi", "pthread, PI"),
                contending(|| pthread::turns(&[pthread::Kind::Pi])),
            )
            .row(
                Row::new("pthread-robust-pi", "pthread, robust and PI"),
                contending(|| pthread::turns(&[pthread::Kind::Robust, pthread::Kind::Pi])),
            )
            .row(Row::ours("mutex", "corelocal Mutex"), contending(turns::<sync::Mutex<u64>>))
            .row(
                Row::ours("reentrant", "corelocal ReentrantMutex"),
                contending(turns::<sync::ReentrantMutex<Cell<u64>>>),
            )
            .row(
                Row::ours("mutex-shared", "corelocal Mutex, shared"),
                contending(turns::<sync::Mutex<u64, sync::Shared>>),
            )
            .row(
                Row::ours("robust", "corelocal RobustMutex"),
                contending(turns::<sync::RobustMutex<u64>>),
            )
            .row(Row::ours("pi", "corelocal PiMutex"), contending(turns::<sync::PiMutex<u64>>))
            .row(
                Row::ours("robust-pi", "corelocal RobustPiMutex"),
                contending(turns::<sync::RobustPiMutex<u64>>),
            )
    }
}

/// A number behind a lock.
trait Locked: Sized + Send + Sync + 'static {
    /// # Errors
    /// There is no such lock here.
    fn new() -> anyhow::Result<Self>;

    /// Calls `f` on the number, locked.
    fn with<R>(&self, f: impl FnOnce(&mut u64) -> R) -> R;
}

macro_rules! locked {
    ($($Lock:ty: $new:expr, |$lock:ident| $guard:expr;)*) => {
        $(impl Locked for $Lock {
            fn new() -> anyhow::Result<Self> {
                Ok($new)
            }

            #[inline]
            fn with<R>(&self, f: impl FnOnce(&mut u64) -> R) -> R {
                let $lock = self;
                let mut guard = $guard;
                f(&mut guard)
            }
        })*
    };
}

locked! {
    std::sync::Mutex<u64>: Self::new(0), |lock| {
        lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    };
    parking_lot::Mutex<u64>: Self::new(0), |lock| lock.lock();
    parking_lot::FairMutex<u64>: Self::new(0), |lock| lock.lock();
    usync::Mutex<u64>: Self::new(0), |lock| lock.lock();
    sync::Mutex<u64>: Self::new(0), |lock| lock.lock();
    sync::Mutex<u64, sync::Shared>: Self::with_scope(0), |lock| lock.lock();
    sync::PiMutex<u64>: Self::new(0), |lock| lock.lock().expect("a lock of this thread only");
    // SAFETY: it stays where it is as long as threads use it, and they forget no guard.
    sync::RobustMutex<u64>: unsafe { Self::with_scope(0) }, |lock| unharmed(lock.lock());
    // SAFETY: it stays where it is as long as threads use it, and they forget no guard.
    sync::RobustPiMutex<u64>: unsafe { Self::with_scope(0) }, |lock| unharmed(lock.lock());
}

/// Locks that give shared references.
macro_rules! locked_cells {
    ($($Lock:ty;)*) => {
        $(impl Locked for $Lock {
            fn new() -> anyhow::Result<Self> {
                Ok(Self::new(Cell::new(0)))
            }

            #[inline]
            fn with<R>(&self, f: impl FnOnce(&mut u64) -> R) -> R {
                let guard = self.lock();
                let mut number = guard.get();
                let result = f(&mut number);
                guard.set(number);
                result
            }
        })*
    };
}

locked_cells! {
    parking_lot::ReentrantMutex<Cell<u64>>;
    sync::ReentrantMutex<Cell<u64>>;
}

/// Returns the guard: no owner dies here.
fn unharmed<G, E: std::fmt::Display>(locked: Result<G, E>) -> G {
    locked.unwrap_or_else(|why| panic!("{why}"))
}

impl<L: Library> Locked for Foreign<u64, L> {
    fn new() -> anyhow::Result<Self> {
        Foreign::new(0)
    }

    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut u64) -> R) -> R {
        f(&mut self.write())
    }
}

/// Turns behind this lock, as a contestant.
fn turns<L: Locked>() -> Made {
    Ok(Arc::new(Turns(L::new()?)))
}

struct Turns<L>(L);

impl<L: Locked> Subject for Turns<L> {
    fn work(&self, _: usize, operations: u64) {
        for _ in 0..operations {
            self.0.with(|number| *number += 1);
        }
    }

    fn check(&self, asked: u64) -> anyhow::Result<()> {
        agree(asked, self.0.with(|number| *number))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use corelocal_support::measure::engine::Plan;
    use corelocal_support::schema::Machine;

    #[test]
    fn every_row_on_several_threads() {
        let plan = Plan { slice: Duration::from_millis(1), ..Plan::QUICK };
        let table = Locks.on(&[1, 5]).measure(&Context::new(plan, &Machine::default()));
        for row in &table.rows {
            let points = if foreign::is_missing(&row.id) { 0 } else { 2 };
            assert_eq!(row.points.len(), points, "{}: {:?}", row.id, row.unavailable);
        }
    }
}
