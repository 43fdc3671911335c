//! Loom models: threads meet at a barrier twice. Then mutants with one fault each.

use super::*;
use crate::sync::machinery::scope::Shared;
use ::loom::cell::UnsafeCell;
use ::loom::thread;
use std::boxed::Box;

struct Model<S: Scope> {
    barrier: Barrier<S>,
    /// The words that each of two threads wrote before the first and before the second round.
    told: [[UnsafeCell<u32>; 2]; 2],
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    crate::explore::within(3, model);
}

/// Leaked: loom panics in its own drop after a deadlock.
fn leaked<S: Scope>() -> &'static Model<S> {
    let told = [(); 2].map(|()| [(); 2].map(|()| UnsafeCell::new(0)));
    Box::leak(Box::new(Model { barrier: Barrier::with_scope(2), told }))
}

impl<S: Scope> Model<S> {
    fn tell(&self, time: usize, mine: usize) {
        // SAFETY: each thread writes its own cell; the other one reads it after they met.
        self.told[time][mine].with_mut(|told| unsafe { *told = 1 });
    }

    fn read(&self, time: usize, theirs: usize) {
        // SAFETY: written before they met, and not again.
        assert_eq!(self.told[time][theirs].with(|told| unsafe { *told }), 1);
    }
}

fn wait<S: Scope>(barrier: &Barrier<S>) -> bool {
    barrier.wait().is_leader()
}

/// As `wait` of a shared barrier, where a thread checks before it is woken.
fn doze(barrier: &Barrier<Shared>) -> bool {
    let Some(round) = barrier.arrive() else { return true };
    let mut wait = Wait::begin(Kind::Barrier, barrier);
    while !barrier.is_over_by(round, Some(Deadline::now()), &mut wait) {}
    false
}

/// As `wait_for` of a shared barrier.
fn wait_for<S: Scope>(barrier: &Barrier<S>) -> Option<bool> {
    barrier.wait_until(Deadline::now()).map(|result| result.is_leader())
}

/// Each thread writes a cell, meets the other, reads the other's cell, and repeats all that.
fn explore<S: Scope>(wait: fn(&Barrier<S>) -> bool) {
    explore_from(0, wait);
}

/// The same, with this initial state.
fn explore_from<S: Scope>(state: u64, wait: fn(&Barrier<S>) -> bool) {
    check(move || {
        let model = leaked();
        model.barrier.state.store(state, Ordering::Relaxed);
        let meet = move |mine: usize| {
            [0, 1].map(|time| {
                model.tell(time, mine);
                let leads = wait(&model.barrier);
                model.read(time, 1 - mine);
                leads
            })
        };
        let other = thread::spawn(move || meet(1));
        let mine = meet(0);
        let theirs = other.join().unwrap();
        assert!((mine[0] != theirs[0]) && (mine[1] != theirs[1]), "one leader each time");
    });
}

#[test]
fn loom_threads_meet() {
    explore::<Private>(wait);
}

#[test]
fn loom_threads_of_processes_meet() {
    explore::<Shared>(wait);
}

/// A waiter may do the work that the leader is about to do.
#[test]
fn loom_threads_that_look_early_meet() {
    explore(doze);
}

/// Three threads for two places: two continue, and one waits until the fourth one arrives.
#[test]
fn loom_more_threads_than_places() {
    // Four threads have enough interleavings with one preemption.
    crate::explore::within(1, || {
        let model = leaked::<Private>();
        let others = [(); 3].map(|()| thread::spawn(|| wait(&model.barrier)));
        let mut leaders = usize::from(wait(&model.barrier));
        leaders +=
            others.into_iter().map(|other| usize::from(other.join().unwrap())).sum::<usize>();
        assert_eq!(leaders, 2);
    });
}

/// One thread has a deadline. The others count it only if it did not time out.
fn explore_giving_up<S: Scope>(wait_for: fn(&Barrier<S>) -> Option<bool>) {
    check(move || {
        let model = leaked();
        let other = thread::spawn(move || wait_for(&model.barrier));
        let mine = wait_for(&model.barrier);
        let theirs = other.join().unwrap();
        // Both passed, or both timed out. In the latter case the count is 0 again.
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
    explore_giving_up::<Private>(wait_for);
}

#[test]
fn loom_who_gives_up_a_shared_barrier_was_not_there() {
    explore_giving_up::<Shared>(wait_for);
}

/// Arrives, and is killed after its first change if it was the leader. Returns whether it was.
fn die<S: Scope>(barrier: &Barrier<S>) -> bool {
    let mut state = barrier.state.load(Ordering::Relaxed);
    loop {
        let is_last = arrived(state) + 1 == barrier.threads();
        let after = if is_last { next_round(state) } else { state + 1 };
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        match barrier.state.compare_exchange(state, after, success, failure) {
            Ok(_) => return is_last,
            Err(now) => state = now,
        }
    }
}

/// One thread is killed after it has arrived. The other one continues unless it timed out, and the next two meet.
fn explore_death(wait_for: fn(&Barrier<Shared>) -> Option<bool>) {
    check(move || {
        let model = leaked();
        let other = thread::spawn(move || {
            let leads = wait_for(&model.barrier);
            if leads.is_some() {
                model.read(0, 0);
            }
            leads
        });
        model.tell(0, 0);
        let has_led = die(&model.barrier);
        match (has_led, other.join().unwrap()) {
            (true, Some(false)) | (false, Some(true)) => {}
            // The killed thread arrived too late, and is still counted.
            (false, None) => return,
            both => panic!("not one leader: {both:?}"),
        }
        let meet = move |mine: usize| {
            model.tell(1, mine);
            let leads = wait(&model.barrier);
            model.read(1, 1 - mine);
            leads
        };
        let other = thread::spawn(move || meet(1));
        assert!(meet(0) != other.join().unwrap(), "one leader");
    });
}

/// Of three threads one is killed, one sleeps until it is woken, and one re-checks.
fn explore_death_of_three(doze: fn(&Barrier<Shared>) -> bool) {
    crate::explore::within(2, move || {
        let barrier: &Barrier<Shared> = Box::leak(Box::new(Barrier::with_scope(3)));
        let sleeps = thread::spawn(move || wait(barrier));
        let looks = thread::spawn(move || doze(barrier));
        let led = [die(barrier), sleeps.join().unwrap(), looks.join().unwrap()];
        assert_eq!(led.into_iter().filter(|&led| led).count(), 1);
    });
}

#[test]
fn loom_a_dead_leader_stops_nobody() {
    explore_death(|barrier| Some(doze(barrier)));
}

#[test]
fn loom_a_dead_leader_stops_nobody_at_a_deadline() {
    explore_death(wait_for);
}

/// The thread that re-checks wakes the others.
#[test]
fn loom_a_dead_leader_stops_none_of_several() {
    explore_death_of_three(doze);
}

/// The killed leader's work is still undone when the next two threads arrive.
#[test]
fn loom_a_dead_leader_does_not_stop_the_next_ones() {
    explore_from::<Shared>(ROUND, wait);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_waiter_that_trusts_the_leader() {
    explore_death(|barrier| {
        let Some(round) = barrier.arrive() else { return Some(true) };
        while let Some(released) = barrier.announce(round) {
            barrier.released.wait(released, None);
        }
        Some(false)
    });
}

/// A waiter that sees that its round is over, and wakes no other.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_waiter_that_just_goes() {
    explore_death_of_three(|barrier| {
        let Some(round) = barrier.arrive() else { return true };
        while let Some(released) = barrier.announce(round) {
            barrier.released.wait(released, Some(Deadline::now()));
            if barrier.has_passed(round) {
                break;
            }
        }
        false
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_a_look_without_acquire() {
    explore_death(|barrier| {
        let Some(mine) = barrier.arrive() else { return Some(true) };
        while let Some(released) = barrier.announce(mine) {
            barrier.released.wait(released, Some(Deadline::now()));
            if round(barrier.state.load(Ordering::Relaxed)) != mine {
                break;
            }
        }
        Some(false)
    });
}

/// What the killed leader did not add is missing for good.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_shared_leaders_that_add_one() {
    explore_from::<Shared>(ROUND, |barrier| {
        let Some(round) = arrive_adding(barrier) else { return true };
        while let Some(released) = barrier.announce(round) {
            barrier.released.wait(released, None);
        }
        false
    });
}

/// The leader and the waiter that re-checks add one each: the next round ends before it began.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_waiters_that_add_one_too() {
    explore::<Shared>(|barrier| {
        let Some(mine) = arrive_adding(barrier) else { return true };
        while let Some(released) = barrier.announce(mine) {
            barrier.released.wait(released, Some(Deadline::now()));
            if barrier.has_passed(mine) {
                add_one(barrier);
                break;
            }
        }
        false
    });
}

/// The step of a private leader.
fn add_one<S: Scope>(barrier: &Barrier<S>) {
    let add = |released| Some((released & !ASLEEP) + RELEASED);
    let before = barrier.released.fetch_update(Ordering::AcqRel, Ordering::Relaxed, add);
    if before.is_ok_and(|released| released & ASLEEP != 0) {
        Futex::wake(&barrier.released, u32::MAX);
    }
}

fn arrive_adding<S: Scope>(barrier: &Barrier<S>) -> Option<u32> {
    let mut state = barrier.state.load(Ordering::Relaxed);
    loop {
        let is_last = arrived(state) == 1;
        let after = if is_last { next_round(state) } else { state + 1 };
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        match barrier.state.compare_exchange(state, after, success, failure) {
            Ok(_) if is_last => {
                add_one(barrier);
                return None;
            }
            Ok(_) => return Some(round(state)),
            Err(now) => state = now,
        }
    }
}

#[test]
#[should_panic(expected = "None Some(")]
fn loom_catches_one_that_gives_up_without_a_look() {
    explore_giving_up::<Private>(|barrier| {
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
    explore::<Private>(|barrier| {
        if arrived(barrier.state.load(Ordering::Relaxed)) == 0 {
            return wait(barrier);
        }
        let state = barrier.state.load(Ordering::Relaxed);
        barrier.state.store(next_round(state), Ordering::Release);
        barrier.released.fetch_add(RELEASED, Ordering::Release);
        true
    });
}

/// A thread falls asleep without setting the flag.
#[test]
#[should_panic(expected = "deadlock")]
fn loom_catches_a_sleeper_that_does_not_say_so() {
    explore::<Private>(|barrier| {
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
    explore::<Private>(|barrier| {
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
    explore::<Private>(|barrier| match barrier.arrive_relaxed() {
        None => true,
        Some(round) => barrier.until_over(round).is_leader(),
    });
}

impl Barrier {
    /// `arrive` with a leader that publishes nothing.
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
