//! Stacks with a limit, as in a malloc's per-core caches: the operations of a stack, except that the item on top is
//! not pushed a second time. Some count what they take.

use corelocal::alloc::testing::Limited;
use corelocal::cid::{Cid, CpuId};

use super::items::{CAPACITY, NONE, PUSH, STACK, TAKE, with};
use super::{Content, DONE, Model, Operands, Workload, workload};

/// Like a stack, except that the same item is not pushed twice in a row.
const LIMITED: Model = Model {
    step: |part, n, result| match part.first() {
        Some(top) if *top == n => result == NONE,
        _ => (STACK.step)(part, n, result),
    },
    ..STACK
};

/// The number of items with which the guess of the top is missing.
const UNGUESSED: usize = 3;

/// The number of items with which the counted ones are used up: the next counted take must draw a new number.
const NONE_LEFT: usize = 4;

/// Both push the same item. If they are on one core, one of them fails.
const TWICE: Model = Model { operands: |_| Operands { target: PUSH, other: PUSH }, ..LIMITED };

macro_rules! limited {
    ($name:literal, $index:ty, $by_cpu:literal, $pop:ident) => {
        workload! {
            $name, Limited<$index>, LIMITED, $by_cpu;
            begin(stack, start) {
                stack.reset(CAPACITY as u64);
                (1..=start).for_each(|n| _ = stack.push(n));
                if start == UNGUESSED as u64 {
                    stack.forget_tops();
                }
                if start == NONE_LEFT as u64 {
                    stack.leave_none();
                }
                Content::of((1..=start as i64).rev())
            };
            operate(stack, n) match n {
                TAKE => stack.$pop().map_or(NONE, |item| item as i64),
                n if stack.push(n as u64) => DONE,
                _ => NONE,
            };
            look(stack) stack.len() as i64;
            end(stack) Content::of(stack.drain_mut().map(|item| item as i64));
        }
    };
}

pub fn workloads() -> Vec<Workload> {
    let by_cpu = limited!("limited-cpu", CpuId, true, pop);
    let by_id = limited!("limited-cid", Cid, false, pop);
    let counted_by_cpu = limited!("counted-cpu", CpuId, true, pop_counted);
    let counted_by_id = limited!("counted-cid", Cid, false, pop_counted);
    vec![
        with("limited-cpu/push", PUSH, PUSH, 2, by_cpu),
        with("limited-cpu/push-full", PUSH, PUSH, CAPACITY, by_cpu),
        with("limited-cpu/push-popped", PUSH, TAKE, 2, by_cpu),
        Workload { name: "limited-cpu/push-twice", start: 2, model: TWICE, ..by_cpu },
        with("limited-cpu/pop", TAKE, TAKE, 2, by_cpu),
        with("limited-cpu/pop-unguessed", TAKE, TAKE, UNGUESSED, by_cpu),
        with("limited-cpu/pop-empty", TAKE, TAKE, 0, by_cpu),
        with("limited-cpu/pop-pushed", TAKE, PUSH, 1, by_cpu),
        with("limited-cid/push", PUSH, PUSH, 2, by_id),
        with("limited-cid/pop", TAKE, TAKE, 2, by_id),
        with("limited-cid/pop-unguessed", TAKE, TAKE, UNGUESSED, by_id),
        with("counted-cpu/pop", TAKE, TAKE, 2, counted_by_cpu),
        with("counted-cpu/pop-unguessed", TAKE, TAKE, UNGUESSED, counted_by_cpu),
        with("counted-cpu/pop-none-left", TAKE, TAKE, NONE_LEFT, counted_by_cpu),
        with("counted-cpu/pop-empty", TAKE, TAKE, 0, counted_by_cpu),
        with("counted-cpu/pop-pushed", TAKE, PUSH, 1, counted_by_cpu),
        with("counted-cid/pop", TAKE, TAKE, 2, counted_by_id),
        with("counted-cid/pop-unguessed", TAKE, TAKE, UNGUESSED, counted_by_id),
        with("counted-cid/pop-none-left", TAKE, TAKE, NONE_LEFT, counted_by_id),
    ]
}
