//! A core's shard of a ring, and the shard that threads without critical sections share.
//!
//! ```text
//!   0     tail                 written by producers, in critical sections or under `producers`
//!   64    head │ consumers     written under the lock `consumers`
//!   128   places
//! ```
//!
//! # Invariants
//! 1. `tail - head` items, at most the number of places, lie in the places from `head` up to `tail`, both modulo the
//!    number of places. Both only grow.
//! 2. A producer first stores the item, then `tail`. A consumer first reads the items, then stores `head`. Producers
//!    access only places outside of that range, and consumers only those inside of it.
//! 3. One producer at a time: a section of the id that has the slot, or in a shared slot the owner of `producers`.
//!    One consumer at a time: the owner of `consumers`.
//! 4. A consumer does not write to a shard that was never pushed to: a trim may wipe such a shard.

use core::mem::MaybeUninit;
use core::panic::{RefUnwindSafe, UnwindSafe};

use crate::percpu::machinery::item_words::{DropAll, Words};
use crate::percpu::machinery::slot::Zeroed;
use crate::primitive::atomic::{AtomicU64, Ordering};
use crate::primitive::cell::UnsafeCell;
use crate::sys::try_lock::{Locked, TryLock};

/// The number of tries to take a shared slot's lock before the slot counts as full.
const TRIES: u32 = 100;

/// A shard of a ring.
#[repr(C)]
pub(super) struct Slot<T, const CAPACITY: usize> {
    producer: Producer,
    consumer: Consumer,
    places: [UnsafeCell<Words<T>>; CAPACITY],
}

#[repr(C, align(64))]
struct Producer {
    tail: AtomicU64,
    producers: TryLock,
}

#[repr(C, align(64))]
struct Consumer {
    head: AtomicU64,
    consumers: TryLock,
}

// SAFETY: an item goes in by value on one thread and comes out by value, once, on another, which `T: Send` allows.
// Invariants 2 and 3 say which thread may access a place.
unsafe impl<T: Send, const CAPACITY: usize> Sync for Slot<T, CAPACITY> {}

/// As far as the items are unwind-safe: they are moved in and out whole.
impl<T: UnwindSafe + RefUnwindSafe, const CAPACITY: usize> RefUnwindSafe for Slot<T, CAPACITY> {}

// SAFETY: an empty ring, free locks; places are `MaybeUninit` and not dropped.
unsafe impl<T: Send + 'static, const CAPACITY: usize> Zeroed for Slot<T, CAPACITY> {
    #[cfg(loom)]
    fn zeroed() -> Self {
        Slot {
            producer: Producer { tail: AtomicU64::new(0), producers: TryLock::new() },
            consumer: Consumer { head: AtomicU64::new(0), consumers: TryLock::new() },
            places: core::array::from_fn(|_| UnsafeCell::new(Words::uninit())),
        }
    }
}

impl<T, const CAPACITY: usize> Slot<T, CAPACITY> {
    /// A position modulo the number of places.
    pub(super) const MASK: u64 = {
        assert!(CAPACITY.is_power_of_two(), "a ring's capacity is a power of two");
        #[cfg(not(loom))]
        assert!(
            core::mem::offset_of!(Self, producer) == 0
                && core::mem::offset_of!(Self, consumer) == 64
                && core::mem::offset_of!(Self, places) == 128
                && core::mem::offset_of!(Producer, tail) == 0
                && core::mem::offset_of!(Consumer, head) == 0,
            "sections look for them there"
        );
        CAPACITY as u64 - 1
    };

    /// Returns the approximate number of items.
    pub(super) fn len(&self) -> usize {
        let head = self.consumer.head.load(Ordering::Relaxed);
        let tail = self.producer.tail.load(Ordering::Relaxed);
        // One of the two values may be older than the other.
        (tail.saturating_sub(head) as usize).min(CAPACITY)
    }

    /// Takes up to `most` items, the oldest first. `None` if another consumer has the lock.
    pub(super) fn take(&self, most: usize, mut each: impl FnMut(Words<T>)) -> Option<usize> {
        // Acquire: partner is the Release in `push_shared`, and the section's commit, which is one.
        if self.producer.tail.load(Ordering::Acquire) == 0 {
            // The consumer must not write to a slot that was never used (invariant 4).
            return Some(0);
        }
        let _locked = self.consumer.consumers.try_lock()?;
        // Relaxed: written under this lock alone.
        let head = self.consumer.head.load(Ordering::Relaxed);
        let tail = self.producer.tail.load(Ordering::Acquire);
        let taken = (tail - head).min(most as u64);
        for position in head..head + taken {
            // SAFETY: an item by invariant 1, which this consumer alone accesses (invariants 2 and 3).
            each(self.place(position).with(|words| unsafe { words.read() }));
        }
        // Release: partner is the Acquire in `push_shared`, and the section's load of `head`. The section's stores
        // depend on that load, so no processor executes them earlier.
        self.consumer.head.store(head + taken, Ordering::Release);
        Some(taken as usize)
    }

    /// Appends an item to a shared slot. Returns the item if there is no room, or another producer holds the lock for
    /// long.
    pub(super) fn push_shared(&self, item: Words<T>) -> Result<(), Words<T>> {
        let Some(_locked) = self.lock_producers() else { return Err(item) };
        // Relaxed: written under this lock alone.
        let tail = self.producer.tail.load(Ordering::Relaxed);
        // Acquire: partner is the Release in `take`.
        let head = self.consumer.head.load(Ordering::Acquire);
        if tail - head > Self::MASK {
            return Err(item);
        }
        // SAFETY: a free place by invariant 1, which this producer alone accesses (invariants 2 and 3).
        self.place(tail).with_mut(|words| unsafe { words.write(item) });
        // Release: partner is the Acquire in `take`.
        self.producer.tail.store(tail + 1, Ordering::Release);
        Ok(())
    }

    /// Takes the lock. The number of attempts is bounded, since a signal handler may have interrupted the owner.
    fn lock_producers(&self) -> Option<Locked<'_>> {
        for _ in 1..if cfg!(loom) { 1 } else { TRIES } {
            if let Some(locked) = self.producer.producers.try_lock() {
                return Some(locked);
            }
            core::hint::spin_loop();
        }
        self.producer.producers.try_lock()
    }

    fn place(&self, position: u64) -> &UnsafeCell<Words<T>> {
        &self.places[(position & Self::MASK) as usize]
    }
}

/// Items that were taken together, on the consumer's stack. Remaining ones are dropped.
pub(super) struct Taken<T, const N: usize> {
    next: usize,
    len: usize,
    items: [MaybeUninit<Words<T>>; N],
}

impl<T, const N: usize> Taken<T, N> {
    /// Takes up to `most` of the slot's items. `None` if another consumer has the lock.
    pub(super) fn from<const CAPACITY: usize>(
        slot: &Slot<T, CAPACITY>,
        most: usize,
    ) -> Option<Self> {
        let mut taken = Taken { next: 0, len: 0, items: [const { MaybeUninit::uninit() }; N] };
        slot.take(most.min(N), |words| {
            if let Some(place) = taken.items.get_mut(taken.len) {
                place.write(words);
                taken.len += 1;
            }
        })?;
        Some(taken)
    }
}

impl<T, const N: usize> Iterator for Taken<T, N> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let place = self.items[..self.len].get(self.next)?;
        self.next += 1;
        // SAFETY: the places up to `len` were filled with items, and this one was not read before.
        Some(unsafe { place.as_ptr().read().into_item() })
    }
}

impl<T, const N: usize> Drop for Taken<T, N> {
    fn drop(&mut self) {
        drop(DropAll(self));
    }
}

#[cfg(all(test, loom))]
mod loom;
