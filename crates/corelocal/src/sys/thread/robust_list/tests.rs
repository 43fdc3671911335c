//! The list as the kernel would walk it, with libc's entries in it and without.

use super::*;
use std::vec::Vec;

/// A lock as far as the list is concerned.
#[repr(C, align(8))]
struct Lock {
    word: [u32; 6],
    links: Links,
}

impl Lock {
    fn new() -> Lock {
        Lock { word: [0; 6], links: Links::new() }
    }
}

/// The entries of the calling thread's list, each as it is pointed to.
fn walk(me: Thread<'_>) -> Vec<usize> {
    let mut entries = Vec::new();
    let mut at = me.head.list.load(Ordering::Relaxed);
    while untagged(at) != me.end() {
        entries.push(at.addr());
        // SAFETY: an entry in the list.
        at = unsafe { next_of(untagged(at)) }.load(Ordering::Relaxed);
    }
    entries
}

#[test]
fn locks_come_and_go_in_any_order() {
    let Ok(me) = Thread::find() else { return };
    let before = walk(me);
    let locks = [Lock::new(), Lock::new(), Lock::new()];
    let entry = |lock: usize| locks[lock].links.entry().addr();
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        for lock in &locks {
            me.publish(lock.links.entry(), false);
            // SAFETY: in no list; they stay where they are until all are out.
            unsafe { me.link(&lock.links, false) };
            me.withdraw();
        }
        assert_eq!(walk(me), [&[entry(2), entry(1), entry(0)], &before[..]].concat());
        let mut left = std::vec![2, 1, 0];
        for lock in order {
            // SAFETY: linked above.
            unsafe { me.unlink(&locks[lock].links) };
            left.retain(|&other| other != lock);
            let expected: Vec<usize> = left.iter().map(|&lock| entry(lock)).collect();
            assert_eq!(walk(me), [&expected[..], &before[..]].concat());
        }
    }
    assert!(me.head.pending.load(Ordering::Relaxed).is_null());
}

#[test]
fn a_tag_stays_with_its_entry() {
    let Ok(me) = Thread::find() else { return };
    let before = walk(me);
    let (plain, inherits) = (Lock::new(), Lock::new());
    // SAFETY: in no list; both stay where they are until they are out.
    unsafe {
        me.link(&inherits.links, true);
        me.link(&plain.links, false);
    }
    let entries = [plain.links.entry().addr(), inherits.links.entry().addr() | INHERITS];
    assert_eq!(walk(me), [&entries[..], &before[..]].concat());
    // SAFETY: linked above.
    unsafe { me.unlink(&plain.links) };
    assert_eq!(walk(me), [&entries[1..], &before[..]].concat());
    // SAFETY: an entry of this thread's list.
    unsafe { me.unlink(&inherits.links) };
    assert_eq!(walk(me), before);
}

/// A mutex of libc's that is robust.
fn robust_pthread() -> std::boxed::Box<libc::pthread_mutex_t> {
    let mut mutex = std::boxed::Box::new(libc::PTHREAD_MUTEX_INITIALIZER);
    let mut kind = core::mem::MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
    // SAFETY: initialised by the first call, used by the others.
    unsafe {
        assert_eq!(libc::pthread_mutexattr_init(kind.as_mut_ptr()), 0);
        let robust = libc::PTHREAD_MUTEX_ROBUST;
        assert_eq!(libc::pthread_mutexattr_setrobust(kind.as_mut_ptr(), robust), 0);
        assert_eq!(libc::pthread_mutex_init(&mut *mutex, kind.as_ptr()), 0);
        libc::pthread_mutexattr_destroy(kind.as_mut_ptr());
    }
    mutex
}

/// Every order in which two of libc's and two of ours can be unlocked, after having been locked in turns.
#[test]
fn libcs_mutexes_are_in_the_same_list() {
    let Ok(me) = Thread::find() else { return };
    let before = walk(me);
    let ours = [Lock::new(), Lock::new()];
    let mut theirs = [robust_pthread(), robust_pthread()];
    let mut orders = Vec::new();
    for a in 0..4 {
        for b in (0..4).filter(|&b| b != a) {
            for c in (0..4).filter(|&c| c != a && c != b) {
                orders.push([a, b, c, 6 - a - b - c]);
            }
        }
    }
    assert_eq!(orders.len(), 24);
    for order in orders {
        for (ours, theirs) in ours.iter().zip(&mut theirs) {
            // SAFETY: in no list, and not moved; a valid, unlocked mutex.
            unsafe {
                me.link(&ours.links, false);
                assert_eq!(libc::pthread_mutex_lock(&mut **theirs), 0);
            }
        }
        assert_eq!(walk(me).len(), before.len() + 4);
        for (out, lock) in order.into_iter().enumerate() {
            // SAFETY: locked above.
            unsafe {
                match lock {
                    0 | 1 => me.unlink(&ours[lock].links),
                    _ => assert_eq!(libc::pthread_mutex_unlock(&mut *theirs[lock - 2]), 0),
                }
            }
            assert_eq!(walk(me).len(), before.len() + 3 - out);
        }
        assert_eq!(walk(me), before);
    }
}
