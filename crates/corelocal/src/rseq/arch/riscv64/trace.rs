//! Sections on trace buffers. A fence stands before the commit: other threads read the records once they see `used`, by
//! Acquire loads (`trace/drain.rs`, `trace/dump.rs`).
//!
//! `trace_context` changes two words, and a store of two can be interrupted between them on this processor. So the
//! buffer has a third word, `since`: the owner holds once `used` has come so far. It is set before the owner is, to
//! what `used` will be. After an abort in between, no thread is the owner, and each writes its context again.

use core::mem::MaybeUninit;

use crate::rseq::{Exit, Index, Slots, TRACE_BUFFER};

/// For trace buffers: loads the buffer's address into `scratch`, and `used` into `next`.
macro_rules! trace_buffer {
    () => {
        concat!("ld {scratch}, 0({scratch})\n", "beqz {scratch}, 36f\n", "ld {next}, 0({scratch})\n")
    };
}

/// Leaves for `mismatch` if another thread or cpu was the last to append.
macro_rules! trace_owner {
    () => {
        concat!(
            "add {place}, tp, {area}\n",
            "lwu {place}, 4({place})\n",
            "add {place}, {place}, {number}\n",
            "ld {used}, 8({scratch})\n",
            "bne {used}, {place}, 36f\n",
            "ld {used}, 64({scratch})\n", // since
            "bltu {next}, {used}, 36f\n",
        )
    };
}

/// Reserves room for a record, by these steps that add its length to `next`: `used` is its address.
macro_rules! trace_reserve {
    ($($add:expr),+) => {
        concat!(
            "add {used}, {scratch}, {next}\n",
            $($add, "\n",)+
            "bgtu {next}, {limit}, 36f\n",
        )
    };
}

/// Adds the length of `n` words to `next`, by way of `place`.
macro_rules! trace_add_words {
    () => {
        "slli {place}, {n}, 3\nadd {next}, {next}, {place}"
    };
}

/// Copies the words of a record behind `$besides` bytes.
macro_rules! trace_copy {
    ($besides:literal) => {
        concat!(
            "addi {used}, {used}, ",
            $besides,
            "\n",
            "mv {left}, {n}\n",
            "mv {word}, {from}\n",
            "37:\n",
            "ld {place}, 0({word})\n",
            prepare!("sd {place}, 0({used})"),
            "addi {word}, {word}, 8\n",
            "addi {used}, {used}, 8\n",
            "addi {left}, {left}, -1\n",
            "bnez {left}, 37b\n",
        )
    };
}

/// The commit.
macro_rules! trace_commit {
    () => {
        "fence rw, w\nsd {next}, 0({scratch})\n"
    };
}

functions! {
    // The library does not read this processor's counter: records have times that were read before.
    fn trace_push(_index, _object, _thread: u64, _from: *const MaybeUninit<u64>, _n: u64) -> Exit {
        Exit::COLD
    }

    fn trace_push_timed(
        index, object, thread: u64, time: u64, from: *const MaybeUninit<u64>, n: u64
    ) -> Exit {
        section!(
            index,
            object,
            trace_buffer!(),
            trace_owner!(),
            trace_reserve!(trace_add_words!(), "addi {next}, {next}, 8"),
            prepare!("sd {time}, 0({used})"),
            trace_copy!("8"),
            trace_commit!();
            number = in(reg) thread, time = in(reg) time, from = in(reg) from, n = in(reg) n,
            limit = in(reg) TRACE_BUFFER,
            used = out(reg) _, next = out(reg) _, left = out(reg) _, word = out(reg) _,
        )
    }

    // The owner holds from the commit on.
    fn trace_context(index, object, owner: u64, from: *const MaybeUninit<u64>, n: u64) -> Exit {
        section!(
            index,
            object,
            trace_buffer!(),
            trace_reserve!(trace_add_words!()),
            prepare!("sd {next}, 64({scratch})"), // since
            prepare!("sd {owner}, 8({scratch})"),
            trace_copy!("0"),
            trace_commit!();
            owner = in(reg) owner, from = in(reg) from, n = in(reg) n, limit = in(reg) TRACE_BUFFER,
            used = out(reg) _, next = out(reg) _, left = out(reg) _, word = out(reg) _,
        )
    }
}

/// None, as with `trace_push`.
macro_rules! trace_push_fixed {
    ($index:ident, $object:ident, $thread:ident, $len:literal; $($at:literal: $word:ident = $value:ident),+) => {{
        let _ = ($index, $object, $thread, $($value),+);
        Exit::COLD
    }};
}

/// The section `trace_push_timed_fixed`: the length of the record in bytes, and for each word its offset in the record
/// and its register.
macro_rules! trace_push_timed_fixed {
    (
        $index:ident, $object:ident, $thread:ident, $time:ident, $len:literal;
        $($at:literal: $word:ident = $value:expr),+
    ) => {
        section!(
            $index,
            $object,
            trace_buffer!(),
            trace_owner!(),
            trace_reserve!(concat!("addi {next}, {next}, ", $len)),
            prepare!("sd {time}, 0({used})"),
            $(prepare!(concat!("sd {", stringify!($word), "}, ", $at, "({used})")),)+
            trace_commit!();
            number = in(reg) $thread, limit = in(reg) TRACE_BUFFER, used = out(reg) _, next = out(reg) _,
            time = in(reg) $time,
            $($word = in(reg) $value,)+
        )
    };
}

fixed_functions! {}
