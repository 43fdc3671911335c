//! A cell and its life inside a container: unbound, bound at first use, freed by drop.
//!
//! Invariants:
//! 1. The base of `slots`, once set, is that of a cell this owns.
//! 2. Words are used by sections indexed by `I` (`local`) or by atomics (`shared`), never both.

use core::marker::PhantomData;

use super::Words;
use super::region::Cell;
use crate::cid::{self, SlotIndex};
use crate::rseq::{self, Index, Outcome, Slots};

/// See the module's text.
pub(super) struct Owned<I: SlotIndex> {
    slots: Slots,
    index: PhantomData<I>,
}

/// What remains to be done when no section could.
pub(super) enum Fallback {
    /// Use atomics on these words.
    Words(&'static Words),
    /// There is no memory for a cell.
    Unbound,
}

impl<I: SlotIndex> Owned<I> {
    #[cfg(not(loom))]
    pub(super) const fn new() -> Self {
        Owned { slots: Slots::new(), index: PhantomData }
    }

    #[cfg(loom)]
    pub(super) fn new() -> Self {
        Owned { slots: Slots::new(), index: PhantomData }
    }

    /// Runs `section` on this cell once, inline, and everything else out of line. The section must
    /// store to the word at the start of the slot it locates, and nowhere else.
    ///
    /// `Err` tells what else to do. Give a closure that owns what it captures: captured by
    /// reference, operands would have to live in memory.
    #[inline(always)]
    pub(super) fn run(
        &self,
        section: impl Fn(Index, &Slots) -> Outcome,
    ) -> Result<Outcome, Fallback> {
        match section(I::index(), &self.slots) {
            done @ (Outcome::Committed | Outcome::Mismatch) => Ok(done),
            failed => self.run_cold(failed, section),
        }
    }

    #[cold]
    #[inline(never)]
    fn run_cold(
        &self,
        first: Outcome,
        section: impl Fn(Index, &Slots) -> Outcome,
    ) -> Result<Outcome, Fallback> {
        let Some(cell) = self.bind() else { return Err(Fallback::Unbound) };
        let prepare = || cid::prepare::<I>(&self.slots);
        let attempt = || section(I::index(), &self.slots);
        match rseq::retry(first, prepare, attempt) {
            Some(outcome) => Ok(outcome),
            None => Err(Fallback::Words(cell.words(cid::fallback_slot(&self.slots)))),
        }
    }

    /// The words of every slot in use.
    pub(super) fn words(&self) -> impl Iterator<Item = &'static Words> {
        let opened = self.slots.opened();
        let cell = self.cell();
        cell.into_iter().flat_map(move |cell| (0..opened).map(move |slot| cell.words(slot)))
    }

    fn cell(&self) -> Option<Cell> {
        // SAFETY: invariant 1.
        unsafe { Cell::from_base(self.slots.base()) }
    }

    /// The cell, allocated at its first use; `None` without memory.
    fn bind(&self) -> Option<Cell> {
        if let Some(cell) = self.cell() {
            return Some(cell);
        }
        let fresh = Cell::allocate()?;
        let bound = self.slots.bind(fresh.base());
        if bound != fresh.base() {
            // SAFETY: nobody else saw `fresh`, and no slot of it was used.
            unsafe { fresh.free(0) };
        }
        // SAFETY: invariant 1.
        unsafe { Cell::from_base(bound) }
    }
}

impl<I: SlotIndex> Drop for Owned<I> {
    fn drop(&mut self) {
        if let Some(cell) = self.cell() {
            // SAFETY: invariant 1; `&mut self` proves that all users are done.
            unsafe { cell.free(self.slots.opened()) };
        }
    }
}
