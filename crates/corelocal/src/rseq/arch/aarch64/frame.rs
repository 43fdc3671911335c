//! The frame of all sections. Shape of a section:
//!
//! ```text
//!         adrp scratch, descriptor; add scratch, scratch, :lo12:descriptor
//!         mrs  thread, tpidr_el0; add place, thread, area
//!         str  scratch, [place, #8]              arm: rseq_cs = descriptor
//!   31:   …the section…                          start_ip is right after the arming store
//!         …one store…                            commit
//!   32:   …                                      post-commit
//!   behind the function, in the same section of the object file:
//!   34:   mov  scratch, #2; b 32b                 unavailable
//!   36:   mov  scratch, #3; b 32b                 mismatch
//!         <signature>
//!   33:   mov  scratch, #1; b 32b                 aborted: the kernel resumes here
//! ```
//!
//! - The exits lie in subsection 1 of the function's own section, since a conditional branch reaches 1 MiB. No linker
//!   puts a veneer between them, which would overwrite x16 and x17.
//! - The signature before the abort handler is `brk #0x45e0`, the one that libc registers: an instruction, so that
//!   disassemblers stay in step.
//! - There is no pair of exclusive instructions in a section: no other thread writes the words, so a plain store
//!   commits.
//! - Descriptors, their array, the labels and the outcome in `scratch` are as on x86-64 (`x86_64/frame.rs`).

macro_rules! prologue {
    () => {
        concat!(
            ".pushsection __rseq_cs, \"aw\", %progbits\n",
            ".balign 32\n",
            "30: .word 0, 0\n",             // version, flags
            ".xword 31f, 32f - 31f, 33f\n", // start_ip, post_commit_offset, abort_ip
            ".popsection\n",
            ".pushsection __rseq_cs_ptr_array, \"aw\", %progbits\n",
            "35: .xword 30b\n",
            ".popsection\n",
            ".reloc 0, R_AARCH64_NONE, 35b\n",
            "adrp {scratch}, 30b\n",
            "add {scratch}, {scratch}, :lo12:30b\n",
            "mrs {thread}, tpidr_el0\n",
            "add {place}, {thread}, {area}\n",
            "str {scratch}, [{place}, #8]\n",
            "31:\n",
        )
    };
}

/// Leaves for `unavailable` if the thread is not registered. `place` is the address of its area; changes `$word`.
macro_rules! registered {
    ($word:literal) => {
        concat!("ldr ", $word, ", [{place}, #4]\n", "cmp ", $word, ", #0\n", "b.lt 34f\n")
    };
}

/// `locate`: loads the address of the current id's slot into `scratch`, or leaves for `unavailable`. `$base` loads the
/// object's base into `place`.
macro_rules! locate {
    ($base:expr) => {
        concat!(
            registered!("{scratch:w}"),
            "ldr {scratch:w}, [{thread}, {id}]\n",
            "ldr {scratch}, [{offsets}, {scratch}, lsl #3]\n",
            $base,
            "adds {scratch}, {scratch}, {place}\n",
            "b.cc 34f\n",
        )
    };
}

/// `$clear` sets the result word of a section that does not commit: its register may hold anything then.
macro_rules! epilogue {
    ($($clear:literal)?) => {
        concat!(
            "32:\n",
            ".subsection 1\n",
            "34: mov {scratch}, #2\n",
            $($clear, "\n",)?
            "b 32b\n",
            "36: mov {scratch}, #3\n",
            $($clear, "\n",)?
            "b 32b\n",
            ".inst 0xd428bc00\n",
            "33: mov {scratch}, #1\n",
            $($clear, "\n",)?
            "b 32b\n",
            ".previous\n",
        )
    };
}

/// A store before the commit to memory that other threads do not read until then. It is declared, so that `corelocal
/// check` does not warn of it.
macro_rules! prepare {
    ($store:expr) => {
        concat!(
            "38:\n",
            ".pushsection __rseq_prepare, \"a\", %progbits\n",
            "39: .word 38b - 39b\n",
            ".popsection\n",
            ".reloc 0, R_AARCH64_NONE, 39b\n",
            $store,
            "\n",
        )
    };
}

/// One critical section: the common frame around its last steps, which find the slot's address in `{scratch}`, may use
/// `{place}`, and after the semicolon have their own operands. `here` stands before an object that is a static of this
/// crate's: its base is read without its address.
macro_rules! section {
    ($index:expr, here $object:path, $($step:expr),+; yields $clear:literal; $($operands:tt)*) => {
        section!(@ [$clear], $index, "adrp {place}, {object}\nldr {place}, [{place}, :lo12:{object}]\n", $($step),+;
            object = sym $object, $($operands)*)
    };
    ($index:expr, here $object:path, $($step:expr),+; $($operands:tt)*) => {
        section!(@ [], $index, "adrp {place}, {object}\nldr {place}, [{place}, :lo12:{object}]\n", $($step),+;
            object = sym $object, $($operands)*)
    };
    ($index:expr, $object:expr, $($step:expr),+; yields $clear:literal; $($operands:tt)*) => {
        section!(@ [$clear], $index, "ldr {place}, [{object}]\n", $($step),+; object = in(reg) $object, $($operands)*)
    };
    ($index:expr, $object:expr, $($step:expr),+; $($operands:tt)*) => {
        section!(@ [], $index, "ldr {place}, [{object}]\n", $($step),+; object = in(reg) $object, $($operands)*)
    };
    (@ [$($clear:literal)?], $index:expr, $base:literal, $($step:expr),+; $($operands:tt)*) => {{
        let scratch: u64;
        // SAFETY: `area` and `id` are offsets into this thread's rseq area (invariants 1 and 2 of `sys::rseq`), and
        // `offsets` has a word for each id that the kernel assigns. The section stores to the slot of an opened id
        // only, which this function's caller guarantees to be valid. If aborted it has stored `rseq_cs` only, and
        // what its specification allows to be overwritten.
        unsafe {
            core::arch::asm!(
                prologue!(),
                locate!($base),
                $($step,)+
                epilogue!($($clear)?),
                area = in(reg) $index.area,
                id = in(reg) $index.id,
                offsets = in(reg) $index.offsets,
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
