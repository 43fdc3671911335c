//! Mutexes: the section that lets go of one for which nobody waits.

use corelocal::sync::Mutex;

use super::{Content, DONE, Model, Operands, Workload, workload};

const HELD: i64 = -1;

/// The value behind the mutex, and whether that is held. Who comes while somebody is in the middle of an
/// operation goes away again.
const LOCKED: Model = Model {
    operands: |_| Operands { target: 1, other: 1 << 20 },
    step: |all, n, result| {
        all[0] += if result == DONE { n } else { 0 };
        result == DONE || result == HELD
    },
    // Whoever holds it may be changing the value.
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
    // The word of a mutex is where it is.
    vec![Workload { to_slot: false, ..unlocked }]
}

struct Zero(Mutex<i64>);

impl Zero {
    const fn new() -> Zero {
        Zero(Mutex::new(0))
    }
}
