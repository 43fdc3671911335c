//! The sections in x86-64 assembly.
//!
//! Shape of each, by the macros below:
//!
//! ```text
//!         lea  scratch, descriptor
//!         mov  fs:[area + 8], scratch            arm: rseq_cs = descriptor
//!   31:   …the section…                          start_ip is right after the arming store
//!         …one store…                            commit
//!   32:   …                                      post-commit
//!   elsewhere:
//!   34:   mov  scratch, 2; jmp 32b                unavailable
//!   36:   mov  scratch, 3; jmp 32b                mismatch
//!         <signature>
//!   33:   mov  scratch, 1; jmp 32b                aborted: the kernel resumes here
//! ```
//!
//! - The descriptor lies in `__rseq_cs` (writable, or PIC code does not link) and its address in
//!   `__rseq_cs_ptr_array`, which debuggers read. A no-op relocation ties the array entry to the
//!   code, or `--gc-sections` would drop it.
//! - Every label is local and numeric: the compiler copies blocks when it inlines, and each copy
//!   needs its own. None is made of 0s and 1s, which Intel syntax reads as a binary number.
//! - The signature before the abort handler is the immediate of a `ud1`, so that disassemblers
//!   stay in step; the kernel compares it with the one libc registered.
//! - Scratch tells the outcome: an exit leaves its number there, a commit the slot's address, which
//!   no exit's number is. So a commit takes no instruction to say so. The exits that call for the
//!   cold path have the lowest numbers: one compare finds them. Scratch is `out`, never `lateout`:
//!   it shares no register with an input.

use core::arch::asm;

use crate::rseq::{Index, Outcome, SLOT_SHIFT, Slots};

macro_rules! prologue {
    () => {
        concat!(
            ".pushsection __rseq_cs, \"aw\", @progbits\n",
            ".balign 32\n",
            "30: .long 0, 0\n",            // version, flags
            ".quad 31f, 32f - 31f, 33f\n", // start_ip, post_commit_offset, abort_ip
            ".popsection\n",
            ".pushsection __rseq_cs_ptr_array, \"aw\", @progbits\n",
            "35: .quad 30b\n",
            ".popsection\n",
            ".reloc 0, R_X86_64_NONE, 35b\n",
            "lea {scratch}, [rip + 30b]\n",
            "mov qword ptr fs:[{area} + 8], {scratch}\n",
            "31:\n",
        )
    };
}

/// `locate`: the address of the current id's slot into `scratch`, or leave for `unavailable`.
macro_rules! locate {
    () => {
        concat!(
            "cmp dword ptr fs:[{area} + 4], 0\n",
            "jl 34f\n",
            "mov {scratch:e}, dword ptr fs:[{id}]\n",
            "cmp {scratch:e}, dword ptr [{object} + 8]\n",
            "jae 34f\n",
            "shl {scratch}, {shift}\n",
            "add {scratch}, qword ptr [{object}]\n",
        )
    };
}

macro_rules! epilogue {
    () => {
        concat!(
            "32:\n",
            ".pushsection __rseq_failure, \"ax\", @progbits\n",
            "34: mov {scratch:e}, 2\n",
            "jmp 32b\n",
            "36: mov {scratch:e}, 3\n",
            "jmp 32b\n",
            ".byte 0x0f, 0xb9, 0x3d\n",
            ".long 0x53053053\n",
            "33: mov {scratch:e}, 1\n",
            "jmp 32b\n",
            ".popsection\n",
        )
    };
}

#[inline(always)]
fn outcome(scratch: u64) -> Outcome {
    match scratch {
        1 => Outcome::Aborted,
        2 => Outcome::Unavailable,
        3 => Outcome::Mismatch,
        _slot => Outcome::Committed,
    }
}

/// One section: the common frame around its last steps, which find the slot's address in
/// `{scratch}` and `n` in `{n}`.
macro_rules! section {
    ($index:expr, $object:expr, $n:expr, $($step:literal),+) => {{
        let scratch: u64;
        // SAFETY: `area` and `id` are offsets into this thread's rseq area (invariants 1 and 2 of
        // `sys::rseq`); the section stores to the slot of an opened id alone, valid by the promise
        // of this function's caller. Aborted, it has stored nothing but `rseq_cs`.
        unsafe {
            asm!(
                prologue!(),
                locate!(),
                $($step,)+
                epilogue!(),
                area = in(reg) $index.area,
                id = in(reg) $index.id,
                object = in(reg) $object,
                n = in(reg) $n,
                shift = const SLOT_SHIFT,
                scratch = out(reg) scratch,
                options(nostack),
            );
        }
        outcome(scratch)
    }};
}

/// Section `add`.
///
/// # Safety
/// As [`crate::rseq::add`].
#[inline(always)]
pub(crate) unsafe fn add(index: Index, object: &Slots, n: i64) -> Outcome {
    section!(index, object, n, "add qword ptr [{scratch}], {n}")
}

/// Section `store_greater`.
///
/// # Safety
/// As [`crate::rseq::add`].
#[inline(always)]
pub(crate) unsafe fn store_greater(index: Index, object: &Slots, n: i64) -> Outcome {
    section!(
        index,
        object,
        n,
        "cmp qword ptr [{scratch}], {n}",
        "jge 36f",
        "mov qword ptr [{scratch}], {n}"
    )
}
