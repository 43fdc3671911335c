//! Queues that others offer, as contestants, and our own.

use std::sync::{Arc, Mutex, PoisonError, mpsc};

use corelocal::percpu;
use crossbeam_queue::SegQueue;

use super::relay::{Passing, Queue};

type Made = anyhow::Result<Arc<dyn Passing>>;

/// Returns the items from `pop` until it has none or gave `most`.
fn take(most: u64, mut pop: impl FnMut() -> Option<u64>, mut each: impl FnMut(u64)) {
    for _ in 0..most {
        match pop() {
            Some(item) => each(item),
            None => break,
        }
    }
}

// The ends of a channel live together here, so sending fails for none of them; if it did, the item
// would be missing in the end.

pub fn crossbeam_channel() -> Made {
    struct Channel(crossbeam_channel::Sender<u64>, crossbeam_channel::Receiver<u64>);
    impl Queue for Channel {
        fn push(&self, item: u64) {
            let _ = self.0.send(item);
        }

        fn drain(&self, most: u64, each: impl FnMut(u64)) {
            take(most, || self.1.try_recv().ok(), each);
        }
    }
    let (send, receive) = crossbeam_channel::unbounded();
    Ok(Arc::new(Channel(send, receive)))
}

pub fn flume() -> Made {
    struct Flume(flume::Sender<u64>, flume::Receiver<u64>);
    impl Queue for Flume {
        fn push(&self, item: u64) {
            let _ = self.0.send(item);
        }

        fn drain(&self, most: u64, each: impl FnMut(u64)) {
            take(most, || self.1.try_recv().ok(), each);
        }
    }
    let (send, receive) = flume::unbounded();
    Ok(Arc::new(Flume(send, receive)))
}

pub fn std_mpsc() -> Made {
    /// The receiver belongs to one thread at a time, which locks it once for many items.
    struct Mpsc(mpsc::Sender<u64>, Mutex<mpsc::Receiver<u64>>);
    impl Queue for Mpsc {
        fn push(&self, item: u64) {
            let _ = self.0.send(item);
        }

        fn drain(&self, most: u64, each: impl FnMut(u64)) {
            let receive = self.1.lock().unwrap_or_else(PoisonError::into_inner);
            take(most, || receive.try_recv().ok(), each);
        }
    }
    let (send, receive) = mpsc::channel();
    Ok(Arc::new(Mpsc(send, Mutex::new(receive))))
}

pub fn seg_queue() -> Made {
    struct Seg(SegQueue<u64>);
    impl Queue for Seg {
        fn push(&self, item: u64) {
            self.0.push(item);
        }

        fn drain(&self, most: u64, each: impl FnMut(u64)) {
            take(most, || self.0.pop(), each);
        }
    }
    Ok(Arc::new(Seg(SegQueue::new())))
}

pub fn ours() -> Made {
    struct Ours(percpu::Queue<u64>);
    impl Queue for Ours {
        fn push(&self, item: u64) {
            // Without memory: missing in the end, as above.
            let _ = self.0.push(item);
        }

        fn drain(&self, most: u64, each: impl FnMut(u64)) {
            take(most, || self.0.try_pop(), each);
        }
    }
    Ok(Arc::new(Ours(percpu::Queue::new())))
}
