//! The frame of all sections, and the steps that several of them have. Shape of a section:
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

/// `locate`: loads the address of the current id's slot into `scratch`, or leaves for `unavailable`. The object's base
/// is at `$place`.
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
            core::arch::asm!(
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
