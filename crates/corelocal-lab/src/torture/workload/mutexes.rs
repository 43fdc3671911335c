//! Mutexes: the critical section that unlocks an uncontended one.

use corelocal::sync::Mutex;

use super::{Content, DONE, Model, Operands, Workload, workload};

const HELD: i64 = -1;

/// The protected value, and whether the mutex is locked. A thread that finds it locked gives up.
const LOCKED: Model = Model {
    operands: |_| Operands { target: 1, other: 1 << 20 },
    step: |all, n, result| {
        all[0] += if result == DONE { n } else { 0 };
        result == DONE || result == HELD
    },
    // Its owner may be changing the value.
    look: |_| 0,
    parted: false,
};

pub fn workloads() -> Vec<Workload> {
    let unlocked = workload! {
        "mutex/unlock", Zero, LOCKED, false;
        begin(mutex, _) {
            *mutex = Zero::new();
            Content::of([0, 0])
        };
        operate(mutex, n) match mutex.0.try_lock() {
            Some(mut sum) => {
                *sum += n;
                DONE
            }
            None => HELD,
        };
        look(_mutex) 0;
        end(mutex) {
            let is_held = mutex.0.try_lock().is_none();
            Content::of([*mutex.0.get_mut(), i64::from(is_held)])
        };
    };
    // A mutex's word is not in a slot.
    vec![Workload { to_slot: false, ..unlocked }]
}

struct Zero(Mutex<i64>);

impl Zero {
    const fn new() -> Zero {
        Zero(Mutex::new(0))
    }
}
