//! Sections on stacks of words, one item or several at a time.

use core::mem::MaybeUninit;

use crate::rseq::{Exit, Index, Popped, Slots, Yielded};

functions! {
    fn push(index, object, item: MaybeUninit<u64>, capacity: u64) -> Exit {
        section!(
            index,
            object,
            "ldr {count}, [{scratch}]",
            "cmp {count}, {capacity}",
            "b.hs 36f",
            "add {place}, {scratch}, {count}, lsl #3",
            prepare!("str {item}, [{place}, #8]"),
            "add {count}, {count}, #1",
            "str {count}, [{scratch}]";
            item = in(reg) item, capacity = in(reg) capacity, count = out(reg) _,
        )
    }

    fn pop(index, object) -> Popped {
        let item: MaybeUninit<u64>;
        let exit = section!(
            index,
            object,
            "ldr {count}, [{scratch}]",
            "add {place}, {scratch}, {count}, lsl #3",
            "subs {count}, {count}, #1",
            "b.lo 36f",
            "ldr {item}, [{place}]",
            "str {count}, [{scratch}]";
            yields "mov {item}, xzr";
            item = out(reg) item, count = out(reg) _,
        );
        (exit, item)
    }

    fn push_some(index, object, from: *const MaybeUninit<u64>, most: u64, capacity: u64) -> Yielded {
        let n: u64;
        let exit = section!(
            index,
            object,
            "ldr {count}, [{scratch}]",
            "add {place}, {scratch}, {count}, lsl #3",
            "sub {n}, {capacity}, {count}",
            "cmp {n}, {most}",
            "csel {n}, {most}, {n}, hi",
            "add {count}, {count}, {n}",
            "mov {left}, {n}",
            "cbz {left}, 36f",
            "37:",
            "sub {left}, {left}, #1",
            "ldr {word}, [{from}, {left}, lsl #3]",
            "add {to}, {place}, {left}, lsl #3",
            prepare!("str {word}, [{to}, #8]"),
            "cbnz {left}, 37b",
            "str {count}, [{scratch}]";
            yields "mov {n}, xzr";
            from = in(reg) from, most = in(reg) most, capacity = in(reg) capacity, n = out(reg) n,
            count = out(reg) _, left = out(reg) _, to = out(reg) _, word = out(reg) _,
        );
        (exit, n)
    }

    fn pop_some(index, object, to: *mut MaybeUninit<u64>, most: u64) -> Yielded {
        let n: u64;
        let exit = section!(
            index,
            object,
            "ldr {count}, [{scratch}]",
            "cmp {count}, {most}",
            "csel {n}, {most}, {count}, hi",
            "sub {count}, {count}, {n}",
            "add {place}, {scratch}, {count}, lsl #3",
            "add {place}, {place}, #8",
            "mov {left}, {n}",
            "cbz {left}, 36f",
            "37:",
            "sub {left}, {left}, #1",
            "ldr {word}, [{place}, {left}, lsl #3]",
            prepare!("str {word}, [{to}, {left}, lsl #3]"),
            "cbnz {left}, 37b",
            "str {count}, [{scratch}]";
            yields "mov {n}, xzr";
            to = in(reg) to, most = in(reg) most, n = out(reg) n,
            count = out(reg) _, left = out(reg) _, word = out(reg) _,
        );
        (exit, n)
    }
}
