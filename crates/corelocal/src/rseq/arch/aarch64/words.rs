//! Sections on single words. Those that code uses as atomics are ordered by the fences around them
//! (`percpu/machinery/word_operations.rs`), and those of counts need no order.

use crate::rseq::{Exit, Index, Slots, Yielded};

functions! {
    fn add(index, object, n: i64) -> Exit {
        section!(
            index,
            object,
            "ldr {place}, [{scratch}]",
            "add {place}, {place}, {n}",
            "str {place}, [{scratch}]";
            n = in(reg) n,
        )
    }

    fn increment(index, object) -> Exit {
        section!(
            index,
            object,
            "ldr {place}, [{scratch}]",
            "add {place}, {place}, #1",
            "str {place}, [{scratch}]";
        )
    }

    fn add_at(index, object, offset: usize, n: i64) -> Exit {
        section!(
            index,
            object,
            "ldr {place}, [{scratch}, {offset}]",
            "add {place}, {place}, {n}",
            "str {place}, [{scratch}, {offset}]";
            offset = in(reg) offset, n = in(reg) n,
        )
    }

    fn increment_at(index, object, offset: usize) -> Exit {
        section!(
            index,
            object,
            "ldr {place}, [{scratch}, {offset}]",
            "add {place}, {place}, #1",
            "str {place}, [{scratch}, {offset}]";
            offset = in(reg) offset,
        )
    }

    fn store_greater(index, object, n: i64) -> Exit {
        section!(
            index,
            object,
            "ldr {place}, [{scratch}]",
            "cmp {place}, {n}",
            "b.ge 36f",
            "str {n}, [{scratch}]";
            n = in(reg) n,
        )
    }

    fn store_if_equal(index, object, expected: u64, n: u64) -> Exit {
        section!(
            index,
            object,
            "ldr {place}, [{scratch}]",
            "cmp {place}, {expected}",
            "b.ne 36f",
            "str {n}, [{scratch}]";
            expected = in(reg) expected, n = in(reg) n,
        )
    }

    fn exchange(index, object, n: u64) -> Yielded {
        let old: u64;
        let exit = section!(
            index,
            object,
            "ldr {old}, [{scratch}]",
            "str {n}, [{scratch}]";
            yields "mov {old}, xzr";
            n = in(reg) n, old = out(reg) old,
        );
        (exit, old)
    }

    fn add_fetch(index, object, n: u64) -> Yielded {
        let new: u64;
        let exit = section!(
            index,
            object,
            "ldr {new}, [{scratch}]",
            "add {new}, {new}, {n}",
            "str {new}, [{scratch}]";
            yields "mov {new}, xzr";
            n = in(reg) n, new = out(reg) new,
        );
        (exit, new)
    }

    fn store_if_equal_at(index, object, offset: usize, expected: u64, n: u64) -> Exit {
        section!(
            index,
            object,
            "ldr {place}, [{scratch}, {offset}]",
            "cmp {place}, {expected}",
            "b.ne 36f",
            "str {n}, [{scratch}, {offset}]";
            offset = in(reg) offset, expected = in(reg) expected, n = in(reg) n,
        )
    }

    fn exchange_at(index, object, offset: usize, n: u64) -> Yielded {
        let old: u64;
        let exit = section!(
            index,
            object,
            "ldr {old}, [{scratch}, {offset}]",
            "str {n}, [{scratch}, {offset}]";
            yields "mov {old}, xzr";
            offset = in(reg) offset, n = in(reg) n, old = out(reg) old,
        );
        (exit, old)
    }

    fn add_fetch_at(index, object, offset: usize, n: u64) -> Yielded {
        let new: u64;
        let exit = section!(
            index,
            object,
            "ldr {new}, [{scratch}, {offset}]",
            "add {new}, {new}, {n}",
            "str {new}, [{scratch}, {offset}]";
            yields "mov {new}, xzr";
            offset = in(reg) offset, n = in(reg) n, new = out(reg) new,
        );
        (exit, new)
    }
}
