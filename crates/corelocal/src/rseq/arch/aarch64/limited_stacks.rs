//! Sections on stacks with a limit and a guess of the top: those of the malloc's hot paths. The guess is kept, as other
//! code relies on it, and not used: here a pop waits for the count.

use core::mem::MaybeUninit;

use crate::rseq::hot::{FREED, FRONT};
use crate::rseq::{Exit, Index, Popped, Slots};

/// For the pops off a stack with a limit: decrements `count`, or leaves for `mismatch`.
macro_rules! count_limited {
    () => {
        concat!(
            "add {scratch}, {scratch}, {offset}\n",
            "ldr {count}, [{scratch}, #16]\n",
            "subs {count}, {count}, #1\n",
            "b.lo 36f\n",
        )
    };
}

/// For the same: takes the item, guesses the next one, and commits.
macro_rules! pop_limited {
    () => {
        concat!(
            "add {place}, {scratch}, {count}, lsl #3\n",
            "ldr {item}, [{place}, #24]\n",
            "ldr {place}, [{place}, #16]\n",
            prepare!("str {place}, [{scratch}]"),
            "str {count}, [{scratch}, #16]\n",
        )
    };
}

/// The steps of `pop_at`.
macro_rules! pop_at_steps {
    ($index:expr, $offset:expr, $($object:tt)+) => {{
        let item: MaybeUninit<u64>;
        let exit = section!(
            $index,
            $($object)+,
            count_limited!(),
            pop_limited!();
            yields "mov {item}, xzr";
            offset = in(reg) $offset, item = out(reg) item, count = out(reg) _,
        );
        (exit, item)
    }};
}

/// The steps of `push_at`.
macro_rules! push_at_steps {
    ($index:expr, $offset:expr, $item:expr, $($object:tt)+) => {
        section!(
            $index,
            $($object)+,
            "add {scratch}, {scratch}, {offset}",
            "ldp {place}, {count}, [{scratch}, #8]", // the limit, and the count
            "cmp {count}, {place}",
            "b.hs 36f",
            prepare!("str {item}, [{scratch}]"),
            "add {place}, {scratch}, {count}, lsl #3",
            "ldr {top}, [{place}, #16]",
            "cmp {top}, {item}",
            "b.eq 36f",
            prepare!("str {item}, [{place}, #24]"),
            "add {count}, {count}, #1",
            "str {count}, [{scratch}, #16]";
            offset = in(reg) $offset, item = in(reg) $item, count = out(reg) _, top = out(reg) _,
        )
    };
}

functions! {
    fn pop_at(index, object, offset: usize) -> Popped {
        pop_at_steps!(index, offset, object)
    }

    // The remaining number passes through the item's register.
    fn pop_counted_at(index, object, offset: usize) -> Popped {
        let item: MaybeUninit<u64>;
        let exit = section!(
            index,
            object,
            count_limited!(),
            "ldur {item}, [{scratch}, #-8]",
            "subs {item}, {item}, #1",
            "b.ls 36f",
            prepare!("stur {item}, [{scratch}, #-8]"),
            pop_limited!();
            yields "mov {item}, xzr";
            offset = in(reg) offset, item = out(reg) item, count = out(reg) _,
        );
        (exit, item)
    }

    fn push_at(index, object, offset: usize, item: u64) -> Exit {
        push_at_steps!(index, offset, item, object)
    }
}

hot_functions! {}
