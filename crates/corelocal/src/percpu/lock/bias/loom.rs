//! Loom models of owners and revokers. A critical section, which is one atomic step on its slot, is a step under a
//! mutex that freezing takes too. A barrier in all threads is a fence on both sides. Mutants with one fault each
//! follow, which the same checks must catch.

use super::*;
use crate::percpu::lock::mutex::Mutex;
use ::loom::cell::UnsafeCell;
use ::loom::thread;
use std::boxed::Box;

struct Shard {
    bias: Bias,
    mutex: Mutex,
    frozen: ::loom::sync::Mutex<bool>,
    value: UnsafeCell<u32>,
}

/// The ways in which threads release the lock and revoke it. Models replace one by a wrong one.
#[derive(Clone, Copy)]
struct Algorithm {
    unlock: fn(&Bias),
    revoke: fn(&Shard),
}

const RIGHT: Algorithm = Algorithm { unlock: Bias::unlock, revoke: Shard::revoke_right };

struct Frozen<'a>(&'a Shard);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        *self.0.frozen.lock().unwrap() = false;
    }
}

impl Shard {
    /// Leaked: loom panics in its own drop after a deadlock.
    fn leaked() -> &'static Self {
        Box::leak(Box::new(Shard {
            bias: Bias::new(),
            mutex: Mutex::new(),
            frozen: ::loom::sync::Mutex::new(false),
            value: UnsafeCell::new(0),
        }))
    }

    fn section(&self) -> bool {
        let frozen = self.frozen.lock().unwrap();
        if *frozen || self.bias.word.load(Ordering::Acquire) != FREE {
            return false;
        }
        self.bias.word.store(held(), Ordering::Relaxed);
        true
    }

    fn freeze(&self) -> Result<Frozen<'_>, ()> {
        *self.frozen.lock().unwrap() = true;
        Ok(Frozen(self))
    }

    fn add(&self) {
        // SAFETY: called by the lock's owner only; loom checks it.
        self.value.with_mut(|value| unsafe { *value += 1 });
    }

    /// Takes the lock up to `times` times. Returns how often it succeeded.
    fn own(&self, ways: Algorithm, times: u32) -> u32 {
        let mut had = 0;
        for _ in 0..times {
            if self.section() {
                self.bias.taken();
                self.add();
                (ways.unlock)(&self.bias);
                had += 1;
            }
        }
        had
    }

    fn revoke(&self, ways: Algorithm) {
        self.mutex.lock().unwrap();
        (ways.revoke)(self);
        self.mutex.unlock();
        self.add();
        (ways.unlock)(&self.bias);
    }

    fn revoke_right(&self) {
        assert_eq!(self.bias.revoke(|| self.freeze()), Ok(()));
    }

    /// As `Bias::revoke`, with this barrier.
    fn revoke_with(&self, barrier: fn(), hold: fn(&Bias)) {
        let take_if = |wanted: fn(u64) -> bool| {
            let wanted = wanted(self.bias.word.load(Ordering::Acquire));
            if wanted {
                hold(&self.bias);
            }
            wanted
        };
        loop {
            let frozen = self.freeze();
            if take_if(|word| !is_held(word)) {
                return;
            }
            self.bias.request.store(ASKED, Ordering::Relaxed);
            barrier();
            if take_if(|word| !is_held(word)) {
                return;
            }
            drop(frozen);
            self.bias.sleep(true);
            if take_if(|word| word == GRANTED) {
                return;
            }
        }
    }
}

fn check(ways: Algorithm, revokers: u32, owned: u32, preemptions: usize) {
    crate::explore::within(preemptions, move || {
        let shard = Shard::leaked();
        let others: std::vec::Vec<_> =
            (0..revokers).map(|_| thread::spawn(move || shard.revoke(ways))).collect();
        let had = shard.own(ways, owned);
        for other in others {
            other.join().unwrap();
        }
        // SAFETY: the other threads have been joined.
        assert_eq!(shard.value.with(|value| unsafe { *value }), had + revokers);
        assert_eq!(shard.bias.word.load(Ordering::Relaxed), FREE);
        // The lock can be taken again.
        assert_eq!(shard.own(ways, 1), 1);
    });
}

#[test]
fn loom_an_owner_meets_a_revoker() {
    check(RIGHT, 1, 2, 4);
}

#[test]
fn loom_an_owner_meets_two_revokers() {
    check(RIGHT, 2, 1, 2);
}

/// Owners follow one another on different threads while the lock is being revoked.
#[test]
fn loom_owners_on_two_threads_meet_a_revoker() {
    crate::explore::within(3, || {
        let shard = Shard::leaked();
        let owner = thread::spawn(|| shard.own(RIGHT, 1));
        let revoker = thread::spawn(|| shard.revoke(RIGHT));
        let had = shard.own(RIGHT, 1) + owner.join().unwrap();
        revoker.join().unwrap();
        // SAFETY: the other threads have been joined.
        assert_eq!(shard.value.with(|value| unsafe { *value }), had + 1);
        assert_eq!(shard.own(RIGHT, 1), 1);
    });
}

fn check_unlock(unlock: fn(&Bias)) {
    check(Algorithm { unlock, ..RIGHT }, 1, 2, 4);
}

fn check_revoke(revoke: fn(&Shard)) {
    check(Algorithm { revoke, ..RIGHT }, 1, 2, 4);
}

fn unlock_with(bias: &Bias, order: Ordering, barrier: fn()) {
    if bias.request.load(Ordering::Relaxed) == ASKED {
        return bias.grant();
    }
    bias.word.store(FREE, order);
    barrier();
    if bias.request.load(Ordering::Relaxed) == ASKED {
        bias.answer();
    }
}

fn barrier() {
    let _ = blocking::heavy_barrier();
}

/// Unmodified copies pass. Otherwise the mutants below would show nothing.
#[test]
fn loom_twins_without_a_fault_pass() {
    let unlock = |bias: &Bias| unlock_with(bias, Ordering::Release, blocking::light_barrier);
    check(Algorithm { unlock, revoke: |shard| shard.revoke_with(barrier, Bias::hold) }, 1, 2, 4);
}

/// The next owner does not see what was done under the lock.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_an_unlock_without_release() {
    check_unlock(|bias| unlock_with(bias, Ordering::Relaxed, blocking::light_barrier));
}

/// The read of the request comes before the store: the owner misses the request, and the revoker the release.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_an_unlock_without_a_barrier() {
    check_unlock(|bias| unlock_with(bias, Ordering::Release, || ()));
}

/// A request made after the first read is never answered.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_an_unlock_that_looks_once() {
    check_unlock(|bias| {
        if bias.request.load(Ordering::Relaxed) == ASKED {
            return bias.grant();
        }
        bias.word.store(FREE, Ordering::Release);
    });
}

/// The revoker does not see what the owner that granted the lock did.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_a_grant_without_release() {
    check_unlock(|bias| {
        if bias.request.load(Ordering::Relaxed) != ASKED {
            return bias.unlock();
        }
        bias.word.store(GRANTED, Ordering::Relaxed);
        blocking::light_barrier();
        bias.request.store(NONE, Ordering::Relaxed);
        blocking::wake_all(&bias.request);
    });
}

/// An owner that grants the lock does not wake the revoker.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_grant_that_wakes_nobody() {
    check_unlock(|bias| {
        if bias.request.load(Ordering::Relaxed) != ASKED {
            return bias.unlock();
        }
        bias.word.store(GRANTED, Ordering::Release);
    });
}

/// The revoker reads the word before its request is visible: as without the owner's barrier.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_revoker_without_a_barrier() {
    check_revoke(|shard| shard.revoke_with(|| (), Bias::hold));
}

/// The lock's next owner answers an outdated request: then the lock has no owner.
#[test]
#[should_panic(expected = "assertion")]
fn loom_catches_a_revoker_that_leaves_its_request() {
    check_revoke(|shard| {
        shard.revoke_with(barrier, |bias| bias.word.store(HELD, Ordering::Relaxed))
    });
}

/// A section takes the lock while a revoker reads its word.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_a_revoker_that_does_not_freeze() {
    check_revoke(|shard| assert_eq!(shard.bias.revoke(|| Ok::<(), ()>(())), Ok(())));
}
