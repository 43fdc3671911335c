//! The operations on one word in every shard of an object: of a [`Word`](crate::percpu::Word), and of each word of an
//! area's cells.
//!
//! # Data flow
//! Each operation is one critical section on the slot's word. Where critical sections are unavailable it is one
//! atomic operation on the word of another shard.
//!
//! # Invariants
//! 1. An operation acts on exactly one shard's word, atomically with respect to all others on that shard.
//! 2. Slots' words are changed only by critical sections, and by the thread that has the slot frozen.
//! 3. The stored number is the word's wrapping difference to its initial value: untouched memory is 0, and so is that
//!    difference. Sums, exchanges and comparisons of both are the same.

use core::fmt;
use core::sync::atomic::fence;

use super::lazy_block::{Fallback, Owned};
use super::slot::Zeroed;
use crate::cid::{Busy, Revocable, SlotIndex};
use crate::percpu::remote::{self, Walk};
use crate::percpu::shard::Shard;
use crate::primitive::atomic::{AtomicU64, Ordering};
use crate::rseq::{Ended, Exit, Index, MAX_ATTEMPTS, Slots, Yielded};

/// The word was not the expected one. Nothing was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch;

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the core's word is another than expected")
    }
}

impl core::error::Error for Mismatch {}

/// A word in every shard of an object: its place, and the critical sections that change it.
pub(in crate::percpu) trait EachWord<'a>: Copy {
    type Index: SlotIndex;
    /// The content of a shard, which includes the word.
    type Content: Zeroed;

    /// Returns the value of a word that was never changed.
    fn initial(self) -> u64;
    fn owned(self) -> &'a Owned<Self::Content, Self::Index>;
    fn word(self, content: &Self::Content) -> &AtomicU64;
    /// Returns the shard inside the object, if it has one.
    fn inside(self) -> Option<&'a Self::Content>;
    /// Returns the word that a fallback's operation acts on.
    fn other(self, fallback: Fallback<Self::Content>) -> (Shard, &'a AtomicU64);

    /// Returns the critical section.
    ///
    /// # Safety
    /// - It is run by `owned`.
    unsafe fn add_fetch(self, index: Index, slots: &Slots, n: u64) -> Yielded;

    /// Returns the critical section.
    ///
    /// # Safety
    /// - It is run by `owned`.
    unsafe fn exchange(self, index: Index, slots: &Slots, n: u64) -> Yielded;

    /// The critical section.
    ///
    /// # Safety
    /// - It is run by `owned`.
    unsafe fn store_if_equal(self, index: Index, slots: &Slots, expected: u64, n: u64) -> Exit;
}

/// Runs a critical section on this core's word once, ordered after earlier and before later accesses. If it does not
/// commit, `rest` follows in a cold function, so that results stay in registers.
#[inline(always)]
pub(in crate::percpu) fn once<'a, W: EachWord<'a>, E: Ended>(
    word: W,
    section: impl Fn(Index, &Slots) -> E,
) -> E {
    // Release, with the section's store: partner is the Acquire of each load of the word. Acquire, with the section's
    // load: partner is the Release of each store. No instructions on x86-64.
    fence(Ordering::Release);
    let ended = word.owned().run_once(section);
    fence(Ordering::Acquire);
    ended
}

/// Runs a critical section that did not commit at first until it does.
#[inline(always)]
pub(in crate::percpu) fn rest<'a, W: EachWord<'a>, E: Ended>(
    word: W,
    first: E,
    section: impl Fn(Index, &Slots) -> E,
) -> Result<E, Fallback<W::Content>> {
    // Release, Acquire: as in `once`.
    fence(Ordering::Release);
    let ended = word.owned().run_cold(first, section);
    fence(Ordering::Acquire);
    ended
}

#[inline(always)]
pub(in crate::percpu) fn add_fetch<'a, W: EachWord<'a>>(word: W, n: u64) -> u64 {
    let first = once(word, add_fetch_section(word, n));
    let distance = if first.is_done() { first.1 } else { add_fetch_rest(word, n, first).1 };
    distance.wrapping_add(word.initial())
}

#[inline(always)]
pub(in crate::percpu) fn add_fetch_at<'a, W: EachWord<'a>>(word: W, n: u64) -> (Shard, u64) {
    let first = once(word, add_fetch_section(word, n));
    let (shard, distance) = match first.is_done() {
        true => (word.owned().part_at(first.0.slot().cast()), first.1),
        false => add_fetch_rest(word, n, first),
    };
    (shard, distance.wrapping_add(word.initial()))
}

#[inline(always)]
fn add_fetch_section<'a, W: EachWord<'a>>(word: W, n: u64) -> impl Fn(Index, &Slots) -> Yielded {
    // SAFETY: `owned` runs the section.
    move |index, slots| unsafe { word.add_fetch(index, slots, n) }
}

#[cold]
#[inline(never)]
fn add_fetch_rest<'a, W: EachWord<'a>>(word: W, n: u64, first: Yielded) -> (Shard, u64) {
    match rest(word, first, add_fetch_section(word, n)) {
        Ok((exit, new)) => (word.owned().part_at(exit.slot().cast()), new),
        Err(fallback) => add_fetch_cold(word, n, fallback),
    }
}

#[cold]
pub(in crate::percpu) fn add_fetch_cold<'a, W: EachWord<'a>>(
    word: W,
    n: u64,
    fallback: Fallback<W::Content>,
) -> (Shard, u64) {
    let (shard, word) = word.other(fallback);
    // AcqRel: partners are all operations on this word, and `load`.
    (shard, word.fetch_add(n, Ordering::AcqRel).wrapping_add(n))
}

#[inline(always)]
pub(in crate::percpu) fn exchange<'a, W: EachWord<'a>>(word: W, n: u64) -> u64 {
    let n = n.wrapping_sub(word.initial());
    let first = once(word, exchange_section(word, n));
    let distance = if first.is_done() { first.1 } else { exchange_rest(word, n, first) };
    distance.wrapping_add(word.initial())
}

#[inline(always)]
fn exchange_section<'a, W: EachWord<'a>>(word: W, n: u64) -> impl Fn(Index, &Slots) -> Yielded {
    // SAFETY: `owned` runs the section.
    move |index, slots| unsafe { word.exchange(index, slots, n) }
}

#[cold]
#[inline(never)]
fn exchange_rest<'a, W: EachWord<'a>>(word: W, n: u64, first: Yielded) -> u64 {
    match rest(word, first, exchange_section(word, n)) {
        Ok((_, old)) => old,
        Err(fallback) => exchange_cold(word, n, fallback),
    }
}

/// On stored differences, like the other cold functions.
#[cold]
pub(in crate::percpu) fn exchange_cold<'a, W: EachWord<'a>>(
    word: W,
    n: u64,
    fallback: Fallback<W::Content>,
) -> u64 {
    // AcqRel: as in `add_fetch_cold`.
    word.other(fallback).1.swap(n, Ordering::AcqRel)
}

#[inline(always)]
pub(in crate::percpu) fn store_if_equal<'a, W: EachWord<'a>>(
    word: W,
    expected: u64,
    n: u64,
) -> Result<Shard, Mismatch> {
    let expected = expected.wrapping_sub(word.initial());
    let n = n.wrapping_sub(word.initial());
    let first = once(word, store_if_equal_section(word, expected, n));
    match first.is_done() {
        true => stored(word, first),
        false => store_if_equal_rest(word, expected, n, first),
    }
}

#[inline(always)]
fn stored<'a, W: EachWord<'a>>(word: W, exit: Exit) -> Result<Shard, Mismatch> {
    match exit.is_committed() {
        true => Ok(word.owned().part_at(exit.slot().cast())),
        false => Err(Mismatch),
    }
}

#[inline(always)]
fn store_if_equal_section<'a, W: EachWord<'a>>(
    word: W,
    expected: u64,
    n: u64,
) -> impl Fn(Index, &Slots) -> Exit {
    // SAFETY: `owned` runs the section.
    move |index, slots| unsafe { word.store_if_equal(index, slots, expected, n) }
}

#[cold]
#[inline(never)]
fn store_if_equal_rest<'a, W: EachWord<'a>>(
    word: W,
    expected: u64,
    n: u64,
    first: Exit,
) -> Result<Shard, Mismatch> {
    match rest(word, first, store_if_equal_section(word, expected, n)) {
        Ok(exit) => stored(word, exit),
        Err(fallback) => store_if_equal_cold(word, expected, n, fallback),
    }
}

#[cold]
pub(in crate::percpu) fn store_if_equal_cold<'a, W: EachWord<'a>>(
    word: W,
    expected: u64,
    n: u64,
    fallback: Fallback<W::Content>,
) -> Result<Shard, Mismatch> {
    let (shard, word) = word.other(fallback);
    // AcqRel, Acquire: as in `add_fetch_cold`.
    match word.compare_exchange(expected, n, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(shard),
        Err(_) => Err(Mismatch),
    }
}

#[inline]
pub(in crate::percpu) fn load<'a, W: EachWord<'a>>(word: W) -> u64 {
    match word.owned().near().or(word.inside()) {
        // Acquire: partners are the Release of sections' stores (see `once`) and of atomics.
        Some(content) => word.word(content).load(Ordering::Acquire).wrapping_add(word.initial()),
        None => word.initial(),
    }
}

/// Replaces the word by `f` of it. The first attempt is inline; the rest is in `fetch_update_rest`.
#[inline]
pub(in crate::percpu) fn fetch_update<'a, W: EachWord<'a>>(
    word: W,
    mut f: impl FnMut(u64) -> Option<u64>,
) -> Result<u64, u64> {
    let old = load(word);
    let Some(new) = f(old) else { return Err(old) };
    let first = once(word, replace_section(word, old, new));
    if first.is_straight() { Ok(old) } else { fetch_update_rest(word, f, old, new, first) }
}

/// Does what `store_if_equal_section` does, for words instead of stored differences.
#[inline(always)]
fn replace_section<'a, W: EachWord<'a>>(
    word: W,
    old: u64,
    new: u64,
) -> impl Fn(Index, &Slots) -> Exit {
    let initial = word.initial();
    store_if_equal_section(word, old.wrapping_sub(initial), new.wrapping_sub(initial))
}

/// Continues after a section that did not commit. The number of attempts is bounded. If a section is aborted each
/// time, or the word changes before each attempt, the operation goes to a shard that atomics change. The result
/// computed from the slot's word is then discarded, since the other shard holds another word.
#[cold]
#[inline(never)]
fn fetch_update_rest<'a, W: EachWord<'a>>(
    word: W,
    mut f: impl FnMut(u64) -> Option<u64>,
    mut old: u64,
    mut new: u64,
    mut first: Exit,
) -> Result<u64, u64> {
    for _ in 0..MAX_ATTEMPTS {
        match rest(word, first, replace_section(word, old, new)) {
            Ok(exit) if exit.is_committed() => return Ok(old),
            Ok(_mismatch) => {}
            Err(fallback) => return fetch_update_cold(word, f, fallback),
        }
        old = load(word);
        match f(old) {
            Some(wanted) => new = wanted,
            None => return Err(old),
        }
        first = once(word, replace_section(word, old, new));
    }
    if first.is_straight() {
        return Ok(old);
    }
    let fallback = word.owned().share().map_or(Fallback::Unbound, Fallback::Shared);
    fetch_update_cold(word, f, fallback)
}

/// Lock-free: an attempt fails only if another operation on the same word succeeds.
#[cold]
pub(in crate::percpu) fn fetch_update_cold<'a, W: EachWord<'a>>(
    word: W,
    mut f: impl FnMut(u64) -> Option<u64>,
    fallback: Fallback<W::Content>,
) -> Result<u64, u64> {
    let initial = word.initial();
    let update = |kept: u64| Some(f(kept.wrapping_add(initial))?.wrapping_sub(initial));
    // AcqRel, Acquire: as in `add_fetch_cold`.
    let ended = word.other(fallback).1.fetch_update(Ordering::AcqRel, Ordering::Acquire, update);
    let value = |kept: u64| kept.wrapping_add(initial);
    ended.map(value).map_err(value)
}

pub(in crate::percpu) fn iter<'a, W: EachWord<'a>>(word: W) -> impl Iterator<Item = (Shard, u64)> {
    let mut walk = Walk::new();
    core::iter::from_fn(move || {
        let (shard, content) = walk.next(word.owned(), word.inside())?;
        // Acquire: as in `load`.
        Some((shard, word.word(content).load(Ordering::Acquire).wrapping_add(word.initial())))
    })
}

/// Calls `f` on the word of a slot that is frozen meanwhile.
pub(in crate::percpu) fn with_frozen<'a, W: EachWord<'a, Index: Revocable>, R>(
    word: W,
    slot: u32,
    f: impl FnOnce(&mut u64) -> R,
) -> Result<R, Busy> {
    let kept = word.word(word.owned().slot(slot).ok_or(Busy::NoSlot)?);
    let _frozen = remote::freeze::<W::Index>(slot)?;
    // Relaxed, both: the freeze orders them after earlier and before later sections.
    let mut value = kept.load(Ordering::Relaxed).wrapping_add(word.initial());
    let result = f(&mut value);
    kept.store(value.wrapping_sub(word.initial()), Ordering::Relaxed);
    Ok(result)
}

/// Sets the words of all shards to their initial value, and calls `f` on each that was different.
pub(in crate::percpu) fn drain<'a, W: EachWord<'a, Index: Revocable>>(
    word: W,
    mut f: impl FnMut(Shard, u64),
) -> Result<(), Busy> {
    let mut give = |shard, distance: u64| {
        if distance != 0 {
            f(shard, distance.wrapping_add(word.initial()));
        }
    };
    // Relaxed: a thread that sees 0 takes no data.
    let idle = |content: &W::Content| word.word(content).load(Ordering::Relaxed) == 0;
    let take = |content: &W::Content| {
        let kept = word.word(content);
        // Relaxed, both: as in `with_frozen`.
        let distance = kept.load(Ordering::Relaxed);
        kept.store(0, Ordering::Relaxed);
        distance
    };
    let result = remote::take_from_each(word.owned(), idle, take, &mut give);
    let shared = word.owned().shared().map(|content| content as &W::Content);
    let shared = (0..).map(Shard::Shared).zip(shared);
    for (shard, content) in shared.chain(word.inside().map(|inside| (Shard::Inline, inside))) {
        // Do not write to a page that was never written to.
        if !idle(content) {
            // AcqRel: as in `add_fetch_cold`.
            give(shard, word.word(content).swap(0, Ordering::AcqRel));
        }
    }
    result
}
