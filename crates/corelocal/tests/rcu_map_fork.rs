//! Children that are forked while other threads change a map: all goes on, and what was there is there.
#![cfg(all(feature = "std", target_os = "linux"))]

mod forked;
mod storm;

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use corelocal::rcu::{self, RcuHashMap};

/// A key whose comparison with 5 takes as long as the parent's thread wants.
#[derive(Clone)]
struct Slow(u64);

static IS_SLOW: AtomicBool = AtomicBool::new(false);
static IS_INSIDE: AtomicBool = AtomicBool::new(false);

impl Hash for Slow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl PartialEq for Slow {
    fn eq(&self, other: &Slow) -> bool {
        while self.0 == 5 && other.0 == 5 && IS_SLOW.load(Ordering::SeqCst) {
            IS_INSIDE.store(true, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(1));
        }
        self.0 == other.0
    }
}

impl Eq for Slow {}

/// Returns `true` if the map has these keys and no others, each found and yielded once, and counts them.
fn has<K: Hash + Eq + Send + Sync + 'static>(
    map: &RcuHashMap<K, u64>,
    keys: impl Iterator<Item = u64>,
    of: fn(u64) -> K,
) -> bool {
    let guard = rcu::read();
    let mut seen: Vec<u64> = map.iter(&guard).map(|(_, value)| *value).collect();
    seen.sort_unstable();
    let keys: Vec<u64> = keys.collect();
    keys.iter().all(|key| map.get(&of(*key), &guard) == Some(key))
        && map.len() == keys.len()
        && seen == keys
}

/// The thread that has a bucket's lock is not in the child.
#[test]
fn a_bucket_that_was_locked_at_the_fork() {
    static MAP: RcuHashMap<Slow, u64> = RcuHashMap::new();
    (0..10).for_each(|key| _ = MAP.insert(Slow(key), key));
    IS_SLOW.store(true, Ordering::SeqCst);
    let thread = thread::spawn(|| MAP.insert(Slow(5), 5));
    while !IS_INSIDE.load(Ordering::SeqCst) {
        thread::yield_now();
    }
    let child = forked::judge(|| {
        IS_SLOW.store(false, Ordering::SeqCst);
        (10..2000).for_each(|key| assert!(!MAP.insert(Slow(key), key)));
        let grown = has(&MAP, 0..2000, Slow);
        (3..2000).for_each(|key| assert!(MAP.remove(&Slow(key))));
        grown && has(&MAP, 0..3, Slow)
    });
    child.succeeds();
    IS_SLOW.store(false, Ordering::SeqCst);
    assert!(thread.join().unwrap());
}

/// A thread inserts and removes, so that the map grows and shrinks all the time; another one forks.
#[test]
fn forks_beside_moves() {
    static MAP: RcuHashMap<u64, u64> = RcuHashMap::new();
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    const STAY: u64 = 500;
    const MOST: u64 = 10_000;
    (0..STAY).for_each(|key| _ = MAP.insert(key, key));
    thread::scope(|scope| {
        let _tell = storm::Tell(&IS_OVER);
        scope.spawn(|| {
            while !IS_OVER.load(Ordering::Relaxed) {
                (STAY..MOST).for_each(|key| _ = MAP.insert(key, key));
                (STAY..MOST).for_each(|key| _ = MAP.remove(&key));
            }
        });
        for nth in 0..storm::scaled(100) {
            thread::sleep(Duration::from_micros(nth * 97 % 5000));
            forked::judge(|| {
                // All that stayed, and of the others each once.
                let found = {
                    let guard = rcu::read();
                    let all: Vec<_> = MAP.iter(&guard).map(|(key, _)| *key).collect();
                    let mut once = all.clone();
                    once.sort_unstable();
                    once.dedup();
                    once.len() == all.len()
                        && (0..STAY).all(|key| MAP.get(&key, &guard) == Some(&key))
                };
                // New ones, whose buckets may be locked, or half moved.
                let new = 1_000_000..1_000_000 + 2000;
                new.clone().for_each(|key| assert!(!MAP.insert(key, key)));
                let others = {
                    let guard = rcu::read();
                    new.clone().all(|key| MAP.get(&key, &guard) == Some(&key))
                };
                // Everything goes, however it was in the parent.
                MAP.retain(|key, _| *key < STAY);
                MAP.shrink_to_fit();
                found && others && has(&MAP, 0..STAY, |key| key)
            })
            .succeeds();
        }
    });
    assert!(has(&MAP, 0..STAY, |key| key) || MAP.len() > STAY as usize);
}
