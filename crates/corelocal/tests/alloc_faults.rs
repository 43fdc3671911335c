//! Programs that give back what they do not have: a line on stderr that tells, and the end by `SIGABRT`.
#![cfg(not(any(loom, miri)))]

mod faulty;

use std::alloc::{GlobalAlloc as _, Layout};
use std::ptr;

use corelocal::alloc::{self, CoreLocal};

/// What `wrong` makes the malloc say before the process is aborted.
fn last_words(test: &str, wrong: unsafe fn()) -> String {
    faulty::last_words(test, "", libc::SIGABRT, wrong).0
}

#[test]
fn twice_in_a_row() {
    // SAFETY: the fault is noticed, at once unless the thread is moved in between.
    let said = last_words("twice_in_a_row", || unsafe {
        let object = alloc::allocate(100);
        alloc::deallocate(object);
        alloc::deallocate(object);
        alloc::trim(0);
    });
    assert!(said.ends_with("freed, but it is free already"), "{said}");
}

#[test]
fn later() {
    // SAFETY: unsound, as intended: detected when the object reaches its span a second time.
    let said = last_words("later", || unsafe {
        let (one, other) = (alloc::allocate(100), alloc::allocate(100));
        [one, other, one].into_iter().for_each(|object| alloc::deallocate(object));
        alloc::trim(0);
    });
    assert!(said.ends_with("freed, but it is free already"), "{said}");
}

#[test]
fn large_ones() {
    // SAFETY: unsound, as intended: detected by the second free.
    let said = last_words("large_ones", || unsafe {
        let object = alloc::allocate(3 << 20);
        alloc::deallocate(object);
        alloc::deallocate(object);
    });
    assert!(said.ends_with("freed, but it is free already"), "{said}");
}

#[test]
fn inside_of_a_large_one() {
    // SAFETY: unsound, as intended: detected by the free of an inner pointer.
    let said = last_words("inside_of_a_large_one", || unsafe {
        alloc::deallocate(alloc::allocate(3 << 20).add(1 << 20));
    });
    assert!(said.ends_with("not the beginning of an object"), "{said}");
}

#[test]
fn inside_of_a_small_one() {
    // SAFETY: unsound, as intended: detected when the pointer reaches its span.
    let said = last_words("inside_of_a_small_one", || unsafe {
        alloc::deallocate(alloc::allocate(1000).add(16));
        alloc::trim(0);
    });
    assert!(said.ends_with("not the beginning of an object"), "{said}");
}

#[test]
fn another_size() {
    // SAFETY: unsound, as intended: detected when the object reaches a span of another class.
    let said = last_words("another_size", || unsafe {
        let object = CoreLocal.alloc(Layout::from_size_align(100, 8).unwrap());
        CoreLocal.dealloc(object, Layout::from_size_align(1000, 8).unwrap());
        alloc::trim(0);
    });
    assert!(said.ends_with("allocated with another size"), "{said}");
}

#[test]
fn foreign_ones() {
    // SAFETY: unsound, as intended: detected by the free of a foreign pointer.
    let said = last_words("foreign_ones", || unsafe {
        let mut local = 0u64;
        alloc::deallocate(alloc::allocate(1));
        alloc::deallocate(ptr::from_mut(&mut local).cast());
    });
    assert!(said.ends_with("never allocated here"), "{said}");
}

#[test]
fn null_is_nothing() {
    // SAFETY: null.
    unsafe {
        alloc::deallocate(ptr::null_mut());
        assert_eq!(alloc::usable_size(ptr::null_mut()), 0);
    }
}
