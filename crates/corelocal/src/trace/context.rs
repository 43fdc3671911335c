//! What the tracer knows of the calling thread: its context, the span that it is in, and its open guards.
//!
//! # Invariants
//! 1. A context is a stay of one thread on one buffer. When a thread comes to a buffer, it draws a new number, and records
//!    its id, its name and its span. A buffer's owner is the number of its last context, so a thread that comes back to a
//!    buffer that it has left is recorded again, with the span that it is in by then.
//! 2. The span, the number and the count of open guards are in the thread's static TLS. A signal handler that ends its
//!    guards leaves the span and the count as it found them. It may leave another number, which costs a record.
//! 3. A guard that ends while inner ones are open leaves the thread in the inner span. The thread goes on in the span
//!    around the outer one when the inner guards have ended, too. Up to [`LEFT`] guards of a process can be ended out of
//!    order at once; a further one takes the thread out of the inner spans.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::span_id::SpanId;
use super::time;
use crate::sys::arch::{self, own_words};
use crate::sys::thread::serial;

/// Bits for the cpu in a buffer's owner.
pub(super) const CPU_BITS: u32 = 13;
/// The context number of a thread that has no context yet.
const NONE: u64 = 0;
/// The bit that each context number has while times are coarse.
const COARSE: u64 = 1 << 63;
/// The maximum number of guards that are remembered as ended while inner ones are open.
const LEFT: usize = 64;

/// Returns the word with the number of the calling thread's context, with room for the cpu. `None` where threads have
/// no words of their own.
#[inline(always)]
fn word() -> Option<&'static AtomicU64> {
    arch::own_word_pair(own_words::CONTEXT)
}

/// Returns the number of the calling thread's context. `None` where threads have no words of their own.
#[inline(always)]
pub(super) fn number() -> Option<u64> {
    arch::read_own_word_pair::<{ own_words::CONTEXT }>()
}

/// Returns `true` if times are coarse. One look at the sign of what the thread has at hand.
#[inline(always)]
pub(super) fn is_coarse(number: u64) -> bool {
    number & COARSE != 0
}

/// Draws a new number for the calling thread. `None` where threads have no words of their own.
pub(super) fn draw() -> Option<u64> {
    /// Relaxed: only the numbers themselves matter.
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    let word = word()?;
    let coarse = if time::is_coarse() { COARSE } else { 0 };
    let number = coarse | (DRAWN.fetch_add(1, Ordering::Relaxed) + 1) << CPU_BITS;
    word.store(number, Ordering::Relaxed);
    Some(number)
}

/// Makes the next record of the calling thread begin a new context: one that said which span it is in may be lost.
pub(super) fn forget() {
    if let Some(word) = word() {
        word.store(NONE, Ordering::Relaxed);
    }
}

/// Returns the word with the calling thread's span. `None` where threads have no words of their own.
#[inline(always)]
fn span_word() -> Option<&'static AtomicU64> {
    arch::own_word_pair(own_words::SPAN)
}

/// Returns the span that the calling thread is in.
#[inline(always)]
pub(super) fn span() -> SpanId {
    SpanId::from_raw(span_word().map_or(0, |word| word.load(Ordering::Relaxed)))
}

/// Makes the span that of the calling thread. Returns the one before.
#[inline(always)]
pub(super) fn set_span(span: SpanId) -> SpanId {
    let Some(word) = span_word() else { return SpanId::NONE };
    let before = SpanId::from_raw(word.load(Ordering::Relaxed));
    word.store(span.as_raw(), Ordering::Relaxed);
    before
}

/// The place at which a guard has entered its thread: it ends by [`leave`](Entry::leave).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Entry {
    before: SpanId,
    /// Guards that were open before.
    outer: u32,
}

impl Entry {
    /// Takes the calling thread into the span.
    #[inline(always)]
    pub(super) fn new(span: SpanId) -> Entry {
        let Some(open) = arch::own_word(own_words::OPEN_GUARDS) else { return Entry::default() };
        let outer = open.load(Ordering::Relaxed);
        open.store(outer.wrapping_add(1), Ordering::Relaxed);
        Entry { before: set_span(span), outer }
    }

    /// Takes the thread out of the span. Returns the one in which it goes on.
    #[inline(always)]
    pub(super) fn leave(self) -> SpanId {
        let Some(open) = arch::own_word(own_words::OPEN_GUARDS) else { return SpanId::NONE };
        if open.load(Ordering::Relaxed) != self.outer.wrapping_add(1) {
            return self.leave_out_of_order(open);
        }
        // Relaxed: a guard that this thread has ended is seen by this thread.
        if COUNT.load(Ordering::Relaxed) != 0 {
            return self.leave_with_outer_ones(open);
        }
        open.store(self.outer, Ordering::Relaxed);
        set_span(self.before);
        self.before
    }

    /// Ends while inner guards are open, or after it was given up.
    #[cold]
    #[inline(never)]
    fn leave_out_of_order(self, open: &AtomicU32) -> SpanId {
        let inner = open.load(Ordering::Relaxed).wrapping_sub(self.outer) as i32;
        // An outer guard may have given this one up, as there were too many.
        if inner > 0 && !note(self.outer, self.before) {
            return self.leave_with_outer_ones(open);
        }
        span()
    }

    /// Ends, with the guards around it that have ended before.
    #[cold]
    #[inline(never)]
    fn leave_with_outer_ones(self, open: &AtomicU32) -> SpanId {
        let (mut goes_on, mut outer) = (self.before, self.outer);
        while let Some(before) = outer.checked_sub(1).and_then(take) {
            goes_on = before;
            outer -= 1;
        }
        open.store(outer, Ordering::Relaxed);
        set_span(goes_on);
        goes_on
    }
}

/// A guard that has ended while inner ones were open.
struct Left {
    /// The thread, and how many guards were around it; 0: unused.
    key: AtomicU64,
    before: AtomicU64,
}

/// Relaxed, all of them: an entry is written and read by one thread, or by its signal handlers.
static ALL: [Left; LEFT] =
    [const { Left { key: AtomicU64::new(0), before: AtomicU64::new(0) } }; LEFT];
static COUNT: AtomicU32 = AtomicU32::new(0);

fn key(outer: u32) -> Option<u64> {
    serial::current().map(|serial| (serial << 32) | (u64::from(outer) + 1))
}

/// Notes that the guard with so many around it has ended, and in which span the thread was before. False: no room.
fn note(outer: u32, before: SpanId) -> bool {
    let Some(key) = key(outer) else { return false };
    let claims = |left: &&Left| {
        left.key.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    };
    let Some(left) = ALL.iter().find(claims) else { return false };
    left.before.store(before.as_raw(), Ordering::Relaxed);
    COUNT.fetch_add(1, Ordering::Relaxed);
    true
}

/// Takes such a note back.
fn take(outer: u32) -> Option<SpanId> {
    let key = key(outer)?;
    let left = ALL.iter().find(|left| left.key.load(Ordering::Relaxed) == key)?;
    let before = left.before.load(Ordering::Relaxed);
    left.key.store(0, Ordering::Relaxed);
    COUNT.fetch_sub(1, Ordering::Relaxed);
    Some(SpanId::from_raw(before))
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Enters these spans in turn, and leaves them in this order. Returns the span after each.
    fn spans_after(order: &[usize]) -> Vec<u64> {
        let mut entries: Vec<Option<Entry>> =
            (1..=order.len() as u64).map(|id| Some(Entry::new(SpanId::from_raw(id)))).collect();
        order
            .iter()
            .map(|&nth| {
                let entry: Entry = entries[nth - 1].take().unwrap();
                entry.leave();
                span().as_raw()
            })
            .collect()
    }

    #[test]
    fn guards_may_end_in_any_order() {
        if number().is_none() {
            return std::eprintln!(
                "skipped: guards_may_end_in_any_order: no words of threads here"
            );
        }
        assert_eq!(spans_after(&[3, 2, 1]), [2, 1, 0]);
        assert_eq!(spans_after(&[1, 2, 3]), [3, 3, 0]);
        assert_eq!(spans_after(&[2, 3, 1]), [3, 1, 0]);
        assert_eq!(spans_after(&[1, 3, 2]), [3, 2, 0]);
        assert_eq!(spans_after(&[2, 1, 4, 3]), [4, 4, 3, 0]);
        // The same span twice.
        let [outer, between, inner] = [7, 8, 7].map(|id| Entry::new(SpanId::from_raw(id)));
        outer.leave();
        assert_eq!(span().as_raw(), 7);
        inner.leave();
        assert_eq!(span().as_raw(), 8);
        between.leave();
        assert_eq!((span(), COUNT.load(Ordering::Relaxed)), (SpanId::NONE, 0));
        // Too many out of order: the inner ones are given up.
        let all: Vec<Entry> = (1..=200).map(|id| Entry::new(SpanId::from_raw(id))).collect();
        for entry in all {
            entry.leave();
        }
        assert_eq!((span(), COUNT.load(Ordering::Relaxed)), (SpanId::NONE, 0));
        assert_eq!(spans_after(&[1, 2]), [2, 0]);
    }
}
