//! The frame of all sections. Shape of a section:
//!
//! ```text
//!         lla  scratch, descriptor               auipc and addi
//!         add  place, tp, area
//!         sd   scratch, 8(place)                 arm: rseq_cs = descriptor
//!   31:   …the section…                          start_ip is right after the arming store
//!         …one store…                            commit
//!   32:   …                                      post-commit
//!   behind the function, in the same section of the object file:
//!   34:   li   scratch, 2; j 32b                  unavailable
//!   36:   li   scratch, 3; j 32b                  mismatch
//!         <signature>
//!   33:   li   scratch, 1; j 32b                  aborted: the kernel resumes here
//! ```
//!
//! - The exits lie in subsection 1 of the function's own section. A conditional branch reaches 4 KiB: where a function is
//!   longer, the assembler turns it into one around a jump.
//! - The signature before the abort handler is `csrw mhartid, x0`, the one that libc registers: an instruction that
//!   traps, so that disassemblers stay in step. The kernel reads it as a word: it is aligned to one.
//! - Linkers shorten pairs of instructions (`R_RISCV_RELAX`), and adjust what is between two labels: a section's
//!   length, and the distances of what is declared. No section relies on a length of its own.
//! - There is no pair of reserved and conditional instructions in a section: no other thread writes the words, so a
//!   plain store commits.
//! - Descriptors, their array, the labels and the outcome in `scratch` are as on x86-64 (`x86_64/frame.rs`).

macro_rules! prologue {
    () => {
        concat!(
            ".pushsection __rseq_cs, \"aw\", @progbits\n",
            ".balign 32\n",
            "30: .word 0, 0\n",             // version, flags
            ".dword 31f, 32f - 31f, 33f\n", // start_ip, post_commit_offset, abort_ip
            ".popsection\n",
            ".pushsection __rseq_cs_ptr_array, \"aw\", @progbits\n",
            "35: .dword 30b\n",
            ".popsection\n",
            ".reloc 0, R_RISCV_NONE, 35b\n",
            "lla {scratch}, 30b\n",
            "add {place}, tp, {area}\n",
            "sd {scratch}, 8({place})\n",
            "31:\n",
        )
    };
}

/// Leaves for `unavailable` if the thread is not registered. `place` is the address of its area; changes `$word`.
macro_rules! registered {
    ($word:literal) => {
        concat!("lw ", $word, ", 4({place})\n", "bltz ", $word, ", 34f\n")
    };
}

/// `locate`: loads the address of the current id's slot into `scratch`, or leaves for `unavailable`. `$base` loads the
/// object's base into `place`.
macro_rules! locate {
    ($base:expr) => {
        concat!(
            registered!("{scratch}"),
            "add {scratch}, tp, {id}\n",
            "lwu {scratch}, 0({scratch})\n",
            "slli {scratch}, {scratch}, 3\n",
            "add {scratch}, {scratch}, {offsets}\n",
            "ld {scratch}, 0({scratch})\n",
            $base,
            "add {scratch}, {scratch}, {place}\n",
            "bgeu {scratch}, {place}, 34f\n", // no carry
        )
    };
}

/// `$clear` sets the result word of a section that does not commit: its register may hold anything then.
macro_rules! epilogue {
    ($($clear:literal)?) => {
        concat!(
            "32:\n",
            ".subsection 1\n",
            "34: li {scratch}, 2\n",
            $($clear, "\n",)?
            "j 32b\n",
            "36: li {scratch}, 3\n",
            $($clear, "\n",)?
            "j 32b\n",
            ".balign 4\n",
            "csrrw x0, 0xf14, x0\n", // the signature
            "33: li {scratch}, 1\n",
            $($clear, "\n",)?
            "j 32b\n",
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
            ".pushsection __rseq_prepare, \"a\", @progbits\n",
            "39: .word 38b - 39b\n",
            ".popsection\n",
            ".reloc 0, R_RISCV_NONE, 39b\n",
            $store,
            "\n",
        )
    };
}

/// The load of an object's base: a static of this crate's, or what a register points to.
macro_rules! base {
    () => {
        "ld {place}, 0({object})\n"
    };
    (here) => {
        "ld {place}, {object}\n"
    };
}

/// One critical section: the common frame around its last steps, which find the slot's address in `{scratch}`, may use
/// `{place}`, and after the semicolon have their own operands. `here` stands before an object that is a static of this
/// crate's: its base is read without its address.
macro_rules! section {
    ($index:expr, here $object:path, $($step:expr),+; yields $clear:literal; $($operands:tt)*) => {
        section!(@ [$clear], $index, base!(here), $($step),+; object = sym $object, $($operands)*)
    };
    ($index:expr, here $object:path, $($step:expr),+; $($operands:tt)*) => {
        section!(@ [], $index, base!(here), $($step),+; object = sym $object, $($operands)*)
    };
    ($index:expr, $object:expr, $($step:expr),+; yields $clear:literal; $($operands:tt)*) => {
        section!(@ [$clear], $index, base!(), $($step),+; object = in(reg) $object, $($operands)*)
    };
    ($index:expr, $object:expr, $($step:expr),+; $($operands:tt)*) => {
        section!(@ [], $index, base!(), $($step),+; object = in(reg) $object, $($operands)*)
    };
    (@ [$($clear:literal)?], $index:expr, $base:expr, $($step:expr),+; $($operands:tt)*) => {{
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
                place = out(reg) _,
                $($operands)*
                options(nostack),
            );
        }
        Exit(scratch)
    }};
}
