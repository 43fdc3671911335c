//! Queues: items of one word, and items so long that a segment holds five.

use corelocal::cid::{Cid, CpuId};
use corelocal::percpu::Queue;

use super::items::{Item, NONE, PUSH, RING, TAKE, number, pushed, with};
use super::{Content, DONE, Model, Workload, workload};

/// Five items of this length fill a segment.
type Long = [i64; 100];
const FULL: usize = 5;

/// The content lists items in the order in which they come out. There is always room.
const QUEUE: Model = Model {
    step: |part, n, result| match n {
        TAKE if part.is_empty() => result == NONE,
        TAKE => result == part.remove(0),
        _ => {
            part.push(n);
            result == DONE
        }
    },
    look: |all| i64::from(all.is_empty()),
    ..RING
};

macro_rules! queue {
    ($name:literal, $item:ty, $index:ty, $by_cpu:literal) => {
        workload! {
            $name, Queue<$item, $index>, QUEUE, $by_cpu;
            begin(queue, start) {
                *queue = Queue::new();
                (1..=start as i64).for_each(|n| _ = queue.push(Item::of(n)));
                Content::of(1..=start as i64)
            };
            operate(queue, n) match n {
                TAKE => queue.try_pop().map_or(NONE, number),
                n => pushed(queue.push(Item::of(n))),
            };
            look(queue) i64::from(queue.is_empty());
            end(queue) Content::of(queue.drain().map(number));
        }
    };
}

pub fn workloads() -> Vec<Workload> {
    let word = queue!("queue-cpu/word", i64, CpuId, true);
    let long = queue!("queue-cpu/long", Long, CpuId, true);
    let by_id = queue!("queue-cid/long", Long, Cid, false);
    vec![
        with("queue-cpu/push", PUSH, PUSH, 2, word),
        with("queue-cpu/push-taken", PUSH, TAKE, 1, word),
        with("queue-cpu/push-first", PUSH, PUSH, 0, word),
        with("queue-cpu/push-first-taken", PUSH, TAKE, 0, word),
        with("queue-cpu/push-long", PUSH, PUSH, 2, long),
        with("queue-cpu/push-long-taken", PUSH, TAKE, 2, long),
        with("queue-cpu/push-long-linked", PUSH, PUSH, FULL, long),
        with("queue-cpu/push-long-linked-taken", PUSH, TAKE, FULL, long),
        with("queue-cid/push-long", PUSH, PUSH, FULL - 1, by_id),
    ]
}
