//! The cpu's own counter, which every back-end but the last interpolates with: x86-64's time-stamp counter, aarch64's
//! virtual counter.
//!
//! Reading it is not ordered with the instructions around it: the cpu may read it before an earlier load is
//! done. Two threads that hand a value over can then see time run backwards (once in 10^8 hand-offs on the
//! machine where it was tried). An *ordered* read waits for all earlier loads, by a fence before the instruction, or by
//! an instruction that waits by itself (aarch64's wait for loads that a branch went by). Which is cheaper on an x86-64 depends on the cpu, so it is measured once. An
//! aarch64 is taken at its word: its counter is too coarse for that.

use crate::sys::arch::counter as arch;
use crate::sys::arch::counter::Halves;
use crate::sys::process::environment;

/// The instruction that orders a reading of the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Fence {
    /// `lfence` before `rdtsc`: x86-64.
    Lfence = 0,
    /// `rdtscp`, which waits by itself: x86-64.
    Rdtscp = 1,
    /// `isb` before reading `CNTVCT_EL0`: aarch64.
    Isb = 2,
    /// A reading of `CNTVCTSS_EL0`, which waits by itself: aarch64 with FEAT_ECV.
    Cntvctss = 3,
}

/// The ways to read the counter, as constants: code is compiled once for each.
pub(super) mod how {
    /// A plain reading, which the cpu may reorder.
    pub(in super::super) const UNORDERED: u8 = 0;
    /// A reading behind a fence.
    pub(in super::super) const FENCED: u8 = 1;
    /// A reading that waits by itself.
    pub(in super::super) const BY_ITSELF: u8 = 2;
}

impl Fence {
    /// The fence that every cpu of this architecture has.
    pub(super) const FENCED: Fence =
        if cfg!(target_arch = "aarch64") { Fence::Isb } else { Fence::Lfence };
    /// The instruction that needs none, of cpus that have it.
    pub(super) const BY_ITSELF: Fence =
        if cfg!(target_arch = "aarch64") { Fence::Cntvctss } else { Fence::Rdtscp };

    /// Returns the fence that the lowest bit stands for.
    #[inline(always)]
    pub(super) fn of_bit(bits: usize) -> Fence {
        if bits & 1 == 0 { Fence::FENCED } else { Fence::BY_ITSELF }
    }

    /// Returns the bit that stands for it.
    #[inline(always)]
    pub(super) fn bit(self) -> usize {
        self as usize & 1
    }
}

/// Returns the halves of a counter as one number.
#[inline(always)]
pub(super) fn whole((low, high): Halves) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// Returns the counter, whenever the cpu likes to read it.
#[inline(always)]
pub(super) fn unordered() -> u64 {
    whole(unordered_halves())
}

/// Returns the counter, read after every earlier load is done.
#[inline(always)]
pub(super) fn ordered_by(fence: Fence) -> u64 {
    whole(ordered_halves(fence))
}

/// Returns the counter, as the constant of [`how`] says.
#[inline(always)]
pub(super) fn count<const HOW: u8>() -> u64 {
    match HOW {
        how::BY_ITSELF => ordered_by(Fence::BY_ITSELF),
        how::FENCED => ordered_by(Fence::FENCED),
        _ => unordered(),
    }
}

/// Does what [`unordered`] does.
#[inline(always)]
pub(super) fn unordered_halves() -> Halves {
    arch::unordered()
}

/// Does what [`ordered_by`] does.
///
/// The instruction that waits by itself is for cpus that have it, which is what [`cheaper_fence`] finds out.
#[inline(always)]
pub(super) fn ordered_halves(fence: Fence) -> Halves {
    match fence.bit() {
        0 => arch::fenced(),
        // SAFETY: only asked for where the cpu has it.
        _ => unsafe { arch::ordered() },
    }
}

/// Returns the fence that costs less here, by measurement where the counter is fine enough: some microseconds.
pub(super) fn cheaper_fence() -> Fence {
    /// The key of the second word of capabilities, by <asm/auxvec.h>.
    const AT_HWCAP2: libc::c_ulong = 26;
    if !arch::orders_itself(environment::auxiliary(AT_HWCAP2)) {
        return Fence::FENCED;
    }
    if !arch::IS_FINE {
        return Fence::BY_ITSELF;
    }
    let cost = |fence| {
        let start = ordered_by(fence);
        for _ in 0..8 {
            ordered_by(fence);
        }
        ordered_by(fence).wrapping_sub(start)
    };
    // The best of some, in turn: interrupts make others longer, and the first one is not warm.
    let (mut fenced, mut by_itself) = (u64::MAX, u64::MAX);
    for _ in 0..8 {
        fenced = fenced.min(cost(Fence::FENCED));
        by_itself = by_itself.min(cost(Fence::BY_ITSELF));
    }
    if by_itself < fenced { Fence::BY_ITSELF } else { Fence::FENCED }
}
