//! x86-64: the time-stamp counter, which comes in two halves.
//!
//! The intrinsics of `core` give the whole. Its low half is there two instructions earlier, and where that
//! suffices, as in the arithmetic of a clock, the two are a tenth of what the clock costs beyond this
//! instruction. None of the blocks is `nomem`: to the compiler nothing moves across.

use core::arch::asm;

/// The counter, its low half and its high half.
pub(crate) type Halves = (u32, u32);

/// Whether a count is short enough for measuring instructions by it.
pub(crate) const IS_FINE: bool = true;

/// The counts that a cpu's reorder buffer can be ahead: about 10 us, which is more than enough.
pub(crate) const IN_FLIGHT: u64 = 1 << 15;

/// Returns the counter, whenever the cpu likes to read it.
#[inline(always)]
pub(crate) fn unordered() -> Halves {
    let (low, high);
    // SAFETY: reads a counter that every cpu of 64 bits has into two registers. (A process that forbade it to
    // itself, by PR_SET_TSC, cannot use the vDSO either.)
    unsafe {
        asm!("rdtsc", out("eax") low, out("edx") high, options(nostack, preserves_flags));
    }
    (low, high)
}

/// Returns the counter, read after every earlier load is done. For every cpu.
#[inline(always)]
pub(crate) fn fenced() -> Halves {
    let (low, high);
    // SAFETY: reads the counter; the fence is part of SSE2, which every 64-bit cpu has.
    unsafe {
        asm!("lfence", "rdtsc", out("eax") low, out("edx") high, options(nostack, preserves_flags));
    }
    (low, high)
}

/// Returns the counter, read after every earlier load is done, by one instruction.
///
/// # Safety
/// - The cpu has it: see [`orders_itself`].
#[inline(always)]
pub(crate) unsafe fn ordered() -> Halves {
    let (low, high);
    // SAFETY: the caller guarantees that the cpu has the instruction, which writes three registers.
    unsafe {
        asm!("rdtscp", out("eax") low, out("edx") high, out("ecx") _, options(nostack, preserves_flags));
    }
    (low, high)
}

/// Returns `true` if the cpu has `rdtscp`. Costs an exit in a virtual machine.
pub(crate) fn orders_itself(_hwcap2: usize) -> bool {
    // Every cpu of 64 bits has this leaf: it is where it says so.
    #[allow(unused_unsafe, reason = "safe in later versions of Rust")]
    // SAFETY: as said.
    let features = unsafe { core::arch::x86_64::__cpuid(0x8000_0001) }.edx;
    features & 1 << 27 != 0
}
