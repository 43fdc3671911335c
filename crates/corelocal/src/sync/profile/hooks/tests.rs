//! Tests of `hooks.rs`.

use super::*;
#[cfg(not(loom))]
use crate::sync::profile::page;
use crate::sync::profile::page::tests::page;
use crate::sync::profile::trace::Stack;
#[cfg(not(loom))]
use crate::sys::file::shared_file::SharedFile;
#[cfg(not(loom))]
use crate::sys::forks;
use std::boxed::Box;

/// A page that a child shares.
#[cfg(not(loom))]
fn shared_page() -> &'static Page {
    let file = SharedFile::create_nameless().unwrap();
    file.reserve(page::LEN).unwrap();
    let mapping = core::mem::ManuallyDrop::new(file.map(page::LEN, true).unwrap());
    // SAFETY: mapped, zeroed, page-aligned, and never unmapped.
    let page = unsafe { &*mapping.at().cast::<Page>() };
    page.generation.store(forks::generation().into(), Relaxed);
    page
}

/// A wait in a page of the test's own.
fn wait(page: &'static Page, key: Key, at: u64) -> Wait {
    let record = page.record_of(key).expect("room");
    record.begin(at);
    Wait { begun: Some(Begun { page, record, at }), sleeps: 0, got: false }
}

#[test]
fn waits_are_counted_when_they_end() {
    let (page, key) = (page(), Key::new(Kind::Mutex, 0x1000));
    let before = now();
    let mut first = wait(page, key, before);
    let second = wait(page, key, before);
    let record = page.known_record_of(key).expect("known");
    assert_eq!((record.waiting(), record.waits.load(Relaxed)), (2, 0));
    first.sleeps();
    first.sleeps();
    assert!(first.end(true));
    assert_eq!(record.gave_up.load(Relaxed), 0);
    // As in a panic.
    drop(second);
    let loaded = [&record.waits, &record.sleeps, &record.gave_up].map(|word| word.load(Relaxed));
    assert_eq!((loaded, record.waiting()), ([2, 2, 1], 0));
    let (total, longest) = (record.total.load(Relaxed), record.longest.load(Relaxed));
    assert!(total >= longest && longest <= now() - before, "{total} {longest}");
    assert_eq!(record.times.iter().map(|count| count.load(Relaxed)).sum::<u64>(), 2);
}

#[test]
#[cfg(not(loom))]
fn a_child_does_not_end_its_parents_wait() {
    let (page, key) = (shared_page(), Key::new(Kind::Mutex, 0x1000));
    let waiter = wait(page, key, now());
    // SAFETY: the child ends at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(waiter);
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: a child of this test.
    assert_eq!(unsafe { libc::waitpid(child, core::ptr::null_mut(), 0) }, child);
    let record = page.known_record_of(key).expect("known");
    assert_eq!((record.waiting(), record.waits.load(Relaxed)), (1, 0));
    drop(waiter);
    assert_eq!((record.waiting(), record.waits.load(Relaxed)), (0, 1));
}

#[test]
fn the_worst_holder_is_kept() {
    let (page, key) = (page(), Key::new(Kind::Write, 0x2000));
    let began = now();
    let waiter = wait(page, key, began);
    let record = page.known_record_of(key).expect("known");
    let mut stack = Box::new(Stack::EMPTY);
    record.let_go(page, began + 5_000_000);
    let held = |stack: &mut Stack| {
        page.trace(record.holder.load(Relaxed)).is_some_and(|trace| trace.read(stack))
    };
    assert!(held(&mut stack));
    assert_eq!(stack.time().as_micros(), 5000);
    // A shorter one, and a longer one.
    record.let_go(page, began + 9_000_000);
    assert!(held(&mut stack) && stack.time().as_micros() == 5000);
    record.let_go(page, began + 20_000_000);
    assert!(held(&mut stack) && stack.time().as_micros() == 11_000);
    assert_eq!(record.worst.load(Relaxed), 11_000_000);
    drop(waiter);
    record.let_go(page, began + 90_000_000);
    assert_eq!(record.worst.load(Relaxed), 11_000_000);
}
