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

use crate::rseq::{Exit, Index, Slots, Yielded};

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
            "mov {scratch}, qword ptr [{offsets} + 8*{scratch}]\n",
            "add {scratch}, qword ptr [{object}]\n",
            "jnc 34f\n",
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

/// One section: the common frame around its last steps, which find the slot's address in
/// `{scratch}`, and after the semicolon their own operands.
macro_rules! section {
    ($index:expr, $object:expr, $($step:literal),+; $($operands:tt)*) => {{
        let scratch: u64;
        // SAFETY: `area` and `id` are offsets into this thread's rseq area (invariants 1 and 2 of
        // `sys::rseq`), `offsets` has a word for each id the kernel gives; the section stores to the
        // slot of an opened id alone, valid by the promise of this function's caller. Aborted, it
        // has stored nothing but `rseq_cs` and what its specification lets be overwritten.
        unsafe {
            asm!(
                prologue!(),
                locate!(),
                $($step,)+
                epilogue!(),
                area = in(reg) $index.area,
                id = in(reg) $index.id,
                offsets = in(reg) $index.offsets,
                object = in(reg) $object,
                scratch = out(reg) scratch,
                $($operands)*
                options(nostack),
            );
        }
        Exit(scratch)
    }};
}

/// Section `add`.
///
/// # Safety
/// As [`crate::rseq::add`].
#[inline(always)]
pub(crate) unsafe fn add(index: Index, object: &Slots, n: i64) -> Exit {
    section!(index, object, "add qword ptr [{scratch}], {n}"; n = in(reg) n,)
}

/// Section `add_at`.
///
/// # Safety
/// As [`crate::rseq::add_at`].
#[inline(always)]
pub(crate) unsafe fn add_at(index: Index, object: &Slots, offset: usize, n: i64) -> Exit {
    section!(index, object, "add qword ptr [{scratch} + {offset}], {n}";
        offset = in(reg) offset, n = in(reg) n,)
}

/// Section `store_greater`.
///
/// # Safety
/// As [`crate::rseq::store_greater`].
#[inline(always)]
pub(crate) unsafe fn store_greater(index: Index, object: &Slots, n: i64) -> Exit {
    section!(
        index,
        object,
        "cmp qword ptr [{scratch}], {n}",
        "jge 36f",
        "mov qword ptr [{scratch}], {n}";
        n = in(reg) n,
    )
}

/// Section `store_if_equal`.
///
/// # Safety
/// As [`crate::rseq::store_if_equal`].
#[inline(always)]
pub(crate) unsafe fn store_if_equal(index: Index, object: &Slots, expected: u64, n: u64) -> Exit {
    section!(
        index,
        object,
        "cmp qword ptr [{scratch}], {expected}",
        "jne 36f",
        "mov qword ptr [{scratch}], {n}";
        expected = in(reg) expected, n = in(reg) n,
    )
}

/// Section `exchange`.
///
/// # Safety
/// As [`crate::rseq::exchange`].
#[inline(always)]
pub(crate) unsafe fn exchange(index: Index, object: &Slots, n: u64) -> Yielded {
    let old: u64;
    let exit = section!(
        index,
        object,
        "mov {old}, qword ptr [{scratch}]",
        "mov qword ptr [{scratch}], {n}";
        n = in(reg) n, old = out(reg) old,
    );
    (exit, old)
}

/// Section `add_fetch`.
///
/// # Safety
/// As [`crate::rseq::add_fetch`].
#[inline(always)]
pub(crate) unsafe fn add_fetch(index: Index, object: &Slots, n: u64) -> Yielded {
    let new: u64;
    let exit = section!(
        index,
        object,
        "mov {new}, qword ptr [{scratch}]",
        "add {new}, {n}",
        "mov qword ptr [{scratch}], {new}";
        n = in(reg) n, new = out(reg) new,
    );
    (exit, new)
}

/// Section `push`.
///
/// # Safety
/// As [`crate::rseq::push`].
#[inline(always)]
pub(crate) unsafe fn push(index: Index, object: &Slots, item: u64, capacity: u64) -> Exit {
    section!(
        index,
        object,
        "mov {count}, qword ptr [{scratch}]",
        "cmp {count}, {capacity}",
        "jae 36f",
        "mov qword ptr [{scratch} + 8*{count} + 8], {item}",
        "add {count}, 1",
        "mov qword ptr [{scratch}], {count}";
        item = in(reg) item, capacity = in(reg) capacity, count = out(reg) _,
    )
}

/// Section `pop`.
///
/// # Safety
/// As [`crate::rseq::pop`].
#[inline(always)]
pub(crate) unsafe fn pop(index: Index, object: &Slots) -> Yielded {
    let item: u64;
    let exit = section!(
        index,
        object,
        "mov {count}, qword ptr [{scratch}]",
        "sub {count}, 1",
        "jb 36f",
        "mov {item}, qword ptr [{scratch} + 8*{count} + 8]",
        "mov qword ptr [{scratch}], {count}";
        item = out(reg) item, count = out(reg) _,
    );
    (exit, item)
}

/// Section `push_all`.
///
/// # Safety
/// As [`crate::rseq::push_all`].
#[inline(always)]
pub(crate) unsafe fn push_all(
    index: Index,
    object: &Slots,
    from: *const u64,
    n: u64,
    capacity: u64,
) -> Exit {
    section!(
        index,
        object,
        "mov {to}, qword ptr [{scratch}]",
        "lea {count}, [{to} + {n}]",
        "cmp {count}, {capacity}",
        "ja 36f",
        "lea {to}, [{scratch} + 8*{to} + 8]",
        "mov {left}, {n}",
        "37:",
        "mov {word}, qword ptr [{from} + 8*{left} - 8]",
        "mov qword ptr [{to} + 8*{left} - 8], {word}",
        "sub {left}, 1",
        "jnz 37b",
        "mov qword ptr [{scratch}], {count}";
        from = in(reg) from, n = in(reg) n, capacity = in(reg) capacity,
        to = out(reg) _, count = out(reg) _, left = out(reg) _, word = out(reg) _,
    )
}

/// Section `pop_some`.
///
/// # Safety
/// As [`crate::rseq::pop_some`].
#[inline(always)]
pub(crate) unsafe fn pop_some(index: Index, object: &Slots, to: *mut u64, most: u64) -> Yielded {
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
        "37:",
        "mov {word}, qword ptr [{from} + 8*{left}]",
        "mov qword ptr [{to} + 8*{left}], {word}",
        "sub {left}, 1",
        "jnb 37b",
        "mov qword ptr [{scratch}], {count}";
        to = in(reg) to, most = in(reg) most, n = out(reg) n,
        count = out(reg) _, from = out(reg) _, left = out(reg) _, word = out(reg) _,
    );
    (exit, n)
}
