//! Sections on trace buffers. The commit is a `stlr`: other threads read the records once they see `used`, by Acquire
//! loads (`trace/drain.rs`, `trace/dump.rs`).
//!
//! `trace_context` changes two words, and a store of two can be interrupted between them on this processor. So the
//! buffer has a third word, `since`: the owner holds once `used` has come so far. It is set before the owner is, to
//! what `used` will be. After an abort in between, no thread is the owner, and each writes its context again.

use core::mem::MaybeUninit;

use crate::rseq::{Exit, Index, Slots, TRACE_BUFFER};

/// For trace buffers: loads the buffer's address into `scratch`, and `used` into `next`.
macro_rules! trace_buffer {
    () => {
        concat!("ldr {scratch}, [{scratch}]\n", "cbz {scratch}, 36f\n", "ldr {next}, [{scratch}]\n")
    };
}

/// Leaves for `mismatch` if another thread or cpu was the last to append.
macro_rules! trace_owner {
    () => {
        concat!(
            "add {place}, {thread}, {area}\n",
            "ldr {place:w}, [{place}, #4]\n",
            "add {place}, {place}, {number}\n",
            "ldr {used}, [{scratch}, #8]\n",
            "cmp {used}, {place}\n",
            "b.ne 36f\n",
            "ldr {used}, [{scratch}, #64]\n", // since
            "cmp {next}, {used}\n",
            "b.lo 36f\n",
        )
    };
}

/// Reserves room for a record, by this step that adds its length to `next`: `used` is its address.
macro_rules! trace_reserve {
    ($($add:expr),+) => {
        concat!(
            "add {used}, {scratch}, {next}\n",
            $($add, "\n",)+
            "cmp {next}, #{limit}\n",
            "b.hi 36f\n",
        )
    };
}

/// Copies the words of a record behind `$besides` bytes.
macro_rules! trace_copy {
    ($besides:literal) => {
        concat!(
            "add {used}, {used}, #",
            $besides,
            "\n",
            "mov {left}, {n}\n",
            "37:\n",
            "sub {left}, {left}, #1\n",
            "ldr {place}, [{from}, {left}, lsl #3]\n",
            prepare!("str {place}, [{used}, {left}, lsl #3]"),
            "cbnz {left}, 37b\n",
        )
    };
}

functions! {
    fn trace_push(index, object, thread: u64, from: *const MaybeUninit<u64>, n: u64) -> Exit {
        section!(
            index,
            object,
            trace_buffer!(),
            trace_owner!(),
            trace_reserve!("add {next}, {next}, {n}, lsl #3", "add {next}, {next}, #8"),
            "mrs {place}, cntvct_el0",
            prepare!("str {place}, [{used}]"),
            trace_copy!("8"),
            "stlr {next}, [{scratch}]";
            number = in(reg) thread, from = in(reg) from, n = in(reg) n, limit = const TRACE_BUFFER,
            used = out(reg) _, next = out(reg) _, left = out(reg) _,
        )
    }

    fn trace_push_timed(
        index, object, thread: u64, time: u64, from: *const MaybeUninit<u64>, n: u64
    ) -> Exit {
        section!(
            index,
            object,
            trace_buffer!(),
            trace_owner!(),
            trace_reserve!("add {next}, {next}, {n}, lsl #3", "add {next}, {next}, #8"),
            prepare!("str {time}, [{used}]"),
            trace_copy!("8"),
            "stlr {next}, [{scratch}]";
            number = in(reg) thread, time = in(reg) time, from = in(reg) from, n = in(reg) n,
            limit = const TRACE_BUFFER,
            used = out(reg) _, next = out(reg) _, left = out(reg) _,
        )
    }

    // The owner holds from the commit on.
    fn trace_context(index, object, owner: u64, from: *const MaybeUninit<u64>, n: u64) -> Exit {
        section!(
            index,
            object,
            trace_buffer!(),
            trace_reserve!("add {next}, {next}, {n}, lsl #3"),
            prepare!("str {next}, [{scratch}, #64]"), // since
            prepare!("str {owner}, [{scratch}, #8]"),
            trace_copy!("0"),
            "stlr {next}, [{scratch}]";
            owner = in(reg) owner, from = in(reg) from, n = in(reg) n, limit = const TRACE_BUFFER,
            used = out(reg) _, next = out(reg) _, left = out(reg) _,
        )
    }
}

/// The sections of records of fixed length: the steps that write the time, and their operands; then the length of the
/// record in bytes, and for each word its offset in the record and its register.
macro_rules! trace_fixed {
    ([$($time:expr),+] [$($operands:tt)*]
        $index:ident, $object:ident, $thread:ident, $len:literal; $($at:literal: $word:ident = $value:expr),+) => {
        section!(
            $index,
            $object,
            trace_buffer!(),
            trace_owner!(),
            trace_reserve!(concat!("add {next}, {next}, #", $len)),
            $($time,)+
            $(prepare!(concat!("str {", stringify!($word), "}, [{used}, #", $at, "]")),)+
            "stlr {next}, [{scratch}]";
            number = in(reg) $thread, limit = const TRACE_BUFFER, used = out(reg) _, next = out(reg) _, $($operands)*
            $($word = in(reg) $value,)+
        )
    };
}

/// The section `trace_push_fixed`, see [`trace_fixed`].
macro_rules! trace_push_fixed {
    ($($rest:tt)*) => {
        trace_fixed!(
            ["mrs {place}, cntvct_el0", prepare!("str {place}, [{used}]")]
            []
            $($rest)*
        )
    };
}

/// The section `trace_push_timed_fixed`, see [`trace_fixed`].
macro_rules! trace_push_timed_fixed {
    ($index:ident, $object:ident, $thread:ident, $time:ident, $($rest:tt)*) => {
        trace_fixed!(
            [prepare!("str {time}, [{used}]")]
            [time = in(reg) $time,]
            $index, $object, $thread, $($rest)*
        )
    };
}

fixed_functions! {}
