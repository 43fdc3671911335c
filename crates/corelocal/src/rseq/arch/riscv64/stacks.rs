//! Sections on stacks of words, one item or several at a time.

use core::mem::MaybeUninit;

use crate::rseq::{Exit, Index, Popped, Slots, Yielded};

/// Computes into `place` where the word behind `$count` words of the slot is.
macro_rules! behind {
    ($count:literal) => {
        concat!("slli {place}, ", $count, ", 3\n", "add {place}, {scratch}, {place}\n")
    };
}

/// Makes `n` at most `most`, without a jump. Changes `left` and `from`.
macro_rules! at_most {
    () => {
        concat!(
            "sltu {left}, {most}, {n}\n",
            "neg {left}, {left}\n",
            "xor {from}, {n}, {most}\n",
            "and {from}, {from}, {left}\n",
            "xor {n}, {n}, {from}\n",
        )
    };
}

/// Copies `left` words, at least one, from the front on. Changes `from` and `to`, which are copies of operands.
macro_rules! copy {
    ($load:literal, $store:expr) => {
        concat!(
            "37:\n",
            $load,
            "\n",
            $store,
            "addi {from}, {from}, 8\n",
            "addi {to}, {to}, 8\n",
            "addi {left}, {left}, -1\n",
            "bnez {left}, 37b\n",
        )
    };
}

functions! {
    fn push(index, object, item: MaybeUninit<u64>, capacity: u64) -> Exit {
        section!(
            index,
            object,
            "ld {count}, 0({scratch})",
            "bgeu {count}, {capacity}, 36f",
            behind!("{count}"),
            prepare!("sd {item}, 8({place})"),
            "addi {count}, {count}, 1",
            "sd {count}, 0({scratch})";
            item = in(reg) item, capacity = in(reg) capacity, count = out(reg) _,
        )
    }

    fn pop(index, object) -> Popped {
        let item: MaybeUninit<u64>;
        let exit = section!(
            index,
            object,
            "ld {count}, 0({scratch})",
            "beqz {count}, 36f",
            behind!("{count}"),
            "ld {item}, 0({place})",
            "addi {count}, {count}, -1",
            "sd {count}, 0({scratch})";
            yields "li {item}, 0";
            item = out(reg) item, count = out(reg) _,
        );
        (exit, item)
    }

    fn push_some(index, object, from: *const MaybeUninit<u64>, most: u64, capacity: u64) -> Yielded {
        let n: u64;
        let exit = section!(
            index,
            object,
            "ld {count}, 0({scratch})",
            behind!("{count}"),
            "addi {to}, {place}, 8",
            "sub {n}, {capacity}, {count}",
            at_most!(),
            "beqz {n}, 36f",
            "add {count}, {count}, {n}",
            "mv {left}, {n}",
            "mv {from}, {source}",
            copy!("ld {place}, 0({from})", prepare!("sd {place}, 0({to})")),
            "sd {count}, 0({scratch})";
            yields "li {n}, 0";
            source = in(reg) from, most = in(reg) most, capacity = in(reg) capacity, n = out(reg) n,
            count = out(reg) _, left = out(reg) _, from = out(reg) _, to = out(reg) _,
        );
        (exit, n)
    }

    fn pop_some(index, object, to: *mut MaybeUninit<u64>, most: u64) -> Yielded {
        let n: u64;
        let exit = section!(
            index,
            object,
            "ld {count}, 0({scratch})",
            "mv {n}, {count}",
            at_most!(),
            "beqz {n}, 36f",
            "sub {count}, {count}, {n}",
            behind!("{count}"),
            "addi {from}, {place}, 8",
            "mv {left}, {n}",
            "mv {to}, {target}",
            copy!("ld {place}, 0({from})", prepare!("sd {place}, 0({to})")),
            "sd {count}, 0({scratch})";
            yields "li {n}, 0";
            target = in(reg) to, most = in(reg) most, n = out(reg) n,
            count = out(reg) _, left = out(reg) _, from = out(reg) _, to = out(reg) _,
        );
        (exit, n)
    }
}
