//! The map of RCU against a map of std, and beside readers while it grows and shrinks.
#![cfg(feature = "std")]

mod fragile;
mod storm;

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use corelocal::rcu::{self, Domain, RcuHashMap};
use fragile::Fragile;
use proptest::prelude::*;

/// The hash is the number itself.
#[derive(Default)]
struct Plain(u64);

impl Hasher for Plain {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        self.0 = u64::from_ne_bytes(word);
    }
}

/// All hashes are the same.
#[derive(Default)]
struct Same;

impl Hasher for Same {
    fn finish(&self) -> u64 {
        7
    }

    fn write(&mut self, _: &[u8]) {}
}

type Hashes<H> = BuildHasherDefault<H>;

#[derive(Clone, Copy, Debug)]
enum Call {
    Insert(u16, u32),
    Remove(u16),
    Get(u16),
    GetOrInsert(u16, u32),
    Look,
    /// So many keys at once, so that the map grows, or shrinks.
    InsertMany(u16),
    RemoveMany(u16),
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let call = prop_oneof![
        (any::<u16>(), any::<u32>()).prop_map(|(key, value)| Call::Insert(key % 512, value)),
        any::<u16>().prop_map(|key| Call::Remove(key % 512)),
        any::<u16>().prop_map(|key| Call::Get(key % 512)),
        (any::<u16>(), any::<u32>()).prop_map(|(key, value)| Call::GetOrInsert(key % 512, value)),
        Just(Call::Look),
        (0..600u16).prop_map(Call::InsertMany),
        (0..600u16).prop_map(Call::RemoveMany),
    ];
    proptest::collection::vec(call, 0..60)
}

/// Does the calls on both maps, which must agree.
fn compare<H: Hasher + Default>(calls: &[Call]) {
    static DOMAIN: Domain = Domain::new();
    let map = RcuHashMap::with_hasher_in(Hashes::<H>::default(), &DOMAIN);
    let mut oracle = HashMap::new();
    for call in calls {
        match *call {
            Call::Insert(key, value) => {
                assert_eq!(map.insert(key, value), oracle.insert(key, value).is_some());
            }
            Call::Remove(key) => assert_eq!(map.remove(&key), oracle.remove(&key).is_some()),
            Call::Get(key) => assert_eq!(map.get(&key, &DOMAIN.read()), oracle.get(&key)),
            Call::GetOrInsert(key, value) => {
                let guard = DOMAIN.read();
                let found = map.get_or_insert_with(key, || value, &guard);
                assert_eq!(found, oracle.entry(key).or_insert(value));
            }
            Call::Look => {
                let guard = DOMAIN.read();
                let mut all: Vec<_> = map.iter(&guard).collect();
                all.sort_unstable();
                assert!(all.into_iter().eq(oracle.iter().collect::<BTreeMap<_, _>>()));
            }
            Call::InsertMany(keys) => (0..keys).for_each(|key| {
                map.insert(key, 0);
                oracle.insert(key, 0);
            }),
            Call::RemoveMany(keys) => (0..keys).for_each(|key| {
                assert_eq!(map.remove(&key), oracle.remove(&key).is_some());
            }),
        }
        assert_eq!((map.len(), map.is_empty()), (oracle.len(), oracle.is_empty()));
    }
    let guard = DOMAIN.read();
    assert!((0..600).all(|key| map.get(&key, &guard) == oracle.get(&key)));
}

proptest! {
    #[test]
    fn it_is_like_std(calls in calls()) {
        compare::<Plain>(&calls);
        compare::<std::hash::DefaultHasher>(&calls);
    }

    #[test]
    fn it_is_like_std_with_one_chain(calls in calls()) {
        compare::<Same>(&calls);
    }
}

#[test]
fn keys_may_be_borrowed() {
    let map: RcuHashMap<String, Vec<u8>> = RcuHashMap::new();
    map.insert("one".into(), vec![1]);
    let guard = rcu::read();
    assert_eq!(map.get("one", &guard), Some(&vec![1]));
    assert!(map.contains_key("one", &guard) && !map.contains_key("two", &guard));
    assert_eq!(format!("{map:?}"), "{\"one\": [1]}");
    assert!(map.remove("one") && !map.remove("one"));
    assert_eq!(map.get("one", &guard), None);
}

#[test]
#[should_panic(expected = "the guard is of another domain than this map")]
fn a_guard_of_another_domain_is_refused() {
    static DOMAIN: Domain = Domain::new();
    RcuHashMap::<u8, u8>::new().get(&1, &DOMAIN.read());
}

/// Counts its drops, and is poisoned by them.
struct Counted(u64, Arc<AtomicU64>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0 = u64::MAX;
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn each_value_is_dropped_once() {
    static DOMAIN: Domain = Domain::new();
    let drops = Arc::new(AtomicU64::new(0));
    let map = RcuHashMap::new_in(&DOMAIN);
    let guard = DOMAIN.read();
    for n in 0..3000 {
        map.insert(n % 1000, Counted(n, drops.clone()));
    }
    (0..500).for_each(|key| assert!(map.remove(&key)));
    assert_eq!(drops.load(Ordering::Relaxed), 0);
    drop(guard);
    DOMAIN.barrier().unwrap();
    assert_eq!(drops.load(Ordering::Relaxed), 2500);
    drop(map);
    assert_eq!(drops.load(Ordering::Relaxed), 3000);
}

/// Readers and iterators beside writers that make the map grow and shrink all the time.
#[test]
fn what_stays_is_always_found() {
    static DOMAIN: Domain = Domain::new();
    const STAY: u64 = 100;
    let most = storm::scaled(20_000).max(2_000);
    let drops = Arc::new(AtomicU64::new(0));
    let map = RcuHashMap::new_in(&DOMAIN);
    (0..STAY).for_each(|key| _ = map.insert(key, Counted(key, drops.clone())));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for nth in 0..3 {
            let (map, is_over) = (&map, &is_over);
            scope.spawn(move || {
                let mut key = nth;
                while !is_over.load(Ordering::Relaxed) {
                    let guard = DOMAIN.read();
                    if nth == 0 {
                        let mut seen = [0; STAY as usize];
                        for (key, value) in map.iter(&guard) {
                            assert!(value.0 == *key, "{key} has {}", value.0);
                            if *key < STAY {
                                seen[*key as usize] += 1;
                            }
                        }
                        assert_eq!(seen, [1; STAY as usize]);
                    } else {
                        key = (key * 31 + 7) % STAY;
                        assert_eq!(map.get(&key, &guard).map(|value| value.0), Some(key));
                        if let Some(other) = map.get(&(STAY + key * 17), &guard) {
                            assert_eq!(other.0, STAY + key * 17);
                        }
                    }
                }
            });
        }
        let _tell = storm::Tell(&is_over);
        let writers: Vec<_> = (0..2)
            .map(|nth| {
                let (map, drops) = (&map, &drops);
                scope.spawn(move || {
                    let keys = || (STAY + nth..STAY + most).step_by(2);
                    for _ in 0..10 {
                        keys().for_each(|key| {
                            assert!(!map.insert(key, Counted(key, drops.clone())));
                        });
                        keys().for_each(|key| assert!(map.remove(&key)));
                        // What stays is replaced, too.
                        (nth..STAY).step_by(2).for_each(|key| {
                            assert!(map.insert(key, Counted(key, drops.clone())));
                        });
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
    assert_eq!(map.len() as u64, STAY);
    DOMAIN.barrier().unwrap();
    assert_eq!(drops.load(Ordering::Relaxed), 10 * (most + STAY));
}

/// Threads that want the same key get the same value.
#[test]
fn one_value_wins() {
    let map = RcuHashMap::new();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|nth| {
                let map = &map;
                scope.spawn(move || {
                    let guard = rcu::read();
                    let keys = 0..storm::scaled(5_000);
                    keys.map(|key| *map.get_or_insert_with(key, || nth, &guard)).collect::<Vec<_>>()
                })
            })
            .collect();
        let got: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(got.iter().all(|values| *values == got[0]));
    });
    assert_eq!(map.len() as u64, storm::scaled(5_000));
}

/// A key that counts comparisons.
struct Compared(u64, Arc<AtomicU64>);

impl std::hash::Hash for Compared {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl PartialEq for Compared {
    fn eq(&self, other: &Compared) -> bool {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0 == other.0
    }
}

impl Eq for Compared {}

/// Under one guard, of the global domain, which no grace period can end.
#[test]
fn growth_waits_for_no_guard() {
    const KEYS: u64 = 20_000;
    let compared = Arc::new(AtomicU64::new(0));
    let map = RcuHashMap::new();
    let guard = rcu::read();
    for key in 0..KEYS {
        map.get_or_insert_with(Compared(key, compared.clone()), || key, &guard);
    }
    assert!((0..KEYS).all(|key| map.get(&Compared(key, compared.clone()), &guard) == Some(&key)));
    assert!(map.capacity() as u64 > KEYS / 2, "room for {}", map.capacity());
    let comparisons = compared.load(Ordering::Relaxed);
    assert!(comparisons < 4 * KEYS, "{comparisons} comparisons for {KEYS} keys");
    // And shrinking.
    assert!(map.iter(&guard).all(|(key, _)| map.remove(key)));
    assert!(map.is_empty() && map.capacity() < 100, "room for {}", map.capacity());
    drop(guard);
}

#[test]
fn room_is_made_and_given_back() {
    let map: RcuHashMap<u32, u32> = RcuHashMap::new();
    assert_eq!(map.capacity(), 0);
    map.shrink_to_fit();
    map.reserve(1000);
    let room = map.capacity();
    assert!(room >= 1000);
    (0..1000).for_each(|key| _ = map.insert(key, key));
    assert_eq!(map.capacity(), room);
    map.clear();
    assert!(map.is_empty() && map.capacity() < 100);
    map.insert(1, 1);
    map.reserve(10_000);
    map.shrink_to_fit();
    assert!(map.capacity() < 100);
    assert!(RcuHashMap::<u8, u8>::with_capacity(500).capacity() >= 500);
}

#[test]
fn one_key_is_changed_in_every_way() {
    use rcu::{Compute, Operation};
    static MAP: RcuHashMap<&str, u32> = RcuHashMap::new();
    let guard = rcu::read();
    assert_eq!((MAP.get("a", &guard), MAP.remove_under("a", &guard)), (None, None));
    assert_eq!(MAP.insert_under("a", 1, &guard), None);
    assert_eq!(MAP.insert_under("a", 2, &guard), Some(&1));
    let refused = MAP.try_insert("a", 3, &guard).unwrap_err();
    assert_eq!((refused.current, refused.not_inserted), (&2, 3));
    assert_eq!(MAP.try_insert("b", 3, &guard).ok(), Some(&3));
    assert_eq!(MAP.update("a", |value| value * 10, &guard), Some(&20));
    assert_eq!(MAP.update("c", |_| unreachable!(), &guard), None);
    assert_eq!(MAP.get_key_value("a", &guard), Some((&"a", &20)));
    assert_eq!(MAP.compute("c", |_| Operation::Abort(7), &guard), Compute::Aborted(7));
    let remove = |_: Option<_>| Operation::<u32>::Remove;
    assert_eq!(MAP.compute("c", remove, &guard), Compute::Missing);
    assert_eq!(MAP.compute("b", remove, &guard), Compute::Removed(&"b", &3));
    let insert = |_: Option<_>| Operation::<u32>::Insert(9);
    assert_eq!(MAP.compute("b", insert, &guard), Compute::Inserted(&"b", &9));
    let updated = Compute::Updated { old: (&"b", &9), new: (&"b", &9) };
    assert_eq!(MAP.compute("b", insert, &guard), updated);
    assert_eq!(MAP.remove_under("b", &guard), Some(&9));
    assert_eq!((MAP.len(), MAP.keys(&guard).count()), (1, 1));
    assert_eq!(MAP.values(&guard).collect::<Vec<_>>(), [&20]);
}

/// Threads that count in one map of counters, by an update that depends on the old value.
#[test]
fn no_update_is_lost() {
    let map = RcuHashMap::new();
    let each = storm::scaled(20_000);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for nth in 0..each {
                    let guard = rcu::read();
                    let add = |known: Option<(&u64, &u64)>| {
                        rcu::Operation::<u64>::Insert(known.map_or(1, |(_, count)| count + 1))
                    };
                    map.compute(nth % 7, add, &guard);
                }
            });
        }
    });
    let guard = rcu::read();
    assert_eq!(map.values(&guard).sum::<u64>(), 4 * each);
}

#[test]
fn a_map_is_made_of_pairs() {
    let mut map: RcuHashMap<u32, u32> = (0..100).map(|n| (n, n)).collect();
    map.extend([(5, 50), (200, 1)]);
    (&map).extend([(201, 2)]);
    map.retain(|key, _| key % 5 == 0);
    let guard = rcu::read();
    let mut all: Vec<_> = map.iter(&guard).map(|(key, value)| (*key, *value)).collect();
    all.sort_unstable();
    let mut expected: Vec<_> =
        (0..100).step_by(5).map(|n| (n, if n == 5 { 50 } else { n })).collect();
    expected.push((200, 1));
    assert_eq!(all, expected);
}

#[test]
fn a_panic_while_a_map_is_dropped_leaks_nothing_else() {
    let drops = Arc::new(AtomicUsize::new(0));
    let fragile = |n| Fragile { drops: drops.clone(), panics: n == 50 };
    let map: RcuHashMap<u64, Fragile> = (0..100).map(|n| (n, fragile(n))).collect();
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(map)));
    assert!(dropped.is_err());
    assert_eq!(drops.load(Ordering::Relaxed), 100);
}

/// An iterator that is older than many moves yields each key once.
#[test]
fn an_iterator_outlasts_moves() {
    static DOMAIN: Domain = Domain::new();
    const STAY: u64 = 1000;
    for taken in [0, 300, 999] {
        let map = RcuHashMap::new_in(&DOMAIN);
        (0..STAY).for_each(|key| _ = map.insert(key, key));
        let guard = DOMAIN.read();
        let mut iter = map.iter(&guard);
        let mut seen: Vec<u64> = iter.by_ref().take(taken).map(|(key, _)| *key).collect();
        for many in [10_000, 50, 3_000] {
            (STAY..STAY + many).for_each(|key| _ = map.insert(key, key));
            (STAY..STAY + many).for_each(|key| _ = map.remove(&key));
            map.shrink_to_fit();
        }
        seen.extend(iter.map(|(key, _)| *key));
        seen.retain(|key| *key < STAY);
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..STAY), "{taken} before the moves");
    }
}
