//! x86-64 and AArch64: static probes for tracers (USDT), in the notes that SystemTap defined and bpftrace, perf and
//! eBPF profilers read.
//!
//! ```text
//!   otel_memory:alloc(object, size, weight)   an object was sampled, which stands for `weight` bytes
//!   otel_memory:free(object)                  a sampled object is freed
//! ```
//! That is the convention of OpenTelemetry's eBPF profiler. A probe is a function of instructions that do nothing: a
//! tracer has the kernel put a breakpoint on the first of them. x86-64 has a second of 5 bytes, which newer kernels can
//! replace by a call. Each probe has a semaphore: the kernel counts there how many tracers use it.
//!
//! Invariants:
//! - Names carry the version: two versions of this crate in one program have probes of their own.
//! - A probe's note, code and semaphore are one section group: the linker keeps all of them or none.

use core::arch::global_asm;
use core::ffi::c_ulong;
use core::sync::atomic::{AtomicU16, Ordering};

/// The instruction that a call can replace.
#[cfg(target_arch = "x86_64")]
macro_rules! nop_of_a_call {
    () => {
        ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! nop_of_a_call {
    () => {
        ""
    };
}

/// Where the first three arguments of a function are, as notes write it.
#[cfg(target_arch = "x86_64")]
macro_rules! arguments {
    (1) => {
        "8@%rdi"
    };
    (3) => {
        "8@%rdi 8@%rsi 8@%rdx"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! arguments {
    (1) => {
        "8@x0"
    };
    (3) => {
        "8@x0 8@x1 8@x2"
    };
}

/// Defines a probe: its name, its function, its semaphore, the number of its arguments.
macro_rules! probe {
    ($name:literal, $function:literal, $semaphore:literal, $arguments:tt) => {
        global_asm!(
            concat!(
                ".pushsection .text.",
                $function,
                ", \"axG\", @progbits, ",
                $function,
                ", comdat"
            ),
            concat!(".hidden ", $function),
            concat!(".globl ", $function),
            concat!(".type ", $function, ", @function"),
            concat!($function, ":"),
            ".cfi_startproc",
            "990: nop",
            nop_of_a_call!(),
            "ret",
            ".cfi_endproc",
            concat!(".size ", $function, ", . - ", $function),
            ".popsection",
            concat!(".pushsection .probes, \"awG\", @progbits, ", $function, ", comdat"),
            ".balign 2",
            concat!(".hidden ", $semaphore),
            concat!(".globl ", $semaphore),
            concat!(".type ", $semaphore, ", @object"),
            concat!(".size ", $semaphore, ", 2"),
            concat!($semaphore, ": .2byte 0"),
            ".popsection",
            // A byte of one address for all notes of a file: it tells how far prelink moved them.
            ".ifndef _.stapsdt.base",
            ".pushsection .stapsdt.base, \"aG\", @progbits, .stapsdt.base, comdat",
            ".weak _.stapsdt.base",
            ".hidden _.stapsdt.base",
            "_.stapsdt.base: .space 1",
            ".size _.stapsdt.base, 1",
            ".popsection",
            ".endif",
            concat!(".pushsection .note.stapsdt, \"G\", @note, ", $function, ", comdat"),
            ".balign 4",
            ".4byte 992f - 991f, 994f - 993f, 3",
            "991: .asciz \"stapsdt\"",
            "992: .balign 4",
            "993: .8byte 990b",
            ".8byte _.stapsdt.base",
            concat!(".8byte ", $semaphore),
            ".asciz \"otel_memory\"",
            concat!(".asciz \"", $name, "\""),
            concat!(".asciz \"", arguments!($arguments), "\""),
            "994: .balign 4",
            ".popsection",
        );
    };
}

probe!("alloc", "__corelocal_probe_alloc_0_1", "__corelocal_alloc_consumers_0_1", 3);
probe!("free", "__corelocal_probe_free_0_1", "__corelocal_free_consumers_0_1", 1);

unsafe extern "C" {
    #[link_name = "__corelocal_probe_alloc_0_1"]
    safe fn probe_alloc(object: c_ulong, size: c_ulong, weight: c_ulong);
    #[link_name = "__corelocal_probe_free_0_1"]
    safe fn probe_free(object: c_ulong);
    #[link_name = "__corelocal_alloc_consumers_0_1"]
    safe static ALLOC_CONSUMERS: AtomicU16;
    #[link_name = "__corelocal_free_consumers_0_1"]
    safe static FREE_CONSUMERS: AtomicU16;
}

/// Returns `true` if a tracer uses one of the probes.
#[inline]
pub(crate) fn are_consumed() -> bool {
    ALLOC_CONSUMERS.load(Ordering::Relaxed) | FREE_CONSUMERS.load(Ordering::Relaxed) != 0
}

/// Tells tracers of a sampled object.
pub(crate) fn alloc(object: *mut u8, size: u64, weight: u64) {
    probe_alloc(object.addr() as c_ulong, size, weight);
}

/// Tells tracers that a sampled object is freed.
pub(crate) fn free(object: *mut u8) {
    probe_free(object.addr() as c_ulong);
}
