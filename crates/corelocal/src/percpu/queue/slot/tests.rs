//! Tests of a queue's slot. They cover what a child finds of a consumer that was reversing a list at the fork.

use super::*;
use crate::sys::forks::Identity;
use std::vec::Vec;

/// How far the consumer came.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Came {
    /// It has stored which list it takes.
    Said,
    /// It has made `steps` odd.
    Began,
    /// It has taken the list.
    Took,
    /// It has reversed this many nodes.
    Turned(usize),
    /// It has reversed all of them, and made `steps` even.
    Done,
}

/// A slot with these items as the consumer left it, and with more pushed since.
fn left_behind(items: u64, came: Came, more: u64) -> Slot {
    // SAFETY: `Zeroed`, so all bytes 0 is valid.
    let slot: Slot = unsafe { core::mem::zeroed() };
    for n in 0..items {
        assert!(slot.push_shared(Words::new(n)).is_ok());
    }
    let newest = slot.producers.newest.load(Ordering::Relaxed);
    slot.consumers.oldest.store(marked(newest), Ordering::Relaxed);
    if came != Came::Said {
        slot.step(1);
    }
    if !matches!(came, Came::Said | Came::Began) {
        slot.producers.newest.store(ptr::null_mut(), Ordering::Relaxed);
    }
    if let Came::Turned(nodes) = came {
        let (mut node, mut newer) = (newest.cast::<Node<u64>>(), ptr::null_mut());
        for _ in 0..nodes {
            // SAFETY: a node of the slot's.
            let Node { older, newer: link, .. } = unsafe { &*node };
            link.store(newer, Ordering::Relaxed);
            (newer, node) = (node.cast(), older.load(Ordering::Relaxed).cast());
        }
    }
    if came == Came::Done {
        slot.step(1);
    }
    for n in items..items + more {
        assert!(slot.push_shared(Words::new(n)).is_ok());
    }
    core::mem::forget(slot.consumers.consumer.lock_as(Identity::gone()));
    slot
}

#[test]
fn a_list_is_turned_round_once_more() {
    let stages = [Came::Said, Came::Began, Came::Took, Came::Done]
        .into_iter()
        .chain((0..=3).map(Came::Turned));
    for (came, more) in stages.flat_map(|came| [0, 1, 300].map(|more| (came, more))) {
        let slot = left_behind(3, came, more);
        assert!(!slot.seems_empty() && !slot.is_empty(), "{came:?}");
        let taken: Vec<u64> = core::iter::from_fn(|| {
            // SAFETY: the slot's items are numbers, each taken once.
            unsafe { slot.pop::<u64>().map(|words| words.into_item()) }
        })
        .collect();
        assert!(taken.iter().copied().eq(0..3 + more), "{came:?}: {taken:?}");
        assert!(slot.seems_empty() && slot.is_empty(), "{came:?}");
        // SAFETY: empty, and used by this test only.
        unsafe { slot.free() };
    }
}

/// A slot of critical sections as its pushes leave it, but with plain stores.
struct Sections {
    slot: Slot,
}

impl Sections {
    fn new() -> Sections {
        // SAFETY: `Zeroed`, so all bytes 0 is valid.
        Sections { slot: unsafe { core::mem::zeroed() } }
    }

    /// What the sections `queue_push` and `queue_link` do.
    fn push(&self, n: u64) {
        let Producers { end, start, .. } = &self.slot.producers;
        let at = end.load(Ordering::Relaxed);
        let place = if segment::is_end(at) {
            let fresh = self.slot.take_spare().or_else(Segment::take).expect("memory");
            let first = fresh.first::<Words<u64>>().cast::<u8>();
            let header = fresh.into_raw();
            let link = match at.is_null() {
                true => start,
                // SAFETY: the slot's last segment, which only this test writes to.
                false => unsafe { &(*segment::ending_at(at)).next },
            };
            link.store(first, Ordering::Relaxed);
            assert_eq!(segment::containing(first), header);
            first
        } else {
            at
        };
        // SAFETY: a place of the slot's segment, which is not read yet.
        unsafe { place.cast::<Words<u64>>().write(Words::new(n)) };
        end.store(place.wrapping_add(8), Ordering::Release);
    }

    fn pop(&self) -> Option<u64> {
        // SAFETY: the slot's items are numbers, each taken once.
        unsafe { self.slot.pop::<u64>().map(|words| words.into_item()) }
    }
}

/// `look` describes one moment: a push and a take since then change the next result, also in the same place of the
/// same segment.
#[test]
fn a_look_tells_what_was_done_since() {
    let sections = Sections::new();
    let mut looks = std::vec![sections.slot.look().expect("empty")];
    for n in 0..3000 {
        sections.push(n);
        assert!(sections.slot.look().is_none());
        assert_eq!(sections.pop(), Some(n));
        let look = sections.slot.look().expect("empty");
        assert!(!looks.contains(&look) && sections.slot.look() == Some(look), "{n}");
        looks.push(look);
    }
    let places: std::collections::HashSet<u64> = looks.iter().map(|look| look.read).collect();
    assert!(places.len() < looks.len(), "no segment was used again");
    // SAFETY: empty, and used by this test only.
    unsafe { sections.slot.free() };
}

/// There is an item at every moment: a push and a take in the middle of a `look` do not hide it.
#[test]
fn a_slot_that_is_never_empty_never_looks_so() {
    // Enough for each place of a segment, and for lists that are reversed.
    for (load, rounds) in (1..=5).flat_map(|load| [1, 2, 510, 1020].map(|rounds| (load, rounds))) {
        let sections = Sections::new();
        let mut next = 0;
        (0..(1100 / rounds).max(3)).for_each(|_| {
            sections.push(next);
            let look = sections.slot.look_pausing(|now| {
                for _ in 0..if now == load { rounds } else { 0 } {
                    sections.push(next + 1);
                    assert_eq!(sections.pop(), Some(next));
                    next += 1;
                }
            });
            assert!(look.is_none(), "{rounds} before load {load}");
            assert_eq!(sections.pop(), Some(next));
            assert!(sections.slot.is_empty());
            next += 1;
        });
        // SAFETY: empty, and used by this test only.
        unsafe { sections.slot.free() };
    }
}

/// The same for a shared slot.
#[test]
fn a_shared_slot_that_is_never_empty_never_looks_so() {
    for (load, rounds) in (1..=5).flat_map(|load| [1, 2, 3].map(|rounds| (load, rounds))) {
        // SAFETY: `Zeroed`, so all bytes 0 is valid.
        let slot: Slot = unsafe { core::mem::zeroed() };
        let mut next = 0;
        let push = |n: u64| assert!(slot.push_shared(Words::new(n)).is_ok());
        // SAFETY: the slot's items are numbers, each taken once.
        let pop = || unsafe { slot.pop::<u64>().map(|words| words.into_item()) };
        for are_turned in [false, true] {
            if are_turned {
                push(next);
            }
            push(next + u64::from(are_turned));
            if are_turned {
                assert_eq!(pop(), Some(next));
                next += 1;
            }
            let look = slot.look_pausing(|now| {
                for _ in 0..if now == load { rounds } else { 0 } {
                    push(next + 1);
                    assert_eq!(pop(), Some(next));
                    next += 1;
                }
            });
            assert!(look.is_none(), "{rounds} before load {load}");
            assert_eq!(pop(), Some(next));
            assert!(slot.is_empty());
            next += 1;
        }
        // SAFETY: empty, and used by this test only.
        unsafe { slot.free() };
    }
}
