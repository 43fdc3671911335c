//! Loom models of the protocol between critical sections, freezers and publishers. A section is modelled by a mutex
//! of its id's thread, held while it runs, since other threads never see part of one. The fence takes and releases
//! all of these mutexes, as `membarrier` waits for the end of every section.

use super::*;
use ::loom::cell::UnsafeCell;
use ::loom::sync::{Arc, Mutex};
use ::loom::thread;

const SLOTS: usize = 2;

fn me() -> Identity {
    Identity::of_this_thread()
}

struct Machine {
    directory: Directory<SLOTS, SLOTS>,
    /// The words that sections write without atomics: loom detects concurrent accesses.
    slots: [UnsafeCell<u32>; SLOTS],
    running: [Mutex<()>; SLOTS],
    has_fence: bool,
}

// SAFETY: the protocol under test guarantees exclusive access, and loom checks it.
unsafe impl Sync for Machine {}

impl Machine {
    fn new(has_fence: bool) -> Arc<Machine> {
        Arc::new(Machine {
            directory: Directory::new(),
            slots: core::array::from_fn(|_| UnsafeCell::new(0)),
            running: core::array::from_fn(|_| Mutex::new(())),
            has_fence,
        })
    }

    fn section(&self, id: usize) -> bool {
        let _running = self.running[id].lock();
        // Acquire: as every load on x86-64; partner is the Release in `publish`.
        let entry = self.directory.offsets[id].load(Ordering::Acquire);
        if !is_offset(entry) {
            return false;
        }
        self.slots[slot_at(entry) as usize].with_mut(|slot| {
            // SAFETY: loom panics if it is not the only access.
            unsafe { *slot += 1 };
        });
        true
    }

    fn operate(&self, id: usize) {
        for _ in 0..2 {
            if self.section(id) {
                return;
            }
            self.directory.assign(id as u32, 0..SLOTS as u32);
        }
    }

    fn freeze_and_use(&self, slot: u32) {
        let Ok(was_published) = self.directory.revoke(slot, me()) else { return };
        if was_published && self.has_fence {
            self.running.iter().for_each(|running| drop(running.lock()));
        }
        self.slots[slot as usize].with_mut(|slot| {
            // SAFETY: loom panics if another access is concurrent.
            unsafe { *slot += 100 };
        });
        self.directory.thaw(slot, me());
    }
}

fn explore(has_fence: bool) {
    // All interleavings of three threads take too long; a fault needs two preemptions.
    crate::explore::within(2, move || {
        let machine = Machine::new(has_fence);
        machine.operate(0);
        let threads: std::vec::Vec<_> = [0, 1]
            .into_iter()
            .map(|id| {
                let machine = machine.clone();
                thread::spawn(move || machine.operate(id))
            })
            .collect();
        machine.freeze_and_use(0);
        for thread in threads {
            thread.join().unwrap();
        }
        let slots = [0, 1].map(|id| machine.directory.slot_of(id));
        assert!(slots[0].is_none() || slots[0] != slots[1]);
    });
}

#[test]
fn loom_a_frozen_slot_has_one_user() {
    explore(true);
}

/// Without the fence the check fails. Otherwise the test above would show nothing.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_without_a_fence_there_are_two() {
    explore(false);
}

/// Two ids, one of which has slot 0, while all slots are taken back. The other one never keeps slot 1 once slot 0 is
/// free, wherever its claim was.
#[test]
fn loom_a_compaction_leaves_the_lowest_slots() {
    crate::explore::within(3, || {
        let machine = Machine::new(true);
        machine.operate(0);
        let publisher = {
            let machine = machine.clone();
            thread::spawn(move || machine.directory.assign(1, 0..SLOTS as u32))
        };
        let directory = &machine.directory;
        let end = directory.begin(me()).expect("no other thread compacts");
        let ours: std::vec::Vec<u32> =
            (0..end).filter(|slot| directory.revoke(*slot, me()).is_ok()).collect();
        ours.into_iter().for_each(|slot| directory.thaw(slot, me()));
        directory.end(me());
        publisher.join().unwrap();
        assert_eq!(directory.slot_of(0), None);
        assert_ne!(directory.slot_of(1), Some(1));
    });
}
