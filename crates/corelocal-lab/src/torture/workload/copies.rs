//! Values that readers copy: the critical section that loads a pointer and the words at it.

use corelocal::rcu::RcuCopy;

use super::{Content, DONE, Model, Operands, Workload, workload};

/// The first value, and the one that is stored in between.
const FIRST: i64 = 5;
const SECOND: i64 = 1 << 20;
/// The operand of a load. Others are stored.
const LOAD: i64 = 0;

const VALUE: Model = Model {
    operands: |_| Operands { target: LOAD, other: SECOND },
    step: |value, n, result| match n {
        LOAD => result == value[0],
        _ => {
            value[0] = n;
            result == DONE
        }
    },
    look: |value| value[0],
    parted: false,
};

/// A copy of `N` words, all the same.
struct Copy<const N: usize>(RcuCopy<[i64; N]>);

impl<const N: usize> Copy<N> {
    const fn new() -> Self {
        Copy(RcuCopy::new([FIRST; N]))
    }

    /// Returns the value; 0 if the words differ.
    #[inline(always)]
    fn load(&self) -> i64 {
        let words = self.0.load();
        if words == [words[0]; N] { words[0] } else { 0 }
    }

    /// A store is async-signal-safe here, since what it disturbs is a load.
    fn store(&self, n: i64) -> i64 {
        self.0.store([n; N]);
        DONE
    }
}

macro_rules! copies {
    ($($name:literal $words:literal)+) => {
        [$(workload! {
            $name, Copy<$words>, VALUE, false;
            begin(copy, _) {
                copy.store(FIRST);
                Content::of([FIRST])
            };
            operate(copy, n) if n == LOAD { copy.load() } else { copy.store(n) };
            look(copy) copy.load();
            end(copy) Content::of([copy.load()]);
        }),+]
    };
}

pub fn workloads() -> Vec<Workload> {
    let of = copies!["rcu-copy/8" 1 "rcu-copy/16" 2 "rcu-copy/32" 4 "rcu-copy/64" 8];
    // Nothing is stored.
    of.map(|workload| Workload { to_slot: false, ..workload }).into()
}
