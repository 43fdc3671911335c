//! Sections on rings and queues. Their consumers run on other cores: a fence stands before each commit, whose partners
//! are the Acquire loads of the tail (`percpu/ring/slot.rs`, `take`) and of the end (`percpu/queue/slot/consume.rs`,
//! `go_on`).

use core::mem::MaybeUninit;

use crate::rseq::{Exit, Index, SEGMENT, Slots};

/// For rings: loads `tail` and leaves for `mismatch` if no place is free. A fence follows the load of the head, whose
/// partner is the consumer's Release: its loads of the items come before the stores here.
macro_rules! ring_place {
    () => {
        concat!(
            "ld {tail}, 0({scratch})\n",
            "ld {place}, 64({scratch})\n",
            "fence r, rw\n",
            "sub {place}, {tail}, {place}\n",
            "bgtu {place}, {mask}, 36f\n",
            "and {place}, {tail}, {mask}\n",
            "addi {tail}, {tail}, 1\n",
        )
    };
}

/// For queues: loads `end`, and into `place` where in its segment that is.
macro_rules! queue_end {
    () => {
        concat!(
            "ld {end}, 0({scratch})\n",
            "slli {place}, {end}, 64 - {bits}\n",
        )
    };
}

/// The bits of an address within a segment.
const BITS: u32 = SEGMENT.trailing_zeros();

/// Copies `n` words to `to` on, which then is behind them.
macro_rules! copy_words {
    () => {
        concat!(
            "mv {left}, {n}\n",
            "mv {next}, {from}\n",
            "37:\n",
            "ld {word}, 0({next})\n",
            prepare!("sd {word}, 0({to})"),
            "addi {next}, {next}, 8\n",
            "addi {to}, {to}, 8\n",
            "addi {left}, {left}, -1\n",
            "bnez {left}, 37b\n",
        )
    };
}

functions! {
    fn ring_push(index, object, item: MaybeUninit<u64>, mask: u64) -> Exit {
        section!(
            index,
            object,
            ring_place!(),
            "slli {place}, {place}, 3",
            "add {place}, {scratch}, {place}",
            prepare!("sd {item}, 128({place})"),
            "fence rw, w",
            "sd {tail}, 0({scratch})";
            item = in(reg) item, mask = in(reg) mask, tail = out(reg) _,
        )
    }

    fn ring_push_words(index, object, from: *const MaybeUninit<u64>, n: u64, mask: u64) -> Exit {
        section!(
            index,
            object,
            ring_place!(),
            "mul {to}, {place}, {n}",
            "slli {to}, {to}, 3",
            "add {to}, {scratch}, {to}",
            "addi {to}, {to}, 128",
            copy_words!(),
            "fence rw, w",
            "sd {tail}, 0({scratch})";
            from = in(reg) from, n = in(reg) n, mask = in(reg) mask, tail = out(reg) _,
            to = out(reg) _, next = out(reg) _, left = out(reg) _, word = out(reg) _,
        )
    }

    fn queue_push(index, object, item: MaybeUninit<u64>) -> Exit {
        section!(
            index,
            object,
            queue_end!(),
            "beqz {place}, 36f",
            prepare!("sd {item}, 0({end})"),
            "addi {end}, {end}, 8",
            "fence rw, w",
            "sd {end}, 0({scratch})";
            item = in(reg) item, end = out(reg) _, bits = const BITS,
        )
    }

    fn queue_push_words(index, object, from: *const MaybeUninit<u64>, n: u64) -> Exit {
        section!(
            index,
            object,
            "ld {to}, 0({scratch})",
            "slli {place}, {to}, 64 - {bits}",
            "beqz {place}, 36f",
            copy_words!(),
            "fence rw, w",
            "sd {to}, 0({scratch})";
            from = in(reg) from, n = in(reg) n, bits = const BITS,
            to = out(reg) _, next = out(reg) _, left = out(reg) _, word = out(reg) _,
        )
    }

    fn queue_link(index, object, first: *mut u8, past: *mut u8) -> Exit {
        section!(
            index,
            object,
            queue_end!(),
            "bnez {place}, 36f",
            // Without a jump: `end - SEGMENT`, or `&start` if `end` is 0.
            "snez {is_some}, {end}",
            "neg {is_some}, {is_some}",
            "sub {end}, {end}, {segment}",
            "and {end}, {end}, {is_some}",
            "addi {place}, {scratch}, 8",
            "not {is_some}, {is_some}",
            "and {place}, {place}, {is_some}",
            "or {place}, {place}, {end}",
            prepare!("sd {first}, 0({place})"),
            "fence rw, w",
            "sd {past}, 0({scratch})";
            first = in(reg) first, past = in(reg) past, segment = in(reg) SEGMENT, bits = const BITS,
            end = out(reg) _, is_some = out(reg) _,
        )
    }
}
