//! Tests of the queue's components; `tests/queue.rs` tests the whole under stress.

use super::*;
use std::boxed::Box;
use std::format;
use std::vec::Vec;

fn shared<T>(queue: &Queue<T>) -> &'static Slot {
    queue.slots.share().expect("memory")
}

#[test]
fn sizes() {
    assert_eq!((size_of::<Queue<u8>>(), size_of::<Slot>()), (128, 128));
}

#[test]
fn first_in_first_out() {
    let queue: Queue<u32, crate::cid::CpuId> = Queue::new();
    assert!(queue.is_empty() && queue.try_pop().is_none());
    for n in 0..10_000 {
        queue.push(n).unwrap();
    }
    assert!(!queue.is_empty());
    assert_eq!(format!("{queue:?}"), "Queue { is_empty: false, .. }");
    let mut items: Vec<u32> = queue.drain().collect();
    // The thread may have been migrated; a slot's items are in order.
    items.sort_unstable();
    assert!(items.into_iter().eq(0..10_000));
    assert!(queue.is_empty());
}

/// What a thread pushes to one slot stays in order.
#[test]
fn a_slot_is_in_order() {
    let queue: Queue<[u64; 3]> = Queue::new();
    for n in 0..5_000 {
        queue.push([n, n + 1, n + 2]).unwrap();
    }
    let mut count = 0;
    for slot in queue.slots.slots().chain(queue.slots.shared()) {
        let mut last = None;
        // SAFETY: the queue's items.
        while let Some(words) = unsafe { slot.pop::<[u64; 3]>() } {
            // SAFETY: taken once.
            let item = unsafe { words.into_item() };
            assert!(last < Some(item[0]) && item == [item[0], item[0] + 1, item[0] + 2]);
            last = Some(item[0]);
            count += 1;
        }
        assert!(slot.is_empty() && slot.seems_empty());
    }
    assert_eq!(count, 5_000);
}

/// What unregistered threads do, over many segments of nodes.
#[test]
fn shared_slots() {
    let queue: Queue<Box<u64>> = Queue::new();
    let slot = shared(&queue);
    for round in 0..50 {
        for n in 0..100 {
            assert!(slot.push_shared(Words::new(Box::new(round * 100 + n))).is_ok());
        }
        for n in 0..90 {
            assert_eq!(queue.try_pop(), Some(Box::new(round * 90 + n)));
        }
    }
    assert_eq!(queue.drain().count(), 500);
    assert!(queue.is_empty());
    assert!(slot.push_shared(Words::new(Box::new(1))).is_ok());
}

#[test]
fn threads_share_a_slot() {
    let queue: Queue<(u32, u32)> = Queue::new();
    let slot = shared(&queue);
    let items: Vec<(u32, u32)> = std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || {
                for n in 0..20_000 {
                    assert!(slot.push_shared(Words::new((thread, n))).is_ok());
                }
            });
        }
        core::iter::from_fn(|| {
            loop {
                if let Some(item) = queue.try_pop() {
                    return Some(item);
                }
                std::thread::yield_now();
            }
        })
        .take(60_000)
        .collect()
    });
    for thread in 0..3 {
        let own = items.iter().filter(|item| item.0 == thread).map(|item| item.1);
        assert!(own.eq(0..20_000));
    }
}

/// One consumer at a time; the others find no item, but do not take the queue for empty.
#[test]
fn a_busy_slot_is_passed_over() {
    let queue: Queue<u8> = Queue::new();
    let slot = shared(&queue);
    assert!(slot.push_shared(Words::new(1_u8)).is_ok());
    slot.with_lock_held(|| {
        assert_eq!(queue.try_pop(), None);
        assert!(!queue.is_empty());
    });
    assert_eq!(queue.try_pop(), Some(1));
}

#[test]
fn no_memory_gives_the_item_back() {
    let queue: Queue<u8> = Queue::new();
    let rest = queue.push_cold(Err(Fallback::Unbound), Words::new(7)).expect_err("no memory");
    // SAFETY: made of an item, taken once.
    assert_eq!(unsafe { rest.into_item() }, 7);
}
