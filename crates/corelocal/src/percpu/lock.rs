//! Mutual exclusion per core, without atomic instructions for the core's own threads.
//!
//! # Data flow
//! `lock` → the section `store_if_equal` changes the slot's word from free to held → the guard. `drop` → a plain
//! store, and a check for requests of other threads. If the word is held already (its owner was preempted or
//! migrated), or critical sections are unavailable: an ordinary mutex of a shared slot, where a thread may have to
//! wait. Without memory: the mutex inside the object. From other cores: `lock_slot`, see `bias.rs`.
//!
//! # Invariants
//! 1. A value is accessed only by the owner of its shard's lock: the bias under a slot, the mutex elsewhere. Under a
//!    slot the mutex orders revokers.
//! 2. A guard knows its shard by address. So it may outlive a migration, and the loss of the slot by its id.
//! 3. A value is made under its lock, at first use. If the initialiser panics the lock is released.
//! 4. Both locks record their owner, and a guard stays with its owner. A forked child takes over a shard whose owner
//!    does not exist in it only as `Orphaned`, unless the shard holds no value. The mutex of a shard under a slot
//!    protects no value: it is taken over at once.

mod bias;
mod guard;
mod mutex;
mod slots;

use core::fmt;

use super::machinery::lazy_block::{Fallback, Owned};
use super::machinery::slot::{Kind, Zeroed};
use super::once_slot::{OnceSlot, drop_each};
use super::remote::{self, Walk};
use super::shard::Shard;
use crate::cid::{Busy, Cid, Revocable, SlotIndex};
use crate::rseq::{self, Slots};
use crate::sys::forks::orphaned::Orphaned;
pub use guard::Guard;

use bias::{Bias, NotRevoked};
use mutex::{Gone, Mutex};

/// A shard: two locks, of which one is in use (invariant 1), and a value. The section's word comes first.
#[repr(C)]
struct Slot<T> {
    bias: Bias,
    mutex: Mutex,
    value: OnceSlot<T>,
}

// SAFETY: the value is accessed under a lock (invariant 1), so by one thread at a time.
unsafe impl<T: Send> Sync for Slot<T> {}

// SAFETY: of words and a `OnceSlot`, whose all-zero images are their initial values.
unsafe impl<T: Send + 'static> Zeroed for Slot<T> {
    /// An owner and a revoker access their shard whether its slot is frozen or not.
    const KIND: Kind = Kind::Fixed;

    #[cfg(loom)]
    fn zeroed() -> Self {
        Slot::new()
    }
}

impl<T> Slot<T> {
    const_fn! {
        const fn new() -> Self {
            Slot { bias: Bias::new(), mutex: Mutex::new(), value: OnceSlot::new() }
        }
    }
}

/// A `T` for each core, each behind a lock that costs the core's own threads no atomic instruction.
///
/// [`lock`](Lock::lock) gives exclusive access to some `T`: nearly always that of the core the thread runs on. If a
/// preempted or migrated thread holds that one, and in threads without critical sections, it is one of a few shared
/// ones. This suits work that any of several copies can do: caches, free lists, buffers, partial sums. To visit all
/// of them, use [`for_each_locked`](Lock::for_each_locked).
///
/// ```
/// use corelocal::percpu::Lock;
///
/// static BUFFERS: Lock<Vec<u8>> = Lock::new(Vec::new);
///
/// BUFFERS.lock().extend_from_slice(b"made on this core");
///
/// let mut all = Vec::new();
/// BUFFERS.for_each_locked(|_, buffer| all.append(buffer))?;
/// assert_eq!(all, b"made on this core");
/// # Ok::<(), corelocal::cid::Busy>(())
/// ```
///
/// # Deadlock
/// A thread that holds a guard must not call [`lock`](Lock::lock), [`lock_slot`](Lock::lock_slot) or
/// [`for_each_locked`](Lock::for_each_locked) of the same object: it may wait for itself. It may call the `try_`
/// methods, which do not wait for owners. Nor may an initialiser lock the object that it makes a value for. There is
/// no poisoning: a panic releases the lock. A forgotten guard keeps its shard locked.
///
/// # Where it may be used
/// In any thread. [`try_lock`](Lock::try_lock) is async-signal-safe if the initialiser is. The others are not.
///
/// # After fork
/// A child has one thread, the one that forked, which keeps its locks. Shards that other threads of the parent held
/// stay locked, since their values may be half changed:
///
/// - [`lock`](Lock::lock) and [`try_lock`](Lock::try_lock) use a shared shard in place of the core's own.
/// - Methods that would wait for the owner panic: [`lock`](Lock::lock) of a shared shard,
///   [`lock_slot`](Lock::lock_slot), [`for_each_locked`](Lock::for_each_locked). The `try_` methods fail.
/// - [`lock_checked`](Lock::lock_checked) and [`for_each_checked`](Lock::for_each_checked) return [`Orphaned`], whose
///   [`reset`](Orphaned::reset) puts a new value in. So a child calls `for_each_checked` once, at its start.
///
/// A [`Mutex`](crate::sync::Mutex#after-fork) behaves the same way. A child of `vfork` shares the parent's locks.
///
/// # Memory
/// On each core used, the size of `T` and of three words, rounded up to a power of two; as much in the object. While
/// a value is made, its size on the stack of the thread that makes it, or twice that in a build without optimization.
/// The shards of two cores never share a cache line. A shard of more than 1 MiB or with an alignment above 4096 does
/// not compile.
///
/// # Memory ordering
/// What is done under a lock happens before what the next owner of the same shard does.
///
/// A value that may not move to another thread does not compile:
///
/// ```compile_fail,E0277
/// static RCS: corelocal::percpu::Lock<Option<std::rc::Rc<u8>>> =
///     corelocal::percpu::Lock::new(|| None);
/// ```
pub struct Lock<T: Send + 'static, I: SlotIndex = Cid> {
    slots: Owned<Slot<T>, I>,
    inside: Slot<T>,
    init: fn() -> T,
}

impl<T: Send + 'static, I: SlotIndex> Lock<T, I> {
    const_fn! {
        /// Creates an object without values. `init` makes one when a shard is locked for the first time.
        pub const fn new(init: fn() -> T) -> Self {
            Lock { slots: Owned::new(), inside: Slot::new(), init }
        }
    }

    /// Locks this core's shard. If that is held, locks a shared shard, waiting for it if necessary.
    ///
    /// A few nanoseconds; at first use the initialiser's time, and microseconds for the slot. Not async-signal-safe.
    /// See [Deadlock](Lock#deadlock).
    ///
    /// # Panics
    /// If the initialiser panics; the object stays usable. In a forked child, if a thread that does not exist there
    /// holds the shared shard: see [After fork](Lock#after-fork).
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        match self.lock_biased() {
            Ok(guard) => self.filled(guard),
            Err(shard) => self.lock_shared(shard),
        }
    }

    /// Locks this core's shard or a shared shard. `None` if both are held. Never waits.
    ///
    /// Async-signal-safe if the initialiser is.
    ///
    /// # Panics
    /// If the initialiser panics; the object stays usable.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        match self.lock_biased() {
            Ok(guard) => Some(self.filled(guard)),
            Err(shard) => self.try_lock_shared(shard),
        }
    }

    /// Does what [`lock`](Self::lock) does, for a forked child. Returns [`Orphaned`] if a thread that does not exist in
    /// the child holds this core's shard, or the shared shard that would be used instead.
    ///
    /// ```
    /// use corelocal::percpu::Lock;
    ///
    /// static BUFFERS: Lock<Vec<u8>> = Lock::new(Vec::new);
    ///
    /// let buffer = BUFFERS.lock_checked().unwrap_or_else(|orphaned| orphaned.reset(Vec::new()));
    /// assert!(buffer.is_empty());
    /// ```
    ///
    /// # Errors
    /// [`Orphaned`] in a forked child, if another thread of the parent held the shard at the [fork](Lock#after-fork).
    ///
    /// # Panics
    /// If the initialiser panics; the object stays usable.
    #[inline]
    pub fn lock_checked(&self) -> Result<Guard<'_, T>, Orphaned<Guard<'_, T>>> {
        match self.lock_biased() {
            Ok(guard) => Ok(self.filled(guard)),
            Err(shard) => self.lock_checked_cold(shard),
        }
    }

    #[cold]
    fn lock_checked_cold<'a>(
        &'a self,
        instead: &'a Slot<T>,
    ) -> Result<Guard<'a, T>, Orphaned<Guard<'a, T>>> {
        // The bias of a shard that is not under a slot is never held.
        match self.slots.near().and_then(|own| self.adopt_biased(own)) {
            Some(adopted) => adopted,
            None => self.lock_shared_checked(instead),
        }
    }

    /// Takes over a shard under a slot, if its owner does not exist in this process.
    fn adopt_biased<'a>(
        &'a self,
        shard: &'a Slot<T>,
    ) -> Option<Result<Guard<'a, T>, Orphaned<Guard<'a, T>>>> {
        shard.bias.gone_holder()?;
        shard.mutex.lock_anyway();
        let gone = shard.bias.adopt();
        shard.mutex.unlock();
        gone.map(|gone| self.adopted(Guard::new(shard, true), gone))
    }

    /// Waits for a shard that is not under a slot; takes it over from an owner that does not exist in this process.
    fn lock_shared_checked<'a>(
        &'a self,
        shard: &'a Slot<T>,
    ) -> Result<Guard<'a, T>, Orphaned<Guard<'a, T>>> {
        loop {
            match shard.mutex.lock() {
                Ok(()) => return Ok(self.filled(Guard::new(shard, false))),
                Err(gone) if shard.mutex.adopt(gone) => {
                    return self.adopted(Guard::new(shard, false), gone.number());
                }
                Err(Gone { .. }) => {}
            }
        }
    }

    /// Returns the result of taking a shard over: its value, if the gone owner had made one (invariant 4).
    fn adopted<'a>(
        &'a self,
        guard: Guard<'a, T>,
        gone: u64,
    ) -> Result<Guard<'a, T>, Orphaned<Guard<'a, T>>> {
        match guard.slot.value.is_full() {
            true => Err(Orphaned::new(guard, gone)),
            false => Ok(self.filled(guard)),
        }
    }

    /// Locks this core's shard. `Err` with the shard to use instead.
    #[inline(always)]
    fn lock_biased(&self) -> Result<Guard<'_, T>, &Slot<T>> {
        let held = bias::held();
        let section = move |index, slots: &Slots| {
            // SAFETY: `run` gives slots whose first word is the bias's. From FREE that word is changed by sections
            // indexed by `I`, and by revokers that froze the slot.
            unsafe { rseq::store_if_equal(index, slots, bias::FREE, held) }
        };
        match self.slots.run(section) {
            Ok(exit) if exit.is_committed() => {
                // SAFETY: `run` gives slots of `Slot<T>`, which live as long as this object's block.
                let slot = unsafe { &*exit.slot().cast::<Slot<T>>() };
                slot.bias.taken();
                Ok(Guard::new(slot, true))
            }
            Ok(_held) => Err(self.slots.share().unwrap_or(&self.inside)),
            Err(Fallback::Shared(slot)) => Err(slot),
            Err(Fallback::Unbound) => Err(&self.inside),
        }
    }

    #[cold]
    fn lock_shared<'a>(&'a self, slot: &'a Slot<T>) -> Guard<'a, T> {
        self.lock_shared_checked(slot).unwrap_or_else(|_orphaned| holder_is_gone())
    }

    #[cold]
    fn try_lock_shared<'a>(&'a self, slot: &'a Slot<T>) -> Option<Guard<'a, T>> {
        slot.mutex.try_lock().then(|| self.filled(Guard::new(slot, false)))
    }

    /// Returns the guard, once the shard holds a value (invariant 3).
    #[inline(always)]
    fn filled<'a>(&'a self, guard: Guard<'a, T>) -> Guard<'a, T> {
        if !guard.slot.value.is_full() {
            self.fill(&guard);
        }
        guard
    }

    /// Not inlined: its frame has room for a `T`, which the caller's must not have.
    #[cold]
    #[inline(never)]
    fn fill(&self, guard: &Guard<'_, T>) {
        // SAFETY: the shard holds no value, and the guard excludes other threads.
        unsafe { guard.slot.value.make(self.init) };
    }

    /// Returns all existing values, without locking.
    ///
    /// ```
    /// use corelocal::percpu::Lock;
    ///
    /// let mut sums: Lock<u64> = Lock::default();
    /// *sums.lock() += 5;
    /// assert_eq!(sums.iter_mut().map(|sum| *sum).sum::<u64>(), 5);
    /// ```
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let this = &*self;
        let mut walk = Walk::new();
        core::iter::from_fn(move || walk.next(&this.slots, &this.inside))
            .filter(|(_, slot)| slot.value.is_full())
            // SAFETY: the object is borrowed exclusively, and a walk reaches each shard once.
            .map(|(_, slot)| unsafe { &mut *slot.value.as_ptr() })
    }
}

/// Ends a blocking attempt to lock a part whose holder is gone.
#[cold]
#[inline(never)]
fn holder_is_gone() -> ! {
    panic!(
        "a thread that held this part of a percpu::Lock when the process was forked is not in the child, and may have \
         left the value half changed: in the child `reset` such values by `for_each_checked`"
    )
}

/// Values of `T::default`.
impl<T: Default + Send + 'static, I: SlotIndex> Default for Lock<T, I> {
    fn default() -> Self {
        Self::new(T::default)
    }
}

/// Says nothing of the values, which are behind locks.
impl<T: Send + 'static, I: SlotIndex> fmt::Debug for Lock<T, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").finish_non_exhaustive()
    }
}

impl<T: Send + 'static, I: SlotIndex> Drop for Lock<T, I> {
    fn drop(&mut self) {
        if core::mem::needs_drop::<T>() {
            let mut walk = Walk::new();
            drop_each(|| {
                let Some((_, slot)) = walk.next(&self.slots, &self.inside) else { return false };
                // SAFETY: `&mut self` is exclusive access to all parts.
                unsafe { slot.value.drop_in_place() };
                true
            });
        }
    }
}

#[cfg(test)]
mod tests;
