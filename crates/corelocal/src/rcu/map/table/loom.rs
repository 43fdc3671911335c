//! Loom models of readers beside a move and beside writers. What is removed stays allocated, as under a guard.

use ::loom::sync::Arc;
use ::loom::sync::atomic::AtomicUsize;
use ::loom::thread;

use super::*;
use crate::explore;

type Numbers = Table<u64, u64>;

/// The tables of a map, of which one is current.
struct Tables {
    current: AtomicUsize,
    first: *mut Numbers,
    next: *mut Numbers,
}

// SAFETY: tables are made for it, and stay until the model's end.
unsafe impl Send for Tables {}
// SAFETY: as above.
unsafe impl Sync for Tables {}

impl Tables {
    /// With these keys, whose hashes they are, and whose values are ten times that.
    fn new(from: usize, to: usize, keys: &[u64]) -> Arc<Tables> {
        let first = Box::into_raw(Table::new(from));
        let next = Box::into_raw(Table::new(to));
        let tables = Tables { current: AtomicUsize::new(first.addr()), first, next };
        keys.iter().for_each(|key| tables.insert(*key));
        Arc::new(tables)
    }

    fn current(&self) -> &Numbers {
        let is_first = self.current.load(Ordering::Acquire) == self.first.addr();
        // SAFETY: both stay until the model's end.
        unsafe { &*if is_first { self.first } else { self.next } }
    }

    fn move_all(&self) {
        // SAFETY: the only move; both tables stay.
        unsafe {
            (*self.first).next.store(self.next, Ordering::Release);
            (*self.first).move_all();
        }
        self.current.store(self.next.addr(), Ordering::Release);
    }

    fn get(&self, key: u64) -> Option<u64> {
        // SAFETY: nothing is freed before the model's end.
        unsafe { self.current().find(key, |entry| entry.key == key) }.map(|entry| entry.value)
    }

    fn locked<R>(&self, key: u64, change: impl FnOnce(&Locked<'_, u64, u64>) -> R) -> R {
        let mut table = self.current();
        loop {
            if let Some(locked) = table.lock(key) {
                return change(&locked);
            }
            // SAFETY: both stay until the model's end.
            table = unsafe { table.next() }.expect("a moved bucket is in the next table");
        }
    }

    fn insert(&self, key: u64) {
        self.locked(key, |bucket| {
            let new = Box::new(Entry { hash: key, key, value: key * 10 });
            match bucket.find(key, |entry| entry.key == key) {
                Some(slot) => bucket.replace(slot, new),
                None => bucket.insert(new),
            }
        });
    }

    fn remove(&self, key: u64) -> bool {
        self.locked(key, |bucket| match bucket.find(key, |entry| entry.key == key) {
            Some(slot) => {
                bucket.remove(slot);
                true
            }
            None => false,
        })
    }
}

/// Two keys move between so many buckets, while a thread looks for one of them.
fn a_reader_finds_what_moves(from: usize, to: usize) {
    explore::within(3, move || {
        let tables = Tables::new(from, to, &[1, 2]);
        let reader = tables.clone();
        let thread = thread::spawn(move || assert_eq!(reader.get(1), Some(10)));
        tables.move_all();
        assert_eq!(tables.get(2), Some(20));
        thread.join().unwrap();
    });
}

#[test]
fn loom_a_reader_finds_what_moves_apart() {
    a_reader_finds_what_moves(1, 2);
}

#[test]
fn loom_a_reader_finds_what_moves_together() {
    a_reader_finds_what_moves(2, 1);
}

/// What is inserted or removed beside a move is there, or gone, afterwards.
#[test]
fn loom_writers_beside_a_move() {
    explore::within(3, || {
        let tables = Tables::new(1, 2, &[1, 2]);
        let writer = tables.clone();
        let thread = thread::spawn(move || {
            assert!(writer.remove(2));
            writer.insert(3);
            assert_eq!((writer.get(1), writer.get(2), writer.get(3)), (Some(10), None, Some(30)));
        });
        tables.move_all();
        thread.join().unwrap();
        assert_eq!((tables.get(1), tables.get(2), tables.get(3)), (Some(10), None, Some(30)));
    });
}

/// A reader passes entries that are replaced and removed.
#[test]
fn loom_a_reader_beside_writers() {
    explore::within(3, || {
        let tables = Tables::new(1, 2, &[1, 2, 3]);
        let reader = tables.clone();
        let thread = thread::spawn(move || assert_eq!(reader.get(1), Some(10)));
        assert!(tables.remove(3));
        tables.insert(2);
        tables.insert(1);
        thread.join().unwrap();
    });
}

/// A twin of `move_all`: the bucket is marked before its entries are in the next table, or not in order with them.
fn move_wrongly(tables: &Tables, early: bool, order: Ordering) {
    // SAFETY: both stay until the model's end.
    let (from, to) = unsafe { (&*tables.first, &*tables.next) };
    from.next.store(tables.next, Ordering::Release);
    let bucket = &from.buckets[0];
    let mark = || bucket.tags.store(bucket.tags.load(Ordering::Relaxed) | MOVED, order);
    if early {
        mark();
    }
    for entry in bucket.entries() {
        // SAFETY: the one entry of the bucket.
        let hash = unsafe { (*entry).hash };
        // Relaxed, both: the mark publishes them.
        let target = &to.buckets[to.index(hash)];
        target.slots[0].store(entry, Ordering::Relaxed);
        target.tags.store(tag_of(hash), Ordering::Relaxed);
    }
    mark();
}

fn one_key_moves(early: bool, order: Ordering) {
    explore::within(3, move || {
        let tables = Tables::new(1, 2, &[1]);
        let reader = tables.clone();
        let thread = thread::spawn(move || assert_eq!(reader.get(1), Some(10)));
        move_wrongly(&tables, early, order);
        thread.join().unwrap();
    });
}

#[test]
fn loom_a_twin_without_a_fault_passes() {
    one_key_moves(false, Ordering::Release);
}

#[test]
#[should_panic]
fn loom_catches_a_bucket_that_is_marked_early() {
    one_key_moves(true, Ordering::Release);
}

#[test]
#[should_panic]
fn loom_catches_a_mark_without_release() {
    one_key_moves(false, Ordering::Relaxed);
}
