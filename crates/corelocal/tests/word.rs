//! Words under attack: signals, migrations, drains and freezes at once; fork, refused memory, and random
//! scripts beside a naive model.

mod forked;
mod sandbox;
mod storm;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use corelocal::cid::{self, Busy};
use corelocal::percpu::{self, Shard, Word};
use proptest::prelude::*;
use sandbox::{When, run_in_child, run_refusing};
use storm::scaled;

static ADDED: Word = Word::new();
static DOUBLED: Word = Word::new();
/// Tokens change places: one is put for each that is taken.
static PLACES: Word = Word::new();
static PUT: AtomicU64 = AtomicU64::new(0);
static TAKEN: AtomicU64 = AtomicU64::new(0);

fn act() {
    ADDED.add_fetch(1);
    // What is stored is twice what was added, and odd for no moment.
    let even = DOUBLED.fetch_update(|word| (word % 2 == 0).then_some(word + 2));
    assert!(even.is_ok());
    let token = PUT.fetch_add(1, Ordering::Relaxed) + 1;
    let old = PLACES.exchange(token);
    assert!(old == 0 || old != token);
    TAKEN.fetch_add(old, Ordering::Relaxed);
}

fn total(word: &Word) -> u64 {
    word.iter().map(|(_, word)| word).sum()
}

fn nothing_is_lost(threads: usize, each: u64) {
    let done = AtomicBool::new(false);
    let added = thread::scope(|scope| {
        let drained = scope.spawn(|| {
            let (mut added, mut doubled) = (0, 0);
            let mut n = 0;
            while !done.load(Ordering::Relaxed) {
                n += 1;
                ADDED.drain(|_, value| added += value).expect("membarrier");
                PLACES
                    .drain(|_, token| _ = TAKEN.fetch_add(token, Ordering::Relaxed))
                    .expect("membarrier");
                match DOUBLED.with_frozen(n % cid::capacity(), std::mem::take) {
                    Ok(value) => doubled += value,
                    Err(busy) => assert_eq!(busy, Busy::NoSlot),
                }
                let _ = percpu::trim();
                thread::yield_now();
            }
            (added, doubled)
        });
        let times = storm::rage_doing(threads, each, act);
        done.store(true, Ordering::Relaxed);
        let (added, doubled) = drained.join().unwrap();
        assert_eq!(added + total(&ADDED), times);
        assert_eq!(doubled + total(&DOUBLED), 2 * times);
        times
    });
    // Every token is somewhere, once.
    let left: Vec<u64> =
        PLACES.iter().map(|(_, token)| token).filter(|token| *token != 0).collect();
    assert_eq!(left.iter().collect::<HashSet<_>>().len(), left.len());
    let all = (1..=added).fold(0u64, u64::wrapping_add);
    assert_eq!(left.into_iter().fold(TAKEN.load(Ordering::Relaxed), u64::wrapping_add), all);
}

#[test]
fn a_storm() {
    nothing_is_lost(32, scaled(50_000));
}

#[test]
fn a_storm_without_sections() {
    let off = |command: &mut std::process::Command| {
        command.env("CORELOCAL_RSEQ", "off");
    };
    run_in_child("a_storm_without_sections", off, || nothing_is_lost(8, scaled(20_000)));
}

/// A part's name and a number of that part are unique together.
#[test]
fn ids_are_unique() {
    static LAST: Word = Word::new();
    let each = scaled(50_000) as usize;
    let ids: Vec<(Shard, u64)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(move || (0..each).map(|_| LAST.add_fetch_at(1)).collect::<Vec<_>>())
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 8 * each);
    assert_eq!(total(&LAST), 8 * each as u64);
    for (part, last) in LAST.iter() {
        assert_eq!(ids.iter().filter(|(of, _)| *of == part).count() as u64, last, "{part:?}");
    }
}

/// A list that all push to on their cores and that is taken whole from afar.
#[test]
fn lists_can_be_built() {
    struct Node {
        value: u64,
        next: u64,
    }
    static HEADS: Word = Word::new();
    let (each, done) = (scaled(20_000), AtomicBool::new(false));
    let mut seen = vec![0; 4 * each as usize];
    let mut take = |head: u64| {
        let mut at = head;
        while at != 0 {
            // SAFETY: made by the pushers below, taken by this thread alone.
            let node = unsafe { Box::from_raw(at as *mut Node) };
            seen[node.value as usize] += 1;
            at = node.next;
        }
    };
    thread::scope(|scope| {
        let pushers: Vec<_> = (0..4)
            .map(|thread| {
                scope.spawn(move || {
                    for n in 0..each {
                        let node =
                            Box::into_raw(Box::new(Node { value: thread * each + n, next: 0 }));
                        loop {
                            let head = HEADS.load();
                            // SAFETY: not pushed yet, so this thread's alone.
                            unsafe { (*node).next = head };
                            if HEADS.store_if_equal(head, node as u64).is_ok() {
                                break;
                            }
                        }
                    }
                })
            })
            .collect();
        while !done.load(Ordering::Relaxed) {
            HEADS.drain(|_, head| take(head)).expect("membarrier");
            done.store(pushers.iter().all(|pusher| pusher.is_finished()), Ordering::Relaxed);
            thread::yield_now();
        }
        for pusher in pushers {
            pusher.join().unwrap();
        }
    });
    HEADS.drain(|_, head| take(head)).expect("membarrier");
    assert!(seen.iter().all(|times| *times == 1));
}

#[test]
fn fork_copies_the_words() {
    let word: Word = Word::new();
    word.add_fetch(10);
    let child = forked::judge(|| {
        word.add_fetch(5);
        let mut taken = 0;
        let drained = word.drain(|_, value| taken += value).is_ok();
        drained && taken == 15
    });
    word.add_fetch(1);
    child.succeeds();
    assert_eq!(total(&word), 11);
}

#[test]
fn without_memory() {
    run_refusing("without_memory", libc::SYS_mmap, When::Always, libc::ENOMEM, || {
        let word: Word = Word::new();
        assert_eq!(word.add_fetch_at(4), (Shard::Inline, 4));
        assert_eq!(word.exchange(5), 4);
        assert_eq!(word.store_if_equal(5, 6), Ok(Shard::Inline));
        assert!(word.store_if_equal(5, 7).is_err());
        assert_eq!(word.load(), 6);
        assert_eq!(word.iter().collect::<Vec<_>>(), [(Shard::Inline, 6)]);
        assert_eq!(word.with_frozen(0, |word| *word), Err(Busy::NoSlot));
        word.drain(|part, value| assert_eq!((part, value), (Shard::Inline, 6))).unwrap();
        assert_eq!(word.load(), 0);
    });
}

#[derive(Clone, Debug)]
enum Op {
    Add(u64),
    Exchange(u64),
    Store(u64, u64),
    Update(u64),
    Frozen(u32, u64),
    Freeze(u32),
    Drain,
}

fn op() -> impl Strategy<Value = Op> {
    let n = 0..50u64;
    prop_oneof![
        n.clone().prop_map(Op::Add),
        n.clone().prop_map(Op::Exchange),
        (n.clone(), n.clone()).prop_map(|(expected, n)| Op::Store(expected, n)),
        n.clone().prop_map(Op::Update),
        (0..4u32, n).prop_map(|(slot, n)| Op::Frozen(slot, n)),
        (0..4u32).prop_map(Op::Freeze),
        Just(Op::Drain),
    ]
}

proptest! {
    // The failing script is printed; there is no file of them to keep beside a `tests/*.rs`.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Each operation changes one word, and in the way it says: the words are those of a model that is told
    /// what came back.
    #[test]
    fn behaves_like_a_bag_of_integers(script in proptest::collection::vec(op(), 1..100)) {
        let word: Word = Word::new();
        let words = || {
            let mut words: Vec<u64> = word.iter().map(|(_, word)| word).filter(|word| *word != 0).collect();
            words.sort_unstable();
            words
        };
        // Takes one word for another; 0 is there as often as you like.
        let replace = |model: &mut Vec<u64>, old: u64, new: u64| {
            if old != 0 {
                let Some(at) = model.iter().position(|word| *word == old) else { return false };
                model.remove(at);
            }
            if new != 0 {
                model.push(new);
            }
            model.sort_unstable();
            true
        };
        let mut model: Vec<u64> = Vec::new();
        for op in script {
            match op {
                Op::Add(n) => {
                    let new = word.add_fetch(n);
                    prop_assert!(replace(&mut model, new - n, new));
                }
                Op::Exchange(n) => {
                    let old = word.exchange(n);
                    prop_assert!(replace(&mut model, old, n));
                }
                Op::Store(expected, n) => match word.store_if_equal(expected, n) {
                    Ok(_) => prop_assert!(replace(&mut model, expected, n)),
                    Err(_) => prop_assert_eq!(words(), model.clone()),
                },
                Op::Update(n) => {
                    if let Ok(old) = word.fetch_update(|word| (word < 1000).then_some(word + n)) {
                        prop_assert!(replace(&mut model, old, old + n));
                    }
                }
                Op::Frozen(slot, n) => match word.with_frozen(slot, |word| std::mem::replace(word, n)) {
                    Ok(old) => prop_assert!(replace(&mut model, old, n)),
                    Err(busy) => prop_assert!(matches!(busy, Busy::NoSlot | Busy::Fence(_)), "{}", busy),
                },
                Op::Freeze(slot) => drop(cid::freeze(slot)),
                Op::Drain => {
                    let mut taken = Vec::new();
                    prop_assert!(word.drain(|_, value| taken.push(value)).is_ok());
                    taken.sort_unstable();
                    prop_assert_eq!(taken, std::mem::take(&mut model));
                }
            }
            prop_assert_eq!(words(), model.clone());
        }
    }
}
