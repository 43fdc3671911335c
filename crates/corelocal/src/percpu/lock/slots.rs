//! Access to the parts of other cores.

use super::*;

/// Access from other cores, for slots that can be frozen.
impl<T: Send + 'static, I: Revocable> Lock<T, I> {
    /// Locks the shard of this slot (see [`crate::cid`]) from any core, waiting for its owner.
    ///
    /// Takes the slot away from its id for a moment ([`crate::cid::freeze`]), in which no thread waits: one
    /// `membarrier(2)`, or two if the shard is held. The owner then hands the lock over when it unlocks. Threads that
    /// come to that core meanwhile use shared shards. Not for signal handlers. See [Deadlock](Lock#deadlock).
    ///
    /// ```
    /// use corelocal::cid::Busy;
    /// use corelocal::percpu::Lock;
    ///
    /// let sums: Lock<u64> = Lock::default();
    /// match sums.lock_slot(0) {
    ///     Ok(mut sum) => *sum += 1,
    ///     Err(Busy::NoSlot) => println!("no thread has used slot 0 yet"),
    ///     Err(busy) => println!("{busy}"),
    /// }
    /// ```
    ///
    /// # Errors
    /// - [`Busy::NoSlot`]: no thread has locked the object yet, or no id has had that slot.
    /// - [`Busy::Frozen`]: another thread has kept the slot frozen for longer than a second. Once the owner has been
    ///   asked, this waits until the slot is no longer frozen.
    /// - [`Busy::Fence`]: the kernel refuses the barrier.
    ///
    /// # Panics
    /// If the initialiser panics; the object stays usable. In a forked child, if a thread that does not exist there
    /// holds the shard: see [After fork](Lock#after-fork).
    pub fn lock_slot(&self, slot: u32) -> Result<Guard<'_, T>, Busy> {
        self.lock_slot_checked(slot)
            .map(|locked| locked.unwrap_or_else(|_orphaned| holder_is_gone()))
    }

    pub(super) fn lock_slot_checked(
        &self,
        slot: u32,
    ) -> Result<Result<Guard<'_, T>, Orphaned<Guard<'_, T>>>, Busy> {
        let shard = self.slots.slot(slot).ok_or(Busy::NoSlot)?;
        loop {
            shard.mutex.lock_anyway();
            let revoked = shard.bias.revoke(|| remote::freeze::<I>(slot));
            shard.mutex.unlock();
            match revoked {
                Ok(()) => return Ok(Ok(self.filled(Guard::new(shard, true)))),
                Err(NotRevoked::Busy(busy)) => return Err(busy),
                Err(NotRevoked::Orphaned) => {
                    if let Some(adopted) = self.adopt_biased(shard) {
                        return Ok(adopted);
                    }
                }
            }
        }
    }

    /// Does what [`lock_slot`](Lock::lock_slot) does, without waiting for an owner: `None` if there is one, or if
    /// another thread is just revoking the lock. While another thread keeps the slot [frozen](crate::cid::freeze) it
    /// sleeps, up to 1.25 s in all.
    ///
    /// # Errors
    /// As [`lock_slot`](Lock::lock_slot).
    ///
    /// # Panics
    /// As [`lock_slot`](Lock::lock_slot).
    pub fn try_lock_slot(&self, slot: u32) -> Result<Option<Guard<'_, T>>, Busy> {
        let shard = self.slots.slot(slot).ok_or(Busy::NoSlot)?;
        if !shard.mutex.try_lock_anyway() {
            return Ok(None);
        }
        let taken = remote::freeze::<I>(slot).map(|_frozen| shard.bias.take_unowned());
        shard.mutex.unlock();
        Ok(taken?.then(|| self.filled(Guard::new(shard, true))))
    }

    /// Calls `f` on every existing value, one after the other, each locked as by [`lock_slot`](Lock::lock_slot).
    /// Values made meanwhile may be left out.
    ///
    /// Linear in the slots in use; one or two `membarrier(2)` for each that has a value. Usually microseconds. But an
    /// owner that was preempted must run again before it unlocks. If more threads than cpus hold their shards most of
    /// the time, a walk takes several scheduling rounds of all of them: tens of milliseconds on a busy machine.
    ///
    /// # Errors
    /// The reason why the first shard could not be locked: see [`lock_slot`](Lock::lock_slot). The others have been
    /// visited.
    ///
    /// # Panics
    /// If `f` panics. In a forked child, at the first shard that a thread holds which does not exist there: see
    /// [After fork](Lock#after-fork).
    pub fn for_each_locked(&self, mut f: impl FnMut(Shard, &mut T)) -> Result<(), Busy> {
        self.for_each_checked(|shard, locked| match locked {
            Ok(mut guard) => f(shard, &mut guard),
            Err(_orphaned) => holder_is_gone(),
        })
    }

    /// Does what [`for_each_locked`](Self::for_each_locked) does, for a forked child. `f` gets [`Orphaned`] in place of
    /// a guard for a shard that a thread holds which does not exist in the child.
    ///
    /// ```
    /// use corelocal::percpu::Lock;
    ///
    /// static BUFFERS: Lock<Vec<u8>> = Lock::new(Vec::new);
    ///
    /// // In a forked child:
    /// BUFFERS.for_each_checked(|_, locked| {
    ///     let _ = locked.unwrap_or_else(|orphaned| orphaned.reset(Vec::new()));
    /// })?;
    /// # Ok::<(), corelocal::cid::Busy>(())
    /// ```
    ///
    /// # Errors
    /// As [`for_each_locked`](Self::for_each_locked).
    ///
    /// # Panics
    /// If `f` panics.
    pub fn for_each_checked<'a>(
        &'a self,
        mut f: impl FnMut(Shard, Result<Guard<'a, T>, Orphaned<Guard<'a, T>>>),
    ) -> Result<(), Busy> {
        let mut result = Ok(());
        let mut walk = Walk::new();
        while let Some((shard, slot)) = walk.next(&self.slots, &self.inside) {
            if !slot.value.is_full() {
                continue;
            }
            let locked = match shard {
                Shard::Slot(number) => self.lock_slot_checked(number),
                Shard::Shared(_) | Shard::Inline => Ok(self.lock_shared_checked(slot)),
            };
            match locked {
                Ok(locked) => f(shard, locked),
                Err(busy) => result = result.and(Err(busy)),
            }
        }
        result
    }
}
