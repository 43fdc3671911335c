//! An owner and a visitor of the same lock at the same moment, as often as possible.
//!
//! A lock that is biased to a core is acquired there by a critical section, which loads and stores in two
//! instructions. A visitor that does not exclude sections may read the word in between. Stopping a thread cannot show
//! this, since a section that is stopped is aborted. In a storm it is rare, since visits are rare. Here threads do
//! nothing else.
//!
//! Invariant: the lock's owner adds to both numbers. So they are equal for the next owner, and at the end equal to
//! the number of additions.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use corelocal::cid::{self, Cid};
use corelocal::percpu::Lock;

/// The protected value: two numbers that only the lock's owner sees differ.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pair {
    first: u64,
    second: u64,
}

impl Pair {
    /// Adds 1. False if another thread is doing so at the same time.
    fn add(&mut self) -> bool {
        let this = black_box(self);
        let is_whole = this.first == this.second;
        this.first += 1;
        // A concurrent thread finds them different.
        let this = black_box(this);
        this.second += 1;
        is_whole
    }
}

/// A lock to compete for. Its value starts as the default.
pub trait Biased: Sync {
    /// Runs `f` on this core's part, if it can be locked without waiting. Returns whether it ran.
    fn own(&self, f: impl FnOnce(&mut Pair)) -> bool;

    /// Runs `f` on this slot's part, if it can be locked without waiting. Returns whether it ran.
    fn visit(&self, slot: u32, f: impl FnOnce(&mut Pair)) -> bool;

    /// Returns the number of slots to visit.
    fn slots(&self) -> u32;

    /// Runs `f` on every part, when no other thread uses the lock.
    fn each(&mut self, f: impl FnMut(&Pair));
}

impl Biased for Lock<Pair> {
    fn own(&self, f: impl FnOnce(&mut Pair)) -> bool {
        self.try_lock().map(|mut pair| f(&mut pair)).is_some()
    }

    fn visit(&self, slot: u32, f: impl FnOnce(&mut Pair)) -> bool {
        matches!(
            self.try_lock_slot(slot).map(|part| part.map(|mut pair| f(&mut pair))),
            Ok(Some(()))
        )
    }

    fn slots(&self) -> u32 {
        cid::high_water::<Cid>()
    }

    fn each(&mut self, f: impl FnMut(&Pair)) {
        self.iter_mut().map(|pair| &*pair).for_each(f);
    }
}

/// Lets two threads compete for a while. Returns how often one of them had a part.
///
/// # Errors
/// The violation, as a sentence.
pub fn visits<L: Biased>(lock: &mut L, time: Duration) -> Result<u64, String> {
    let (done, met, had) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
    let add = |pair: &mut Pair| {
        if !pair.add() {
            met.store(true, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        let shared = &*lock;
        let (done, had, add) = (&done, &had, &add);
        scope.spawn(move || {
            let mut owned = 0;
            while !done.load(Ordering::Relaxed) {
                owned += (0..100).map(|_| u64::from(shared.own(add))).sum::<u64>();
            }
            had.fetch_add(owned, Ordering::Relaxed);
        });
        let end = Instant::now() + time;
        let mut visited = 0;
        while Instant::now() < end {
            for slot in (0..20).flat_map(|_| 0..shared.slots()) {
                visited += u64::from(shared.visit(slot, add));
            }
        }
        done.store(true, Ordering::Relaxed);
        had.fetch_add(visited, Ordering::Relaxed);
    });
    let had = had.into_inner();
    let (mut first, mut second) = (0, 0);
    lock.each(|pair| {
        first += pair.first;
        second += pair.second;
    });
    if met.into_inner() {
        return Err("an owner and a visitor held one part of a lock".to_owned());
    }
    if (first, second) != (had, had) {
        return Err(format!("{had} additions under a lock came to {first} and {second}"));
    }
    Ok(had)
}
