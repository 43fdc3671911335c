//! Sections on single words. Those that code uses as atomics are ordered by the fences around them
//! (`percpu/machinery/word_operations.rs`), and those of counts need no order.

use crate::rseq::{Exit, Index, Slots, Yielded};

/// The address of the word at `offset`. Where the section does not commit, `{place}` is cleared: the commit's address is
/// the slot's, plus the offset, or no address.
macro_rules! at_offset {
    () => {
        "add {place}, {scratch}, {offset}\n"
    };
}

functions! {
    fn add(index, object, n: i64) -> Exit {
        section!(
            index,
            object,
            "ld {place}, 0({scratch})",
            "add {place}, {place}, {n}",
            "sd {place}, 0({scratch})";
            n = in(reg) n,
        )
    }

    fn increment(index, object) -> Exit {
        section!(
            index,
            object,
            "ld {place}, 0({scratch})",
            "addi {place}, {place}, 1",
            "sd {place}, 0({scratch})";
        )
    }

    fn add_at(index, object, offset: usize, n: i64) -> Exit {
        section!(
            index,
            object,
            at_offset!(),
            "ld {word}, 0({place})",
            "add {word}, {word}, {n}",
            "sd {word}, 0({place})";
            yields "li {place}, 0";
            offset = in(reg) offset, n = in(reg) n, word = out(reg) _,
        )
    }

    fn increment_at(index, object, offset: usize) -> Exit {
        // SAFETY: the caller's conditions are the same.
        unsafe { add_at(index, object, offset, 1) }
    }

    fn store_greater(index, object, n: i64) -> Exit {
        section!(
            index,
            object,
            "ld {place}, 0({scratch})",
            "bge {place}, {n}, 36f",
            "sd {n}, 0({scratch})";
            n = in(reg) n,
        )
    }

    fn store_if_equal(index, object, expected: u64, n: u64) -> Exit {
        section!(
            index,
            object,
            "ld {place}, 0({scratch})",
            "bne {place}, {expected}, 36f",
            "sd {n}, 0({scratch})";
            expected = in(reg) expected, n = in(reg) n,
        )
    }

    fn exchange(index, object, n: u64) -> Yielded {
        let old: u64;
        let exit = section!(
            index,
            object,
            "ld {old}, 0({scratch})",
            "sd {n}, 0({scratch})";
            yields "li {old}, 0";
            n = in(reg) n, old = out(reg) old,
        );
        (exit, old)
    }

    fn add_fetch(index, object, n: u64) -> Yielded {
        let new: u64;
        let exit = section!(
            index,
            object,
            "ld {new}, 0({scratch})",
            "add {new}, {new}, {n}",
            "sd {new}, 0({scratch})";
            yields "li {new}, 0";
            n = in(reg) n, new = out(reg) new,
        );
        (exit, new)
    }

    fn store_if_equal_at(index, object, offset: usize, expected: u64, n: u64) -> Exit {
        section!(
            index,
            object,
            at_offset!(),
            "ld {word}, 0({place})",
            "bne {word}, {expected}, 36f",
            "sd {n}, 0({place})";
            yields "li {place}, 0";
            offset = in(reg) offset, expected = in(reg) expected, n = in(reg) n, word = out(reg) _,
        )
    }

    fn exchange_at(index, object, offset: usize, n: u64) -> Yielded {
        let old: u64;
        let exit = section!(
            index,
            object,
            at_offset!(),
            "ld {old}, 0({place})",
            "sd {n}, 0({place})";
            yields "li {old}, 0; li {place}, 0";
            offset = in(reg) offset, n = in(reg) n, old = out(reg) old,
        );
        (exit, old)
    }

    fn add_fetch_at(index, object, offset: usize, n: u64) -> Yielded {
        let new: u64;
        let exit = section!(
            index,
            object,
            at_offset!(),
            "ld {new}, 0({place})",
            "add {new}, {new}, {n}",
            "sd {new}, 0({place})";
            yields "li {new}, 0; li {place}, 0";
            offset = in(reg) offset, n = in(reg) n, new = out(reg) new,
        );
        (exit, new)
    }
}
