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
            "ld {count}, 16({scratch})\n",
            "beqz {count}, 36f\n",
            "addi {count}, {count}, -1\n",
        )
    };
}

/// For the same: takes the item, guesses the next one, and commits.
macro_rules! pop_limited {
    () => {
        concat!(
            "slli {place}, {count}, 3\n",
            "add {place}, {scratch}, {place}\n",
            "ld {item}, 24({place})\n",
            "ld {place}, 16({place})\n",
            prepare!("sd {place}, 0({scratch})"),
            "sd {count}, 16({scratch})\n",
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
            yields "li {item}, 0";
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
            "ld {place}, 8({scratch})", // the limit
            "ld {count}, 16({scratch})",
            "bgeu {count}, {place}, 36f",
            prepare!("sd {item}, 0({scratch})"),
            "slli {place}, {count}, 3",
            "add {place}, {scratch}, {place}",
            "ld {top}, 16({place})",
            "beq {top}, {item}, 36f",
            prepare!("sd {item}, 24({place})"),
            "addi {count}, {count}, 1",
            "sd {count}, 16({scratch})";
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
            "ld {item}, -8({scratch})",
            "beqz {item}, 36f",
            "addi {item}, {item}, -1",
            "beqz {item}, 36f",
            prepare!("sd {item}, -8({scratch})"),
            pop_limited!();
            yields "li {item}, 0";
            offset = in(reg) offset, item = out(reg) item, count = out(reg) _,
        );
        (exit, item)
    }

    fn push_at(index, object, offset: usize, item: u64) -> Exit {
        push_at_steps!(index, offset, item, object)
    }
}

hot_functions! {}
