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
//! - The scratch register holds the outcome: the number of an exit, or after a commit the slot's address (or the
//!   descriptor's, if there is no slot), which differs from all exit numbers. So a commit needs no instruction to
//!   report itself. The exits that need the cold path have the lowest numbers, so one compare finds them. Scratch is
//!   `out`, never `lateout`: it shares no register with an input. The result word is 0 unless the section commits.

use core::arch::asm;
use core::arch::x86_64::__m128i;
use core::mem::MaybeUninit;

use crate::rseq::hot::{FREED, FRONT};
use crate::rseq::{Exit, Index, Loaded, Popped, SEGMENT, Slots, TRACE_BUFFER, Yielded};

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

/// `locate`: loads the address of the current id's slot into `scratch`, or leaves for `unavailable`. The object's base is at
/// `$place`.
macro_rules! locate {
    ($place:literal) => {
        concat!(
            "cmp dword ptr fs:[{area} + 4], 0\n",
            "jl 34f\n",
            "mov {scratch:e}, dword ptr fs:[{id}]\n",
            "mov {scratch}, qword ptr [{offsets} + 8*{scratch}]\n",
            "add {scratch}, qword ptr ",
            $place,
            "\n",
            "jnc 34f\n",
        )
    };
}

/// `$clear` sets the result word of a section that does not commit: its register may hold anything then.
macro_rules! epilogue {
    ($($clear:literal)?) => {
        concat!(
            "32:\n",
            ".pushsection __rseq_failure, \"ax\", @progbits\n",
            "34: mov {scratch:e}, 2\n",
            $($clear, "\n",)?
            "jmp 32b\n",
            "36: mov {scratch:e}, 3\n",
            $($clear, "\n",)?
            "jmp 32b\n",
            ".byte 0x0f, 0xb9, 0x3d\n",
            ".long 0x53053053\n",
            "33: mov {scratch:e}, 1\n",
            $($clear, "\n",)?
            "jmp 32b\n",
            ".popsection\n",
        )
    };
}

/// A store before the commit to memory that other threads do not read until then. It is declared, so that `corelocal
/// check` does not warn of it.
macro_rules! prepare {
    ($store:expr) => {
        concat!(
            "38:\n",
            ".pushsection __rseq_prepare, \"a\", @progbits\n",
            "39: .long 38b - 39b\n",
            ".popsection\n",
            ".reloc 0, R_X86_64_NONE, 39b\n",
            $store,
            "\n",
        )
    };
}

/// One critical section: the common frame around its last steps, which find the slot's address in `{scratch}`, and
/// after the semicolon their own operands. `here` stands before an object that is a static of this crate's: its base is
/// read without its address.
macro_rules! section {
    ($index:expr, here $object:path, $($step:expr),+; yields $clear:literal; $($operands:tt)*) => {
        section!(@ [$clear], $index, "[rip + {object}]", $($step),+; object = sym $object, $($operands)*)
    };
    ($index:expr, here $object:path, $($step:expr),+; $($operands:tt)*) => {
        section!(@ [], $index, "[rip + {object}]", $($step),+; object = sym $object, $($operands)*)
    };
    ($index:expr, $object:expr, $($step:expr),+; yields $clear:literal; $($operands:tt)*) => {
        section!(@ [$clear], $index, "[{object}]", $($step),+; object = in(reg) $object, $($operands)*)
    };
    ($index:expr, $object:expr, $($step:expr),+; $($operands:tt)*) => {
        section!(@ [], $index, "[{object}]", $($step),+; object = in(reg) $object, $($operands)*)
    };
    (@ [$($clear:literal)?], $index:expr, $place:literal, $($step:expr),+; $($operands:tt)*) => {{
        let scratch: u64;
        // SAFETY: `area` and `id` are offsets into this thread's rseq area (invariants 1 and 2 of `sys::rseq`), and
        // `offsets` has a word for each id that the kernel assigns. The section stores to the slot of an opened id
        // only, which this function's caller guarantees to be valid. If aborted it has stored `rseq_cs` only, and
        // what its specification allows to be overwritten.
        unsafe {
            asm!(
                prologue!(),
                locate!($place),
                $($step,)+
                epilogue!($($clear)?),
                area = in(reg) $index.area,
                id = in(reg) $index.id,
                offsets = in(reg) $index.offsets,
                scratch = out(reg) scratch,
                $($operands)*
                options(nostack),
            );
        }
        Exit(scratch)
    }};
}

/// Runs section `add`.
///
/// # Safety
/// - The conditions of [`crate::rseq::add`] hold.
#[inline(always)]
pub(crate) unsafe fn add(index: Index, object: &Slots, n: i64) -> Exit {
    section!(index, object, "add qword ptr [{scratch}], {n}"; n = in(reg) n,)
}

/// Runs section `increment`.
///
/// # Safety
/// - The conditions of [`crate::rseq::increment`] hold.
#[inline(always)]
pub(crate) unsafe fn increment(index: Index, object: &Slots) -> Exit {
    section!(index, object, "add qword ptr [{scratch}], 1";)
}

/// Runs section `add_at`.
///
/// # Safety
/// - The conditions of [`crate::rseq::add_at`] hold.
#[inline(always)]
pub(crate) unsafe fn add_at(index: Index, object: &Slots, offset: usize, n: i64) -> Exit {
    section!(index, object, "add qword ptr [{scratch} + {offset}], {n}";
        offset = in(reg) offset, n = in(reg) n,)
}

/// Runs section `increment_at`.
///
/// # Safety
/// - The conditions of [`crate::rseq::increment_at`] hold.
#[inline(always)]
pub(crate) unsafe fn increment_at(index: Index, object: &Slots, offset: usize) -> Exit {
    section!(index, object, "add qword ptr [{scratch} + {offset}], 1"; offset = in(reg) offset,)
}

/// Runs section `store_greater`.
///
/// # Safety
/// - The conditions of [`crate::rseq::store_greater`] hold.
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

/// Runs section `store_if_equal`.
///
/// # Safety
/// - The conditions of [`crate::rseq::store_if_equal`] hold.
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

/// Runs section `exchange`.
///
/// # Safety
/// - The conditions of [`crate::rseq::exchange`] hold.
#[inline(always)]
pub(crate) unsafe fn exchange(index: Index, object: &Slots, n: u64) -> Yielded {
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

/// Runs section `add_fetch`.
///
/// # Safety
/// - The conditions of [`crate::rseq::add_fetch`] hold.
#[inline(always)]
pub(crate) unsafe fn add_fetch(index: Index, object: &Slots, n: u64) -> Yielded {
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

/// Runs section `store_if_equal_at`.
///
/// # Safety
/// - The conditions of [`crate::rseq::store_if_equal_at`] hold.
#[inline(always)]
pub(crate) unsafe fn store_if_equal_at(
    index: Index,
    object: &Slots,
    offset: usize,
    expected: u64,
    n: u64,
) -> Exit {
    section!(
        index,
        object,
        "cmp qword ptr [{scratch} + {offset}], {expected}",
        "jne 36f",
        "mov qword ptr [{scratch} + {offset}], {n}";
        offset = in(reg) offset, expected = in(reg) expected, n = in(reg) n,
    )
}

/// Runs section `exchange_at`.
///
/// # Safety
/// - The conditions of [`crate::rseq::exchange_at`] hold.
#[inline(always)]
pub(crate) unsafe fn exchange_at(index: Index, object: &Slots, offset: usize, n: u64) -> Yielded {
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

/// Runs section `add_fetch_at`.
///
/// # Safety
/// - The conditions of [`crate::rseq::add_fetch_at`] hold.
#[inline(always)]
pub(crate) unsafe fn add_fetch_at(index: Index, object: &Slots, offset: usize, n: u64) -> Yielded {
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

/// Runs section `push`.
///
/// # Safety
/// - The conditions of [`crate::rseq::push`] hold.
#[inline(always)]
pub(crate) unsafe fn push(
    index: Index,
    object: &Slots,
    item: MaybeUninit<u64>,
    capacity: u64,
) -> Exit {
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

/// Runs section `pop`.
///
/// # Safety
/// - The conditions of [`crate::rseq::pop`] hold.
#[inline(always)]
pub(crate) unsafe fn pop(index: Index, object: &Slots) -> Popped {
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

/// Runs the critical section `push_some`. It loads single words: a wider load would wait for all the stores that made
/// the item.
///
/// # Safety
/// - The conditions of [`crate::rseq::push_some`] hold.
#[inline(always)]
pub(crate) unsafe fn push_some(
    index: Index,
    object: &Slots,
    from: *const MaybeUninit<u64>,
    most: u64,
    capacity: u64,
) -> Yielded {
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

/// Runs the critical section `pop_some`. It loads single words, as they were pushed, and stores pairs, as compilers
/// load what they copy: a load that spans two recent stores would wait for both to reach the cache.
///
/// # Safety
/// - The conditions of [`crate::rseq::pop_some`] hold.
#[inline(always)]
pub(crate) unsafe fn pop_some(
    index: Index,
    object: &Slots,
    to: *mut MaybeUninit<u64>,
    most: u64,
) -> Yielded {
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

/// For the pops off a stack with a limit: decrements `count`, or leaves for `mismatch`.
macro_rules! count_limited {
    () => {
        concat!(
            "add {scratch}, {offset}\n",
            "mov {count}, qword ptr [{scratch} + 16]\n",
            "sub {count}, 1\n",
            "jb 36f\n",
        )
    };
}

/// For the same: takes the item, which is the guess at the top if that is right, guesses the next one, and commits.
macro_rules! pop_limited {
    () => {
        concat!(
            "mov {item}, qword ptr [{scratch}]\n",
            "cmp {item}, qword ptr [{scratch} + 8*{count} + 24]\n",
            "je 40f\n",
            "mov {item}, qword ptr [{scratch} + 8*{count} + 24]\n",
            "40: mov {offset}, qword ptr [{scratch} + 8*{count} + 16]\n",
            prepare!("mov qword ptr [{scratch}], {offset}"),
            "mov qword ptr [{scratch} + 16], {count}\n",
        )
    };
}

/// The steps of `pop_at`. The count is loaded before the stack's address is computed, since the offset arrives last.
macro_rules! pop_at_steps {
    ($index:expr, $offset:expr, $($object:tt)+) => {{
        let item: MaybeUninit<u64>;
        let exit = section!(
            $index,
            $($object)+,
            count_limited!(),
            pop_limited!();
            yields "xor {item:e}, {item:e}";
            offset = inout(reg) $offset => _, item = out(reg) item, count = out(reg) _,
        );
        (exit, item)
    }};
}

/// Runs the critical section `pop_at`.
///
/// # Safety
/// - The conditions of [`crate::rseq::pop_at`] hold.
#[inline(always)]
pub(crate) unsafe fn pop_at(index: Index, object: &Slots, offset: usize) -> Popped {
    pop_at_steps!(index, offset, object)
}

/// Runs it on the stacks of hot paths.
///
/// # Safety
/// - The conditions of [`crate::rseq::pop_at`] hold for `FRONT`.
#[inline(always)]
pub(crate) unsafe fn pop_front(index: Index, offset: usize) -> Popped {
    pop_at_steps!(index, offset, here FRONT)
}

/// Runs the critical section `pop_counted_at`. The remaining number passes through the item's register.
///
/// # Safety
/// - The conditions of [`crate::rseq::pop_counted_at`] hold.
#[inline(always)]
pub(crate) unsafe fn pop_counted_at(index: Index, object: &Slots, offset: usize) -> Popped {
    let item: MaybeUninit<u64>;
    let exit = section!(
        index,
        object,
        count_limited!(),
        "mov {item}, qword ptr [{scratch} - 8]",
        "sub {item}, 1",
        "jbe 36f",
        prepare!("mov qword ptr [{scratch} - 8], {item}"),
        pop_limited!();
        yields "xor {item:e}, {item:e}";
        offset = inout(reg) offset => _, item = out(reg) item, count = out(reg) _,
    );
    (exit, item)
}

/// The steps of `push_at`.
macro_rules! push_at_steps {
    ($index:expr, $offset:expr, $item:expr, $($object:tt)+) => {
        section!(
            $index,
            $($object)+,
            "add {scratch}, {offset}",
            "mov {count}, qword ptr [{scratch} + 16]",
            "cmp {count}, qword ptr [{scratch} + 8]",
            "jae 36f",
            prepare!("mov qword ptr [{scratch}], {item}"),
            "cmp {item}, qword ptr [{scratch} + 8*{count} + 16]",
            "je 36f",
            prepare!("mov qword ptr [{scratch} + 8*{count} + 24], {item}"),
            "add {count}, 1",
            "mov qword ptr [{scratch} + 16], {count}";
            offset = in(reg) $offset, item = in(reg) $item, count = out(reg) _,
        )
    };
}

/// Runs section `push_at`.
///
/// # Safety
/// - The conditions of [`crate::rseq::push_at`] hold.
#[inline(always)]
pub(crate) unsafe fn push_at(index: Index, object: &Slots, offset: usize, item: u64) -> Exit {
    push_at_steps!(index, offset, item, object)
}

/// Runs it on the stacks of hot paths.
///
/// # Safety
/// - The conditions of [`crate::rseq::push_at`] hold for `FRONT`.
#[inline(always)]
pub(crate) unsafe fn push_front(index: Index, offset: usize, item: u64) -> Exit {
    push_at_steps!(index, offset, item, here FRONT)
}

/// Runs it on the stacks that objects of a known class are freed to.
///
/// # Safety
/// - The conditions of [`crate::rseq::push_at`] hold for `FREED`.
#[inline(always)]
pub(crate) unsafe fn push_freed(index: Index, offset: usize, item: u64) -> Exit {
    push_at_steps!(index, offset, item, here FREED)
}

/// Runs section `ring_push` of one word.
///
/// # Safety
/// - The conditions of [`crate::rseq::ring_push`] hold.
#[inline(always)]
pub(crate) unsafe fn ring_push(
    index: Index,
    object: &Slots,
    item: MaybeUninit<u64>,
    mask: u64,
) -> Exit {
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

/// Runs section `ring_push`.
///
/// # Safety
/// - The conditions of [`crate::rseq::ring_push_words`] hold.
#[inline(always)]
pub(crate) unsafe fn ring_push_words(
    index: Index,
    object: &Slots,
    from: *const MaybeUninit<u64>,
    n: u64,
    mask: u64,
) -> Exit {
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

/// Runs section `queue_push` of one word.
///
/// # Safety
/// - The conditions of [`crate::rseq::queue_push`] hold.
#[inline(always)]
pub(crate) unsafe fn queue_push(index: Index, object: &Slots, item: MaybeUninit<u64>) -> Exit {
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

/// Runs section `queue_push`.
///
/// # Safety
/// - The conditions of [`crate::rseq::queue_push_words`] hold.
#[inline(always)]
pub(crate) unsafe fn queue_push_words(
    index: Index,
    object: &Slots,
    from: *const MaybeUninit<u64>,
    n: u64,
) -> Exit {
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

/// Runs section `queue_link`.
///
/// # Safety
/// - The conditions of [`crate::rseq::queue_link`] hold.
#[inline(always)]
pub(crate) unsafe fn queue_link(
    index: Index,
    object: &Slots,
    first: *mut u8,
    past: *mut u8,
) -> Exit {
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

/// For trace buffers: loads the buffer's address into `scratch`.
macro_rules! trace_buffer {
    () => {
        concat!(
            "mov {scratch}, qword ptr [{scratch}]\n",
            "test {scratch}, {scratch}\n",
            "jz 36f\n",
        )
    };
}

/// Leaves for `mismatch` if another thread or cpu was the last to append.
macro_rules! trace_owner {
    () => {
        concat!(
            "mov {used:e}, dword ptr fs:[{area} + 4]\n",
            "add {used}, {thread}\n",
            "cmp qword ptr [{scratch} + 8], {used}\n",
            "jne 36f\n",
        )
    };
}

/// Reserves the words of a record, with so many bytes besides: `used` is their offset, `next` the one behind.
macro_rules! trace_reserve {
    ($besides:literal) => {
        concat!(
            "mov {used}, qword ptr [{scratch}]\n",
            "lea {next}, [{used} + 8*{n} + ",
            $besides,
            "]\n",
            "cmp {next}, {limit}\n",
            "ja 36f\n",
            "add {used}, {scratch}\n",
        )
    };
}

/// Copies the words of a record behind `$besides` bytes. Changes rax and rdx.
macro_rules! trace_copy {
    ($besides:literal) => {
        concat!(
            "mov rdx, {n}\n",
            "37:\n",
            "mov rax, qword ptr [{from} + 8*rdx - 8]\n",
            prepare!(concat!("mov qword ptr [{used} + 8*rdx - 8 + ", $besides, "], rax")),
            "sub rdx, 1\n",
            "jnz 37b\n",
        )
    };
}

/// Runs section `trace_push`. It names rax and rdx, which unoptimised code copies afterwards, so the exits clear what
/// it changes.
///
/// # Safety
/// - The conditions of [`crate::rseq::trace_push`] hold.
#[inline(always)]
pub(crate) unsafe fn trace_push(
    index: Index,
    object: &Slots,
    thread: u64,
    from: *const MaybeUninit<u64>,
    n: u64,
) -> Exit {
    section!(
        index,
        object,
        trace_buffer!(),
        trace_owner!(),
        trace_reserve!("8"),
        "rdtsc",
        prepare!("mov dword ptr [{used}], eax"),
        prepare!("mov dword ptr [{used} + 4], edx"),
        trace_copy!("8"),
        "mov qword ptr [{scratch}], {next}";
        yields "xor eax, eax; xor edx, edx; xor {used:e}, {used:e}; xor {next:e}, {next:e}";
        thread = in(reg) thread, from = in(reg) from, n = in(reg) n, limit = const TRACE_BUFFER,
        used = out(reg) _, next = out(reg) _, out("rax") _, out("rdx") _,
    )
}

/// Runs section `trace_push_timed`.
///
/// # Safety
/// - The conditions of [`crate::rseq::trace_push_timed`] hold.
#[inline(always)]
pub(crate) unsafe fn trace_push_timed(
    index: Index,
    object: &Slots,
    thread: u64,
    time: u64,
    from: *const MaybeUninit<u64>,
    n: u64,
) -> Exit {
    section!(
        index,
        object,
        trace_buffer!(),
        trace_owner!(),
        trace_reserve!("8"),
        prepare!("mov qword ptr [{used}], {time}"),
        trace_copy!("8"),
        "mov qword ptr [{scratch}], {next}";
        yields "xor eax, eax; xor edx, edx; xor {used:e}, {used:e}; xor {next:e}, {next:e}";
        thread = in(reg) thread, time = in(reg) time, from = in(reg) from, n = in(reg) n,
        limit = const TRACE_BUFFER,
        used = out(reg) _, next = out(reg) _, out("rax") _, out("rdx") _,
    )
}

/// Reserves room for a record of so many bytes: `used` is its address.
macro_rules! trace_reserve_fixed {
    ($len:literal) => {
        concat!(
            "mov {used}, qword ptr [{scratch}]\n",
            "cmp {used}, {limit} - ",
            $len,
            "\n",
            "ja 36f\n",
            "add {used}, {scratch}\n",
        )
    };
}

/// The sections of records of fixed length: the steps that write the time, what clears the registers they change, and
/// their operands; then the length of the record in bytes, and for each word its offset in the record and its register.
macro_rules! trace_fixed {
    ([$($time:expr),+] [$clear:literal] [$($operands:tt)*]
        $index:ident, $object:ident, $thread:ident, $len:literal; $($at:literal: $word:ident = $value:expr),+) => {
        section!(
            $index,
            $object,
            trace_buffer!(),
            trace_owner!(),
            trace_reserve_fixed!($len),
            $($time,)+
            $(prepare!(concat!("mov qword ptr [{used} + ", $at, "], {", stringify!($word), "}")),)+
            concat!("add qword ptr [{scratch}], ", $len);
            yields $clear;
            thread = in(reg) $thread, limit = const TRACE_BUFFER, used = out(reg) _, $($operands)*
            $($word = in(reg) $value,)+
        )
    };
}

/// The section `trace_push_fixed`, see [`trace_fixed`].
macro_rules! trace_push_fixed {
    ($($rest:tt)*) => {
        trace_fixed!(
            ["rdtsc", prepare!("mov dword ptr [{used}], eax"), prepare!("mov dword ptr [{used} + 4], edx")]
            ["xor eax, eax; xor edx, edx; xor {used:e}, {used:e}"]
            [out("rax") _, out("rdx") _,]
            $($rest)*
        )
    };
}

/// The section `trace_push_timed_fixed`, see [`trace_fixed`].
macro_rules! trace_push_timed_fixed {
    ($index:ident, $object:ident, $thread:ident, $time:ident, $($rest:tt)*) => {
        trace_fixed!(
            [prepare!("mov qword ptr [{used}], {time}")]
            ["xor {used:e}, {used:e}"]
            [time = in(reg) $time,]
            $index, $object, $thread, $($rest)*
        )
    };
}

/// Runs section `trace_push_fixed`: `trace_push` of up to four words, which are in registers.
///
/// # Safety
/// - The conditions of [`crate::rseq::trace_push_fixed`] hold.
#[inline(always)]
pub(crate) unsafe fn trace_push_fixed<const N: usize>(
    index: Index,
    object: &Slots,
    thread: u64,
    words: [u64; N],
) -> Exit {
    match *words.as_slice() {
        [a] => trace_push_fixed!(index, object, thread, "16"; "8": a = a),
        [a, b] => trace_push_fixed!(index, object, thread, "24"; "8": a = a, "16": b = b),
        [a, b, c] => {
            trace_push_fixed!(index, object, thread, "32"; "8": a = a, "16": b = b, "24": c = c)
        }
        [a, b, c, d] => {
            trace_push_fixed!(index, object, thread, "40"; "8": a = a, "16": b = b, "24": c = c, "32": d = d)
        }
        _ => Exit::COLD,
    }
}

/// Runs section `trace_push_timed_fixed`: `trace_push_timed` of up to four words, which are in registers.
///
/// # Safety
/// - The conditions of [`crate::rseq::trace_push_timed_fixed`] hold.
#[inline(always)]
pub(crate) unsafe fn trace_push_timed_fixed<const N: usize>(
    index: Index,
    object: &Slots,
    thread: u64,
    time: u64,
    words: [u64; N],
) -> Exit {
    match *words.as_slice() {
        [a] => trace_push_timed_fixed!(index, object, thread, time, "16"; "8": a = a),
        [a, b] => {
            trace_push_timed_fixed!(index, object, thread, time, "24"; "8": a = a, "16": b = b)
        }
        [a, b, c] => {
            trace_push_timed_fixed!(index, object, thread, time, "32"; "8": a = a, "16": b = b, "24": c = c)
        }
        [a, b, c, d] => {
            trace_push_timed_fixed!(index, object, thread, time, "40"; "8": a = a, "16": b = b, "24": c = c, "32": d = d)
        }
        _ => Exit::COLD,
    }
}

/// Runs section `trace_context`. The commit is one instruction, so an abort leaves both words or none. Other cpus read
/// `used` only.
///
/// # Safety
/// - The conditions of [`crate::rseq::trace_context`] hold.
#[inline(always)]
pub(crate) unsafe fn trace_context(
    index: Index,
    object: &Slots,
    owner: u64,
    from: *const MaybeUninit<u64>,
    n: u64,
) -> Exit {
    section!(
        index,
        object,
        trace_buffer!(),
        trace_reserve!("0"),
        trace_copy!("0"),
        "movq {both}, {next}",
        "movq {high}, {owner}",
        "punpcklqdq {both}, {high}",
        "movaps xmmword ptr [{scratch}], {both}";
        yields "xor eax, eax; xor edx, edx; xor {used:e}, {used:e}; xor {next:e}, {next:e}; \
            xorps {both}, {both}; xorps {high}, {high}";
        owner = in(reg) owner, from = in(reg) from, n = in(reg) n, limit = const TRACE_BUFFER,
        used = out(reg) _, next = out(reg) _, out("rax") _, out("rdx") _,
        both = out(xmm_reg) _, high = out(xmm_reg) _,
    )
}

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
