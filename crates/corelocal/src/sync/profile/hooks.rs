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

    /// Lets the thread continue, with what it wanted if `got`, which is returned.
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
mod tests;
