//! Sections that look for no slot: they end at a fence, which guards what they read.

use core::arch::asm;
use core::mem::MaybeUninit;

use crate::rseq::{Exit, Loaded};

/// Runs section `clear_if_clear`. The store is a Release; it depends on the load of the gate.
///
/// # Safety
/// - The conditions of [`crate::rseq::clear_if_clear`] hold.
#[inline(always)]
pub(crate) unsafe fn clear_if_clear(area: isize, gate: *const u32, word: *mut u32) -> Exit {
    let scratch: u64;
    // SAFETY: `area` is the offset of this thread's rseq area, and this function's caller guarantees that both words
    // are valid. If aborted it has stored `rseq_cs` only.
    unsafe {
        asm!(
            prologue!(),
            registered!("{place:w}"),
            "ldr {place:w}, [{gate}]",
            "cbnz {place:w}, 36f",
            "stlr wzr, [{word}]",
            epilogue!(),
            area = in(reg) area,
            gate = in(reg) gate,
            word = in(reg) word,
            scratch = out(reg) scratch,
            thread = out(reg) _,
            place = out(reg) _,
            options(nostack),
        );
    }
    Exit(scratch)
}

/// The critical section `load`. Its first instruction is declared, so that `corelocal check` does not warn that it
/// stores nothing. The pointer's load is an Acquire, whose partner is the Release of a store (`rcu/copy.rs`): readers
/// see what happened before it.
macro_rules! load {
    ($area:expr, $pointer:expr, $($step:literal),+; yields $clear:literal; $($operands:tt)*) => {{
        let scratch: u64;
        // SAFETY: `area` is the offset of this thread's rseq area, and this function's caller guarantees a valid
        // pointer, and words at its value that stay until a fence, which aborts this section. It stores `rseq_cs` only.
        unsafe {
            asm!(
                prologue!(),
                ".pushsection __rseq_prepare, \"a\", %progbits",
                "39: .word 31b - 39b",
                ".popsection",
                ".reloc 0, R_AARCH64_NONE, 39b",
                registered!("{place:w}"),
                "ldar {place}, [{pointer}]",
                "cmp {place}, #0",
                "b.le 36f",
                $($step,)+
                epilogue!($clear),
                area = in(reg) $area,
                pointer = in(reg) $pointer,
                scratch = out(reg) scratch,
                thread = out(reg) _,
                place = out(reg) _,
                $($operands)*
                options(nostack),
            );
        }
        Exit(scratch)
    }};
}

type Word = MaybeUninit<u64>;

/// Runs section `load`.
///
/// # Safety
/// - The conditions of [`crate::rseq::load`] hold.
#[inline(always)]
pub(crate) unsafe fn load<const N: usize>(area: isize, pointer: *const *const u8) -> Loaded<N> {
    let mut words = [MaybeUninit::uninit(); N];
    let exit = match N {
        1 => {
            let a: Word;
            let exit = load!(
                area,
                pointer,
                "ldr {a}, [{place}]";
                yields "mov {a}, xzr";
                a = out(reg) a,
            );
            put(&mut words, &[a]);
            exit
        }
        2 => {
            let (a, b): (Word, Word);
            let exit = load!(
                area,
                pointer,
                "ldp {a}, {b}, [{place}]";
                yields "mov {a}, xzr; mov {b}, xzr";
                a = out(reg) a, b = out(reg) b,
            );
            put(&mut words, &[a, b]);
            exit
        }
        4 => {
            let (a, b, c, d): (Word, Word, Word, Word);
            let exit = load!(
                area,
                pointer,
                "ldp {a}, {b}, [{place}]",
                "ldp {c}, {d}, [{place}, #16]";
                yields "mov {a}, xzr; mov {b}, xzr; mov {c}, xzr; mov {d}, xzr";
                a = out(reg) a, b = out(reg) b, c = out(reg) c, d = out(reg) d,
            );
            put(&mut words, &[a, b, c, d]);
            exit
        }
        _ => {
            let (a, b, c, d): (Word, Word, Word, Word);
            let (e, f, g, h): (Word, Word, Word, Word);
            let exit = load!(
                area,
                pointer,
                "ldp {a}, {b}, [{place}]",
                "ldp {c}, {d}, [{place}, #16]",
                "ldp {e}, {f}, [{place}, #32]",
                "ldp {g}, {h}, [{place}, #48]";
                yields "mov {a}, xzr; mov {b}, xzr; mov {c}, xzr; mov {d}, xzr; \
                    mov {e}, xzr; mov {f}, xzr; mov {g}, xzr; mov {h}, xzr";
                a = out(reg) a, b = out(reg) b, c = out(reg) c, d = out(reg) d,
                e = out(reg) e, f = out(reg) f, g = out(reg) g, h = out(reg) h,
            );
            put(&mut words, &[a, b, c, d, e, f, g, h]);
            exit
        }
    };
    (exit, words)
}

/// Does what [`load`] does of a word, with many microseconds between the two loads. For tests of fences.
///
/// # Safety
/// - The conditions of [`crate::rseq::load`] hold.
#[cfg(all(test, feature = "std"))]
pub(crate) unsafe fn load_slowly(area: isize, pointer: *const *const u8) -> Loaded<1> {
    let word: Word;
    let exit = load!(
        area,
        pointer,
        "mov {word}, #300",
        "37: isb",
        "subs {word}, {word}, #1",
        "b.ne 37b",
        "ldr {word}, [{place}]";
        yields "mov {word}, xzr";
        word = out(reg) word,
    );
    (exit, [word])
}

/// Copies the words, if there are as many.
#[inline(always)]
fn put<const N: usize, const WORDS: usize>(words: &mut [Word; N], from: &[Word; WORDS]) {
    if N == WORDS {
        words.copy_from_slice(from);
    }
}
