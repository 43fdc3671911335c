//! Sections that look for no slot: they end at a fence, which guards what they read.

use core::arch::asm;
use core::arch::x86_64::__m128i;
use core::mem::MaybeUninit;

use crate::rseq::{Exit, Loaded};

/// Runs section `clear_if_clear`. On x86-64 each store is a release.
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
            "cmp dword ptr fs:[{area} + 4], 0",
            "jl 34f",
            "cmp dword ptr [{gate}], 0",
            "jne 36f",
            "mov dword ptr [{word}], 0",
            epilogue!(),
            area = in(reg) area,
            gate = in(reg) gate,
            word = in(reg) word,
            scratch = out(reg) scratch,
            options(nostack),
        );
    }
    Exit(scratch)
}

/// The critical section `load`. Its first instruction is declared, so that `corelocal check` does not warn that it
/// stores nothing.
macro_rules! load {
    ($area:expr, $pointer:expr, $($step:literal),+; yields $clear:literal; $($operands:tt)*) => {{
        let scratch: u64;
        // SAFETY: `area` is the offset of this thread's rseq area, and this function's caller guarantees a valid
        // pointer, and words at its value that stay until a fence, which aborts this section. It stores `rseq_cs` only.
        unsafe {
            asm!(
                prologue!(),
                ".pushsection __rseq_prepare, \"a\", @progbits",
                "39: .long 31b - 39b",
                ".popsection",
                ".reloc 0, R_X86_64_NONE, 39b",
                "cmp dword ptr fs:[{area} + 4], 0",
                "jl 34f",
                "mov {at}, qword ptr [{pointer}]",
                "test {at}, {at}",
                "jle 36f",
                $($step,)+
                epilogue!($clear),
                area = in(reg) $area,
                pointer = in(reg) $pointer,
                scratch = out(reg) scratch,
                $($operands)*
                options(nostack),
            );
        }
        Exit(scratch)
    }};
}

/// Runs section `load`.
///
/// # Safety
/// - The conditions of [`crate::rseq::load`] hold.
#[inline(always)]
pub(crate) unsafe fn load<const N: usize>(area: isize, pointer: *const *const u8) -> Loaded<N> {
    type Pair = MaybeUninit<__m128i>;
    let mut words = [MaybeUninit::uninit(); N];
    let exit = match N {
        1 => {
            let word: MaybeUninit<u64>;
            let exit = load!(
                area,
                pointer,
                "mov {at}, qword ptr [{at}]";
                yields "xor {at:e}, {at:e}";
                at = out(reg) word,
            );
            words[0] = word;
            exit
        }
        2 => {
            let a: Pair;
            let exit = load!(
                area,
                pointer,
                "movaps {a}, [{at}]";
                yields "xorps {a}, {a}";
                at = out(reg) _, a = out(xmm_reg) a,
            );
            put(&mut words, &[a]);
            exit
        }
        4 => {
            let (a, b): (Pair, Pair);
            let exit = load!(
                area,
                pointer,
                "movaps {a}, [{at}]",
                "movaps {b}, [{at} + 16]";
                yields "xorps {a}, {a}; xorps {b}, {b}";
                at = out(reg) _, a = out(xmm_reg) a, b = out(xmm_reg) b,
            );
            put(&mut words, &[a, b]);
            exit
        }
        _ => {
            let (a, b, c, d): (Pair, Pair, Pair, Pair);
            let exit = load!(
                area,
                pointer,
                "movaps {a}, [{at}]",
                "movaps {b}, [{at} + 16]",
                "movaps {c}, [{at} + 32]",
                "movaps {d}, [{at} + 48]";
                yields "xorps {a}, {a}; xorps {b}, {b}; xorps {c}, {c}; xorps {d}, {d}";
                at = out(reg) _, a = out(xmm_reg) a, b = out(xmm_reg) b, c = out(xmm_reg) c,
                d = out(xmm_reg) d,
            );
            put(&mut words, &[a, b, c, d]);
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
    let word: MaybeUninit<u64>;
    let exit = load!(
        area,
        pointer,
        "mov {left:e}, 300",
        "37: pause",
        "sub {left:e}, 1",
        "jnz 37b",
        "mov {at}, qword ptr [{at}]";
        yields "xor {at:e}, {at:e}";
        at = out(reg) word, left = out(reg) _,
    );
    (exit, [word])
}

/// Stores pairs as words, if there are as many.
#[inline(always)]
fn put<const N: usize, const PAIRS: usize>(
    words: &mut [MaybeUninit<u64>; N],
    pairs: &[MaybeUninit<__m128i>; PAIRS],
) {
    if N == 2 * PAIRS {
        let to = words.as_mut_ptr().cast::<[MaybeUninit<__m128i>; PAIRS]>();
        // SAFETY: as long as the words, which may be unaligned for a pair.
        unsafe { to.write_unaligned(*pairs) };
    }
}
