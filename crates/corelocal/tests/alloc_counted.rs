//! What is counted and taken out by chance: as much as there was, from whatever threads on whatever cores.
#![cfg(not(any(loom, miri)))]

mod sandbox;
mod storm;

use std::alloc::{GlobalAlloc as _, Layout};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use corelocal::alloc::{self, CoreLocal, profile};
use sandbox::run_in_child;
use storm::{rage_doing, scaled};

/// Sizes in three classes, one of which has more than one size here.
const SIZES: [usize; 4] = [24, 100, 112, 2000];
/// Objects that were asked for, of each of these sizes.
static ASKED: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// Usually one object, which stays on its core; sometimes more than are cached, which come from the store and go back
/// to it. Few at a time: signal handlers do the same, and may have interrupted the owner of the store's lock.
fn some() {
    static TURN: AtomicU64 = AtomicU64::new(0);
    let turn = TURN.fetch_add(1, Ordering::Relaxed) as usize;
    let (which, at_once) = (turn % 4, if turn / 4 % 256 == 0 { 100 } else { 1 });
    let mut objects = [ptr::null_mut(); 100];
    let objects = &mut objects[..at_once];
    objects.fill_with(|| alloc::allocate(SIZES[which]));
    ASKED[which].fetch_add(at_once as u64, Ordering::Relaxed);
    objects.iter().for_each(|object| give_back(*object, SIZES[which]));
}

/// As Rust gives back what it knows the size of, or as C.
fn give_back(object: *mut u8, size: usize) {
    // SAFETY: just allocated, with this size.
    unsafe {
        match size {
            24 => CoreLocal.dealloc(object, Layout::from_size_align_unchecked(size, 16)),
            100 => alloc::deallocate_sized(object, size),
            _ => alloc::deallocate(object),
        }
    }
}

/// Runs [`some`] on four threads so often under signals that do the same, thrown from cpu to cpu; how many objects of
/// each size were asked for.
fn rage(times: u64) -> [f64; 4] {
    rage_doing(4, scaled(times), some);
    [0, 1, 2, 3].map(|which: usize| ASKED[which].load(Ordering::Relaxed) as f64)
}

fn bytes(objects: [f64; 4]) -> f64 {
    objects.iter().zip(SIZES).map(|(objects, size)| objects * size as f64).sum()
}

fn with(test: &str, mode: &'static str, body: fn()) {
    run_in_child(test, move |command| _ = command.env("CORELOCAL_MALLOC", mode), body);
}

/// Whether a sum of events, each of which counts so much, is what it should be: but for five standard deviations.
fn is_about(found: f64, expected: f64, each: f64) -> bool {
    (found - expected).abs() <= 5.0 * (expected / each).sqrt() * each
}

fn class_of(size: usize) -> alloc::ClassStats {
    *alloc::stats().classes.iter().find(|class| class.size >= size).unwrap()
}

#[test]
fn what_was_asked_for_is_counted() {
    with("what_was_asked_for_is_counted", "stats", || {
        let [of_24, of_100, of_112, of_2000] = rage(100_000).map(|objects| objects as u64);
        // Orphaned objects are in no cache and not in use: this frees them.
        alloc::trim(0);
        for (size, objects) in [(24, of_24), (100, of_100 + of_112), (2000, of_2000)] {
            let class = class_of(size);
            // An interrupted one may count twice.
            let most = objects + objects / 1000 + 10;
            assert!((objects..=most).contains(&class.allocated), "{class:?} {objects}");
            assert_eq!((class.freed, class.in_use), (class.allocated, 0));
            assert!(class.refills > 0 && class.refills < class.allocated, "{class:?}");
        }
        let kept: Vec<*mut u8> = (0..1000).map(|_| alloc::allocate(2000)).collect();
        let class = class_of(2000);
        assert_eq!((class.allocated - class.freed, class.in_use), (1000, 1000));
        // What is counted stays when cores give back what they have.
        alloc::trim(0);
        assert!(class_of(2000).allocated >= of_2000 + 1000);
        kept.into_iter().for_each(|object| give_back(object, 2000));
    });
}

#[test]
fn as_many_are_guarded_as_were_wanted() {
    with("as_many_are_guarded_as_were_wanted", "guard:200,stats", || {
        let objects: f64 = rage(500_000).iter().sum();
        let stats = alloc::stats();
        let (found, expected) = (stats.guarded_ever as f64, objects / 200.0);
        assert!(is_about(found, expected, 1.0), "{found} for {expected}");
        assert_eq!(stats.guarded, 0);
        let counted: u64 = stats.classes.iter().map(|class| class.allocated).sum();
        let counted = counted as f64 + found;
        assert!((objects..objects * 1.001).contains(&counted), "{counted} for {objects}");
    });
}

#[test]
fn as_much_is_sampled_as_was_asked_for() {
    with("as_much_is_sampled_as_was_asked_for", "profile,profile-rate:64K", || {
        let expected = bytes(rage(500_000));
        let summary = profile::summary();
        let found = summary.bytes as f64;
        assert!(is_about(found, expected, 65_536.0), "{found} for {expected}");
        assert_eq!((summary.in_use, summary.missed), (0, 0));
    });
}

/// Each of these comes from the store, since none is given back: none is counted on its way.
#[test]
fn what_comes_from_the_store_is_sampled_as_well() {
    with("what_comes_from_the_store_is_sampled_as_well", "profile,profile-rate:256K,stats", || {
        // They are not written to: so they take addresses, and no memory.
        let objects: Vec<*mut u8> = (0..2000).map(|_| alloc::allocate(60_000)).collect();
        let found = profile::summary().in_use as f64;
        assert!(is_about(found, 120e6, 262_144.0), "{found}");
        assert_eq!((class_of(60_000).allocated, class_of(60_000).freed), (2000, 0));
        objects.into_iter().for_each(|object| give_back(object, 60_000));
        assert_eq!((class_of(60_000).freed, profile::summary().in_use), (2000, 0));
    });
}

/// Both at a time: what is guarded is not sampled, and what cannot be guarded is sampled all the same.
#[test]
fn guarded_and_sampled() {
    with("guarded_and_sampled", "guard:20,profile,profile-rate:32K", || {
        let objects = rage(10_000);
        let guarded = alloc::stats().guarded_ever as f64;
        let all: f64 = objects.iter().sum();
        assert!(is_about(guarded, all / 20.0, 1.0), "{guarded} of {all}");
        let (found, bytes) = (profile::summary().bytes as f64, bytes(objects));
        assert!(is_about(found, bytes * 0.95, 32_768.0), "{found} of {bytes}");
        assert_eq!((profile::summary().in_use, alloc::stats().guarded), (0, 0));
        // Too long to be guarded.
        let before = profile::summary().bytes as f64;
        for _ in 0..1000 {
            give_back(alloc::allocate(60_000), 60_000);
        }
        let found = profile::summary().bytes as f64 - before;
        assert!(is_about(found, 60e6, 60_000.0), "{found}");
    });
}
