//! An owner and a visitor of the same lock at the same moment, each as often as it can.
//!
//! A lock that is biased to a core is taken there by a section, which looks and stores in two
//! instructions. A visitor that has not kept sections out may look in between. No thread that is stopped
//! can show this, for what is stopped in a section is aborted; and in a storm it hardly comes about, since
//! visits are rare. Here nothing else is done.
//!
//! Invariant: who holds the lock adds to both numbers. So they are the same for the next one, and at the
//! end as many as were added.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use corelocal::cid::{self, Cid};
use corelocal::percpu::Lock;

/// What is behind a lock: two numbers that only its holder sees differ.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pair {
    first: u64,
    second: u64,
}

impl Pair {
    /// Adds 1; false if another one is at it.
    fn add(&mut self) -> bool {
        let this = black_box(self);
        let is_whole = this.first == this.second;
        this.first += 1;
        // Whoever comes in between finds them different.
        let this = black_box(this);
        this.second += 1;
        is_whole
    }
}

/// A lock to fight for. Its value starts out as the default.
pub trait Biased: Sync {
    /// Runs `f` with the part of this core, if it can be had without waiting; says whether it ran.
    fn own(&self, f: impl FnOnce(&mut Pair)) -> bool;

    /// Runs `f` with the part of this slot, if it can be had without waiting; says whether it ran.
    fn visit(&self, slot: u32, f: impl FnOnce(&mut Pair)) -> bool;

    /// How many slots to visit.
    fn slots(&self) -> u32;

    /// Runs `f` with every part, when nobody else is there.
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

/// A fight of two threads for a while. Returns how often one of them had a part, or what must not be.
///
/// # Errors
/// A sentence.
pub fn duel<L: Biased>(lock: &mut L, time: Duration) -> Result<u64, String> {
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
