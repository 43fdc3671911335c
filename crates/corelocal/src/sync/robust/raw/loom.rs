//! Loom models: a thread dies at each of its steps, while others wait for its lock. Then mutants with one fault each,
//! which the same checks must catch.

use super::super::waiting::{Plain, protocol::Protocol};
use super::*;
use crate::primitive::atomic::AtomicPtr;
use crate::sys::sleep;
use crate::sys::thread::robust_list::{Death, Head};
use ::loom::thread;
use core::cell::Cell;
use core::mem::offset_of;
use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

const SCOPE: Scope = Scope::Shared;

/// The functions of a thread, of which a mutant replaces one.
#[derive(Clone, Copy)]
struct Algorithm {
    lock: fn(&Raw, Thread<'_>) -> Result<Taken, LockError>,
    unlock: fn(&Raw, Thread<'_>),
}

const RIGHT: Algorithm = Algorithm {
    // SAFETY: the locks of a model are leaked, so they are neither moved nor freed.
    lock: |raw, me| unsafe { raw.lock::<Plain>(me, None, SCOPE) },
    unlock: |raw, me| raw.unlock::<Plain>(me, SCOPE).unwrap(),
};

struct Model {
    ways: Algorithm,
    raw: Raw,
    /// The number of the thread that is between lock and unlock.
    inside: AtomicU32,
}

impl Model {
    fn leaked(ways: Algorithm) -> &'static Model {
        Box::leak(Box::new(Model { ways, raw: Raw::new(), inside: AtomicU32::new(0) }))
    }

    /// Locks and unlocks once, or dies before.
    fn visit(&self, number: u32, life: usize) {
        let (head, life) = (head(), Cell::new(life));
        let me = Thread::in_model(number, &head, &life);
        let lived = catch_unwind(AssertUnwindSafe(|| {
            (self.ways.lock)(&self.raw, me).expect("a lock is never lost");
            // This thread is alone: the previous one has left, or its death was reported.
            let before = self.inside.swap(number, Ordering::Relaxed);
            assert!(before == 0 || before == VICTIM, "two owners");
            self.inside.store(0, Ordering::Relaxed);
            (self.ways.unlock)(&self.raw, me);
        }));
        if let Err(death) = lived {
            if !death.is::<Death>() {
                resume_unwind(death);
            }
            me.walk(|entry, pending| self.bury(entry, number, pending));
        }
    }

    /// `handle_futex_death` of the kernel.
    fn bury(&self, entry: *mut u8, number: u32, pending: bool) {
        let next = offset_of!(Raw, links) + size_of::<AtomicPtr<u8>>();
        // SAFETY: the entry of the one lock that exists.
        let word = unsafe { &(*entry.wrapping_sub(next).cast::<Raw>()).word };
        loop {
            let seen = word.load(Ordering::Relaxed);
            if pending && word::is_free(seen) {
                sleep::wake(word, 1, SCOPE);
                return;
            }
            if word::owner(seen) != number {
                return;
            }
            let waiters = seen & libc::FUTEX_WAITERS;
            let dead = waiters | libc::FUTEX_OWNER_DIED;
            // Release: orders what the dead thread did before.
            if word.compare_exchange(seen, dead, Ordering::Release, Ordering::Relaxed).is_ok() {
                if waiters != 0 {
                    sleep::wake(word, 1, SCOPE);
                }
                return;
            }
        }
    }
}

fn head() -> Head {
    let null = core::ptr::null_mut;
    Head { list: AtomicPtr::new(null()), futex_offset: 0, pending: AtomicPtr::new(null()) }
}

/// The number of the thread that dies.
const VICTIM: u32 = 7;
/// A number of steps that no thread reaches.
const LONG: usize = 100;
/// Steps of one uncontended lock and unlock: publish, the word, two of the list, withdraw, and publish, the list, the
/// word, withdraw.
/// publish, the list, the word, withdraw.
const STEPS: usize = 9;

/// A thread that dies after each number of steps, beside `others` that do not.
fn explore(ways: Algorithm, others: u32) {
    for life in 0..=STEPS + 2 {
        explore_one(ways, others, life);
    }
}

fn explore_one(ways: Algorithm, others: u32, life: usize) {
    crate::explore::within(if others > 1 { 2 } else { 3 }, move || {
        let model = Model::leaked(ways);
        let victim = thread::spawn(move || model.visit(VICTIM, life));
        let second = (others > 1).then(|| thread::spawn(|| model.visit(2, LONG)));
        model.visit(1, LONG);
        victim.join().unwrap();
        if let Some(second) = second {
            second.join().unwrap();
        }
        // One more thread comes later.
        model.visit(3, LONG);
    });
}

#[test]
fn loom_no_lock_is_lost_with_its_owner() {
    explore(RIGHT, 1);
}

#[test]
fn loom_no_waiter_is_lost_with_an_owner() {
    // The steps from when the word names the owner, before it is unlocked and after.
    for life in [1, 2, 3, 4, 5, 7, 8] {
        explore_one(RIGHT, 2, life);
    }
}

/// Without other threads there are as many steps as counted above. Otherwise the models would miss some.
#[test]
fn loom_the_steps_are_counted() {
    ::loom::model(|| {
        let (head, life) = (head(), Cell::new(LONG));
        let me = Thread::in_model(1, &head, &life);
        let raw = Raw::new();
        (RIGHT.lock)(&raw, me).unwrap();
        (RIGHT.unlock)(&raw, me);
        assert_eq!(LONG - life.get(), STEPS);
    });
}

/// As `Raw::lock_by` and `Raw::unlock`, with the order of the steps up to the caller.
fn lock_with(
    raw: &Raw,
    me: Thread<'_>,
    take: fn(&Raw, Thread<'_>) -> Result<Taken, LockError>,
) -> Result<Taken, LockError> {
    me.publish(raw.links.entry(), false);
    let taken = take(raw, me)?;
    // SAFETY: the lock had no owner, so it is in no list.
    unsafe { me.link(&raw.links, false) };
    me.withdraw();
    Ok(taken)
}

fn take(raw: &Raw, me: Thread<'_>) -> Result<Taken, LockError> {
    Plain::take(&raw.word, &raw.gate, me, None, SCOPE)
}

/// Without a fault the copies pass. Otherwise the mutants below would show nothing.
#[test]
fn loom_a_twin_without_a_fault_passes() {
    explore(Algorithm { lock: |raw, me| lock_with(raw, me, take), ..RIGHT }, 1);
}

/// A thread that dies between the two owns a lock that the kernel does not find.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_pending_cleared_before_linking() {
    let lock = |raw: &Raw, me: Thread<'_>| {
        me.publish(raw.links.entry(), false);
        let taken = take(raw, me)?;
        me.withdraw();
        // SAFETY: the lock had no owner, so it is in no list.
        unsafe { me.link(&raw.links, false) };
        Ok(taken)
    };
    explore(Algorithm { lock, ..RIGHT }, 1);
}

/// The same between the word and the list.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_locking_before_pending() {
    let lock = |raw: &Raw, me: Thread<'_>| {
        let taken = take(raw, me)?;
        me.publish(raw.links.entry(), false);
        // SAFETY: the lock had no owner, so it is in no list.
        unsafe { me.link(&raw.links, false) };
        me.withdraw();
        Ok(taken)
    };
    explore(Algorithm { lock, ..RIGHT }, 1);
}

/// The same when it unlocks: not in the list, not pending, and still owned.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_unlinking_without_pending() {
    let unlock = |raw: &Raw, me: Thread<'_>| {
        // SAFETY: `lock` has linked it.
        unsafe { me.unlink(&raw.links) };
        Plain::leave(&raw.word, me, SCOPE);
    };
    explore(Algorithm { unlock, ..RIGHT }, 1);
}

/// A thread that dies after unlocking has not woken a waiter.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_pending_cleared_before_the_wake_up() {
    let unlock = |raw: &Raw, me: Thread<'_>| {
        me.publish(raw.links.entry(), false);
        // SAFETY: `lock` has linked it.
        unsafe { me.unlink(&raw.links) };
        let seen = raw.word.swap(word::FREE, Ordering::Release);
        me.withdraw();
        if seen & libc::FUTEX_WAITERS != 0 {
            sleep::wake(&raw.word, 1, SCOPE);
        }
    };
    explore(Algorithm { unlock, ..RIGHT }, 1);
}

/// Of two waiters for the dead thread's lock the second is forgotten.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_waiters_dropped_on_recovery() {
    fn forgetful(raw: &Raw, me: Thread<'_>) -> Result<Taken, LockError> {
        let (yes, no) = (Ordering::Acquire, Ordering::Relaxed);
        loop {
            let seen = raw.word.load(Ordering::Relaxed);
            if word::is_free(seen) {
                if raw.word.compare_exchange(seen, me.number, yes, no).is_ok() {
                    me.step();
                    return Ok(Taken::FromTheDead);
                }
                continue;
            }
            let waited = seen | libc::FUTEX_WAITERS;
            if seen == waited || raw.word.compare_exchange(seen, waited, no, no).is_ok() {
                sleep::wait(&raw.word, waited, None, SCOPE);
            }
        }
    }
    // Both must sleep before the owner dies.
    explore_one(Algorithm { lock: |raw, me| lock_with(raw, me, forgetful), ..RIGHT }, 2, 4);
}
