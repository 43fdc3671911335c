//! AArch64: the virtual counter `CNTVCT_EL0`, which all cpus have in common. It counts at 1 MHz to 1 GHz.
//!
//! The cpu may read it early, and may do later loads before it. As in the kernel's own functions, `isb` comes before an
//! ordered reading, and a load whose address depends on what was read comes after: a barrier between loads, or a
//! Release store, then comes after the reading too. `isb` waits for a load only if a branch goes by it: callers have one
//! on a load that acquires, which all that happened before precedes. None of the blocks is `nomem`: to the compiler
//! nothing moves across.
//!
//! Source: Arm Architecture Reference Manual, D12 "The Generic Timer"; arch/arm64/include/asm/arch_timer.h.

use core::arch::asm;

/// The counter, its low half and its high half.
pub(crate) type Halves = (u32, u32);

/// Whether a count is short enough for measuring instructions by it.
pub(crate) const IS_FINE: bool = false;

/// The counts that a cpu's reorder buffer can be ahead: 1 us where it counts at 1 GHz, 41 us at 25 MHz.
pub(crate) const IN_FLIGHT: u64 = 1 << 10;

#[inline(always)]
fn halves(count: u64) -> Halves {
    (count as u32, (count >> 32) as u32)
}

/// Returns the counter, whenever the cpu likes to read it.
#[inline(always)]
pub(crate) fn unordered() -> Halves {
    let count;
    // SAFETY: reads a counter into a register. Linux lets user space read it, or reads it for user space where the
    // counter has an erratum.
    unsafe {
        asm!("mrs {}, cntvct_el0", out(reg) count, options(nostack, preserves_flags));
    }
    halves(count)
}

/// Reads the counter by these instructions into `{count}`, and loads from an address that depends on it.
macro_rules! in_order {
    ($($read:literal),+) => {{
        let count;
        // SAFETY: reads the counter, which the caller says can be read so, and a word of the stack.
        unsafe {
            asm!(
                $($read,)+
                "eor {none}, {count}, {count}",
                "add {none}, sp, {none}",
                "ldr xzr, [{none}]",
                count = out(reg) count,
                none = out(reg) _,
                options(readonly, nostack, preserves_flags),
            );
        }
        halves(count)
    }};
}

/// Returns the counter, read after every earlier load that a branch went by is done. For every cpu.
#[inline(always)]
pub(crate) fn fenced() -> Halves {
    // As in `unordered`.
    in_order!("isb", "mrs {count}, cntvct_el0")
}

/// Returns the same by the register that orders itself, `CNTVCTSS_EL0`.
///
/// # Safety
/// - The cpu has it: see [`orders_itself`].
#[inline(always)]
pub(crate) unsafe fn ordered() -> Halves {
    // The caller guarantees that the cpu has the register.
    in_order!("mrs {count}, s3_3_c14_c0_6")
}

/// Returns `true` if all cpus have that register (FEAT_ECV), as the kernel's second word of capabilities says.
pub(crate) fn orders_itself(hwcap2: usize) -> bool {
    const HWCAP2_ECV: usize = 1 << 19;
    hwcap2 & HWCAP2_ECV != 0
}
