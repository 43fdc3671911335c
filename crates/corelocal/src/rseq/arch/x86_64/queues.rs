//! Sections on rings and queues.

use core::mem::MaybeUninit;

use crate::rseq::{Exit, Index, SEGMENT, Slots};

functions! {
    fn ring_push(index, object, item: MaybeUninit<u64>, mask: u64) -> Exit {
        section!(
            index,
            object,
            "mov {tail}, qword ptr [{scratch}]",
            "mov {place}, {tail}",
            "sub {place}, qword ptr [{scratch} + 64]",
            "cmp {place}, {mask}",
            "ja 36f",
            "mov {place}, {tail}",
            "and {place}, {mask}",
            prepare!("mov qword ptr [{scratch} + 8*{place} + 128], {item}"),
            "add {tail}, 1",
            "mov qword ptr [{scratch}], {tail}";
            item = in(reg) item, mask = in(reg) mask, tail = out(reg) _, place = out(reg) _,
        )
    }

    fn ring_push_words(index, object, from: *const MaybeUninit<u64>, n: u64, mask: u64) -> Exit {
        section!(
            index,
            object,
            "mov {to}, qword ptr [{scratch}]",
            "mov {word}, {to}",
            "sub {word}, qword ptr [{scratch} + 64]",
            "cmp {word}, {mask}",
            "ja 36f",
            "and {to}, {mask}",
            "imul {to}, {n}",
            "lea {to}, [{scratch} + 8*{to} + 128]",
            "mov {left}, {n}",
            "37:",
            "mov {word}, qword ptr [{from} + 8*{left} - 8]",
            prepare!("mov qword ptr [{to} + 8*{left} - 8], {word}"),
            "sub {left}, 1",
            "jnz 37b",
            "add qword ptr [{scratch}], 1";
            from = in(reg) from, n = in(reg) n, mask = in(reg) mask,
            to = out(reg) _, left = out(reg) _, word = out(reg) _,
        )
    }

    fn queue_push(index, object, item: MaybeUninit<u64>) -> Exit {
        section!(
            index,
            object,
            "mov {end}, qword ptr [{scratch}]",
            "test {end:e}, {segment} - 1",
            "jz 36f",
            prepare!("mov qword ptr [{end}], {item}"),
            "add {end}, 8",
            "mov qword ptr [{scratch}], {end}";
            item = in(reg) item, end = out(reg) _, segment = const SEGMENT,
        )
    }

    fn queue_push_words(index, object, from: *const MaybeUninit<u64>, n: u64) -> Exit {
        section!(
            index,
            object,
            "mov {end}, qword ptr [{scratch}]",
            "test {end:e}, {segment} - 1",
            "jz 36f",
            "mov {left}, {n}",
            "37:",
            "mov {word}, qword ptr [{from} + 8*{left} - 8]",
            prepare!("mov qword ptr [{end} + 8*{left} - 8], {word}"),
            "sub {left}, 1",
            "jnz 37b",
            "lea {end}, [{end} + 8*{n}]",
            "mov qword ptr [{scratch}], {end}";
            from = in(reg) from, n = in(reg) n, segment = const SEGMENT,
            end = out(reg) _, left = out(reg) _, word = out(reg) _,
        )
    }

    fn queue_link(index, object, first: *mut u8, past: *mut u8) -> Exit {
        section!(
            index,
            object,
            "mov {end}, qword ptr [{scratch}]",
            "test {end:e}, {segment} - 1",
            "jnz 36f",
            "lea {link}, [{scratch} + 8]",
            "sub {end}, {segment}",
            "cmovae {link}, {end}",
            prepare!("mov qword ptr [{link}], {first}"),
            "mov qword ptr [{scratch}], {past}";
            first = in(reg) first, past = in(reg) past, segment = const SEGMENT,
            end = out(reg) _, link = out(reg) _,
        )
    }
}
