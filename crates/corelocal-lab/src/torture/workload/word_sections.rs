//! A word for each core, changed atomically; and locks, which are acquired by such a change.

use corelocal::cid::{Cid, CpuId, SlotIndex};
use corelocal::percpu::{Lock, Word};

use super::{Content, DONE, Model, Operands, Workload, workload};

/// The word that `store_if_equal` expects.
pub const EXPECTED: u64 = 7;

/// A part holds its word, or nothing if the word is 0.
pub const ADDED: Model = Model {
    operands: |_| Operands { target: 1, other: 1 << 20 },
    step: |part, n, result| {
        let sum = word(part) + n;
        set(part, sum);
        result == sum
    },
    look: |all| all.iter().sum(),
    parted: true,
};

pub const EXCHANGED: Model = Model {
    step: |part, n, result| {
        let old = word(part);
        set(part, n);
        result == old
    },
    ..ADDED
};

pub const STORED_IF_EQUAL: Model = Model {
    operands: |_| Operands { target: 101, other: 102 },
    step: |part, n, result| {
        let is_equal = word(part) == EXPECTED as i64;
        if is_equal {
            set(part, n);
        }
        result == i64::from(is_equal)
    },
    ..ADDED
};

fn word(part: &[i64]) -> i64 {
    part.first().copied().unwrap_or(0)
}

fn set(part: &mut Vec<i64>, word: i64) {
    part.clear();
    part.extend((word != 0).then_some(word));
}

/// The sum of all protected values. A thread that finds a lock held uses another part, so no thread waits.
const LOCKED: Model = Model {
    operands: |_| Operands { target: 1, other: 1 << 20 },
    step: |sum, n, result| {
        sum[0] += n;
        result == DONE
    },
    // A lock's owner may be changing the value.
    look: |_| 0,
    parted: false,
};
const HELD: i64 = -1;

macro_rules! word {
    ($name:literal, $index:ty, $by_cpu:literal, $model:expr, $object:ident, $n:ident, $operate:expr) => {
        workload! {
            $name, Word<$index>, $model, $by_cpu;
            begin(word, start) {
                *word = Word::new();
                word.add_fetch(start);
                content(word)
            };
            operate($object, $n) $operate;
            look(word) word.iter().map(|(_, word)| word as i64).sum();
            end(word) content(word);
        }
    };
}

macro_rules! lock {
    ($name:literal, $index:ty, $by_cpu:literal) => {
        workload! {
            $name, DefaultLock<$index>, LOCKED, $by_cpu;
            begin(lock, _) Content::of([lock.0.iter_mut().map(|sum| *sum).sum()]);
            operate(lock, n) match lock.0.try_lock() {
                Some(mut sum) => {
                    *sum += n;
                    DONE
                }
                None => HELD,
            };
            look(_lock) 0;
            end(lock) Content::of([lock.0.iter_mut().map(|sum| *sum).sum()]);
        }
    };
}

struct DefaultLock<I: SlotIndex>(Lock<i64, I>);

impl<I: SlotIndex> DefaultLock<I> {
    const fn new() -> Self {
        DefaultLock(Lock::new(|| 0))
    }
}

fn content<I: SlotIndex>(word: &Word<I>) -> Content {
    Content::of(word.iter().map(|(_, word)| word as i64).filter(|word| *word != 0))
}

pub fn workloads() -> Vec<Workload> {
    let stored = Workload {
        start: EXPECTED,
        ..word!("word-cpu/store-if-equal", CpuId, true, STORED_IF_EQUAL, word, n, {
            i64::from(word.store_if_equal(EXPECTED, n as u64).is_ok())
        })
    };
    let exchanged = word!("word-cpu/exchange", CpuId, true, EXCHANGED, word, n, {
        word.exchange(n as u64) as i64
    });
    let added = |workload| Workload { start: 5, ..workload };
    vec![
        stored,
        Workload { name: "word-cpu/store-mismatch", start: EXPECTED + 1, ..stored },
        added(exchanged),
        added(word!("word-cid/add-fetch", Cid, false, ADDED, word, n, {
            word.add_fetch(n as u64) as i64
        })),
        added(word!("word-cpu/add-fetch", CpuId, true, ADDED, word, n, {
            word.add_fetch(n as u64) as i64
        })),
        lock!("lock-cid/try-lock", Cid, false),
        lock!("lock-cpu/try-lock", CpuId, true),
    ]
}
