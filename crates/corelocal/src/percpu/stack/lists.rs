//! Two lock-free lists of a shared slot's places: those that hold items, and those that are free. For threads that
//! cannot run critical sections.
//!
//! The lists are linked by place numbers. A thread that takes a place off a list owns it until it puts the place on
//! the other list. So no thread waits for another: a signal may interrupt, and a thread may die or fork, at any
//! instruction. At worst a place stays unused.
//!
//! ```text
//!   push:  claim a free place → write the item → publish it      full  ──▶ 3 ──▶ 0
//!   pop:   take a full place  → read the item  → release it      free  ──▶ 1        fresh = 4: 4, 5, … not
//!                                                                                   used yet
//! ```
//!
//! # Invariants
//! 1. A place is on one list, or owned by one thread between them, or not below `fresh`.
//! 2. A head's tag grows whenever a place is taken off. So if a head is unchanged, the link that was read from its
//!    first place is still valid.
//! 3. All bytes 0 is two empty lists.

use crate::primitive::atomic::{AtomicU32, AtomicU64, Ordering};

/// A head holds the number of its first place plus one in these bits, and a tag above them.
const PLACE_BITS: u32 = 20;
const PLACE: u64 = (1 << PLACE_BITS) - 1;
const TAG: u64 = 1 << PLACE_BITS;

/// The two lists of a shared slot's places.
pub(super) struct Lists<const PLACES: usize> {
    full: AtomicU64,
    free: AtomicU64,
    fresh: AtomicU32,
    /// For each place the number of the next one plus one.
    links: [AtomicU32; PLACES],
}

impl<const PLACES: usize> Lists<PLACES> {
    #[cfg(loom)]
    pub(super) fn new() -> Self {
        Lists {
            full: AtomicU64::new(0),
            free: AtomicU64::new(0),
            fresh: AtomicU32::new(0),
            links: core::array::from_fn(|_| AtomicU32::new(0)),
        }
    }

    /// Takes a free place, which the caller owns from now on.
    pub(super) fn claim(&self) -> Option<usize> {
        const { assert!(PLACES < PLACE as usize) };
        self.take_off(&self.free).or_else(|| {
            // Relaxed: fresh places were never written to.
            let mut fresh = self.fresh.load(Ordering::Relaxed);
            while (fresh as usize) < PLACES {
                let next = self.fresh.compare_exchange_weak(
                    fresh,
                    fresh + 1,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                match next {
                    Ok(_) => return Some(fresh as usize),
                    Err(now) => fresh = now,
                }
            }
            None
        })
    }

    /// Puts the claimed place, which holds an item now, on the full list.
    pub(super) fn publish(&self, place: usize) {
        self.put_on(&self.full, place);
    }

    /// Takes the place that was published last. The caller owns it from now on.
    pub(super) fn take(&self) -> Option<usize> {
        self.take_off(&self.full)
    }

    /// Puts the taken place, which no longer holds an item, on the free list.
    pub(super) fn release(&self, place: usize) {
        self.put_on(&self.free, place);
    }

    fn take_off(&self, list: &AtomicU64) -> Option<usize> {
        // Acquire, here and below: partner is the Release in `put_on`. Earlier accesses to the place have happened,
        // and its link is valid.
        let mut head = list.load(Ordering::Acquire);
        loop {
            let place = ((head & PLACE) as usize).checked_sub(1)?;
            // Relaxed: the head's Acquire came before; if it has changed since, the exchange fails.
            let behind = self.links.get(place)?.load(Ordering::Relaxed);
            let next = (head & !PLACE).wrapping_add(TAG) | u64::from(behind);
            match list.compare_exchange_weak(head, next, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(place),
                Err(now) => head = now,
            }
        }
    }

    fn put_on(&self, list: &AtomicU64, place: usize) {
        let Some(link) = self.links.get(place) else { return };
        let mut head = list.load(Ordering::Relaxed);
        loop {
            link.store((head & PLACE) as u32, Ordering::Relaxed);
            let next = head & !PLACE | (place as u64 + 1);
            // Release: partner is the Acquire in `take_off`, also of later ones: all changes of a head are
            // read-modify-writes.
            match list.compare_exchange_weak(head, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn lists<const PLACES: usize>() -> Lists<PLACES> {
        // SAFETY: atomics, for which all bytes 0 is valid (invariant 3).
        unsafe { core::mem::zeroed() }
    }

    #[test]
    fn places_go_round() {
        let lists = lists::<3>();
        assert_eq!(lists.take(), None);
        for round in 0..10 {
            let places = [(); 3].map(|()| lists.claim().unwrap());
            assert_eq!((lists.claim(), round), (None, round));
            places.iter().for_each(|place| lists.publish(*place));
            for place in places.into_iter().rev() {
                assert_eq!(lists.take(), Some(place));
                lists.release(place);
            }
            assert_eq!(lists.take(), None);
        }
    }

    #[test]
    fn no_places() {
        assert_eq!(lists::<0>().claim(), None);
        assert_eq!(lists::<0>().take(), None);
    }

    /// A place is never owned by two threads.
    #[test]
    fn threads_agree() {
        use std::sync::atomic::AtomicBool;
        let lists = lists::<5>();
        let held = [const { AtomicBool::new(false) }; 5];
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let alone = |place: usize| {
                        assert!(!held[place].swap(true, Ordering::Relaxed));
                        held[place].store(false, Ordering::Relaxed);
                        place
                    };
                    for _ in 0..50_000 {
                        if let Some(place) = lists.claim() {
                            lists.publish(alone(place));
                        }
                        if let Some(place) = lists.take() {
                            lists.release(alone(place));
                        }
                    }
                });
            }
        });
    }
}

#[cfg(all(test, loom))]
mod loom;
