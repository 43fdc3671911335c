//! The cpu's own counter, which every back-end but the last interpolates with.
//!
//! Reading it is not ordered with the instructions around it: the cpu may read it before an earlier load is
//! done. Two threads that hand a value over can then see time run backwards (once in 10^8 hand-offs on the
//! machine where it was tried). An *ordered* read waits for all earlier loads, by `lfence; rdtsc` or by
//! `rdtscp`. Which is cheaper depends on the cpu, so it is measured once.
//!
//! x86-64 only: elsewhere the vDSO serves, which reads the counter of that architecture.

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[allow(unused_imports, reason = "loom builds have no use for them")]
pub(super) use imp::{
    cheaper_fence, count, ordered_by, ordered_halves, unordered, unordered_halves, whole,
};

/// The instruction that orders a reading of the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Fence {
    /// `lfence` before `rdtsc`.
    Lfence = 0,
    /// `rdtscp`, which waits by itself.
    Rdtscp = 1,
}

/// The ways to read the counter, as constants: code is compiled once for each.
pub(super) mod how {
    /// A plain `rdtsc`, which the cpu may reorder.
    pub(in super::super) const UNORDERED: u8 = 0;
    /// `lfence` before `rdtsc`.
    pub(in super::super) const LFENCE: u8 = 1;
    /// `rdtscp`, which waits by itself.
    pub(in super::super) const RDTSCP: u8 = 2;
}

impl Fence {
    /// Returns the fence that the lowest bit stands for.
    #[inline(always)]
    pub(super) fn of_bit(bits: usize) -> Fence {
        if bits & 1 == 0 { Fence::Lfence } else { Fence::Rdtscp }
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod imp {
    use super::{Fence, how};
    use crate::sys::arch::tsc::{self, Halves};

    /// Returns the halves of a counter as one number.
    #[inline(always)]
    pub(crate) fn whole((low, high): Halves) -> u64 {
        u64::from(high) << 32 | u64::from(low)
    }

    /// Returns the counter, whenever the cpu likes to read it.
    #[inline(always)]
    pub(crate) fn unordered() -> u64 {
        whole(unordered_halves())
    }

    /// Returns the counter, read after every earlier load is done.
    #[inline(always)]
    pub(crate) fn ordered_by(fence: Fence) -> u64 {
        whole(ordered_halves(fence))
    }

    /// Returns the counter, as the constant of [`how`] says.
    #[inline(always)]
    pub(crate) fn count<const HOW: u8>() -> u64 {
        match HOW {
            how::RDTSCP => ordered_by(Fence::Rdtscp),
            how::LFENCE => ordered_by(Fence::Lfence),
            _ => unordered(),
        }
    }

    /// Does what [`unordered`] does.
    #[inline(always)]
    pub(crate) fn unordered_halves() -> Halves {
        tsc::rdtsc()
    }

    /// Does what [`ordered_by`] does.
    ///
    /// `Rdtscp` is for cpus that have it, which is what [`cheaper_fence`] finds out.
    #[inline(always)]
    pub(crate) fn ordered_halves(fence: Fence) -> Halves {
        match fence {
            Fence::Lfence => tsc::lfence_rdtsc(),
            // SAFETY: only asked for where the cpu has it.
            Fence::Rdtscp => unsafe { tsc::rdtscp() },
        }
    }

    /// Returns the fence that costs less here, by measurement: some microseconds.
    pub(crate) fn cheaper_fence() -> Fence {
        if !tsc::has_rdtscp() {
            return Fence::Lfence;
        }
        let cost = |fence| {
            let start = ordered_by(fence);
            for _ in 0..8 {
                ordered_by(fence);
            }
            ordered_by(fence).wrapping_sub(start)
        };
        // The best of some, in turn: interrupts make others longer, and the first one is not warm.
        let (mut lfence, mut rdtscp) = (u64::MAX, u64::MAX);
        for _ in 0..8 {
            lfence = lfence.min(cost(Fence::Lfence));
            rdtscp = rdtscp.min(cost(Fence::Rdtscp));
        }
        if rdtscp < lfence { Fence::Rdtscp } else { Fence::Lfence }
    }
}
