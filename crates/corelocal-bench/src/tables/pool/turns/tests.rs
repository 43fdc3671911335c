//! Tests of `turns.rs`.

use std::sync::Mutex;

use super::*;

#[derive(Default)]
struct Shelf(Mutex<Vec<Item>>);

impl Store for Shelf {
    fn take(&self) -> Option<Item> {
        self.0.lock().unwrap().pop()
    }

    fn give(&self, item: Item) -> Result<(), Item> {
        self.0.lock().unwrap().push(item);
        Ok(())
    }
}

struct Forgetful(Shelf, AtomicU64);

impl Store for Forgetful {
    fn take(&self) -> Option<Item> {
        self.0.take()
    }

    fn give(&self, item: Item) -> Result<(), Item> {
        if self.1.fetch_add(1, Ordering::Relaxed) == 5 { Ok(()) } else { self.0.give(item) }
    }
}

struct Doubling(Shelf);

impl Store for Doubling {
    fn take(&self) -> Option<Item> {
        self.0.take()
    }

    fn give(&self, item: Item) -> Result<(), Item> {
        self.0.give(Object::boxed(item.number))?;
        self.0.give(item)
    }
}

struct Full;

impl Store for Full {
    fn take(&self) -> Option<Item> {
        None
    }

    fn give(&self, item: Item) -> Result<(), Item> {
        Err(item)
    }
}

fn after_ten(store: impl Store) -> anyhow::Result<()> {
    let turns = turns(store)?;
    for _ in 0..2 {
        turns.work(0, 10);
        turns.check(10)?;
    }
    Ok(())
}

#[test]
fn what_is_lost_or_doubled_is_noticed() {
    after_ten(Shelf::default()).unwrap();
    after_ten(Full).unwrap();
    let lost = after_ten(Forgetful(Shelf::default(), AtomicU64::new(0))).unwrap_err();
    assert!(lost.to_string().contains("2 objects were made and 1 found"), "{lost}");
    let twice = after_ten(Doubling(Shelf::default())).unwrap_err();
    assert!(twice.to_string().contains("twice"), "{twice}");
}
