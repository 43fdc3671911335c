//! Sleeping consumers of a queue: none sleeps on while there are items, with and without asymmetric barriers.

mod sandbox;
mod storm;

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use corelocal::percpu::Queue;
use corelocal::sys::futex::Deadline;
use sandbox::{When, run_in_child, run_refusing};
use storm::scaled;

/// Ping and pong: a wake-up that is missed is a test that hangs.
fn no_wake_up_is_missed(rounds: u64) {
    let there: Queue<u64> = Queue::new();
    let back: Queue<u64> = Queue::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..rounds {
                let item = there.pop();
                assert_eq!(item, n);
                back.push(item).unwrap();
            }
        });
        for n in 0..rounds {
            there.push(n).unwrap();
            // Now and then the other one has gone to sleep, now and then it is about to.
            match n % 4 {
                0 => thread::yield_now(),
                1 => (0..n % 3000).for_each(|_| std::hint::spin_loop()),
                _ => {}
            }
            assert_eq!(back.pop(), n);
        }
    });
}

#[test]
fn ping_pong() {
    no_wake_up_is_missed(scaled(50_000));
}

#[test]
fn ping_pong_without_sections() {
    let off = |command: &mut std::process::Command| {
        command.env("CORELOCAL_RSEQ", "off");
    };
    run_in_child("ping_pong_without_sections", off, || no_wake_up_is_missed(scaled(10_000)));
}

#[test]
fn ping_pong_without_membarrier() {
    let test = "ping_pong_without_membarrier";
    run_refusing(test, libc::SYS_membarrier, When::Always, libc::EPERM, || {
        no_wake_up_is_missed(scaled(10_000));
    });
}

/// The kernel takes back its word when consumers count on it already.
#[test]
fn membarrier_refused_later() {
    run_in_child(
        "membarrier_refused_later",
        |_| (),
        || {
            no_wake_up_is_missed(100);
            sandbox::refuse(libc::SYS_membarrier, When::Always, libc::EPERM);
            no_wake_up_is_missed(scaled(2_000));
        },
    );
}

#[test]
fn ping_pong_without_futexes() {
    let test = "ping_pong_without_futexes";
    let wait = When::Operation(libc::FUTEX_WAIT_BITSET as u32);
    run_refusing(test, libc::SYS_futex, wait, libc::EPERM, || {
        let queue: Queue<u64> = Queue::new();
        assert_eq!(queue.pop_for(Duration::from_millis(5)), None);
        queue.push(7).unwrap();
        assert_eq!(queue.pop(), 7);
    });
}

/// Several consumers sleep, several producers push now and then: all items come out, and all wake.
#[test]
fn consumers_share_the_work() {
    const CONSUMERS: u64 = 3;
    const STOP: u64 = u64::MAX;
    for round in 0..scaled(150) {
        let queue: Queue<u64> = Queue::new();
        let start = Barrier::new(5);
        let sum = AtomicU64::new(0);
        let (queue, start, sum) = (&queue, &start, &sum);
        thread::scope(|scope| {
            for _ in 0..CONSUMERS {
                scope.spawn(move || {
                    start.wait();
                    let items = std::iter::from_fn(|| Some(queue.pop()).filter(|n| *n != STOP));
                    sum.fetch_add(items.sum(), Ordering::Relaxed);
                });
            }
            for producer in 0..2 {
                scope.spawn(move || {
                    start.wait();
                    for n in 0..200 {
                        queue.push(n).unwrap();
                        if (n + round + producer) % 16 == 0 {
                            thread::sleep(Duration::from_micros(n % 90));
                        }
                    }
                    if producer == 0 {
                        (0..CONSUMERS).for_each(|_| queue.push(STOP).unwrap());
                    }
                });
            }
        });
        // The stops may have overtaken items of the other producer.
        let rest: u64 = queue.drain().sum();
        assert_eq!(sum.load(Ordering::Relaxed) + rest, 2 * (0..200).sum::<u64>());
    }
}

/// Consumers that give up just when something comes leave nothing undone.
#[test]
fn timeouts_meet_pushes() {
    let queue: Queue<u64> = Queue::new();
    let rounds = scaled(5_000);
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..rounds {
                queue.push(n).unwrap();
                thread::sleep(Duration::from_micros(n % 120));
            }
        });
        let taken = AtomicU64::new(0);
        thread::scope(|scope| {
            for consumer in 0..3 {
                let (queue, taken) = (&queue, &taken);
                scope.spawn(move || {
                    while taken.load(Ordering::Relaxed) < rounds {
                        let span = Duration::from_micros(20 + 40 * consumer);
                        if queue.pop_for(span).is_some() {
                            taken.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
    });
    assert!(queue.is_empty());
}

#[test]
fn deadlines() {
    let queue: Queue<u8> = Queue::new();
    let begun = Instant::now();
    assert_eq!(queue.pop_for(Duration::from_millis(20)), None);
    assert!(begun.elapsed() >= Duration::from_millis(20));
    assert_eq!(queue.pop_until(Deadline::now()), None);
    queue.push(1).unwrap();
    assert_eq!(queue.pop_until(Deadline::now()), Some(1));
    queue.push(2).unwrap();
    assert_eq!(queue.pop_for(Duration::MAX), Some(2));
}
