//! Stacks with several items at a time: the sections that copy in a loop.

use corelocal::cid::CpuId;
use corelocal::percpu::{Batch, Stack};

use super::items::{CAPACITY, TAKE};
use super::{Content, Model, Operands, Workload, workload};

/// The number of items in a batch.
const BATCH: usize = 3;
/// The base in which one result encodes several items as digits.
const DIGITS: i64 = 256;

/// Pushes three items from the operand on, or takes up to three. The result of a push is how many fitted. That of a
/// take is the items, with the top one as the last digit.
const BATCHES: Model = Model {
    operands: |_| Operands { target: 101, other: 201 },
    step: |part, n, result| {
        if n == TAKE {
            let taken = part.drain(..part.len().min(BATCH)).rev();
            return result == taken.fold(0, |digits, item| digits * DIGITS + item);
        }
        let room = (CAPACITY - part.len()).min(BATCH);
        (n..).take(room).for_each(|item| part.insert(0, item));
        result == room as i64
    },
    look: |all| all.len() as i64,
    parted: true,
};

const TAKEN: Model = Model { operands: |_| Operands { target: TAKE, other: TAKE }, ..BATCHES };
const PUSHED_TAKEN: Model =
    Model { operands: |_| Operands { target: 101, other: TAKE }, ..BATCHES };
const TAKEN_PUSHED: Model =
    Model { operands: |_| Operands { target: TAKE, other: 201 }, ..BATCHES };

pub fn workloads() -> Vec<Workload> {
    let batch = workload! {
        "stack-cpu/push-some", Stack<i64, CAPACITY, CpuId>, BATCHES, true;
        begin(stack, start) {
            *stack = Stack::new();
            (1..=start as i64).for_each(|n| _ = stack.push(n));
            Content::of((1..=start as i64).rev())
        };
        operate(stack, n) {
            let mut batch: Batch<i64, BATCH> = Batch::new();
            if n == TAKE {
                stack.pop_some(&mut batch);
                // The top one comes first.
                let (mut digits, mut digit) = (0, 1);
                for item in batch {
                    digits += digit * item;
                    digit *= DIGITS;
                }
                digits
            } else {
                batch.fill(n..);
                stack.push_some(&mut batch) as i64
            }
        };
        look(stack) stack.len() as i64;
        end(stack) Content::of(stack.drain_mut());
    };
    let with = |name, start: usize, model| Workload { name, start: start as u64, model, ..batch };
    vec![
        with("stack-cpu/push-some", 0, BATCHES),
        with("stack-cpu/push-some-full", CAPACITY, BATCHES),
        with("stack-cpu/push-some-popped", 2, PUSHED_TAKEN),
        with("stack-cpu/pop-some", CAPACITY, TAKEN),
        with("stack-cpu/pop-some-empty", 0, TAKEN),
        with("stack-cpu/pop-some-pushed", 2, TAKEN_PUSHED),
    ]
}
