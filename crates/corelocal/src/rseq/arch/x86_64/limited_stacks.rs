//! Sections on stacks with a limit and a guess of the top: those of the malloc's hot paths.

use core::mem::MaybeUninit;

use crate::rseq::hot::{FREED, FRONT};
use crate::rseq::{Exit, Index, Popped, Slots};

/// For the pops off a stack with a limit: decrements `count`, or leaves for `mismatch`.
macro_rules! count_limited {
    () => {
        concat!(
            "add {scratch}, {offset}\n",
            "mov {count}, qword ptr [{scratch} + 16]\n",
            "sub {count}, 1\n",
            "jb 36f\n",
        )
    };
}

/// For the same: takes the item, which is the guess at the top if that is right, guesses the next one, and commits.
macro_rules! pop_limited {
    () => {
        concat!(
            "mov {item}, qword ptr [{scratch}]\n",
            "cmp {item}, qword ptr [{scratch} + 8*{count} + 24]\n",
            "je 40f\n",
            "mov {item}, qword ptr [{scratch} + 8*{count} + 24]\n",
            "40: mov {offset}, qword ptr [{scratch} + 8*{count} + 16]\n",
            prepare!("mov qword ptr [{scratch}], {offset}"),
            "mov qword ptr [{scratch} + 16], {count}\n",
        )
    };
}

/// The steps of `pop_at`. The count is loaded before the stack's address is computed, since the offset arrives last.
macro_rules! pop_at_steps {
    ($index:expr, $offset:expr, $($object:tt)+) => {{
        let item: MaybeUninit<u64>;
        let exit = section!(
            $index,
            $($object)+,
            count_limited!(),
            pop_limited!();
            yields "xor {item:e}, {item:e}";
            offset = inout(reg) $offset => _, item = out(reg) item, count = out(reg) _,
        );
        (exit, item)
    }};
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
            "mov {item}, qword ptr [{scratch} - 8]",
            "sub {item}, 1",
            "jbe 36f",
            prepare!("mov qword ptr [{scratch} - 8], {item}"),
            pop_limited!();
            yields "xor {item:e}, {item:e}";
            offset = inout(reg) offset => _, item = out(reg) item, count = out(reg) _,
        );
        (exit, item)
    }
}

/// The steps of `push_at`.
macro_rules! push_at_steps {
    ($index:expr, $offset:expr, $item:expr, $($object:tt)+) => {
        section!(
            $index,
            $($object)+,
            "add {scratch}, {offset}",
            "mov {count}, qword ptr [{scratch} + 16]",
            "cmp {count}, qword ptr [{scratch} + 8]",
            "jae 36f",
            prepare!("mov qword ptr [{scratch}], {item}"),
            "cmp {item}, qword ptr [{scratch} + 8*{count} + 16]",
            "je 36f",
            prepare!("mov qword ptr [{scratch} + 8*{count} + 24], {item}"),
            "add {count}, 1",
            "mov qword ptr [{scratch} + 16], {count}";
            offset = in(reg) $offset, item = in(reg) $item, count = out(reg) _,
        )
    };
}

functions! {
    fn push_at(index, object, offset: usize, item: u64) -> Exit {
        push_at_steps!(index, offset, item, object)
    }
}

hot_functions! {}
