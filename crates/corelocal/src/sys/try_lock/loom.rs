//! Loom models: two threads find a lock that a fork left behind, and a third one comes later. Then mutants with one
//! fault each, which the same checks must catch.

use super::*;
use ::loom::cell::UnsafeCell;
use ::loom::thread;
use std::boxed::Box;

/// The functions that take and release the lock, of which a mutant replaces one.
#[derive(Clone, Copy)]
struct Algorithm {
    /// Takes the lock; returns whether it was recovered, or `None`.
    take: fn(&TryLock) -> Option<bool>,
    let_go: fn(&TryLock),
}

const RIGHT: Algorithm = Algorithm {
    take: |lock| {
        let locked = lock.try_lock()?;
        let recovered = locked.recovered;
        core::mem::forget(locked);
        Some(recovered)
    },
    let_go: |lock| drop(Locked { lock, recovered: false }),
};

struct Model {
    lock: TryLock,
    /// The number of recoveries and of holds: loom detects two holders at a time.
    counts: UnsafeCell<(u32, u32)>,
}

impl Model {
    fn try_once(&self, ways: Algorithm) -> u32 {
        let Some(recovered) = (ways.take)(&self.lock) else { return 0 };
        self.counts.with_mut(|counts| {
            // SAFETY: the lock is held; loom checks it.
            let (recoveries, holders) = unsafe { &mut *counts };
            *recoveries += u32::from(recovered);
            *holders += 1;
        });
        (ways.let_go)(&self.lock);
        1
    }
}

/// At least one thread gets the lock, and the first one learns that it was orphaned.
fn explore(ways: Algorithm) {
    ::loom::model(move || {
        // The identity of a thread that a fork left behind.
        let lock = TryLock { holder: AtomicU64::new(Identity::gone().number()) };
        // Leaked: loom panics in a drop, after a fault.
        let model: &'static Model =
            Box::leak(Box::new(Model { lock, counts: UnsafeCell::new((0, 0)) }));
        let others = [(); 2].map(|()| thread::spawn(move || model.try_once(ways)));
        let mut had = model.try_once(ways);
        had += others.into_iter().map(|other| other.join().unwrap()).sum::<u32>();
        // SAFETY: the other threads have been joined.
        let counts = model.counts.with(|counts| unsafe { *counts });
        assert!(had >= 1 && counts == (1, had), "{counts:?} of {had}");
        assert!(!model.lock.is_held());
    });
}

#[test]
fn loom_one_recovers() {
    explore(RIGHT);
}

/// As `TryLock::try_lock` and `recover`.
fn take_with(
    lock: &TryLock,
    free: Ordering,
    recover: fn(&AtomicU64, u64, u64) -> bool,
) -> Option<bool> {
    let me = Identity::of_this_thread();
    match lock.holder.compare_exchange(FREE, me.number(), free, Ordering::Relaxed) {
        Ok(_) => Some(false),
        Err(holder) if !Identity::of_number(holder).is_gone(me) => None,
        Err(holder) => recover(&lock.holder, holder, me.number()).then_some(true),
    }
}

fn exchange(word: &AtomicU64, holder: u64, me: u64) -> bool {
    word.compare_exchange(holder, me, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// Else the twins below would show nothing.
#[test]
fn loom_a_twin_without_a_fault_passes() {
    explore(Algorithm { take: |lock| take_with(lock, Ordering::Acquire, exchange), ..RIGHT });
}

/// Two take it from the same one.
#[test]
#[should_panic]
fn loom_catches_a_recovery_without_a_compare() {
    let take = |lock: &TryLock| {
        take_with(lock, Ordering::Acquire, |word, _, me| word.swap(me, Ordering::Acquire) != FREE)
    };
    explore(Algorithm { take, ..RIGHT });
}

/// The next one does not see what the last one did.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_a_lock_without_acquire() {
    explore(Algorithm { take: |lock| take_with(lock, Ordering::Relaxed, exchange), ..RIGHT });
}

/// The same, on the locking side.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_a_lock_let_go_without_release() {
    explore(Algorithm { let_go: |lock| lock.holder.store(FREE, Ordering::Relaxed), ..RIGHT });
}
