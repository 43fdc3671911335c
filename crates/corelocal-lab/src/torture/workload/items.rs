//! Stacks and rings: items that are pushed and taken one by one, of one word and of three.
//!
//! The same operation pushes or takes, depending on its operand. So a push can be disturbed by a pop.

use std::array;

use corelocal::cid::{Cid, CpuId};
use corelocal::percpu::{Ring, Stack};

use super::{Content, DONE, Model, Operands, Workload, workload};

/// The number of items that a part holds.
pub const CAPACITY: usize = 4;

/// The operand for a take.
pub const TAKE: i64 = -2;
/// An item to push.
pub const PUSH: i64 = 101;
/// The result of a take without an item, or of a push without room.
pub const NONE: i64 = -1;

/// The content lists items from the top down.
pub const STACK: Model = Model {
    operands: |_| Operands { target: PUSH, other: PUSH + 1 },
    step: |part, n, result| match n {
        TAKE if part.is_empty() => result == NONE,
        TAKE => result == part.remove(0),
        _ if part.len() == CAPACITY => result == NONE,
        _ => {
            part.insert(0, n);
            result == DONE
        }
    },
    look: |all| all.len() as i64,
    parted: true,
};

/// The content lists items in the order in which they come out. Consumers go round the parts.
pub const RING: Model = Model {
    step: |part, n, result| match n {
        TAKE if part.is_empty() => result == NONE,
        TAKE => result == part.remove(0),
        _ if part.len() == CAPACITY => result == NONE,
        _ => {
            part.push(n);
            result == DONE
        }
    },
    ..STACK
};

/// An item: as long as its section requires, with different words.
pub trait Item: Send + Copy + 'static {
    fn of(n: i64) -> Self;
    /// Returns `None` if the words belong to different items.
    fn number(self) -> Option<i64>;
}

impl Item for i64 {
    fn of(n: i64) -> i64 {
        n
    }

    fn number(self) -> Option<i64> {
        Some(self)
    }
}

impl<const WORDS: usize> Item for [i64; WORDS] {
    fn of(n: i64) -> [i64; WORDS] {
        array::from_fn(|word| n + 1000 * word as i64)
    }

    fn number(self) -> Option<i64> {
        let n = *self.first()?;
        (self == Self::of(n)).then_some(n)
    }
}

/// Returns an item as a number. A torn item yields a number that was never pushed.
pub fn number(item: impl Item) -> i64 {
    item.number().unwrap_or(i64::MIN)
}

pub fn pushed<T>(result: Result<(), T>) -> i64 {
    if result.is_ok() { DONE } else { NONE }
}

macro_rules! items {
    ($name:literal, $type:ident<$item:ty, $index:ty>, $model:expr, $by_cpu:literal, $filled:expr, $all:expr) => {
        workload! {
            $name, $type<$item, CAPACITY, $index>, $model, $by_cpu;
            begin(object, start) {
                *object = $type::new();
                (1..=start as i64).for_each(|n| _ = object.push(Item::of(n)));
                $filled(start as i64)
            };
            operate(object, n) match n {
                TAKE => object.pop().map_or(NONE, number),
                n => pushed(object.push(Item::of(n))),
            };
            look(object) object.len() as i64;
            end(object) $all(object);
        }
    };
}

macro_rules! stack {
    ($name:literal, $item:ty, $index:ty, $by_cpu:literal) => {
        items!(
            $name,
            Stack<$item, $index>,
            STACK,
            $by_cpu,
            |n: i64| Content::of((1..=n).rev()),
            |stack: &mut Stack<$item, CAPACITY, $index>| Content::of(stack.drain_mut().map(number))
        )
    };
}

macro_rules! ring {
    ($name:literal, $item:ty, $index:ty, $by_cpu:literal) => {
        items!(
            $name,
            Ring<$item, $index>,
            RING,
            $by_cpu,
            |n: i64| Content::of(1..=n),
            |ring: &mut Ring<$item, CAPACITY, $index>| {
                let mut content = Content::default();
                ring.drain(|item| content.push(number(item)));
                content
            }
        )
    };
}

/// As a workload, with a push or a take disturbed by a push or a take.
pub fn with(
    name: &'static str,
    target: i64,
    other: i64,
    start: usize,
    workload: Workload,
) -> Workload {
    let operands: fn(&[i64]) -> Operands = match (target, other) {
        (TAKE, TAKE) => |_| Operands { target: TAKE, other: TAKE },
        (TAKE, _) => |_| Operands { target: TAKE, other: PUSH },
        (_, TAKE) => |_| Operands { target: PUSH, other: TAKE },
        _ => workload.model.operands,
    };
    let model = Model { operands, ..workload.model };
    Workload { name, start: start as u64, model, ..workload }
}

pub fn workloads() -> Vec<Workload> {
    let word = stack!("stack-cpu/word", i64, CpuId, true);
    let long = stack!("stack-cpu/long", [i64; 3], CpuId, true);
    let by_id = stack!("stack-cid/word", i64, Cid, false);
    let long_by_id = stack!("stack-cid/long", [i64; 3], Cid, false);
    let ring = ring!("ring-cpu/word", i64, CpuId, true);
    let long_ring = ring!("ring-cpu/long", [i64; 3], CpuId, true);
    let ring_by_id = ring!("ring-cid/word", i64, Cid, false);
    vec![
        with("stack-cpu/push", PUSH, PUSH, 2, word),
        with("stack-cpu/push-full", PUSH, PUSH, CAPACITY, word),
        with("stack-cpu/push-popped", PUSH, TAKE, 2, word),
        with("stack-cpu/pop", TAKE, TAKE, 2, word),
        with("stack-cpu/pop-empty", TAKE, TAKE, 0, word),
        with("stack-cpu/pop-pushed", TAKE, PUSH, 1, word),
        with("stack-cpu/push-long", PUSH, PUSH, 2, long),
        with("stack-cpu/push-long-full", PUSH, PUSH, CAPACITY, long),
        with("stack-cpu/push-long-popped", PUSH, TAKE, 2, long),
        with("stack-cpu/pop-long", TAKE, TAKE, 2, long),
        with("stack-cpu/pop-long-empty", TAKE, TAKE, 0, long),
        with("stack-cpu/pop-long-pushed", TAKE, PUSH, 1, long),
        with("stack-cid/push", PUSH, PUSH, 2, by_id),
        with("stack-cid/pop", TAKE, TAKE, 2, by_id),
        with("stack-cid/push-long", PUSH, PUSH, 2, long_by_id),
        with("stack-cid/pop-long", TAKE, TAKE, 2, long_by_id),
        with("ring-cpu/push", PUSH, PUSH, 2, ring),
        with("ring-cpu/push-full", PUSH, PUSH, CAPACITY, ring),
        with("ring-cpu/push-taken", PUSH, TAKE, CAPACITY, ring),
        with("ring-cpu/push-long", PUSH, PUSH, 2, long_ring),
        with("ring-cpu/push-long-full", PUSH, PUSH, CAPACITY, long_ring),
        with("ring-cpu/push-long-taken", PUSH, TAKE, CAPACITY, long_ring),
        with("ring-cid/push", PUSH, PUSH, 2, ring_by_id),
    ]
}
