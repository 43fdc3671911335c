//! Sections on rings and queues. Their consumers run on other cores: commits are `stlr`, whose partners are the Acquire
//! loads of the tail (`percpu/ring/slot.rs`, `take`) and of the end (`percpu/queue/slot/consume.rs`, `go_on`).

use core::mem::MaybeUninit;

use crate::rseq::{Exit, Index, SEGMENT, Slots};

/// For rings: loads `tail` and leaves for `mismatch` if no place is free. The head is loaded by `ldar`, whose partner
/// is the consumer's Release: its loads of the items come before the stores here.
macro_rules! ring_place {
    () => {
        concat!(
            "ldr {tail}, [{scratch}]\n",
            "add {place}, {scratch}, #64\n",
            "ldar {place}, [{place}]\n",
            "sub {place}, {tail}, {place}\n",
            "cmp {place}, {mask}\n",
            "b.hi 36f\n",
            "and {place}, {tail}, {mask}\n",
            "add {tail}, {tail}, #1\n",
        )
    };
}

/// For queues: loads `end` and leaves for `mismatch` by this condition on whether its segment ends there.
macro_rules! queue_end {
    ($condition:literal) => {
        concat!(
            "ldr {end}, [{scratch}]\n",
            "tst {end}, #{segment} - 1\n",
            "b.",
            $condition,
            " 36f\n"
        )
    };
}

functions! {
    fn ring_push(index, object, item: MaybeUninit<u64>, mask: u64) -> Exit {
        section!(
            index,
            object,
            ring_place!(),
            "add {place}, {scratch}, {place}, lsl #3",
            prepare!("str {item}, [{place}, #128]"),
            "stlr {tail}, [{scratch}]";
            item = in(reg) item, mask = in(reg) mask, tail = out(reg) _,
        )
    }

    fn ring_push_words(index, object, from: *const MaybeUninit<u64>, n: u64, mask: u64) -> Exit {
        section!(
            index,
            object,
            ring_place!(),
            "mul {place}, {place}, {n}",
            "add {place}, {scratch}, {place}, lsl #3",
            "add {place}, {place}, #128",
            "mov {left}, {n}",
            "37:",
            "sub {left}, {left}, #1",
            "ldr {word}, [{from}, {left}, lsl #3]",
            prepare!("str {word}, [{place}, {left}, lsl #3]"),
            "cbnz {left}, 37b",
            "stlr {tail}, [{scratch}]";
            from = in(reg) from, n = in(reg) n, mask = in(reg) mask,
            tail = out(reg) _, left = out(reg) _, word = out(reg) _,
        )
    }

    fn queue_push(index, object, item: MaybeUninit<u64>) -> Exit {
        section!(
            index,
            object,
            queue_end!("eq"),
            prepare!("str {item}, [{end}]"),
            "add {end}, {end}, #8",
            "stlr {end}, [{scratch}]";
            item = in(reg) item, end = out(reg) _, segment = const SEGMENT,
        )
    }

    fn queue_push_words(index, object, from: *const MaybeUninit<u64>, n: u64) -> Exit {
        section!(
            index,
            object,
            queue_end!("eq"),
            "mov {left}, {n}",
            "37:",
            "sub {left}, {left}, #1",
            "ldr {word}, [{from}, {left}, lsl #3]",
            prepare!("str {word}, [{end}, {left}, lsl #3]"),
            "cbnz {left}, 37b",
            "add {end}, {end}, {n}, lsl #3",
            "stlr {end}, [{scratch}]";
            from = in(reg) from, n = in(reg) n, segment = const SEGMENT,
            end = out(reg) _, left = out(reg) _, word = out(reg) _,
        )
    }

    fn queue_link(index, object, first: *mut u8, past: *mut u8) -> Exit {
        section!(
            index,
            object,
            queue_end!("ne"),
            "add {place}, {scratch}, #8",
            "subs {end}, {end}, #{segment}",
            "csel {place}, {end}, {place}, hs",
            prepare!("str {first}, [{place}]"),
            "stlr {past}, [{scratch}]";
            first = in(reg) first, past = in(reg) past, segment = const SEGMENT, end = out(reg) _,
        )
    }
}
