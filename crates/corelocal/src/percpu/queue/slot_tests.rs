//! What a child finds of a consumer that turned a list round when its process was forked.

use super::*;
use crate::sys::forks::Identity;
use std::vec::Vec;

/// How far the consumer came.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Came {
    /// It said which list it takes.
    Said,
    /// It took it.
    Took,
    /// It turned so many nodes of it round.
    Turned(usize),
}

/// A slot with these items, as the consumer left it, and with more pushed since.
fn left_behind(items: u64, came: Came, more: u64) -> Slot {
    // SAFETY: `Zeroed`.
    let slot: Slot = unsafe { core::mem::zeroed() };
    for n in 0..items {
        assert!(slot.push_shared(Words::new(n)).is_ok());
    }
    let newest = slot.producers.newest.load(Ordering::Relaxed);
    slot.consumers.oldest.store(marked(newest), Ordering::Relaxed);
    if came != Came::Said {
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
    for n in items..items + more {
        assert!(slot.push_shared(Words::new(n)).is_ok());
    }
    core::mem::forget(slot.consumers.consumer.lock_as(Identity::gone()));
    slot
}

#[test]
fn a_list_is_turned_round_once_more() {
    let stages = [Came::Said, Came::Took].into_iter().chain((0..=3).map(Came::Turned));
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
        // SAFETY: empty, and ours alone.
        unsafe { slot.free() };
    }
}
