//! Sections on single words.

use crate::rseq::{Exit, Index, Slots, Yielded};

functions! {
    fn add(index, object, n: i64) -> Exit {
        section!(index, object, "add qword ptr [{scratch}], {n}"; n = in(reg) n,)
    }

    fn increment(index, object) -> Exit {
        section!(index, object, "add qword ptr [{scratch}], 1";)
    }

    fn add_at(index, object, offset: usize, n: i64) -> Exit {
        section!(index, object, "add qword ptr [{scratch} + {offset}], {n}";
            offset = in(reg) offset, n = in(reg) n,)
    }

    fn increment_at(index, object, offset: usize) -> Exit {
        section!(index, object, "add qword ptr [{scratch} + {offset}], 1"; offset = in(reg) offset,)
    }

    fn store_greater(index, object, n: i64) -> Exit {
        section!(
            index,
            object,
            "cmp qword ptr [{scratch}], {n}",
            "jge 36f",
            "mov qword ptr [{scratch}], {n}";
            n = in(reg) n,
        )
    }

    fn store_if_equal(index, object, expected: u64, n: u64) -> Exit {
        section!(
            index,
            object,
            "cmp qword ptr [{scratch}], {expected}",
            "jne 36f",
            "mov qword ptr [{scratch}], {n}";
            expected = in(reg) expected, n = in(reg) n,
        )
    }

    fn exchange(index, object, n: u64) -> Yielded {
        let old: u64;
        let exit = section!(
            index,
            object,
            "mov {old}, qword ptr [{scratch}]",
            "mov qword ptr [{scratch}], {n}";
            yields "xor {old:e}, {old:e}";
            n = in(reg) n, old = out(reg) old,
        );
        (exit, old)
    }

    fn add_fetch(index, object, n: u64) -> Yielded {
        let new: u64;
        let exit = section!(
            index,
            object,
            "mov {new}, qword ptr [{scratch}]",
            "add {new}, {n}",
            "mov qword ptr [{scratch}], {new}";
            yields "xor {new:e}, {new:e}";
            n = in(reg) n, new = out(reg) new,
        );
        (exit, new)
    }

    fn store_if_equal_at(index, object, offset: usize, expected: u64, n: u64) -> Exit {
        section!(
            index,
            object,
            "cmp qword ptr [{scratch} + {offset}], {expected}",
            "jne 36f",
            "mov qword ptr [{scratch} + {offset}], {n}";
            offset = in(reg) offset, expected = in(reg) expected, n = in(reg) n,
        )
    }

    fn exchange_at(index, object, offset: usize, n: u64) -> Yielded {
        let old: u64;
        let exit = section!(
            index,
            object,
            "mov {old}, qword ptr [{scratch} + {offset}]",
            "mov qword ptr [{scratch} + {offset}], {n}";
            yields "xor {old:e}, {old:e}";
            offset = in(reg) offset, n = in(reg) n, old = out(reg) old,
        );
        (exit, old)
    }

    fn add_fetch_at(index, object, offset: usize, n: u64) -> Yielded {
        let new: u64;
        let exit = section!(
            index,
            object,
            "mov {new}, qword ptr [{scratch} + {offset}]",
            "add {new}, {n}",
            "mov qword ptr [{scratch} + {offset}], {new}";
            yields "xor {new:e}, {new:e}";
            offset = in(reg) offset, n = in(reg) n, new = out(reg) new,
        );
        (exit, new)
    }
}
