//! What threads do with a condition variable while they are timed.
//!
//! Invariant: a thread that notifies all finds every other one waiting. Each counts itself under the lock that its
//! wait then unlocks, so a thread that holds the lock and reads the full count knows that.

use std::sync::OnceLock;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use corelocal_support::measure::affinity;

use super::monitors::{Monitor, Scene};
use crate::tables::checked::agree;
use crate::tables::lockstep::{Steps, together};

/// Threads that one notification wakes.
pub const CROWD: usize = 32;

/// Measures round trips of two threads, on so many cpus.
pub fn round_trips<M: Monitor>(cpus: usize) -> anyhow::Result<Steps> {
    let allowed = affinity::allowed().context("the cpus to use are unknown")?;
    ensure!(cpus <= allowed.len(), "there is only one cpu");
    // Low numbers tend to serve interrupts.
    let [first, second] = [allowed.len() - 1, allowed.len() - cpus].map(|nth| Some(allowed[nth]));
    let monitor = M::new()?;
    Ok(Box::new(move |steps| {
        let before = monitor.lock().turns;
        let (took, _) = together(&[first, second], |me| take_turns(&monitor, me, steps))?;
        agree(2 * steps, monitor.lock().turns - before)?;
        Ok(took)
    }))
}

/// Waits for its turn and gives it to the other one, so many times.
fn take_turns<M: Monitor>(monitor: &M, me: usize, times: u64) {
    for _ in 0..times {
        let mut scene = monitor.lock();
        while scene.turns as usize % 2 != me {
            scene = monitor.wait(scene);
        }
        scene.turns += 1;
        monitor.notify_one(&scene);
    }
}

/// Notifications of a crowd.
pub fn notify_all<M: Monitor>(_: usize) -> anyhow::Result<Steps> {
    let monitor = M::new()?;
    Ok(Box::new(move |steps| {
        *monitor.lock() = Scene::default();
        let leader = OnceLock::new();
        let (mut took, walls) = together(&[None; CROWD + 1], |nth| match nth {
            0 => lead(&monitor, &leader, steps),
            _ => follow(&monitor, &leader, steps),
        })?;
        let scene = monitor.lock();
        agree(steps * CROWD as u64, scene.awoken)?;
        took.wall = walls.iter().sum();
        Ok(took)
    }))
}

/// Notifies all once all wait, so many times; how long it took until the last of them was awake.
fn lead<M: Monitor>(monitor: &M, leader: &OnceLock<Thread>, times: u64) -> Duration {
    let _ = leader.set(thread::current());
    let mut total = Duration::ZERO;
    let mut notified = None;
    for step in 0..=times {
        let mut scene = loop {
            let scene = monitor.lock();
            if scene.waiting == CROWD {
                break scene;
            }
            drop(scene);
            thread::park();
        };
        if let (Some(from), Some(to)) = (notified, scene.last) {
            total += to - from;
        }
        if step < times {
            scene.waiting = 0;
            scene.turns += 1;
            notified = Some(Instant::now());
            monitor.notify_all(&scene);
        }
    }
    total
}

/// Waits to be notified, so many times.
fn follow<M: Monitor>(monitor: &M, leader: &OnceLock<Thread>, times: u64) -> Duration {
    let mut scene = monitor.lock();
    for step in 0..=times {
        scene.waiting += 1;
        if scene.waiting == CROWD {
            // One that is not there yet looks before it sleeps.
            if let Some(leader) = leader.get() {
                leader.unpark();
            }
        }
        if step == times {
            break;
        }
        while scene.turns == step {
            scene = monitor.wait(scene);
        }
        scene.awoken += 1;
        if scene.awoken % CROWD as u64 == 0 {
            scene.last = Some(Instant::now());
        }
    }
    Duration::ZERO
}
