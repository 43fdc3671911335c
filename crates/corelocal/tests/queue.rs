//! The queue under attack: signals, migrations, consumers that sleep, fork, panics, no memory, and random
//! scripts beside a naive model. What is pushed comes out once, whole, and nobody sleeps on.

mod cpus;
mod sandbox;
mod storm;

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use corelocal::cid::{self, CpuId};
use corelocal::percpu::{self, Queue};
use corelocal::sys::futex::Deadline;
use proptest::prelude::*;
use sandbox::{When, run_in_child, run_refusing, skip};
use storm::scaled;

const TOKENS: usize = 4_000_000;
/// How often each token came out.
static SEEN: [AtomicU8; TOKENS] = [const { AtomicU8::new(0) }; TOKENS];
static NEXT: AtomicUsize = AtomicUsize::new(0);
static NARROW: Queue<usize> = Queue::new();
static WIDE: Queue<[usize; 3]> = Queue::new();

fn see(token: usize) {
    SEEN[token].fetch_add(1, Ordering::Relaxed);
}

fn see_wide(item: [usize; 3]) {
    assert_eq!([item[0], !item[0], item[0] ^ 0x5555], item);
    see(item[0]);
}

/// Pushes a new token, and sometimes takes one.
fn push_token() {
    let token = NEXT.fetch_add(1, Ordering::Relaxed);
    if token >= TOKENS {
        return;
    }
    match token % 3 {
        0 => assert!(WIDE.push([token, !token, token ^ 0x5555]).is_ok()),
        _ => assert!(NARROW.push(token).is_ok()),
    }
    if token % 16 == 0 {
        NARROW.try_pop().into_iter().for_each(see);
    }
}

fn no_token_is_lost_or_doubled(each: u64) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for round in 0u32.. {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    if round % 64 == 0 {
                        // Slots change hands, and pages go; refused, they do not.
                        let _ = (cid::compact(), percpu::trim());
                    }
                    NARROW.pop_timeout(Duration::from_millis(1)).into_iter().for_each(see);
                    NARROW.drain().take(100).for_each(see);
                    WIDE.drain().take(100).for_each(see_wide);
                }
            });
        }
        storm::rage_doing(16, each, push_token);
        done.store(true, Ordering::Relaxed);
    });
    NARROW.drain().for_each(see);
    WIDE.drain().for_each(see_wide);
    assert!(NARROW.is_empty() && WIDE.is_empty());
    let tokens = NEXT.load(Ordering::Relaxed).min(TOKENS);
    assert!(SEEN[..tokens].iter().all(|seen| seen.load(Ordering::Relaxed) == 1));
}

#[test]
fn a_storm() {
    no_token_is_lost_or_doubled(scaled(100_000));
}

#[test]
fn a_storm_without_sections() {
    let off = |command: &mut std::process::Command| {
        command.env("CORELOCAL_RSEQ", "off");
    };
    run_in_child("a_storm_without_sections", off, || {
        no_token_is_lost_or_doubled(scaled(20_000));
    });
}

/// Threads that stay on their cpus: the items of each come in order, at a consumer that sleeps in between.
#[test]
fn each_core_is_in_order() {
    let queue: Queue<(u32, u32), CpuId> = Queue::new();
    let each = scaled(300_000) as u32;
    let last = thread::scope(|scope| {
        for thread in 0..4 {
            let queue = &queue;
            scope.spawn(move || {
                cpus::hop(thread);
                for n in 0..each {
                    queue.push((thread, n)).unwrap();
                    if n % 4096 == 0 {
                        thread::sleep(Duration::from_micros(50));
                    }
                }
            });
        }
        let mut last = HashMap::new();
        for _ in 0..4 * each {
            let (thread, n) = queue.pop();
            let before = last.insert(thread, n);
            assert!(before < Some(n), "{before:?} {n}");
        }
        last
    });
    assert!(last.values().all(|n| *n == each - 1));
    assert_eq!(queue.try_pop(), None);
}

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
        assert_eq!(queue.pop_timeout(Duration::from_millis(5)), None);
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
                        if queue.pop_timeout(span).is_some() {
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
    assert_eq!(queue.pop_timeout(Duration::from_millis(20)), None);
    assert!(begun.elapsed() >= Duration::from_millis(20));
    assert_eq!(queue.pop_deadline(Deadline::now()), None);
    queue.push(1).unwrap();
    assert_eq!(queue.pop_deadline(Deadline::now()), Some(1));
    queue.push(2).unwrap();
    assert_eq!(queue.pop_timeout(Duration::MAX), Some(2));
}

fn resident_kilobytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

/// Millions of items go through; what the queue needs at a time is all the memory it takes.
fn memory_is_bounded(test: &str) {
    let queue: Queue<u64> = Queue::new();
    let through = |items: u64, at_once: u64| {
        for first in (0..items).step_by(at_once as usize) {
            (first..first + at_once).for_each(|n| queue.push(n).unwrap());
            assert_eq!(queue.drain().count() as u64, at_once);
        }
    };
    through(20_000, 10_000);
    let Some(before) = resident_kilobytes() else {
        return skip(test, "no /proc");
    };
    through(scaled(2_000_000), 10_000);
    let after = resident_kilobytes().unwrap();
    assert!(after < before + 1024, "{before} kB, then {after} kB");
    // A burst of 24 MB, or 8 on an emulated machine, most of which goes back to the kernel.
    let burst = scaled(3_000_000).max(1_000_000);
    (0..burst).for_each(|n| queue.push(n).unwrap());
    let full = resident_kilobytes().unwrap();
    assert!(full > after + burst / 150, "{after} kB, then {full} kB");
    assert_eq!(queue.drain().count() as u64, burst);
    let empty = resident_kilobytes().unwrap();
    assert!(empty < after + 8_000, "{after} kB, then {full} kB, then {empty} kB");
    drop(queue);
    // Another queue finds what this one had.
    let queue: Queue<[u64; 2]> = Queue::new();
    (0..1000).for_each(|n| queue.push([n, n]).unwrap());
    assert!(resident_kilobytes().unwrap() < empty + 1024);
}

#[test]
fn segments_come_again() {
    run_in_child("segments_come_again", |_| (), || memory_is_bounded("segments_come_again"));
}

#[test]
fn segments_come_again_without_sections() {
    let test = "segments_come_again_without_sections";
    let off = |command: &mut std::process::Command| {
        command.env("CORELOCAL_RSEQ", "off");
    };
    run_in_child(test, off, || memory_is_bounded(test));
}

/// Queues come and go with items in them; their segments do not stay behind.
#[test]
fn queues_come_and_go() {
    run_in_child(
        "queues_come_and_go",
        |_| (),
        || {
            let come_and_go = |rounds: u64| {
                for round in 0..rounds {
                    let queue: Queue<Box<u64>> = Queue::new();
                    (0..round % 2000).for_each(|n| queue.push(Box::new(n)).unwrap());
                    queue.drain().take(700).for_each(drop);
                }
            };
            come_and_go(scaled(2000).max(400));
            let Some(before) = resident_kilobytes() else {
                return skip("queues_come_and_go", "no /proc");
            };
            come_and_go(scaled(10_000));
            let after = resident_kilobytes().unwrap();
            assert!(after < before + 1024, "{before} kB, then {after} kB");
        },
    );
}

/// Without memory the item comes back; with some again, all is as before.
#[test]
fn out_of_memory() {
    run_in_child(
        "out_of_memory",
        |_| (),
        || {
            let queue: Queue<u64> = Queue::new();
            queue.push(0).unwrap();
            let limit = |bytes| {
                let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
                // SAFETY: a valid limit.
                assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
            };
            limit(1 << 20);
            let refused = (1..).find(|n| queue.push(*n).is_err()).unwrap();
            assert_eq!(queue.push(refused), Err(refused));
            let fresh: Queue<u64> = Queue::new();
            let _ = fresh.push(1);
            let mut items: Vec<u64> = Vec::new();
            limit(libc::RLIM_INFINITY);
            items.extend(queue.drain());
            items.sort_unstable();
            assert!(items.into_iter().eq(0..refused));
            for n in 0..10_000 {
                queue.push(n).unwrap();
            }
            assert_eq!(queue.drain().count(), 10_000);
        },
    );
}

/// The child has copies, and both go on from there without meeting; whatever locks other threads held,
/// and although consumers slept.
#[test]
fn fork_while_others_take() {
    let queue: Queue<u64> = Queue::new();
    let asleep: Queue<u64> = Queue::new();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    queue.push(1).unwrap();
                    queue.drain().for_each(drop);
                }
            });
            scope.spawn(|| asleep.pop());
        }
        for _ in 0..scaled(200) {
            // SAFETY: the child uses the queues and leaves: no lock, no heap.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // Locks that others held are free again.
                queue.drain().for_each(drop);
                let empty = queue.is_empty();
                let works = (0..2000).all(|n| queue.push(n).is_ok());
                let works = works && (0..2000).all(|n| queue.pop() == n);
                let wakes = (0..10).all(|n| asleep.push(n).is_ok() && asleep.pop() == n)
                    && asleep.pop_timeout(Duration::from_micros(100)).is_none();
                let flags = [!empty, !works, !wakes].map(i32::from);
                // SAFETY: ends the child.
                unsafe { libc::_exit(flags[0] + 2 * flags[1] + 4 * flags[2]) };
            }
            assert!(child > 0);
            let mut status = -1;
            // SAFETY: the child is ours and `status` is writable.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0, "the child's queue does not work");
        }
        done.store(true, Ordering::Relaxed);
        (0..2).for_each(|n| asleep.push(n).unwrap());
    });
}

/// Counts its drops; the one whose turn it is panics.
struct Fragile {
    drops: Arc<AtomicUsize>,
    panics: bool,
}

impl Drop for Fragile {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::Relaxed);
        assert!(!self.panics, "meant to");
    }
}

#[test]
fn what_is_left_is_dropped_once() {
    let drops = Arc::new(AtomicUsize::new(0));
    for panics_at in [5000, 10] {
        drops.store(0, Ordering::Relaxed);
        let queue: Queue<Fragile> = Queue::new();
        for n in 0..2000 {
            let fragile = Fragile { drops: drops.clone(), panics: n == panics_at };
            assert!(queue.push(fragile).is_ok());
        }
        queue.drain().take(5).for_each(drop);
        assert_eq!(drops.load(Ordering::Relaxed), 5);
        let panicked = catch_unwind(AssertUnwindSafe(|| drop(queue))).is_err();
        assert_eq!(panicked, panics_at == 10);
        assert_eq!((drops.load(Ordering::Relaxed), Arc::strong_count(&drops)), (2000, 1));
    }
}

#[test]
fn items_of_all_shapes() {
    #[repr(align(64))]
    #[derive(Clone, Debug, PartialEq)]
    struct Line(u8);

    fn check<T: Clone + Debug + PartialEq + Send>(item: T) {
        let queue: Queue<T> = Queue::default();
        for count in [1, 3, 700] {
            (0..count).for_each(|_| queue.push(item.clone()).expect("memory"));
            let taken: Vec<T> = queue.drain().collect();
            assert!(taken.len() == count && taken.iter().all(|taken| *taken == item));
        }
    }
    check(());
    check(7u8);
    check((7u8, 500u16));
    check(Box::new(7));
    check(String::from("more than a word"));
    check(Line(9));
    check([3u64; 200]);
    check([3u64; 508]);
    check(Some(1.5f64));
    // A queue may hold what borrows.
    let text = String::from("borrowed");
    check(text.as_str());
}

#[derive(Clone, Debug)]
enum Op {
    Push(u16, usize),
    Pop(usize),
    Timeout,
    Drain,
    Empty,
    Replace,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (any::<u16>(), 1..400usize).prop_map(|(n, count)| Op::Push(n, count)),
        8 => (1..400usize).prop_map(Op::Pop),
        1 => Just(Op::Timeout),
        1 => Just(Op::Drain),
        1 => Just(Op::Empty),
        1 => Just(Op::Replace),
    ]
}

/// On one cpu a queue of cpus is one queue.
fn behaves_like_a_deque<T>(script: Vec<Op>, item: fn(u16) -> T) -> Result<(), TestCaseError>
where
    T: Clone + Debug + PartialEq + Send,
{
    cpus::stay();
    let mut queue: Queue<T, CpuId> = Queue::new();
    let mut model = VecDeque::new();
    for op in script {
        match op {
            Op::Push(n, count) => {
                for n in (0..count).map(|i| n.wrapping_add(i as u16)) {
                    prop_assert_eq!(queue.push(item(n)), Ok(()));
                    model.push_back(item(n));
                }
            }
            Op::Pop(count) => {
                for _ in 0..count {
                    prop_assert_eq!(queue.try_pop(), model.pop_front());
                }
            }
            Op::Timeout => {
                let span = Duration::from_micros(5);
                prop_assert_eq!(queue.pop_timeout(span), model.pop_front());
            }
            Op::Drain => {
                prop_assert!(queue.drain().eq(std::mem::take(&mut model)));
            }
            Op::Empty => prop_assert_eq!(queue.is_empty(), model.is_empty()),
            Op::Replace => {
                queue = Queue::new();
                model.clear();
            }
        }
    }
    Ok(())
}

proptest! {
    // The failing script is printed; there is no file of them to keep beside a `tests/*.rs`.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn narrow_items(script in proptest::collection::vec(op(), 1..40)) {
        behaves_like_a_deque(script, |n| n)?;
    }

    #[test]
    fn wide_items(script in proptest::collection::vec(op(), 1..40)) {
        behaves_like_a_deque(script, |n| [u64::from(n); 5])?;
    }

    #[test]
    fn owning_items(script in proptest::collection::vec(op(), 1..40)) {
        behaves_like_a_deque(script, |n| format!("item {n}"))?;
    }
}

#[test]
fn sends_what_can_be_sent() {
    fn shared<T: Send + Sync>() {}
    shared::<Queue<Cell<u8>>>();
    shared::<Queue<Box<dyn Send>>>();
}
