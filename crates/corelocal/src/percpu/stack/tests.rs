//! What cannot be reached from outside: the ways of threads without sections, and without memory.

use std::boxed::Box;
use std::format;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::string::{String, ToString};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::vec::Vec;

use super::ways::{push_batch_shared, push_shared};
use super::*;
use crate::cid::{self, CpuId};
use crate::percpu::machinery::lazy_block::Fallback;

/// What is left.
fn drained<T: Send + 'static, const CAPACITY: usize>(stack: &mut Stack<T, CAPACITY>) -> Vec<T> {
    stack.drain_mut().collect()
}

#[test]
fn what_a_stack_is() {
    let stack: Stack<u64, 5> = Stack::default();
    assert!(stack.is_empty() && stack.pop().is_none());
    assert_eq!((stack.capacity(), Stack::<u8>::new().capacity()), (5, 64));
    assert_eq!(stack.push(1), Ok(()));
    assert_eq!(format!("{stack:?}"), "Stack { len: 1, capacity: 5 }");
    assert_eq!(stack.drain(cid::capacity(), drop), Err(cid::Busy::NoSlot));
}

#[test]
fn no_capacity() {
    let stack: Stack<String, 0> = Stack::new();
    assert_eq!(stack.push("no".to_string()), Err(PushError("no".to_string())));
    let slot = stack.slots.share().expect("memory");
    assert!(push_shared(Fallback::Shared(slot), Words::new(String::new())).is_err());
    assert!(stack.pop().is_none());
}

#[test]
fn the_cpu_number_as_index() {
    let mut stack: Stack<Box<u8>, 2, CpuId> = Stack::new();
    assert!(stack.push(Box::new(3)).is_ok());
    assert_eq!(stack.drain_mut().next(), Some(Box::new(3)));
}

#[test]
fn a_shared_part_is_a_stack_too() {
    fn check<T: Send + Clone + PartialEq + fmt::Debug + 'static>(items: [T; 3]) {
        let stack: Stack<T, 3> = Stack::new();
        let slot = stack.slots.share().expect("memory");
        for _ in 0..3 {
            for item in &items {
                assert!(push_shared(Fallback::Shared(slot), Words::new(item.clone())).is_ok());
            }
            let full = push_shared(Fallback::Shared(slot), Words::new(items[0].clone()));
            // SAFETY: the item that was not pushed.
            assert_eq!(full.map_err(|rest| unsafe { rest.into_item() }), Err(items[0].clone()));
            assert_eq!(stack.len(), 3);
            for item in items.iter().rev() {
                assert_eq!(stack.pop_shared(Some(slot)).as_ref(), Some(item));
            }
            assert_eq!(stack.pop_shared(Some(slot)), None);
        }
    }
    check([1u8, 2, 3]);
    check([(); 3]);
    check(["a", "b", "c"]);
    check([1, 2, 3].map(|n| [n; 100]));
    check([1, 2, 3].map(|n| n.to_string()));
}

/// What a thread without sections left is found by others.
#[test]
fn registered_threads_find_what_is_shared() {
    let mut stack: Stack<u32, 4> = Stack::new();
    let slot = stack.slots.share().expect("memory");
    for n in 0..4 {
        assert!(slot.push_shared(Words::new(n)).is_ok());
    }
    assert_eq!(stack.pop(), Some(3));
    let mut batch: Batch<u32, 2> = Batch::new();
    assert_eq!(stack.pop_some(&mut batch), 2);
    assert!(batch.eq([2, 1]));
    assert_eq!(drained(&mut stack), [0]);
}

#[test]
fn batches_of_shared_parts() {
    let stack: Stack<u32, 5> = Stack::new();
    let slot = stack.slots.share().expect("memory");
    let mut batch: Batch<u32, 4> = Batch::new();
    batch.fill(0..);
    assert_eq!(push_batch_shared(slot, &mut batch), 4);
    batch.fill(4..);
    assert_eq!(push_batch_shared(slot, &mut batch), 1);
    // What stays is in order: the first one was taken.
    assert_eq!(batch.len(), 3);
    assert_eq!(stack.pop_batch_shared(Some(slot), 1, &mut batch), 1);
    assert!(batch.by_ref().eq([4, 7, 6, 5]));
    assert_eq!(stack.pop_batch_shared(Some(slot), 4, &mut batch), 4);
    assert!(batch.eq([3, 2, 1, 0]));
}

#[test]
fn without_memory_it_is_full() {
    assert!(push_shared::<u32, 5>(Fallback::Unbound, Words::new(1)).is_err());
}

/// Every item is dropped once, whichever part it is in, though one drop panics.
#[test]
fn panicking_drops() {
    struct Bomb(Arc<AtomicUsize>, usize);
    impl Drop for Bomb {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
            assert!(self.1 != 3, "a bomb");
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let stack: Stack<Bomb, 16> = Stack::new();
    let slot = stack.slots.share().expect("memory");
    for n in 0..6 {
        assert!(stack.push(Bomb(dropped.clone(), n)).is_ok());
        assert!(slot.push_shared(Words::new(Bomb(dropped.clone(), 10 + n))).is_ok());
    }
    assert!(catch_unwind(AssertUnwindSafe(|| drop(stack))).is_err());
    assert_eq!(dropped.load(Ordering::Relaxed), 12);
    assert_eq!(Arc::strong_count(&dropped), 1);
}

/// A closure that panics keeps the item it got, and no other.
#[test]
fn panicking_drains() {
    let stack: Stack<Arc<()>, 8> = Stack::new();
    let item = Arc::new(());
    let slot = stack.slots.share().expect("memory");
    for _ in 0..8 {
        assert!(slot.push_shared(Words::new(item.clone())).is_ok());
    }
    let drain = || stack.drain_all(|_| panic!("enough"));
    assert!(catch_unwind(AssertUnwindSafe(drain)).is_err());
    assert_eq!((Arc::strong_count(&item), stack.len()), (8, 7));
    assert!(stack.push(item.clone()).is_ok());
    // Refused without membarrier; and a slot that is frozen elsewhere may be busy.
    if stack.drain_all(drop).is_ok() {
        assert_eq!((Arc::strong_count(&item), stack.len()), (1, 0));
    }
}
