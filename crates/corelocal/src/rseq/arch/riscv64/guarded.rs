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
            registered!("{place}"),
            "lw {place}, 0({gate})",
            "bnez {place}, 36f",
            "fence rw, w",
            "sw x0, 0({word})",
            epilogue!(),
            area = in(reg) area,
            gate = in(reg) gate,
            word = in(reg) word,
            scratch = out(reg) scratch,
            place = out(reg) _,
            options(nostack),
        );
    }
    Exit(scratch)
}

/// The critical section `load`. Its first instruction is declared, so that `corelocal check` does not warn that it
/// stores nothing. The pointer's load is an Acquire by the fence behind it, whose partner is the Release of a store
/// (`rcu/copy.rs`): readers see what happened before it.
macro_rules! load {
    ($area:expr, $pointer:expr, $($step:literal),+; yields $clear:literal; $($operands:tt)*) => {{
        let scratch: u64;
        // SAFETY: `area` is the offset of this thread's rseq area, and this function's caller guarantees a valid
        // pointer, and words at its value that stay until a fence, which aborts this section. It stores `rseq_cs` only.
        unsafe {
            asm!(
                prologue!(),
                ".pushsection __rseq_prepare, \"a\", @progbits",
                "39: .word 31b - 39b",
                ".popsection",
                ".reloc 0, R_RISCV_NONE, 39b",
                registered!("{place}"),
                "ld {place}, 0({pointer})",
                "fence r, rw",
                "blez {place}, 36f",
                $($step,)+
                epilogue!($clear),
                area = in(reg) $area,
                pointer = in(reg) $pointer,
                scratch = out(reg) scratch,
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
                "ld {a}, 0({place})";
                yields "li {a}, 0";
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
                "ld {a}, 0({place})",
                "ld {b}, 8({place})";
                yields "li {a}, 0; li {b}, 0";
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
                "ld {a}, 0({place})",
                "ld {b}, 8({place})",
                "ld {c}, 16({place})",
                "ld {d}, 24({place})";
                yields "li {a}, 0; li {b}, 0; li {c}, 0; li {d}, 0";
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
                "ld {a}, 0({place})",
                "ld {b}, 8({place})",
                "ld {c}, 16({place})",
                "ld {d}, 24({place})",
                "ld {e}, 32({place})",
                "ld {f}, 40({place})",
                "ld {g}, 48({place})",
                "ld {h}, 56({place})";
                yields "li {a}, 0; li {b}, 0; li {c}, 0; li {d}, 0; li {e}, 0; li {f}, 0; li {g}, 0; li {h}, 0";
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
        "li {word}, 1000",
        "37: fence",
        "addi {word}, {word}, -1",
        "bnez {word}, 37b",
        "ld {word}, 0({place})";
        yields "li {word}, 0";
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
