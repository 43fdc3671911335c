//! Draining the items of other cores, while their slot is unused.
//!
//! A slot is frozen (`cid::freeze`), which takes it away from its id and fences all critical sections. Its items come
//! out one by one. Dropping the freeze gives the slot back. Meanwhile the threads of that id use another slot.
//!
//! # Invariant
//! An item leaves its slot before the closure gets it. If the closure panics, that item is gone and the others stay.

use super::Stack;
use crate::cid::{self, Busy, Frozen, Revocable};

impl<T: Send + 'static, const CAPACITY: usize, I: Revocable> Stack<T, CAPACITY, I> {
    /// Takes all items of a slot, whichever core uses it, from the top down. Returns their number.
    ///
    /// A slot without items costs one read. Otherwise it costs as much as [`freeze`](crate::cid::freeze): a
    /// `membarrier(2)`, 1 to 3 microseconds, and the time of the closure. The slot is frozen for all containers until
    /// then. Not for signal handlers. The closure may block, panic and use this stack.
    ///
    /// Sees every item whose push happens before the call, unless it was popped.
    ///
    /// # Errors
    /// As [`freeze`](crate::cid::freeze). No item was taken then.
    ///
    /// ```
    /// use corelocal::cid::{self, Cid};
    /// use corelocal::percpu::Stack;
    ///
    /// let stack: Stack<u64> = Stack::new();
    /// for slot in 0..cid::high_water::<Cid>() {
    ///     let _ = stack.drain(slot, |item| println!("{item} was in slot {slot}"));
    /// }
    /// ```
    pub fn drain(&self, slot: u32, take: impl FnMut(T)) -> Result<usize, Busy> {
        match self.slots.slot(slot) {
            Some(place) if place.len() > 0 => {
                Ok(self.drain_frozen(&mut cid::freeze_of(slot)?, take))
            }
            None if slot >= cid::capacity_of::<I>() => Err(Busy::NoSlot),
            _ => Ok(0),
        }
    }

    /// Does what [`drain`](Stack::drain) does, for a slot that the caller has frozen. So several containers can be
    /// drained with one fence.
    ///
    /// ```
    /// use corelocal::cid;
    /// use corelocal::percpu::Stack;
    ///
    /// let (short, long): (Stack<u8>, Stack<u64>) = (Stack::new(), Stack::new());
    /// if let Ok(mut frozen) = cid::freeze(0) {
    ///     short.drain_frozen(&mut frozen, drop);
    ///     long.drain_frozen(&mut frozen, drop);
    /// }
    /// ```
    pub fn drain_frozen(&self, frozen: &mut Frozen<I>, take: impl FnMut(T)) -> usize {
        let place = self.slots.slot(frozen.slot()).filter(|_| frozen.is_kept());
        let Some(place) = place else { return 0 };
        // SAFETY: a slot of critical sections, which is frozen; `&mut` excludes other drains.
        let items = core::iter::from_fn(|| unsafe { place.take() });
        items.map(take).count()
    }

    /// Takes all items of all slots, and those of threads without critical sections. Returns their number.
    ///
    /// Freezes slots one after the other, except those without items. So the cores in use need at most one more slot
    /// meanwhile. Otherwise like [`drain`](Stack::drain). Items that are pushed meanwhile are taken or stay.
    ///
    /// # Errors
    /// A slot could not be frozen, most likely because another thread drains it. All others have been drained.
    pub fn drain_all(&self, take: impl FnMut(T)) -> Result<usize, Busy> {
        self.drain_from(0, take)
    }

    /// Does what `drain_all` does, without the slots below `first`.
    pub(in crate::percpu) fn drain_from(
        &self,
        first: u32,
        mut take: impl FnMut(T),
    ) -> Result<usize, Busy> {
        let mut busy = None;
        let mut taken = 0;
        for slot in first..cid::high_water::<I>() {
            match self.drain(slot, &mut take) {
                Ok(items) => taken += items,
                Err(refused) => busy = busy.or(Some(refused)),
            }
        }
        for place in self.slots.shared() {
            // At most as many as it can hold, or concurrent pushes could keep this loop running for ever.
            let items = core::iter::from_fn(|| place.pop_shared()).take(CAPACITY);
            // SAFETY: they were pushed.
            taken += items.map(|words| take(unsafe { words.into_item() })).count();
        }
        busy.map_or(Ok(taken), Err)
    }
}
