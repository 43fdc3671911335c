//! Loom models of the queue for threads without critical sections.

use super::*;
use loom::sync::Arc;
use loom::thread;
use std::vec::Vec;

/// Two threads push to a shared slot while a third one takes: each item comes out once, in its thread's order. Loom
/// checks the nodes for races.
#[test]
fn loom_queue_conserves_items() {
    crate::explore::within(3, || {
        let queue = Arc::new(Queue::<u32>::new());
        let other = queue.clone();
        let pusher = thread::spawn(move || (1..3).for_each(|n| other.push(n).unwrap()));
        queue.push(9).unwrap();
        let mut taken: Vec<u32> = queue.drain().collect();
        pusher.join().unwrap();
        taken.extend(queue.drain());
        assert_eq!(taken.iter().filter(|n| **n == 9).count(), 1);
        taken.retain(|n| *n != 9);
        assert_eq!(taken, [1, 2]);
    });
}

/// Two consumers: each item goes to one of them.
#[test]
fn loom_two_consumers_share() {
    loom::model(|| {
        let queue = Arc::new(Queue::<u32>::new());
        queue.push(1).unwrap();
        queue.push(2).unwrap();
        let other = queue.clone();
        let consumer = thread::spawn(move || other.try_pop());
        let mut taken: Vec<u32> = queue.try_pop().into_iter().collect();
        taken.extend(consumer.join().unwrap());
        taken.extend(queue.drain());
        taken.sort_unstable();
        assert_eq!(taken, [1, 2]);
    });
}

/// A consumer that sleeps, or is about to, gets what is pushed.
#[test]
fn loom_a_sleeping_consumer_is_woken() {
    crate::explore::within(3, || {
        let queue = Arc::new(Queue::<u32>::new());
        let other = queue.clone();
        let pusher = thread::spawn(move || other.push(7).unwrap());
        assert_eq!(queue.pop(), 7);
        pusher.join().unwrap();
    });
}
