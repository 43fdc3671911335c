//! Operations of the library's containers, each with the sequential model it must agree with.
//!
//! Invariants:
//! - `operate` is never inlined: its copy of the section is one that only the target runs.
//! - The numbers of a pair of operands differ so much that a result tells which of them is missing.

use corelocal::cid::{Cid, CpuId};
use corelocal::percpu::{Counter, Max};

/// One operation on one object, which lives as long as the process.
#[derive(Clone, Copy)]
pub struct Workload {
    /// Its name in reports and on the command line.
    pub name: &'static str,
    /// The operation. Async-signal-safe.
    pub operate: fn(i64),
    /// The object's state as a number. Async-signal-safe.
    pub read: fn() -> i64,
    /// The sequential model: the state after the operation.
    pub after: fn(state: i64, operand: i64) -> i64,
    /// What to operate with in a state.
    pub operands: fn(state: i64) -> Operands,
    /// The section stores to the slot of the cpu it runs on.
    pub by_cpu: bool,
}

/// A pair of operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operands {
    /// Of the operation that is disturbed.
    pub target: i64,
    /// Of the one that disturbs it.
    pub other: i64,
}

fn add(name: &'static str, operate: fn(i64), read: fn() -> i64, by_cpu: bool) -> Workload {
    let after = i64::wrapping_add;
    let operands = |_| Operands { target: 1, other: 1 << 20 };
    Workload { name, operate, read, after, operands, by_cpu }
}

fn record(name: &'static str, operate: fn(i64), read: fn() -> i64, by_cpu: bool) -> Workload {
    // What the rival records is greater: a store that comes after its own would hide it.
    let operands = |state| Operands { target: state + 1, other: state + 2 };
    Workload { name, operate, read, after: larger, operands, by_cpu }
}

fn larger(state: i64, recorded: i64) -> i64 {
    state.max(recorded)
}

macro_rules! workload {
    ($make:ident, $name:literal, $type:ident<$index:ident>, $operate:ident, $by_cpu:literal) => {{
        static OBJECT: $type<$index> = $type::new();
        #[inline(never)]
        fn operate(operand: i64) {
            $operate(&OBJECT, operand);
        }
        fn read() -> i64 {
            State::state(&OBJECT)
        }
        $make($name, operate, read, $by_cpu)
    }};
}

/// The operations of the library that have a critical section.
pub fn library() -> Vec<Workload> {
    let recorded = workload!(record, "max-cid/record", Max<Cid>, store_greater, false);
    vec![
        workload!(add, "counter-cid/add", Counter<Cid>, add_to, false),
        workload!(add, "counter-cpu/add", Counter<CpuId>, add_to, true),
        recorded,
        workload!(record, "max-cpu/record", Max<CpuId>, store_greater, true),
        Workload {
            name: "max-cid/mismatch",
            // Not greater than what is there; the rival's is.
            operands: |state| Operands { target: state - 1, other: state + 1 },
            // The same copy of the section, whose commit only the other workload comes to.
            ..recorded
        },
    ]
}

#[inline(always)]
fn add_to<I: corelocal::cid::SlotIndex>(counter: &Counter<I>, n: i64) {
    counter.add(n);
}

#[inline(always)]
fn store_greater<I: corelocal::cid::SlotIndex>(max: &Max<I>, n: i64) {
    max.record(n.max(0).unsigned_abs());
}

/// A container's state as a number.
trait State {
    fn state(&self) -> i64;
}

impl<I: corelocal::cid::SlotIndex> State for Counter<I> {
    fn state(&self) -> i64 {
        self.get()
    }
}

impl<I: corelocal::cid::SlotIndex> State for Max<I> {
    fn state(&self) -> i64 {
        self.get().map_or(0, |largest| largest as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_agree_with_their_models() {
        for workload in library() {
            for _ in 0..3 {
                let before = (workload.read)();
                let Operands { target, other } = (workload.operands)(before);
                (workload.operate)(target);
                let between = (workload.read)();
                assert_eq!(between, (workload.after)(before, target), "{}", workload.name);
                (workload.operate)(other);
                assert_eq!(
                    (workload.read)(),
                    (workload.after)(between, other),
                    "{}",
                    workload.name
                );
            }
        }
    }
}
