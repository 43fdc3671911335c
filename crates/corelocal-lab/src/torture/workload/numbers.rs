//! Objects that hold one value, independent of cores: counters, maxima, histograms.

use corelocal::cid::{Cid, CpuId, SlotIndex};
use corelocal::percpu::{Counter, CounterVec, Histogram, Max};

use super::{Content, DONE, Model, Operands, Workload, workload};

/// The sum of all additions.
const SUM: Model = Model {
    operands: |_| Operands { target: 1, other: 1 << 20 },
    step: |sum, n, result| {
        sum[0] = sum[0].wrapping_add(n);
        result == DONE
    },
    look: |all| all[0],
    parted: false,
};

/// Several sums, one of which is added to.
const SUMS: Model = Model {
    step: |sums, n, result| {
        sums[ADDED_TO] = sums[ADDED_TO].wrapping_add(n);
        result == DONE
    },
    look: |all| all[ADDED_TO],
    ..SUM
};
const ADDED_TO: usize = 2;

/// The largest recorded value.
const LARGEST: Model = Model {
    // The rival records a greater value: a later store by the target would hide it.
    operands: |all| Operands { target: all[0] + 1, other: all[0] + 2 },
    step: |largest, n, result| {
        largest[0] = largest[0].max(n);
        result == DONE
    },
    look: |all| all[0],
    parted: false,
};

/// The target records a value that is not a new maximum; the rival records one that is.
const NOT_GREATER: Model =
    Model { operands: |all| Operands { target: all[0] - 1, other: all[0] + 1 }, ..LARGEST };

/// The recorded values in order, each followed by its count.
const FREQUENCIES: Model = Model {
    operands: |_| Operands { target: 5, other: 5 },
    step: |counts, value, result| {
        match counts.chunks_exact_mut(2).find(|bucket| bucket[0] == value) {
            Some(bucket) => bucket[1] += 1,
            None => {
                let at = counts.chunks_exact(2).take_while(|bucket| bucket[0] < value).count();
                counts.splice(2 * at..2 * at, [value, 1]);
            }
        }
        result == DONE
    },
    look: |counts| counts.chunks_exact(2).map(|bucket| bucket[1]).sum(),
    parted: false,
};

macro_rules! counter {
    ($name:literal, $index:ty, $by_cpu:literal) => {
        workload! {
            $name, Counter<$index>, SUM, $by_cpu;
            begin(counter, _) Content::of([counter.get()]);
            operate(counter, n) { counter.add(n); DONE };
            look(counter) counter.get();
            end(counter) Content::of([counter.get()]);
        }
    };
}

/// The victim adds 1 by the section for that.
macro_rules! incremented {
    ($name:literal, $index:ty, $by_cpu:literal) => {
        workload! {
            $name, Counter<$index>, SUM, $by_cpu;
            begin(counter, _) Content::of([counter.get()]);
            operate(counter, n) { if n == 1 { counter.increment() } else { counter.add(n) }; DONE };
            look(counter) counter.get();
            end(counter) Content::of([counter.get()]);
        }
    };
}

macro_rules! max {
    ($name:literal, $index:ty, $by_cpu:literal) => {
        workload! {
            $name, Max<$index>, LARGEST, $by_cpu;
            begin(max, _) Content::of([largest(max)]);
            operate(max, n) { max.record(n.max(0).unsigned_abs()); DONE };
            look(max) largest(max);
            end(max) Content::of([largest(max)]);
        }
    };
}

macro_rules! histogram {
    ($name:literal, $index:ty, $by_cpu:literal) => {
        workload! {
            $name, Histogram<5, $index>, FREQUENCIES, $by_cpu;
            begin(histogram, _) {
                histogram.reset();
                [3, 5, 8].into_iter().for_each(|value| histogram.record(value));
                frequencies(histogram)
            };
            operate(histogram, n) { histogram.record(n.unsigned_abs()); DONE };
            look(histogram) histogram.count() as i64;
            end(histogram) frequencies(histogram);
        }
    };
}

fn largest<I: SlotIndex>(max: &Max<I>) -> i64 {
    max.get().map_or(0, |largest| largest as i64)
}

fn frequencies<I: SlotIndex>(histogram: &Histogram<5, I>) -> Content {
    let buckets = histogram.buckets();
    Content::of(buckets.flat_map(|bucket| [bucket.low as i64, bucket.count as i64]))
}

pub fn workloads() -> Vec<Workload> {
    let recorded = max!("max-cid/record", Cid, false);
    let vec = workload! {
        "counter-vec-cpu/add", CounterVec<4, CpuId>, SUMS, true;
        begin(vec, _) Content::of(vec.iter());
        operate(vec, n) { let _ = vec.add(ADDED_TO, n); DONE };
        look(vec) vec.get(ADDED_TO).unwrap_or(-1);
        end(vec) Content::of(vec.iter());
    };
    vec![
        counter!("counter-cid/add", Cid, false),
        counter!("counter-cpu/add", CpuId, true),
        incremented!("counter-cid/increment", Cid, false),
        incremented!("counter-cpu/increment", CpuId, true),
        vec,
        recorded,
        max!("max-cpu/record", CpuId, true),
        // The same copy of the section, whose commit only the other workload reaches.
        Workload { name: "max-cid/mismatch", model: NOT_GREATER, ..recorded },
        histogram!("histogram-cid/record", Cid, false),
        histogram!("histogram-cpu/record", CpuId, true),
    ]
}
