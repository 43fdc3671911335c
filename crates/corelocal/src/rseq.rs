//! Restartable sequences: the critical sections, and the ids read in place.
//!
//! # Critical sections
//! A critical section is a few instructions that end in one committing store. The thread announces it by storing the
//! address of a descriptor in its rseq area. If the kernel preempts, migrates or signals the thread before the
//! commit, the thread resumes at the section's abort handler. So between the first instruction and the commit no
//! other thread runs on its cpu or under its id, without an atomic instruction. The kernel's part is `kernel/rseq.c`;
//! the rules for sections are in `include/uapi/linux/rseq.h`.
//!
//! # The sections
//! Each is specified here and nowhere else; `arch/` has one file per architecture with the same list. `area` is the
//! thread's rseq area, `offsets` the slots of all ids, `object` the slots of a container (`operand.rs`). `word` is at
//! the start of the slot; `items` follow it.
//!
//! ```text
//! locate:
//!     area.rseq_cs = descriptor of what follows
//!     if area.cpu_id < 0: unavailable         the thread is not registered
//!     slot = offsets[area.<mm_cid or cpu_id>] + object.base
//!     if that did not carry: unavailable      no slot for this id yet, or no memory for the object
//!
//! add(object, n):
//!     locate
//!     word += n                               commit
//!
//! increment(object):
//!     locate
//!     word += 1                               commit
//!
//! add_at(object, offset, n):
//!     locate
//!     *(slot + offset) += n                   commit
//!
//! increment_at(object, offset):
//!     locate
//!     *(slot + offset) += 1                   commit
//!
//! store_greater(object, n):
//!     locate
//!     if word >= n: mismatch                  signed
//!     word = n                                commit
//!
//! store_if_equal(object, expected, n):
//!     locate
//!     if word != expected: mismatch
//!     word = n                                commit
//!
//! exchange(object, n) -> old:
//!     locate
//!     old = word
//!     word = n                                commit
//!
//! add_fetch(object, n) -> new:
//!     locate
//!     new = word + n
//!     word = new                              commit
//!
//! store_if_equal_at, exchange_at, add_fetch_at(object, offset, …):
//!     as their namesakes, on *(slot + offset)
//!
//! push(object, item, capacity):
//!     locate
//!     if word >= capacity: mismatch           full; word counts items
//!     items[word] = item
//!     word += 1                               commit
//!
//! pop(object) -> item:
//!     locate
//!     if word == 0: mismatch                  empty
//!     item = items[word - 1]
//!     word -= 1                               commit
//!
//! push_some(object, from, most, capacity) -> n:
//!     locate
//!     n = min(capacity - word, most)
//!     if n == 0: mismatch
//!     items[word..word + n] = from[..n]
//!     word += n                               commit
//!
//! pop_some(object, to, most) -> n:
//!     locate
//!     n = min(word, most)
//!     if n == 0: mismatch
//!     to[..n] = items[word - n..word]         to: memory of this thread alone
//!     word -= n                               commit
//!
//! pop_at(object, offset) -> item:             at slot + offset: top, limit, count, items
//!     locate
//!     if count == 0: mismatch                 empty
//!     item = top
//!     if items[count - 1] != top:             `top` is a guess: it is known before the count is
//!         item = items[count - 1]
//!     top = items[count - 2]                  of the last one this is `count`
//!     count -= 1                              commit
//!
//! pop_counted_at(object, offset) -> item:     the same; before the top: left
//!     locate
//!     if count == 0 || left <= 1: mismatch
//!     left -= 1                               a hint: what is aborted from here on takes one for nothing
//!     … as pop_at                             commit
//!
//! push_at(object, offset, item):              no item is 0
//!     locate
//!     if count >= limit: mismatch             full
//!     top = item
//!     if items[count - 1] == item: mismatch   pushed twice; of an empty one this is `count`, which is 0
//!     items[count] = item
//!     count += 1                              commit
//!
//! ring_push(object, from, n, mask):           n words, at least one; mask + 1 places of n words
//!     locate                                  tail: the slot's first word; head: 64 bytes on; places: 128
//!     if tail - head > mask: mismatch         full
//!     places[tail & mask] = from[..n]         prepared
//!     tail += 1                               commit
//!
//! queue_push(object, from, n):                n words, at least one; end: the slot's first word
//!     locate
//!     if end % SEGMENT == 0: mismatch         no segment, or no room in it
//!     *end = from[..n]                        prepared
//!     end += 8 * n                            commit
//!
//! queue_link(object, first, past):            a segment's first item, and what comes after it
//!     locate                                  end, and behind it start: the slot's first two words
//!     if end % SEGMENT != 0: mismatch         there is room
//!     link = end == 0 ? &start : end - SEGMENT
//!     *link = first                           prepared: read once `end` has left the segment
//!     end = past                              commit
//!
//! trace_push(object, thread, from, n): n words, at least one; buffer: used, owner, …, records
//!     locate
//!     buffer = word
//!     if buffer == 0: mismatch                no buffer yet
//!     if buffer.owner != thread + area.cpu_id: mismatch
//!     if buffer.used + 8 + 8 * n > TRACE_BUFFER: mismatch
//!     buffer[used] = the time stamp counter   prepared
//!     buffer[used + 8..] = from[..n]          prepared
//!     buffer.used += 8 + 8 * n                commit
//!
//! trace_push_fixed(object, thread, words):    trace_push of 1 to 4 words, each from a register
//! trace_push_timed, trace_push_timed_fixed:   the same of a `time` that was read before, their third operand
//!
//! trace_context(object, owner, from, n):
//!     as trace_push, for any owner; the first of the n words is the time
//!     buffer.used, buffer.owner = …, owner    commit: one store of 16 bytes
//!
//! clear_if_clear(area, gate, word):           two words of 32 bits anywhere; no slot is looked for
//!     area.rseq_cs = descriptor of what follows
//!     if area.cpu_id < 0: unavailable
//!     if *gate != 0: mismatch
//!     *word = 0                               commit
//!
//! load(area, pointer) -> words:               1, 2, 4 or 8 words; no slot is looked for
//!     area.rseq_cs = descriptor of what follows
//!     if area.cpu_id < 0: unavailable
//!     at = *pointer
//!     if at <= 0: mismatch                    signed
//!     words = at[..]                          nothing but registers: there is no commit
//! ```
//!
//! # Invariants
//! 1. The id is read inside the section: before it, it may be stale.
//! 2. One committing store, last; nothing before it is visible to others. What it makes visible (the
//!    items above a stack's count, say) may have been written before.
//! 3. Inputs are never overwritten, so a retry runs with the same operands.
//! 4. A slot that sections store to is never the target of an atomic read-modify-write while an id
//!    has it, and a slot of one kind of id is never one of the other.
//! 5. Retries are capped (`MAX_ATTEMPTS`): single-stepping debuggers abort every attempt.

mod arch;
mod exit;
mod fixed;
#[cfg(not(any(loom, miri)))]
pub(crate) mod hot;
mod ids;
mod operand;
#[cfg(all(test, loom))]
mod orders_loom;
mod retry;
pub mod slice;
mod stats;

pub(crate) use exit::{Ended, Exit, Loaded, Popped, Yielded};
#[cfg_attr(loom, allow(unused_imports))] // The model has no tracer.
pub(crate) use fixed::{trace_push_fixed, trace_push_timed_fixed};
pub use ids::{cid, cpu_id, node_id};
#[cfg_attr(loom, allow(unused_imports))] // The model has no regions.
pub(crate) use operand::{Index, SLOT_SHIFT, Slots, is_offset, offset, slot_at};
pub(crate) use retry::{MAX_ATTEMPTS, retry};
pub(crate) use stats::count_fallback_of_many;
pub use stats::{Stats, stats};

use core::mem::MaybeUninit;

/// The length of a queue's segments, which are aligned to it: a section recognises by an address that one is full.
pub(crate) const SEGMENT: usize = 4096;

/// The length of a trace buffer.
pub(crate) const TRACE_BUFFER: usize = 64 << 10;

/// The critical sections as functions, each as specified above.
///
/// # Safety
/// - For all of them: in the slot of every id below `object`'s bound, the memory that the section accesses is valid,
///   8-byte aligned, and written only by sections of the same kind of id (invariant 4).
macro_rules! sections {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($($operand:ident: $type:ty),*) -> $ended:ty;
    )+) => {
        $(
            $(#[$doc])*
            #[inline(always)]
            pub(crate) unsafe fn $name(
                index: Index,
                object: &Slots,
                $($operand: $type),*
            ) -> $ended {
                // SAFETY: the caller keeps the conditions of this section, which are those of `arch`.
                unsafe { arch::$name(index, object, $($operand),*) }
            }
        )+
    };
}

sections! {
    /// Adds `n`, wrapping, to the slot's word.
    ///
    /// # Safety
    /// - The slot's first word is as [`sections`] requires.
    fn add(n: i64) -> Exit;

    /// Adds 1, wrapping, to the slot's word.
    ///
    /// # Safety
    /// - The slot's first word is as [`sections`] requires.
    fn increment() -> Exit;

    /// Adds `n`, wrapping, to the word at `offset` bytes into the slot.
    ///
    /// # Safety
    /// - That word is as [`sections`] requires.
    fn add_at(offset: usize, n: i64) -> Exit;

    /// Adds 1, wrapping, to the word at `offset` bytes into the slot.
    ///
    /// # Safety
    /// - That word is as [`sections`] requires.
    fn increment_at(offset: usize) -> Exit;

    /// Stores `n` in the slot's word if it is greater than the current value.
    ///
    /// # Safety
    /// - The slot's first word is as [`sections`] requires.
    fn store_greater(n: i64) -> Exit;

    /// Stores `n` in the slot's word if that equals `expected`.
    ///
    /// # Safety
    /// - The slot's first word is as [`sections`] requires.
    fn store_if_equal(expected: u64, n: u64) -> Exit;

    /// Stores `n` in the slot's word and returns the old value.
    ///
    /// # Safety
    /// - The slot's first word is as [`sections`] requires.
    fn exchange(n: u64) -> Yielded;

    /// Adds `n`, wrapping, to the slot's word and returns the sum.
    ///
    /// # Safety
    /// - The slot's first word is as [`sections`] requires.
    fn add_fetch(n: u64) -> Yielded;

    /// Does what [`store_if_equal`] does on the word at `offset` bytes into the slot.
    ///
    /// # Safety
    /// - That word is as [`sections`] requires.
    fn store_if_equal_at(offset: usize, expected: u64, n: u64) -> Exit;

    /// Does what [`exchange`] does on the word at `offset` bytes into the slot.
    ///
    /// # Safety
    /// - That word is as [`sections`] requires.
    fn exchange_at(offset: usize, n: u64) -> Yielded;

    /// Does what [`add_fetch`] does on the word at `offset` bytes into the slot.
    ///
    /// # Safety
    /// - That word is as [`sections`] requires.
    fn add_fetch_at(offset: usize, n: u64) -> Yielded;

    /// Pushes a word onto the slot's stack, which holds `capacity` words.
    ///
    /// # Safety
    /// - The slot's first word and the `capacity` words after it are as [`sections`] requires.
    fn push(item: MaybeUninit<u64>, capacity: u64) -> Exit;

    /// Pops the last word from the slot's stack, and returns it.
    ///
    /// # Safety
    /// - The slot's first word, and as many words after it as it ever counts, are as [`sections`] requires.
    fn pop() -> Popped;

    /// Pushes the first of `most` words onto the slot's stack: as many as fit, at least one. Returns their number.
    ///
    /// # Safety
    /// - As [`push`].
    /// - The slot never counts more than `capacity`.
    /// - `from` is valid for reads of `most` words.
    /// words.
    fn push_some(from: *const MaybeUninit<u64>, most: u64, capacity: u64) -> Yielded;

    /// Pops up to `most` words, at least one. The last one that was pushed comes last. Returns their number.
    ///
    /// # Safety
    /// - As [`pop`].
    /// - `to` is valid for writes of `most` words, and used by this thread only.
    fn pop_some(to: *mut MaybeUninit<u64>, most: u64) -> Yielded;

    /// Pops the last word from the stack at `offset` bytes into the slot, one with a limit.
    ///
    /// # Safety
    /// - The words of top, limit and count, and as many words after them as it ever counts, are as [`sections`]
    ///   requires. Top and limit may also be written by other threads at any time.
    fn pop_at(offset: usize) -> Popped;

    /// Does what [`pop_at`] does, if the number before the stack is more than 1. That number is then decremented.
    ///
    /// # Safety
    /// - As [`pop_at`], for the word before the stack as well. While that word is 0 or 1 other threads may write it,
    ///   unless it had another value meanwhile.
    fn pop_counted_at(offset: usize) -> Popped;

    /// Pushes a word that is not 0 onto the stack at `offset` bytes into the slot, one with a limit, unless the word
    /// is already on top.
    ///
    /// # Safety
    /// - As [`pop_at`], with room for as many words as the limit ever allows.
    fn push_at(offset: usize, item: u64) -> Exit;

    /// Appends a word to the slot's ring of `mask + 1` words, which is a power of two.
    ///
    /// # Safety
    /// - The slot has a tail, a head at 64 bytes, and that many words from 128 bytes on, as [`sections`] requires. A
    ///   consumer may also advance the head up to the tail.
    fn ring_push(item: MaybeUninit<u64>, mask: u64) -> Exit;

    /// Does what [`ring_push`] does of an item of `n` words, at least one.
    ///
    /// # Safety
    /// - As [`ring_push`], for items of `n` words.
    /// - `from` is valid for reads of `n` words.
    fn ring_push_words(from: *const MaybeUninit<u64>, n: u64, mask: u64) -> Exit;

    /// Appends a word to the slot's segment.
    ///
    /// # Safety
    /// - The slot's first word is as [`sections`] requires. Unless it is a multiple of [`SEGMENT`], it points to room
    ///   for a word that other threads do not access.
    fn queue_push(item: MaybeUninit<u64>) -> Exit;

    /// Does what [`queue_push`] does of an item of `n` words, at least one.
    ///
    /// # Safety
    /// - As [`queue_push`], for `n` words.
    /// - `from` is valid for reads of `n` words.
    fn queue_push_words(from: *const MaybeUninit<u64>, n: u64) -> Exit;

    /// Continues in a new segment, if the slot has none or its segment is full.
    ///
    /// # Safety
    /// - The slot's first two words are as [`sections`] requires. The first one is a multiple of [`SEGMENT`] only if
    ///   it is 0, or the end of a segment whose first word no other thread writes.
    /// - `past` is such a multiple only if it is the end of the new segment.
    fn queue_link(first: *mut u8, past: *mut u8) -> Exit;

    /// Appends a record of `n` words, at least one, behind the time, to the slot's trace buffer. Mismatches if there is
    /// no buffer, if it is full, or if another thread or cpu was the last to append.
    ///
    /// # Safety
    /// - The slot's first word is as [`sections`] requires: 0, or the address of a buffer of [`TRACE_BUFFER`] bytes, aligned to
    ///   16, whose first two words are `used` and `owner`, and which sections under this slot's ids write only.
    /// - `from` is valid for reads of `n` words.
    fn trace_push(thread: u64, from: *const MaybeUninit<u64>, n: u64) -> Exit;

    /// Does what [`trace_push`] does behind this time, in place of the time stamp counter.
    ///
    /// # Safety
    /// - As [`trace_push`].
    fn trace_push_timed(thread: u64, time: u64, from: *const MaybeUninit<u64>, n: u64) -> Exit;

    /// Does what [`trace_push`] does for any owner, of words whose first one is the time. This is the owner afterwards.
    ///
    /// # Safety
    /// - As [`trace_push`].
    fn trace_context(owner: u64, from: *const MaybeUninit<u64>, n: u64) -> Exit;
}

/// Runs the critical section `clear_if_clear`, which stores 0 in a word if another word is 0.
///
/// A [fence](crate::sys::membarrier::private_expedited_rseq) after a change of the gate guarantees that no thread is
/// between a read of the old gate and its store.
///
/// # Memory ordering
/// The store is a Release.
///
/// # Safety
/// - `area` is that of [`sys::rseq`](crate::sys::rseq::area).
/// - Both pointers are valid and aligned, and the word may be written now.
#[cfg_attr(loom, allow(dead_code))] // The model has one of its own.
#[inline(always)]
pub(crate) unsafe fn clear_if_clear(area: isize, gate: *const u32, word: *mut u32) -> Exit {
    // SAFETY: the caller guarantees the thread's area and two valid words.
    unsafe { arch::clear_if_clear(area, gate, word) }
}

/// Runs the critical section `load`, which loads a pointer, and the words at it.
///
/// A [fence](crate::sys::membarrier::private_expedited_rseq) after a change of the pointer guarantees that no thread is
/// between a load of the old pointer and its last load from there.
///
/// # Memory ordering
/// The load of the pointer is an Acquire.
///
/// # Safety
/// - `area` is that of [`sys::rseq`](crate::sys::rseq::area).
/// - `pointer` is valid. While its value is positive as a signed number, it is the address of `N` words that are valid
///   for reads until such a fence, and aligned to 16 bytes if there are several.
#[cfg_attr(any(loom, not(feature = "std")), allow(dead_code))] // Only `rcu::RcuCopy` uses it.
#[inline(always)]
pub(crate) unsafe fn load<const N: usize>(area: isize, pointer: *const *const u8) -> Loaded<N> {
    // SAFETY: the caller guarantees the thread's area, a valid pointer, and words that stay.
    unsafe { arch::load(area, pointer) }
}

/// Does what [`load`] does of a word, with microseconds between the two loads.
///
/// # Safety
/// - As [`load`].
#[cfg(all(
    test,
    feature = "std",
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"),
    not(any(miri, loom, corelocal_model))
))]
pub(crate) unsafe fn load_slowly(area: isize, pointer: *const *const u8) -> Loaded<1> {
    // SAFETY: the caller keeps the conditions.
    unsafe { arch::load_slowly(area, pointer) }
}
