//! Pools that others offer, as contestants.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_queue::{ArrayQueue, SegQueue};
use parking_lot::Mutex;

use super::turns::{Item, Store, turns};
use crate::tables::checked::Made;

/// Room for an object of each thread and more.
const CAPACITY: usize = 1024;

pub fn in_mutex() -> Made {
    struct InMutex(Mutex<Vec<Item>>);
    impl Store for InMutex {
        fn take(&self) -> Option<Item> {
            self.0.lock().pop()
        }

        fn give(&self, item: Item) -> Result<(), Item> {
            self.0.lock().push(item);
            Ok(())
        }
    }
    turns(InMutex(Mutex::new(Vec::with_capacity(CAPACITY))))
}

pub fn in_object_pool() -> Made {
    struct InObjectPool(object_pool::Pool<Item>);
    impl Store for InObjectPool {
        fn take(&self) -> Option<Item> {
            self.0.try_pull().map(|item| item.detach().1)
        }

        fn give(&self, item: Item) -> Result<(), Item> {
            self.0.attach(item);
            Ok(())
        }
    }
    turns(InObjectPool(object_pool::Pool::from_vec(Vec::with_capacity(CAPACITY))))
}

pub fn in_array_queue() -> Made {
    struct InArrayQueue(ArrayQueue<Item>);
    impl Store for InArrayQueue {
        fn take(&self) -> Option<Item> {
            self.0.pop()
        }

        fn give(&self, item: Item) -> Result<(), Item> {
            self.0.push(item)
        }
    }
    turns(InArrayQueue(ArrayQueue::new(CAPACITY)))
}

pub fn in_seg_queue() -> Made {
    struct InSegQueue(SegQueue<Item>);
    impl Store for InSegQueue {
        fn take(&self) -> Option<Item> {
            self.0.pop()
        }

        fn give(&self, item: Item) -> Result<(), Item> {
            self.0.push(item);
            Ok(())
        }
    }
    turns(InSegQueue(SegQueue::new()))
}

/// Objects that went away with their threads, of all contestants of this kind: there is one.
static GONE: AtomicU64 = AtomicU64::new(0);

/// The objects of a thread.
struct Mine(Vec<Item>);

impl Drop for Mine {
    fn drop(&mut self) {
        // Relaxed: read after joining the thread.
        GONE.fetch_add(self.0.len() as u64, Ordering::Relaxed);
    }
}

thread_local! {
    static MINE: RefCell<Mine> = RefCell::new(Mine(Vec::with_capacity(CAPACITY)));
}

pub fn in_thread() -> Made {
    struct InThread;
    impl Store for InThread {
        fn take(&self) -> Option<Item> {
            MINE.with_borrow_mut(|mine| mine.0.pop())
        }

        fn give(&self, item: Item) -> Result<(), Item> {
            MINE.with_borrow_mut(|mine| mine.0.push(item));
            Ok(())
        }

        fn gone(&self) -> u64 {
            // Relaxed: the threads have been joined.
            GONE.swap(0, Ordering::Relaxed)
        }
    }
    turns(InThread)
}
