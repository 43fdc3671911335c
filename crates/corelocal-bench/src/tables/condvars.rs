//! Condition variables: two threads that wake each other in turn, and one that wakes many.
//!
//! Invariants:
//! - The notifying thread holds the lock, as is common; one of corelocal's rows tells the condition variable so.
//!   Under the lock only the turn is changed.
//! - Turns are counted where the threads meet, and compared with the requested number.

mod monitors;
mod ping_pong;
mod pthread;

use corelocal::sync;
use corelocal_support::schema::{self, Better, Row};

use self::monitors::{Both, Monitor, Scene, ToldOfLock};
use super::locks::foreign::{Absl, Foreign, Nsync};
use super::lockstep::{Lockstep, lockstep};
use crate::contest::{Contest, Context, Table};

/// The tables.
pub struct Condvars {
    play: Play,
}

/// The game that the threads play.
#[derive(Clone, Copy)]
enum Play {
    RoundTrips,
    NotifyAll,
}

impl Condvars {
    /// Two threads wake each other.
    pub const ROUND_TRIP: Self = Self { play: Play::RoundTrips };
    /// One thread wakes many.
    pub const ALL: Self = Self { play: Play::NotifyAll };
}

const BASELINE: &str = "parking-lot";

impl Table for Condvars {
    fn id(&self) -> &'static str {
        match self.play {
            Play::RoundTrips => "condvars",
            Play::NotifyAll => "condvars_all",
        }
    }

    fn title(&self) -> &'static str {
        match self.play {
            Play::RoundTrips => "Condition variable: ping-pong of two threads",
            Play::NotifyAll => "Condition variable: notify all",
        }
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        Ok(self.contest().measure(cx))
    }
}

impl Condvars {
    fn contest(&self) -> Contest<Lockstep> {
        let contest = match self.play {
            Play::RoundTrips => Contest::new(
                self,
                "A round trip: each of two threads locks, waits for its turn, gives the turn to the other one, \
                 notifies it and unlocks. On one cpu this is the cost of the calls and of switching. With a cpu \
                 for each a thread spins for a while, or the kernel has to wake an idle cpu.",
            )
            .over("cpus", &[1, 2])
            .tile("Handing a turn to another thread", "condvar", &["std"]),
            Play::NotifyAll => Contest::new(
                self,
                format!(
                    "From the notification, under the lock, until the last of {} threads that waited \
                     for it has had the lock.",
                    ping_pong::CROWD
                ),
            ),
        };
        self.rows(contest.unit("us", Better::Lower).baseline(BASELINE))
    }

    fn rows(&self, contest: Contest<Lockstep>) -> Contest<Lockstep> {
        contest
            .row(Row::new("std", "std Condvar"), self.of::<monitors::Std>())
            .row(
                Row::new(BASELINE, "parking_lot Condvar"),
                self.of::<Both<parking_lot::Mutex<Scene>, parking_lot::Condvar>>(),
            )
            .row(
                Row::new("usync", "usync Condvar"),
                self.of::<Both<usync::Mutex<Scene>, usync::Condvar>>(),
            )
            .row(Row::new("nsync", "nsync"), self.of::<Foreign<Scene, Nsync>>())
            .row(Row::new("absl", "absl::CondVar"), self.of::<Foreign<Scene, Absl>>())
            .row(Row::new("pthread", "pthread"), self.of::<pthread::Pthread>())
            .row(
                Row::ours("condvar", "corelocal Condvar"),
                self.of::<Both<sync::Mutex<Scene>, sync::Condvar>>(),
            )
            .row(
                Row::ours("condvar-locked", "corelocal Condvar, notify_..._locked"),
                self.of::<ToldOfLock>(),
            )
            .row(
                Row::ours("condvar-pi", "corelocal PiCondvar"),
                self.of::<Both<sync::PiMutex<Scene>, sync::PiCondvar>>(),
            )
    }

    fn of<M: Monitor>(&self) -> Lockstep {
        lockstep(match self.play {
            Play::RoundTrips => ping_pong::round_trips::<M>,
            Play::NotifyAll => ping_pong::notify_all::<M>,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tables::locks::foreign::is_missing;
    use corelocal_support::measure::affinity;
    use corelocal_support::measure::engine::Plan;
    use corelocal_support::schema::Machine;

    #[test]
    fn every_row() {
        let plan = Plan { slice: Duration::from_millis(1), ..Plan::QUICK };
        let cpus = affinity::allowed().map_or(1, |cpus| cpus.len());
        for (table, points) in [(Condvars::ROUND_TRIP, cpus.min(2)), (Condvars::ALL, 1)] {
            let table = table.contest().measure(&Context::new(plan, &Machine::default()));
            assert_eq!(table.rows.len(), 9);
            for row in &table.rows {
                let points = if is_missing(&row.id) { 0 } else { points };
                assert_eq!(row.points.len(), points, "{}: {:?}", row.id, row.unavailable);
            }
        }
    }
}
