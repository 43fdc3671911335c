//! A `percpu::Lock` in children that are forked while other threads of the parent hold its parts: forms that would wait
//! panic, `try_` forms fail, and checked forms give what was held back with a new value.

mod child_checks;
mod cpus;
mod forked;
mod sandbox;

use std::sync::mpsc::{Sender, channel};
use std::thread;

use child_checks::{check, fork, panic_of};
use corelocal::cid::{self, Cid};
use corelocal::percpu::{Lock, Shard};
use sandbox::run_in_child;

type Values = Lock<Vec<u32>>;

/// Runs `body` while as many threads as there are parts each hold one that was free, each with the value `[1]`.
fn while_all_are_held(values: &Values, body: impl FnOnce()) {
    thread::scope(|scope| {
        let mut holders: Vec<Sender<()>> = Vec::new();
        // How many threads in a row found no part.
        let mut misses = 0;
        // Each shared part comes into use where the core's own is held. Each core has to have several turns, as the
        // parts that a thread tries depend on where it runs.
        while misses < 8 * (cpus::count() + cid::high_water::<Cid>()) {
            let ((let_go, wait), (tell, told)) = (channel::<()>(), channel());
            let number = holders.len() as u32;
            scope.spawn(move || {
                cpus::hop(number);
                let held = values.try_lock();
                tell.send(held.is_some()).unwrap();
                if let Some(mut held) = held {
                    *held = vec![1];
                    let _ = wait.recv();
                }
            });
            misses = if told.recv().unwrap() { 0 } else { misses + 1 };
            holders.push(let_go);
        }
        body();
    });
}

/// What is wrong with forms that would wait for a holder that is gone, and those that try.
fn nothing_is_given_out(values: &Values) -> Result<(), u8> {
    std::panic::set_hook(Box::new(|_| ()));
    let advises = |says: Option<String>| says.is_some_and(|says| says.contains("for_each_checked"));
    check(values.try_lock().is_none(), 1)?;
    check(advises(panic_of(|| drop(values.lock()))), 2)?;
    check(advises(panic_of(|| values.for_each_locked(|_, _| ()))), 3)?;
    for slot in 0..cid::high_water::<Cid>() {
        let is_held = || matches!(values.try_lock_slot(slot), Ok(None));
        if is_held() {
            check(advises(panic_of(|| values.lock_slot(slot).is_ok())), 4)?;
            // The panic left it as it was.
            check(is_held(), 5)?;
        }
    }
    Ok(())
}

/// What is wrong with the checked forms, after which every part is free.
fn everything_comes_back(values: &Values) -> Result<(), u8> {
    match values.lock_checked() {
        // Dropped undecided, it stays as it is.
        Err(orphaned) => drop(orphaned),
        Ok(_) => return Err(20),
    }
    let (mut reset, mut wrong) = (0, 0);
    let seen = values.for_each_checked(|_, locked| match locked {
        Ok(_) => wrong += 1,
        Err(orphaned) => {
            reset += 1;
            drop(orphaned.reset(vec![2]));
        }
    });
    check(seen.is_ok() && reset > 0 && wrong == 0, 21)?;
    let mut sum = 0;
    check(values.for_each_locked(|_, value| sum += value[0]).is_ok(), 22)?;
    check(sum == 2 * reset, 23)?;
    check(values.lock_checked().is_ok_and(|value| *value == [2]), 24)?;
    values.lock().push(3);
    check(values.try_lock().is_some(), 25)
}

#[test]
fn parts_that_gone_threads_held() {
    run_in_child(
        "parts_that_gone_threads_held",
        |_| (),
        || {
            static VALUES: Values = Lock::new(Vec::new);
            while_all_are_held(&VALUES, || {
                for _ in 0..10 {
                    fork(|| {
                        nothing_is_given_out(&VALUES).and_then(|()| everything_comes_back(&VALUES))
                    });
                }
                // A child of the child, too.
                fork(|| {
                    fork(|| nothing_is_given_out(&VALUES));
                    fork(|| everything_comes_back(&VALUES));
                    Ok(())
                });
            });
            // The parent has lost nothing.
            let mut values = Vec::new();
            VALUES.for_each_locked(|_, value| values.extend_from_slice(value)).unwrap();
            assert!(!values.is_empty() && values.iter().all(|&value| value == 1), "{values:?}");
        },
    );
}

/// The thread that forks keeps what it has locked, under a slot and elsewhere.
#[test]
fn the_thread_that_forks_keeps_its_parts() {
    run_in_child(
        "the_thread_that_forks_keeps_its_parts",
        |_| (),
        || {
            static VALUES: Values = Lock::new(Vec::new);
            // Where there are no sections, a thread has only one part.
            let first = VALUES.lock_checked().unwrap();
            let mut mine: Vec<_> = [Some(first), VALUES.try_lock()].into_iter().flatten().collect();
            let held = mine.len();
            mine.iter_mut().for_each(|value| value.push(7));
            fork(|| {
                for slot in 0..cid::high_water::<Cid>() {
                    if let Ok(Some(other)) = VALUES.try_lock_slot(slot) {
                        check(!other.contains(&7), 1)?;
                    }
                }
                drop(mine);
                let mut seen = 0;
                let walked = VALUES.for_each_checked(|_: Shard, locked| {
                    seen += locked
                        .map_or(100, |value| value.iter().filter(|&&value| value == 7).count());
                });
                check(walked.is_ok() && seen == held, 2)
            });
        },
    );
}

/// Holders that come and go: whatever a fork meets, no call of the child waits for ever.
#[test]
fn no_call_waits_for_ever() {
    run_in_child(
        "no_call_waits_for_ever",
        |_| (),
        || {
            static VALUES: Values = Lock::new(|| vec![0; 300]);
            let done = std::sync::atomic::AtomicBool::new(false);
            let is_done = || done.load(std::sync::atomic::Ordering::Relaxed);
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        while !is_done() {
                            VALUES.lock().rotate_left(7);
                            let _ = VALUES.for_each_locked(|_, value| value.reverse());
                        }
                    });
                }
                for _ in 0..100 {
                    fork(|| {
                        let mut right = true;
                        let seen = VALUES.for_each_checked(|_, locked| {
                            let value =
                                locked.unwrap_or_else(|orphaned| orphaned.reset(Vec::new()));
                            right &= value.is_empty() || value.len() == 300;
                        });
                        check(seen.is_ok() && right, 1)?;
                        check(VALUES.for_each_locked(|_, value| value.clear()).is_ok(), 2)?;
                        drop(VALUES.lock());
                        Ok(())
                    });
                }
                done.store(true, std::sync::atomic::Ordering::Relaxed);
            });
        },
    );
}
