//! Hooks that mutexes call in a process that records lock order.
//!
//! Locking and unlocking contain no additional instruction for this. The fast path reads the thread's cached name
//! (`mutex/owner.rs`) and takes the slow path if there is none. In a process that records, threads do not cache their
//! names, so every lock takes the slow path. That marks the mutex as contended, so that the unlock takes its slow
//! path, too.
//!
//! # Invariants
//! 1. Those of `page.rs`, 3 and 4.
//! 2. A thread caches its name only once it is known that nothing is recorded: `is_off`.

use super::page::{FREE, HELD, Page, Pair, Thread, WANTED, Writing};
use super::process_page;
use super::stack_top::Registers;
use crate::sync::profile::kind::Kind;
use crate::sync::profile::now;
use crate::sync::profile::record::Key;
use crate::sys::thread::{id, stack};
use core::sync::atomic::Ordering::Relaxed;

/// Returns `true` if recording is off in this process for good. Reads the environment if necessary.
pub(in crate::sync) fn is_off() -> bool {
    process_page::get().is_none() && process_page::is_absent()
}

/// A thread in a blocking function, which may wait. When dropped, it owns the mutex, or a panic ended the attempt.
pub(in crate::sync) struct Blocking {
    wants: Option<(&'static Page, &'static Thread, usize)>,
}

impl Blocking {
    /// Records that the calling thread is about to lock the mutex at this address, and may wait for it.
    #[inline(always)]
    pub(in crate::sync) fn begin<T>(at: *const T) -> Blocking {
        if process_page::is_absent() {
            return Blocking { wants: None };
        }
        // SAFETY: the registers are those of the function that this is inlined into.
        Blocking { wants: unsafe { begin(key(at), &stack::registers()) } }
    }

    /// The thread owns the mutex. Returns whether that was recorded; then `let_go` must be called.
    #[inline]
    pub(in crate::sync) fn end(self) -> bool {
        let wants = self.wants;
        core::mem::forget(self);
        wants.is_some_and(|(page, thread, at)| {
            let is_recorded = is_still_ours(page);
            if is_recorded {
                thread.set(at, HELD);
            }
            is_recorded
        })
    }
}

impl Drop for Blocking {
    #[inline]
    fn drop(&mut self) {
        if let Some((page, thread, at)) = self.wants {
            give_up(page, thread, at);
        }
    }
}

/// Returns `true` if the page is that of this process: a handler may have forked while the thread waited.
fn is_still_ours(page: &Page) -> bool {
    process_page::get().is_some_and(|now| core::ptr::eq(now, page))
}

/// Notes that the calling thread took the mutex without waiting, or with a deadline. Returns whether that was recorded;
/// then `let_go` must be called.
#[inline(always)]
pub(in crate::sync) fn took<T>(at: *const T) -> bool {
    // SAFETY: the registers are those of the function that this is inlined into.
    !process_page::is_absent() && unsafe { took_slowly(key(at), &stack::registers()) }
}

/// Records that the calling thread is about to unlock the mutex at this address, which is only a number.
#[inline]
pub(in crate::sync) fn let_go<T>(at: *const T) {
    if !process_page::is_absent() {
        let_go_slowly(key(at));
    }
}

fn key<T>(at: *const T) -> Key {
    Key::new(Kind::Mutex, at.addr())
}

/// Returns the calling thread's entry, and the right to write to it.
fn place(page: &'static Page) -> Option<(&'static Thread, Writing<'static>)> {
    let number = id::current();
    let place = page.thread(number).and_then(|thread| Some((thread, thread.write()?)));
    match &place {
        Some((thread, _)) => thread.name_after(number),
        None => drop(page.threads_missed.fetch_add(1, Relaxed)),
    }
    place
}

/// # Safety
/// - This is called by a function with these registers.
#[cold]
#[inline(never)]
unsafe fn begin(
    key: Key,
    registers: &Registers,
) -> Option<(&'static Page, &'static Thread, usize)> {
    let page = process_page::get()?;
    let (thread, _writing) = place(page)?;
    // SAFETY: this is called by a function with these registers.
    let at = unsafe { thread.enter((key, registers), WANTED, now()) };
    let Some(at) = at else {
        page.depth_missed.fetch_add(1, Relaxed);
        return None;
    };
    for (held_at, held) in thread.all(HELD) {
        add_pair(page, thread, (held_at, held), (at, key.word()));
    }
    Some((page, thread, at))
}

/// Counts that one mutex is held while the other is locked.
fn add_pair(page: &Page, thread: &Thread, held: (usize, u64), taken: (usize, u64)) {
    let number = id::current();
    let gates = || thread.all(HELD).map(|(_, key)| key).filter(|key| *key != held.1);
    let write = |pair: &Pair| {
        pair.thread.store(number.into(), Relaxed);
        pair.set_name(thread.name());
        pair.set_gates(gates());
        for (to, (from, _)) in pair.pieces.iter().zip([held, taken]) {
            thread.piece(from).into_iter().for_each(|from| to.copy_from(from));
        }
    };
    let Some((pair, is_new)) = page.pair(held.1, taken.1, write) else {
        page.pairs_missed.fetch_add(1, Relaxed);
        return;
    };
    pair.times.fetch_add(1, Relaxed);
    if !is_new {
        pair.keep_gates(|gate| gates().any(|key| key == gate));
        if pair.thread.load(Relaxed) != u64::from(number) {
            pair.others.store(1, Relaxed);
        }
    }
}

#[cold]
#[inline(never)]
fn give_up(page: &Page, thread: &Thread, at: usize) {
    if is_still_ours(page) {
        thread.set(at, FREE);
        leave_if_empty(page, thread);
    }
}

/// # Safety
/// - The conditions of [`begin`] hold.
#[cold]
#[inline(never)]
unsafe fn took_slowly(key: Key, registers: &Registers) -> bool {
    let Some(page) = process_page::get() else { return false };
    let Some((thread, _writing)) = place(page) else { return false };
    // SAFETY: this is called by a function with these registers.
    let taken = unsafe { thread.enter((key, registers), HELD, now()) };
    if taken.is_none() {
        page.depth_missed.fetch_add(1, Relaxed);
    }
    taken.is_some()
}

#[cold]
#[inline(never)]
fn let_go_slowly(key: Key) {
    let Some(page) = process_page::get() else { return };
    let Some(thread) = page.known_thread(id::current()) else { return };
    let Some(writing) = thread.write() else { return };
    // The last one: if it is there twice, a forked child took it over from itself.
    let of_key = |(_, held): &(usize, u64)| *held == key.word();
    if let Some((at, _)) = thread.all(HELD).rfind(of_key) {
        thread.set(at, FREE);
        drop(writing);
        leave_if_empty(page, thread);
    }
}

fn leave_if_empty(page: &Page, thread: &Thread) {
    if thread.is_empty() {
        page.leave(id::current());
    }
}
