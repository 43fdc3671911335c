//! Every item is dropped once: those that are left in slots and in shared ones, by threads that have ended,
//! after slots were frozen, drained half and given back; and in a forked child, whatever its parent's
//! other threads were about.

mod forked;
mod sandbox;
mod storm;

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::thread;

use corelocal::cid;
use corelocal::percpu::{self, Batch, Lock, PerCpu, Pool, Queue, Ring, Stack};
use forked::End;
use sandbox::run_in_child;
use storm::scaled;

const MOST: usize = 1 << 20;
static MADE: AtomicUsize = AtomicUsize::new(0);
/// How often the item of each number was dropped.
static DROPS: [AtomicU8; MOST] = [const { AtomicU8::new(0) }; MOST];

/// A number, on two words, so that items of one word and of several are both met.
struct Item<const WORDS: usize>([usize; WORDS]);

impl<const WORDS: usize> Item<WORDS> {
    fn new() -> Self {
        Item([MADE.fetch_add(1, Ordering::Relaxed); WORDS])
    }
}

impl<const WORDS: usize> Drop for Item<WORDS> {
    fn drop(&mut self) {
        assert!(self.0.iter().all(|word| *word == self.0[0]), "an item in pieces");
        DROPS[self.0[0] % MOST].fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether items may still be made; tests would take numbers beyond the last one.
fn room() -> bool {
    MADE.load(Ordering::Relaxed) < MOST - 100_000
}

/// How many of the items that were made were never dropped, and how many more than once.
fn account() -> (usize, usize) {
    let made = MADE.load(Ordering::Relaxed).min(MOST);
    let drops = DROPS[..made].iter().map(|drops| drops.load(Ordering::Relaxed));
    drops.fold((0, 0), |(never, often), drops| {
        (never + usize::from(drops == 0), often + usize::from(drops > 1))
    })
}

impl<const WORDS: usize> Default for Item<WORDS> {
    fn default() -> Self {
        Item::new()
    }
}

/// One of each container that items go into and come out of.
#[derive(Default)]
struct Bins {
    stack: Stack<Item<1>, 32>,
    wide_stack: Stack<Item<3>, 32>,
    ring: Ring<Item<1>, 32>,
    wide_ring: Ring<Item<3>, 32>,
    queue: Queue<Item<1>>,
    wide_queue: Queue<Item<3>>,
    pool: Pool<Item<2>, 32>,
}

impl Bins {
    /// Puts items in, as far as there is room, and takes some out.
    fn work(&self, round: usize) {
        for _ in 0..4 {
            drop((self.stack.push(Item::new()), self.wide_stack.push(Item::new())));
            drop((self.ring.push(Item::new()), self.wide_ring.push(Item::new())));
            drop((self.queue.push(Item::new()), self.wide_queue.push(Item::new())));
            drop(self.pool.try_put(Item::new()));
        }
        drop((self.stack.pop(), self.wide_ring.pop(), self.queue.try_pop(), self.pool.try_get()));
        let mut batch: Batch<Item<3>, 4> = Batch::new();
        self.wide_stack.pop_some(&mut batch);
        match round % 8 {
            0 => drop((self.ring.drain(drop), self.wide_ring.drain(drop))),
            1 => self.queue.drain().take(20).for_each(drop),
            2 => self.wide_queue.drain().take(20).for_each(drop),
            3 => drop((self.stack.drain_all(drop), self.pool.clear())),
            4 => drop((cid::compact(), percpu::trim())),
            5 => drop(cid::freeze(round as u32 % cid::capacity()).map(|mut frozen| {
                self.wide_stack.drain_frozen(&mut frozen, drop);
            })),
            _ => {}
        }
    }
}

/// Containers with items in them, from threads that have ended: with the container goes the last item.
fn nothing_is_left() {
    for round in 0..scaled(20).max(4) as usize {
        let bins = Bins::default();
        let locks: Lock<Vec<Item<1>>> = Lock::default();
        let each: PerCpu<Item<5>> = PerCpu::new(Item::new);
        thread::scope(|scope| {
            for thread in 0..4 {
                let (bins, locks, each) = (&bins, &locks, &each);
                scope.spawn(move || {
                    for round in (0..50).take_while(|_| room()) {
                        bins.work(round + thread);
                        locks.lock().push(Item::new());
                        each.get();
                    }
                    let _ = locks.for_each_locked(|_, items| items.truncate(30));
                });
            }
        });
        if round % 2 == 0 {
            let _ = (cid::compact(), percpu::trim());
        }
        drop((bins, locks, each));
        assert_eq!(account(), (0, 0), "never dropped, dropped more than once");
    }
}

#[test]
fn nothing_is_left_behind() {
    run_in_child("nothing_is_left_behind", |_| (), nothing_is_left);
}

#[test]
fn nothing_is_left_behind_without_sections() {
    let off = |command: &mut std::process::Command| {
        command.env("CORELOCAL_RSEQ", "off");
    };
    run_in_child("nothing_is_left_behind_without_sections", off, nothing_is_left);
}

/// What a thread in [`Bins::work`] has in its hands at most: a batch, and what the drain of a ring takes out
/// at a time. (From queues, stacks and pools come single items; of what is put in, two are made at a time.)
/// A child has everything else: what a consumer was about to take, too, and what it was putting in order.
const IN_HANDS: usize = 4 + 16;

/// Children that are forked while other threads put in and take out: the containers' items are dropped once in the
/// child; only items that a thread was just moving are missing.
fn children_drop_what_they_have() {
    const THREADS: usize = 3;
    let bins = Bins::default();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (bins, done) = (&bins, &done);
            scope.spawn(move || {
                let rounds = (thread..).take_while(|_| room() && !done.load(Ordering::Relaxed));
                rounds.for_each(|round| bins.work(round));
            });
        }
        let wrong = (0..scaled(60).max(5)).find_map(|_| {
            in_child(|| {
                // SAFETY: a copy of the containers, in a process without other users of them.
                drop(unsafe { std::ptr::read(&bins) });
                let (never, often) = account();
                (often > 0).then_some(1).or((never > THREADS * IN_HANDS).then_some(2))
            })
        });
        done.store(true, Ordering::Relaxed);
        assert_eq!(wrong, None);
    });
    drop(bins);
    assert_eq!(account(), (0, 0), "never dropped, dropped more than once");
}

#[test]
fn children_drop_once() {
    run_in_child("children_drop_once", |_| (), children_drop_what_they_have);
}

#[test]
fn children_drop_once_without_sections() {
    let off = |command: &mut std::process::Command| {
        command.env("CORELOCAL_RSEQ", "off");
    };
    run_in_child("children_drop_once_without_sections", off, children_drop_what_they_have);
}

/// What `body` says in a forked child.
fn in_child(body: impl FnOnce() -> Option<u8>) -> Option<u8> {
    let child = forked::fork(|| body().map_or(0, i32::from));
    match child.wait() {
        End::Code(code) => Some(code as u8).filter(|code| *code != 0),
        End::Signal(signal) => panic!("a child was ended by signal {signal}"),
    }
}
