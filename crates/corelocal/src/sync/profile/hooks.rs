//! Hooks that the locks' slow paths call. Without a profile they load one word.
//!
//! Invariant: a wait that began is ended by the same thread in the same record, whether the profile is still on or
//! not. A child that is forked meanwhile does not end its parent's.

use super::kind::Kind;
use super::page::Page;
use super::record::{Key, Record};
use super::{now, process_page};
use core::sync::atomic::Ordering::Relaxed;

/// A waiting thread; the wait ends when this is dropped.
pub(in crate::sync) struct Wait {
    begun: Option<Begun>,
    sleeps: u32,
    got: bool,
}

#[derive(Clone, Copy)]
struct Begun {
    page: &'static Page,
    record: &'static Record,
    at: u64,
}

impl Wait {
    /// The calling thread begins to wait for the object at this address.
    #[inline]
    pub(in crate::sync) fn begin<T>(kind: Kind, at: *const T) -> Wait {
        let begun = if process_page::is_absent() { None } else { begin(kind, at.addr()) };
        Wait { begun, sleeps: 0, got: false }
    }

    /// The thread goes to sleep.
    #[inline]
    pub(in crate::sync) fn sleeps(&mut self) {
        self.sleeps += 1;
    }

    /// The thread continues, with what it wanted if `got`, which is returned.
    #[inline]
    pub(in crate::sync) fn end(mut self, got: bool) -> bool {
        self.got = got;
        got
    }
}

impl Drop for Wait {
    #[inline]
    fn drop(&mut self) {
        if let Some(begun) = self.begun {
            end(begun, self.sleeps, self.got);
        }
    }
}

#[cold]
fn begin(kind: Kind, address: usize) -> Option<Begun> {
    let page = process_page::page_in_use()?;
    let Some(record) = page.record_of(Key::new(kind, address)) else {
        page.missed.fetch_add(1, Relaxed);
        return None;
    };
    let at = now();
    record.begin(at);
    Some(Begun { page, record, at })
}

#[cold]
#[inline(never)]
fn end(begun: Begun, sleeps: u32, got: bool) {
    // A signal handler may have forked meanwhile: the wait is then the parent's to count.
    if process_page::is_ours(begun.page) {
        begun.record.end(begun.page, begun.at, now(), sleeps, got);
    }
}

/// The owner of the object at this address unlocks, or is about to, and threads may have waited. The address is only
/// a number: the memory may be gone.
#[inline]
pub(in crate::sync) fn let_go<T>(kind: Kind, at: *const T) {
    if !process_page::is_absent() {
        let_go_slowly(kind, at.addr());
    }
}

#[cold]
#[inline(never)]
fn let_go_slowly(kind: Kind, address: usize) {
    let Some(page) = process_page::page_in_use() else { return };
    if let Some(record) = page.known_record_of(Key::new(kind, address)) {
        record.let_go(page, now());
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
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
        let loaded =
            [&record.waits, &record.sleeps, &record.gave_up].map(|word| word.load(Relaxed));
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
}
