//! Read-write locks: what a turn costs readers, writers, and many readers with a writer now and then.
//!
//! Invariants:
//! - A turn is lock, a look at the two numbers behind the lock or an addition to both, unlock; nothing in
//!   between turns. In a mixture each thread writes in every hundredth of its own turns.
//! - A reader that sees two different numbers read beside a writer, and a writer whose addition is not there in
//!   the end wrote beside another: either takes the lock off the table.

mod kinds;
mod pthread;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::ensure;
use corelocal::sync;
use corelocal_support::measure::loops::Loop;
use corelocal_support::schema::{self, Row};

use self::kinds::{Pair, ReadWrite};
use super::checked::{
    Checked, Line, Made, SHARDS, Subject, agree, checked, contending, shards, sum,
};
use super::locks::foreign::{Absl, Foreign, Nsync};
use crate::contest::threads::Crew;
use crate::contest::{Contest, Context, Table};

/// The tables.
pub struct RwLocks {
    turns: Turns,
}

/// The mixture of reads and writes in a turn.
#[derive(Clone, Copy)]
enum Turns {
    Read,
    Write,
    Mixed,
}

impl RwLocks {
    /// Readers only.
    pub const READ: Self = Self { turns: Turns::Read };
    /// A writer alone.
    pub const WRITE: Self = Self { turns: Turns::Write };
    /// Readers, and a writer now and then.
    pub const MIXED: Self = Self { turns: Turns::Mixed };
}

const BASELINE: &str = "parking-lot";
const THREADS: &[usize] = &[1, 2, 32];

/// The number of turns for each write; 0 stands for reads only.
const READS_ONLY: u64 = 0;
const WRITES_ONLY: u64 = 1;
const MIXTURE: u64 = 100;

impl Table for RwLocks {
    fn id(&self) -> &'static str {
        match self.turns {
            Turns::Read => "rwlocks_read",
            Turns::Write => "rwlocks_write",
            Turns::Mixed => "rwlocks",
        }
    }

    fn title(&self) -> &'static str {
        match self.turns {
            Turns::Read => "Shared read-write lock: readers",
            Turns::Write => "Uncontended read-write lock: writer",
            Turns::Mixed => "Contended read-write lock: 1 % writes",
        }
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        Ok(self.on(THREADS, cx))
    }
}

impl RwLocks {
    fn on(&self, threads: &[usize], cx: &Context<'_>) -> schema::Table {
        match self.turns {
            Turns::Read => {
                let about = "Cpu time for locking to read, reading and unlocking. No thread waits for another. \
                     From two threads on the cost is that of the lock's cache line moving between cpus.";
                rows::<_, READS_ONLY>(
                    Contest::new(self, about).over("threads", threads).tile(
                        "Reading under a lock",
                        "rwlock",
                        &[BASELINE],
                    ),
                    checked::<Threads>,
                )
                .measure(cx)
            }
            Turns::Write => {
                let about = "Time for locking to write, writing and unlocking.";
                rows::<_, WRITES_ONLY>(Contest::new(self, about), checked::<OneThread>).measure(cx)
            }
            Turns::Mixed => {
                let about = "Cpu time for a turn of a thread that reads 99 times and writes once, without other \
                     work. most/least and longest ms: as for `locks`. The values read and the sum are checked.";
                rows::<_, MIXTURE>(Contest::new(self, about).over("threads", threads), contending)
                    .measure(cx)
            }
        }
    }
}

type Threads = Crew<'static>;
type OneThread = Loop<'static>;

/// Returns every lock, with turns of which one in `PERIOD` writes.
fn rows<B, const PERIOD: u64>(
    contest: Contest<Checked<B>>,
    of: fn(fn() -> Made) -> Checked<B>,
) -> Contest<Checked<B>> {
    let rows: [(Row, fn() -> Made); 10] = [
        (Row::new("std", "std RwLock"), turns::<std::sync::RwLock<Pair>, PERIOD>),
        (Row::new(BASELINE, "parking_lot RwLock"), turns::<parking_lot::RwLock<Pair>, PERIOD>),
        (Row::new("usync", "usync RwLock"), turns::<usync::RwLock<Pair>, PERIOD>),
        (Row::new("nsync", "nsync"), turns::<Foreign<Pair, Nsync>, PERIOD>),
        (Row::new("absl", "absl::Mutex"), turns::<Foreign<Pair, Absl>, PERIOD>),
        (
            Row::new("pthread-readers", "pthread, prefers readers"),
            turns::<pthread::PrefersReaders, PERIOD>,
        ),
        (
            Row::new("pthread-writers", "pthread, prefers writers"),
            turns::<pthread::PrefersWriters, PERIOD>,
        ),
        (Row::new("pthread-shared", "pthread, shared"), turns::<pthread::OfProcesses, PERIOD>),
        (Row::ours("rwlock", "corelocal RwLock"), turns::<sync::RwLock<Pair>, PERIOD>),
        (
            Row::ours("rwlock-shared", "corelocal RwLock, shared"),
            turns::<sync::RwLock<Pair, sync::Shared>, PERIOD>,
        ),
    ];
    let contest = contest.baseline(BASELINE);
    rows.into_iter().fold(contest, |contest, (row, made)| contest.row(row, of(made)))
}

/// Turns with this lock, as a contestant.
fn turns<L: ReadWrite, const PERIOD: u64>() -> Made {
    // Threads do not write all in the same turn.
    let until_write = shards();
    for (thread, line) in until_write.iter().enumerate() {
        line.0.store(thread as u64 * 37 % MIXTURE + 1, Ordering::Relaxed);
    }
    Ok(Arc::new(Worked::<L, PERIOD> {
        lock: L::new()?,
        until_write,
        writes: shards(),
        torn: AtomicU64::new(0),
    }))
}

struct Worked<L, const PERIOD: u64> {
    lock: L,
    /// The number of turns until each thread writes again, from 1 on.
    until_write: Vec<Line>,
    /// The number of writes of each thread.
    writes: Vec<Line>,
    /// The number of times that a reader saw an unfinished write.
    torn: AtomicU64,
}

impl<L: ReadWrite, const PERIOD: u64> Worked<L, PERIOD> {
    /// Reads so many times; returns how often it was torn.
    #[inline(always)]
    fn read(&self, times: u64) -> u64 {
        let mut torn = 0;
        for _ in 0..times {
            torn += u64::from(self.lock.read(|pair| pair.is_torn()));
        }
        torn
    }

    /// Does `turns` turns of a mixture, the next write in `until_write` of them. Returns how many were writes, how many
    /// reads were torn, and in how many turns the next write is.
    fn mix(&self, mut turns: u64, mut until_write: u64) -> (u64, u64, u64) {
        let (mut writes, mut torn) = (0, 0);
        while turns >= until_write {
            torn += self.read(until_write - 1);
            self.lock.write(Pair::add);
            writes += 1;
            turns -= until_write;
            until_write = PERIOD;
        }
        (writes, torn + self.read(turns), until_write - turns)
    }
}

impl<L: ReadWrite, const PERIOD: u64> Subject for Worked<L, PERIOD> {
    fn work(&self, thread: usize, operations: u64) {
        let shard = thread % SHARDS;
        let (writes, torn) = match PERIOD {
            READS_ONLY => (0, self.read(operations)),
            WRITES_ONLY => {
                (0..operations).for_each(|_| self.lock.write(Pair::add));
                (operations, 0)
            }
            _ => {
                // Relaxed: the thread's own, or read when all have been joined.
                let until_write = self.until_write[shard].0.load(Ordering::Relaxed);
                let (writes, torn, until_write) = self.mix(operations, until_write);
                self.until_write[shard].0.store(until_write, Ordering::Relaxed);
                (writes, torn)
            }
        };
        // Relaxed: read when all have been joined.
        self.writes[shard].0.fetch_add(writes, Ordering::Relaxed);
        if torn > 0 {
            self.torn.fetch_add(torn, Ordering::Relaxed);
        }
    }

    fn check(&self, _asked: u64) -> anyhow::Result<()> {
        // Relaxed: as above.
        let torn = self.torn.load(Ordering::Relaxed);
        ensure!(torn == 0, "let {torn} readers in beside a writer, so its speed is meaningless");
        agree(sum(&self.writes), self.lock.read(Pair::first))
    }
}

#[cfg(test)]
mod tests;
