//! The lock in random scripts, beside a naive model.

use corelocal::cid::{self, Busy};
use corelocal::percpu::Lock;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Add(u64),
    AddTwice(u64),
    AddAt(u32, u64),
    TryAt(u32, u64),
    Visit,
    Mutate,
    Freeze(u32),
    Replace,
}

fn op() -> impl Strategy<Value = Op> {
    let n = 0..1000u64;
    let slot = 0..4u32;
    prop_oneof![
        n.clone().prop_map(Op::Add),
        n.clone().prop_map(Op::AddTwice),
        (slot.clone(), n.clone()).prop_map(|(slot, n)| Op::AddAt(slot, n)),
        (slot.clone(), n).prop_map(|(slot, n)| Op::TryAt(slot, n)),
        Just(Op::Visit),
        Just(Op::Mutate),
        slot.prop_map(Op::Freeze),
        Just(Op::Replace),
    ]
}

proptest! {
    // The failing script is printed; there is no file of them to keep beside a `tests/*.rs`.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever part is used, the sum over all is that of a plain integer.
    #[test]
    fn parts_add_up(script in proptest::collection::vec(op(), 1..100)) {
        let mut lock: Lock<u64> = Lock::default();
        let mut model = 0;
        for op in script {
            match op {
                Op::Add(n) => {
                    *lock.lock() += n;
                    model += n;
                }
                Op::AddTwice(n) => {
                    let mut first = lock.lock();
                    if let Some(mut second) = lock.try_lock() {
                        *second += n;
                        model += n;
                    }
                    *first += n;
                    model += n;
                }
                Op::AddAt(slot, n) => match lock.lock_slot(slot) {
                    Ok(mut value) => {
                        *value += n;
                        model += n;
                    }
                    Err(busy) => prop_assert!(matches!(busy, Busy::NoSlot | Busy::Fence(_)), "{}", busy),
                },
                Op::TryAt(slot, n) => {
                    if let Ok(Some(mut value)) = lock.try_lock_slot(slot) {
                        *value += n;
                        model += n;
                    }
                }
                Op::Visit => {
                    let mut sum = 0;
                    if lock.for_each_locked(|_, value| sum += *value).is_ok() {
                        prop_assert_eq!(sum, model);
                    }
                }
                Op::Mutate => prop_assert_eq!(lock.iter_mut().map(|value| *value).sum::<u64>(), model),
                Op::Freeze(slot) => drop(cid::freeze(slot)),
                Op::Replace => {
                    lock = Lock::default();
                    model = 0;
                }
            }
        }
    }
}
