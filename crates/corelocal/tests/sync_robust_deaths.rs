//! Robust mutexes whose owners die at any instruction: processes that are killed, threads that a fork leaves
//! behind. `CORELOCAL_TEST_DEATHS` sets how many are killed.

mod forked;
mod leaked;
mod storm;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use corelocal::sync::shared::{SharedBox, SharedSafe, layout};
use corelocal::sync::{
    Inherit, LockError, Plain, Private, RobustError, RobustMutex, Shared, Waiting,
};
use forked::{End, fork, next};
use leaked::forever;

const LONG: Duration = Duration::from_secs(30);

/// What processes share.
#[repr(C)]
struct Ledger<W: Waiting> {
    pair: RobustMutex<[u64; 2], Shared, W>,
    visits: AtomicU64,
    /// How often a death was reported.
    deaths: AtomicU64,
}

// SAFETY: `repr(C)` and made of such types.
unsafe impl<W: Waiting> SharedSafe for Ledger<W> {
    const LAYOUT: u64 = layout("Ledger 1", &[RobustMutex::<[u64; 2], Shared, W>::LAYOUT]);
}

impl<W: Waiting> Ledger<W> {
    /// Adds 1 to both words, one after the other. Says what is wrong, if anything.
    fn visit(&self) -> Result<(), i32> {
        let mut pair = match self.pair.try_lock_for(LONG) {
            Ok(pair) => pair,
            Err(RobustError::OwnerDied(mut pair)) => {
                // It was between the two, or before, or after.
                match pair[0].wrapping_sub(pair[1]) {
                    0 => {}
                    1 => pair[1] += 1,
                    _ => return Err(3),
                }
                self.deaths.fetch_add(1, Ordering::Relaxed);
                pair.make_consistent()
            }
            Err(RobustError::Failed(LockError::TimedOut)) => return Err(4),
            Err(_) => return Err(5),
        };
        if pair[0] != pair[1] {
            return Err(6);
        }
        pair[0] += 1;
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        pair[1] += 1;
        drop(pair);
        self.visits.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// As a process that is killed some time.
    fn visit_for_ever(&self) -> i32 {
        loop {
            if let Err(code) = self.visit() {
                return code;
            }
        }
    }
}

/// How many processes are killed: `CORELOCAL_TEST_DEATHS`, or else some hundred.
fn deaths() -> u64 {
    match std::env::var("CORELOCAL_TEST_DEATHS") {
        Ok(deaths) => deaths.parse().expect("CORELOCAL_TEST_DEATHS must be a number"),
        Err(_) => storm::scaled(300).max(10),
    }
}

/// One process after the other is killed, beside two that live on; all want one lock all the time.
fn killings<W: Waiting>() {
    // SAFETY: only this test and its children have it; guards are dropped, or die with their process.
    let ledger = unsafe {
        SharedBox::create_nameless(Ledger::<W> {
            pair: RobustMutex::with_scope([0, 0]),
            visits: AtomicU64::new(0),
            deaths: AtomicU64::new(0),
        })
    }
    .unwrap();
    let survivors = [(); 2].map(|()| fork(|| ledger.visit_for_ever()));
    let mut random = 0x9e37_79b9_7f4a_7c15 ^ u64::from(std::process::id());
    let mut killed = 0u64;
    for _ in 0..deaths() {
        let before = ledger.visits.load(Ordering::Relaxed);
        let victim = fork(|| ledger.visit_for_ever());
        thread::sleep(Duration::from_micros(next(&mut random) % 2000));
        victim.kill();
        match victim.wait() {
            End::Signal(libc::SIGKILL) => killed += 1,
            end => panic!("a victim found something wrong: {end:?}"),
        }
        ledger.visit().expect("the parent found something wrong");
        assert!(ledger.visits.load(Ordering::Relaxed) > before);
    }
    for survivor in survivors {
        survivor.kill();
        match survivor.wait() {
            End::Signal(libc::SIGKILL) => {}
            end => panic!("a survivor found something wrong: {end:?}"),
        }
    }
    ledger.visit().expect("the parent found something wrong in the end");
    let visits = ledger.visits.load(Ordering::Relaxed);
    let told = ledger.deaths.load(Ordering::Relaxed);
    eprintln!("{killed} were killed, {told} of them with the lock; {visits} visits");
}

#[test]
fn processes_are_killed_with_the_lock() {
    killings::<Plain>();
}

#[test]
fn processes_are_killed_with_the_lock_that_inherits() {
    killings::<Inherit>();
}

/// A process that takes as many locks as it is given, and is killed, leaves none locked.
#[test]
fn every_lock_of_a_killed_process_is_found() {
    const LOCKS: usize = 3000;
    // SAFETY: only this test and its child have it; the child's guards die with it.
    let locks = unsafe {
        SharedBox::<[RobustMutex<u32, Shared>; LOCKS]>::create_nameless(std::array::from_fn(|_| {
            RobustMutex::with_scope(0)
        }))
    }
    .unwrap();
    let victim = fork(|| {
        for lock in locks.iter() {
            if let Ok(guard) = lock.lock() {
                std::mem::forget(guard);
            }
        }
        // SAFETY: ends this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        0
    });
    assert!(matches!(victim.wait(), End::Signal(libc::SIGKILL)));
    let mut dead = 0;
    for (number, lock) in locks.iter().enumerate() {
        match lock.try_lock() {
            Ok(guard) => drop(guard),
            Err(RobustError::OwnerDied(recovered)) => {
                dead += 1;
                drop(recovered.make_consistent());
            }
            Err(error) => panic!("lock {number}: {error:?}"),
        }
    }
    assert_eq!(dead, 2048);
}

/// A mutex that stays for ever.
fn leaked<W: Waiting>(pair: [u64; 2]) -> &'static RobustMutex<[u64; 2], Private, W> {
    // SAFETY: leaked, so neither moved nor freed.
    forever(unsafe { RobustMutex::with_scope(pair) })
}

/// Threads lock and unlock while their process forks: in each child every lock is had within a moment.
fn forks<W: Waiting>() {
    let mutex = leaked::<W>([0u64; 2]);
    let done = AtomicBool::new(false);
    let mut told = 0;
    thread::scope(|scope| {
        let _tell = storm::Tell(&done);
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let mut pair = mutex.lock().unwrap();
                    pair[0] += 1;
                    std::sync::atomic::compiler_fence(Ordering::SeqCst);
                    pair[1] += 1;
                }
            });
        }
        for _ in 0..storm::scaled(200).max(10) {
            let child = fork(|| match mutex.try_lock_for(LONG) {
                Ok(pair) => i32::from(pair[0] != pair[1]) * 2,
                Err(RobustError::Orphaned(orphaned)) => {
                    // Undecided, the next one is told too.
                    drop(orphaned);
                    let Err(RobustError::Orphaned(orphaned)) = mutex.lock() else { return 3 };
                    drop(orphaned.reset([7; 2]));
                    if mutex.lock().is_ok_and(|pair| *pair == [7; 2]) { 1 } else { 5 }
                }
                Err(RobustError::OwnerDied(_)) => 6,
                // The number of the error, above those of this test.
                Err(error) => 10 + error.errno().0,
            });
            match child.wait() {
                End::Code(0) => {}
                End::Code(1) => told += 1,
                end => panic!("{end:?}"),
            }
        }
    });
    eprintln!("{told} children were told that an owner was left behind");
}

#[test]
fn children_of_a_storm_are_not_locked_out() {
    forks::<Plain>();
    forks::<Inherit>();
}
