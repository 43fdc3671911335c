//! Threads that meet, and meet again. Then twins with one fault each.

use super::*;
use loom::cell::UnsafeCell;
use loom::thread;
use std::boxed::Box;

struct Model {
    barrier: Barrier,
    told: [UnsafeCell<u32>; 2],
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Leaked: loom panics in the drop of its own, after a deadlock.
fn leaked() -> &'static Model {
    let told = [(); 2].map(|()| UnsafeCell::new(0));
    Box::leak(Box::new(Model { barrier: Barrier::new(2), told }))
}

fn wait(barrier: &Barrier) -> bool {
    barrier.wait().is_leader()
}

/// Each says something, meets the other, reads what that one said, and meets it again.
fn explore(wait: fn(&Barrier) -> bool) {
    check(move || {
        let model = leaked();
        let meet = move |mine: usize| {
            // SAFETY: each its own; the other one reads it after they met.
            model.told[mine].with_mut(|told| unsafe { *told = 1 });
            let first = wait(&model.barrier);
            // SAFETY: written before they met, and not again.
            assert_eq!(model.told[1 - mine].with(|told| unsafe { *told }), 1);
            (first, wait(&model.barrier))
        };
        let other = thread::spawn(move || meet(1));
        let mine = meet(0);
        let theirs = other.join().unwrap();
        assert!((mine.0 != theirs.0) && (mine.1 != theirs.1), "one leader each time");
    });
}

#[test]
fn loom_threads_meet() {
    explore(wait);
}

/// Three for two places: two go, and one stays until the fourth one comes.
#[test]
fn loom_more_threads_than_places() {
    // Four threads make for orders enough.
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(1);
    builder.check(|| {
        let model = leaked();
        let others = [(); 3].map(|()| thread::spawn(|| wait(&model.barrier)));
        let mut leaders = usize::from(wait(&model.barrier));
        leaders +=
            others.into_iter().map(|other| usize::from(other.join().unwrap())).sum::<usize>();
        assert_eq!(leaders, 2);
    });
}

/// One gives up, or does not, and the others count it accordingly.
fn explore_giving_up(wait_for: fn(&Barrier) -> Option<bool>) {
    check(move || {
        let model = leaked();
        let other = thread::spawn(move || wait_for(&model.barrier));
        let mine = wait_for(&model.barrier);
        let theirs = other.join().unwrap();
        // Both or none; and if none, nobody is left behind.
        assert!(
            matches!(
                (mine, theirs),
                (None, None) | (Some(true), Some(false)) | (Some(false), Some(true))
            ),
            "{mine:?} {theirs:?}"
        );
        assert_eq!(arrived(model.barrier.state.load(Ordering::Relaxed)), 0);
    });
}

#[test]
fn loom_who_gives_up_was_not_there() {
    explore_giving_up(|barrier| {
        barrier.wait_until(Deadline::now()).map(|result| result.is_leader())
    });
}

#[test]
#[should_panic(expected = "None Some(")]
fn loom_catches_one_that_gives_up_without_a_look() {
    explore_giving_up(|barrier| {
        let Some(round) = barrier.arrive() else { return Some(true) };
        while let Some(released) = barrier.announce(round) {
            if barrier.released.wait(released, Some(Deadline::now())) == Wake::TimedOut {
                barrier.state.fetch_sub(1, Ordering::Relaxed);
                return None;
            }
        }
        Some(false)
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_leader_that_wakes_nobody() {
    explore(|barrier| {
        if arrived(barrier.state.load(Ordering::Relaxed)) == 0 {
            return wait(barrier);
        }
        let state = barrier.state.load(Ordering::Relaxed);
        barrier.state.store(next_round(state), Ordering::Release);
        barrier.released.fetch_add(RELEASED, Ordering::Release);
        true
    });
}

/// Who falls asleep says so to nobody.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_sleeper_that_does_not_say_so() {
    explore(|barrier| {
        let Some(round) = barrier.arrive() else { return true };
        loop {
            let released = barrier.released.load(Ordering::Acquire);
            if is_over(released, round) {
                return false;
            }
            barrier.released.wait(released, None);
        }
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_a_leader_without_acquire() {
    explore(|barrier| {
        let mut state = barrier.state.load(Ordering::Relaxed);
        loop {
            let is_last = arrived(state) == 1;
            let after = if is_last { next_round(state) } else { state + 1 };
            let (success, failure) = (Ordering::Release, Ordering::Relaxed);
            match barrier.state.compare_exchange(state, after, success, failure) {
                Ok(_) if is_last => {
                    barrier.release();
                    return true;
                }
                Ok(_) => return barrier.until_over(round(state)).is_leader(),
                Err(now) => state = now,
            }
        }
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_a_release_that_does_not() {
    explore(|barrier| match barrier.arrive_relaxed() {
        None => true,
        Some(round) => barrier.until_over(round).is_leader(),
    });
}

impl Barrier {
    /// `arrive`, whose leader tells the others nothing.
    fn arrive_relaxed(&self) -> Option<u32> {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let is_last = arrived(state) == 1;
            let after = if is_last { next_round(state) } else { state + 1 };
            let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
            match self.state.compare_exchange(state, after, success, failure) {
                Ok(_) if is_last => {
                    let released = self.released.load(Ordering::Relaxed);
                    let change = RELEASED - (released & ASLEEP);
                    self.released.fetch_add(change, Ordering::Relaxed);
                    Futex::wake(&self.released, u32::MAX);
                    return None;
                }
                Ok(_) => return Some(round(state)),
                Err(now) => state = now,
            }
        }
    }
}
