//! `selector.rs` for architectures whose counter this crate does not read, and for Miri and loom: the vDSO
//! serves, always.

use core::marker::PhantomData;

use super::counter::Fence;
use super::page::pvclock;
use super::status::{Backend, Counts, Source, Status};
use super::{Clock, Point};

/// The reference clock.
pub(super) trait Truth {
    /// Returns its time in nanoseconds.
    fn read(clock: Clock) -> u64;
}

/// The choice of the back-end, of which there is one: see the module's text.
pub(super) struct Selector<T: Truth> {
    counts: Counts,
    truth: PhantomData<fn() -> T>,
}

impl<T: Truth> Selector<T> {
    pub(super) const fn new() -> Selector<T> {
        Selector { counts: Counts::new(), truth: PhantomData }
    }

    #[inline(always)]
    pub(super) fn read<const ORDERED: bool>(&self, clock: Clock) -> u64 {
        T::read(clock)
    }

    #[inline(always)]
    pub(super) fn read_coarse(&self, clock: Clock) -> u64 {
        T::read(clock)
    }

    #[inline(always)]
    pub(super) fn read_coarse_fast(&self, _: Clock) -> Option<u64> {
        None
    }

    pub(super) fn settle(&self) -> Backend {
        Backend::Vdso
    }

    pub(super) fn status(&self) -> Status {
        self.counts.status(Backend::Vdso, Source::Kernel)
    }

    #[inline]
    pub(super) fn epoch(&self) -> u64 {
        self.counts.epoch()
    }

    pub(super) fn point(&self) -> Option<Point> {
        None
    }

    pub(super) fn counter(&self) -> Option<Fence> {
        None
    }

    pub(super) fn pvclock(&self) -> Option<&'static pvclock::Page> {
        None
    }
}
