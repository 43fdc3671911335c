//! Tests of which slots a directory assigns to which ids.

use super::*;

type Few = Directory<8, 8>;

fn me() -> Identity {
    Identity::of_this_thread()
}

#[test]
fn slots_are_given_from_the_lowest() {
    let few = Few::new();
    assert_eq!(few.slot_of(5), None);
    assert_eq!(few.assign(5, 0..8), Some(0));
    assert_eq!(few.assign(7, 0..8), Some(1));
    assert_eq!(few.assign(5, 0..8), Some(0));
    assert_eq!((few.slot_of(5), few.slot_of(7), few.high_water()), (Some(0), Some(1), 2));
    assert_eq!(few.assign(1, 0..2), None);
    assert_eq!(few.assign(99, 0..8), None);
    assert_eq!(few.in_use(), 2);
}

/// Ids of two nodes get slots of their node.
#[test]
fn an_id_gets_one_of_those_named() {
    let few = Few::new();
    let odd = || (1..8).step_by(2);
    assert_eq!((few.assign(5, odd()), few.assign(6, odd())), (Some(1), Some(3)));
    assert_eq!(few.assign(0, (0..8).step_by(2)), Some(0));
    assert_eq!((few.revoke(1, me()), few.revoke(3, me())), (Ok(true), Ok(true)));
    few.thaw(3, me());
    assert_eq!((few.assign(6, odd()), few.assign(5, odd())), (Some(3), Some(5)));
    assert_eq!((few.high_water(), few.in_use()), (6, 3));
}

#[test]
fn a_frozen_slot_is_nobodys() {
    let few = Few::new();
    assert_eq!(few.assign(5, 0..8), Some(0));
    assert_eq!(few.revoke(0, me()), Ok(true));
    assert_eq!(few.revoke(0, me()), Err(AlreadyFrozen));
    assert_eq!(few.slot_of(5), None);
    assert_eq!(few.assign(5, 0..8), Some(1));
    few.thaw(0, me());
    assert_eq!(few.assign(6, 0..8), Some(0));
    assert_eq!(few.revoke(3, me()), Ok(false));
    few.thaw(3, me());
    assert_eq!(few.revoke(8, me()), Err(AlreadyFrozen));
}

/// The state in a forked child between two steps of a publication that no thread will complete.
#[test]
fn an_unpublished_slot_can_be_frozen() {
    let few = Few::new();
    let nothing = few.offsets[5].load(Ordering::Relaxed);
    let claim = few.number() << ID_BITS | 6;
    assert!(few.claim(2, claim));
    assert_eq!(few.revoke(2, me()), Ok(false));
    few.thaw(2, me());
    // The publisher wakes up after all: too late.
    assert_eq!(few.publish(5, 2, nothing, claim), None);
    assert_eq!(few.slot_of(5), None);
}

/// The state in a forked child of a slot that another thread was freezing, before and after it took the slot from its
/// id.
#[test]
fn what_a_gone_thread_froze_is_frozen_again() {
    let few = Few::new();
    let gone = std::thread::spawn(me).join().unwrap();
    let child = Identity::of_number(me().number() + 1);
    assert_eq!((few.assign(5, 0..8), few.revoke(0, gone)), (Some(0), Ok(true)));
    assert_eq!(few.revoke(0, me()), Err(AlreadyFrozen));
    assert_eq!(few.revoke(0, child), Ok(false));
    // Too late to have an effect.
    few.thaw(0, gone);
    assert!(few.is_frozen_by(0, child) && !few.is_frozen_by(0, gone));
    few.thaw(0, child);
    // This time the freezer was interrupted before the second step.
    assert_eq!(few.assign(5, 0..8), Some(0));
    let owner = few.owners[0].load(Ordering::Relaxed) % (1 << ID_BITS);
    few.owners[0].store(FROZEN | gone.number() << ID_BITS | owner, Ordering::Relaxed);
    assert!(few.is_left_frozen(0, child) && !few.is_left_frozen(0, me()));
    assert_eq!((few.revoke(0, child), few.slot_of(5)), (Ok(true), None));
    few.thaw(0, child);
    assert_eq!(few.assign(6, 0..8), Some(0));
}

#[test]
fn fixed_slots() {
    let few = Few::new();
    assert_eq!(few.assign(4, [4]), Some(4));
    assert_eq!(few.assign(4, [4]), Some(4));
    assert_eq!(few.revoke(4, me()), Ok(true));
    assert_eq!(few.assign(4, [4]), None);
    few.thaw(4, me());
    assert_eq!(few.assign(4, [4]), Some(4));
}

/// With any ids and any freezes, an id has at most one slot and a slot at most one id.
#[test]
fn threads_agree() {
    use std::sync::atomic::{AtomicBool, AtomicU32};
    static DIRECTORY: Directory<8, 8> = Directory::new();
    static USERS: [AtomicU32; 8] = [const { AtomicU32::new(0) }; 8];
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for n in 0..20_000u32 {
                    let slot = n % 8;
                    if DIRECTORY.revoke(slot, me()).is_ok() {
                        // With sections and a fence, this thread would be the slot's only user.
                        assert_eq!(USERS[slot as usize].fetch_add(1, Ordering::Relaxed), 0);
                        USERS[slot as usize].fetch_sub(1, Ordering::Relaxed);
                        DIRECTORY.thaw(slot, me());
                    }
                }
                done.store(true, Ordering::Relaxed);
            });
        }
        for id in 0..4 {
            let done = &done;
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    DIRECTORY.assign(id, 0..8);
                }
            });
        }
    });
    let mut slots: std::vec::Vec<u32> = (0..4).filter_map(|id| DIRECTORY.slot_of(id)).collect();
    let given = slots.len();
    slots.sort_unstable();
    slots.dedup();
    assert_eq!(slots.len(), given);
    assert_eq!(DIRECTORY.in_use() as usize, given);
}

/// What `freeze_all` and the drop of its result do.
fn compact<const IDS: usize, const SLOTS: usize>(directory: &Directory<IDS, SLOTS>) -> bool {
    let Some(end) = directory.begin(me()) else { return false };
    let ours: std::vec::Vec<u32> =
        (0..end).filter(|slot| directory.revoke(*slot, me()).is_ok()).collect();
    // At least as long as a fence takes.
    (0..20).for_each(|_| std::thread::yield_now());
    ours.into_iter().for_each(|slot| directory.thaw(slot, me()));
    directory.end(me());
    true
}

#[test]
fn a_compaction_gives_no_higher_slot() {
    let few = Few::new();
    assert_eq!((few.assign(5, 0..8), few.assign(6, 0..8)), (Some(0), Some(1)));
    let gone = std::thread::spawn(me).join().unwrap();
    assert_eq!(few.begin(me()), Some(2));
    // One compaction at a time.
    assert_eq!(few.begin(gone), None);
    assert_eq!((few.revoke(0, me()), few.revoke(1, me())), (Ok(true), Ok(true)));
    assert_eq!((few.assign(5, 0..8), few.assign(7, 0..8)), (None, None));
    few.thaw(0, me());
    // A slot below the limit that was free all the time.
    assert_eq!((few.assign(5, 0..8), few.assign(7, 0..8)), (Some(0), None));
    few.thaw(1, me());
    // Another thread cannot end it.
    few.end(gone);
    assert_eq!((few.assign(7, 0..8), few.assign(6, 0..8)), (Some(1), None));
    few.end(me());
    assert_eq!((few.assign(6, 0..8), few.high_water()), (Some(2), 3));
}

/// A claim from before the compaction that is not published yet.
#[test]
fn a_compaction_takes_claims_back() {
    let few = Few::new();
    assert_eq!(few.assign(5, 0..8), Some(0));
    let nothing = few.offsets[6].load(Ordering::Relaxed);
    let claim = few.number() << ID_BITS | 7;
    assert!(few.claim(3, claim));
    assert_eq!(few.begin(me()), Some(4));
    assert_eq!(few.revoke(3, me()), Ok(false));
    assert_eq!(few.publish(6, 3, nothing, claim), None);
    few.thaw(3, me());
    few.end(me());
    assert_eq!(few.assign(6, 0..8), Some(1));
}

/// In a forked child: the compacting thread does not exist there.
#[test]
fn what_a_gone_thread_began_is_over() {
    let few = Few::new();
    let gone = Identity::gone();
    assert_eq!((few.assign(5, 0..8), few.begin(gone)), (Some(0), Some(1)));
    assert_eq!((few.revoke(0, gone), few.assign(6, 0..8)), (Ok(true), Some(1)));
    assert_eq!(few.begin(me()), Some(2));
    few.end(gone);
    assert_eq!(few.assign(5, 0..8), None);
    few.end(me());
    assert_eq!(few.assign(5, 0..8), Some(2));
}

/// This holds for any number of concurrent compactions. A search may meet each other id twice: where its claim
/// failed, and at the slot it got then.
#[test]
fn ids_get_the_lowest_slots_under_load() {
    use std::sync::atomic::{AtomicBool, AtomicU32};
    const IDS: u32 = 8;
    static DIRECTORY: Directory<8, 64> = Directory::new();
    static STOP: AtomicBool = AtomicBool::new(false);
    static HIGHEST: AtomicU32 = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for id in 0..IDS {
            scope.spawn(move || {
                while !STOP.load(Ordering::Relaxed) {
                    if let Some(slot) = DIRECTORY.assign(id, 0..64) {
                        HIGHEST.fetch_max(slot, Ordering::Relaxed);
                    }
                    std::thread::yield_now();
                }
            });
        }
        for _ in 0..crate::scaled::scaled(100) {
            compact(&DIRECTORY);
        }
        STOP.store(true, Ordering::Relaxed);
    });
    assert!(HIGHEST.load(Ordering::Relaxed) < 2 * IDS - 1, "{HIGHEST:?}");
    assert!(DIRECTORY.high_water() < 2 * IDS);
    assert!(compact(&DIRECTORY));
    assert!((0..IDS).all(|id| DIRECTORY.assign(id, 0..64) == Some(id)));
}
