//! Sections on stacks of words, one item or several at a time.

use core::mem::MaybeUninit;

use crate::rseq::{Exit, Index, Popped, Slots, Yielded};

functions! {
    fn push(index, object, item: MaybeUninit<u64>, capacity: u64) -> Exit {
        section!(
            index,
            object,
            "mov {count}, qword ptr [{scratch}]",
            "cmp {count}, {capacity}",
            "jae 36f",
            prepare!("mov qword ptr [{scratch} + 8*{count} + 8], {item}"),
            "add {count}, 1",
            "mov qword ptr [{scratch}], {count}";
            item = in(reg) item, capacity = in(reg) capacity, count = out(reg) _,
        )
    }

    fn pop(index, object) -> Popped {
        let item: MaybeUninit<u64>;
        let exit = section!(
            index,
            object,
            "mov {count}, qword ptr [{scratch}]",
            "sub {count}, 1",
            "jb 36f",
            "mov {item}, qword ptr [{scratch} + 8*{count} + 8]",
            "mov qword ptr [{scratch}], {count}";
            yields "xor {item:e}, {item:e}";
            item = out(reg) item, count = out(reg) _,
        );
        (exit, item)
    }

    // It loads single words: a wider load would wait for all the stores that made the item.
    fn push_some(index, object, from: *const MaybeUninit<u64>, most: u64, capacity: u64) -> Yielded {
        let n: u64;
        let exit = section!(
            index,
            object,
            "mov {to}, qword ptr [{scratch}]",
            "mov {n}, {capacity}",
            "sub {n}, {to}",
            "cmp {n}, {most}",
            "cmova {n}, {most}",
            "lea {to}, [{scratch} + 8*{to} + 8]",
            "lea {left}, [{n} + 1]",
            "and {left}, -2",
            "jz 36f",
            "test {n}, 1",
            "jnz 45f",
            "37:",
            "mov {word}, qword ptr [{from} + 8*{left} - 8]",
            prepare!("mov qword ptr [{to} + 8*{left} - 8], {word}"),
            "45:",
            "mov {word}, qword ptr [{from} + 8*{left} - 16]",
            prepare!("mov qword ptr [{to} + 8*{left} - 16], {word}"),
            "sub {left}, 2",
            "jnz 37b",
            "add qword ptr [{scratch}], {n}";
            yields "xor {n:e}, {n:e}";
            from = in(reg) from, most = in(reg) most, capacity = in(reg) capacity, n = out(reg) n,
            to = out(reg) _, left = out(reg) _, word = out(reg) _,
        );
        (exit, n)
    }

    // It loads single words, as they were pushed, and stores pairs, as compilers load what they copy: a load that
    // spans two recent stores would wait for both to reach the cache.
    fn pop_some(index, object, to: *mut MaybeUninit<u64>, most: u64) -> Yielded {
        let n: u64;
        let exit = section!(
            index,
            object,
            "mov {count}, qword ptr [{scratch}]",
            "mov {n}, {most}",
            "cmp {n}, {count}",
            "cmova {n}, {count}",
            "sub {count}, {n}",
            "lea {from}, [{scratch} + 8*{count} + 8]",
            "mov {left}, {n}",
            "sub {left}, 1",
            "jb 36f",
            "test {left}, 1",
            "jnz 37f",
            "mov {word}, qword ptr [{from} + 8*{left}]",
            prepare!("mov qword ptr [{to} + 8*{left}], {word}"),
            "sub {left}, 1",
            "jb 45f",
            "37:",
            "movq {pair}, qword ptr [{from} + 8*{left} - 8]",
            "movhps {pair}, qword ptr [{from} + 8*{left}]",
            prepare!("movups xmmword ptr [{to} + 8*{left} - 8], {pair}"),
            "sub {left}, 2",
            "jnb 37b",
            "45:",
            "mov qword ptr [{scratch}], {count}";
            yields "xor {n:e}, {n:e}";
            to = in(reg) to, most = in(reg) most, n = out(reg) n,
            count = out(reg) _, from = out(reg) _, left = out(reg) _, word = out(reg) _,
            pair = out(xmm_reg) _,
        );
        (exit, n)
    }
}
