//! The critical sections where none can run: always unavailable, so that callers take the cold path.

use core::mem::MaybeUninit;

use crate::rseq::{Exit, Index, Loaded, Popped, Slots, Yielded};

const UNAVAILABLE: Exit = Exit(Exit::UNAVAILABLE);

/// Every section is the same here.
///
/// # Safety
/// - No conditions; the signatures are those of the other architectures.
macro_rules! unavailable {
    ($($name:ident($($operand:ident: $type:ty),*) -> $ended:ty = $result:expr;)+) => {
        $(
            #[inline(always)]
            pub(crate) unsafe fn $name(_: Index, _: &Slots, $(_: $type),*) -> $ended {
                $result
            }
        )+
    };
}

/// # Safety
/// - No conditions.
#[cfg(not(any(loom, miri)))]
#[inline(always)]
pub(crate) unsafe fn pop_front(_: Index, _: usize) -> Popped {
    (UNAVAILABLE, MaybeUninit::uninit())
}

/// # Safety
/// - No conditions.
#[cfg(not(any(loom, miri)))]
#[inline(always)]
pub(crate) unsafe fn push_front(_: Index, _: usize, _: u64) -> Exit {
    UNAVAILABLE
}

/// # Safety
/// - No conditions.
#[cfg(not(any(loom, miri)))]
#[inline(always)]
pub(crate) unsafe fn push_freed(_: Index, _: usize, _: u64) -> Exit {
    UNAVAILABLE
}

/// # Safety
/// - No conditions.
#[inline(always)]
pub(crate) unsafe fn clear_if_clear(_: isize, _: *const u32, _: *mut u32) -> Exit {
    UNAVAILABLE
}

/// # Safety
/// - No conditions.
#[inline(always)]
pub(crate) unsafe fn load<const N: usize>(_: isize, _: *const *const u8) -> Loaded<N> {
    (UNAVAILABLE, [MaybeUninit::uninit(); N])
}

/// # Safety
/// - No conditions.
#[inline(always)]
pub(crate) unsafe fn trace_push_fixed<const N: usize>(
    _: Index,
    _: &Slots,
    _: u64,
    _: [u64; N],
) -> Exit {
    UNAVAILABLE
}

/// # Safety
/// - No conditions.
#[inline(always)]
pub(crate) unsafe fn trace_push_timed_fixed<const N: usize>(
    _: Index,
    _: &Slots,
    _: u64,
    _: u64,
    _: [u64; N],
) -> Exit {
    UNAVAILABLE
}

unavailable! {
    add(n: i64) -> Exit = UNAVAILABLE;
    increment() -> Exit = UNAVAILABLE;
    add_at(offset: usize, n: i64) -> Exit = UNAVAILABLE;
    increment_at(offset: usize) -> Exit = UNAVAILABLE;
    store_greater(n: i64) -> Exit = UNAVAILABLE;
    store_if_equal(expected: u64, n: u64) -> Exit = UNAVAILABLE;
    exchange(n: u64) -> Yielded = (UNAVAILABLE, 0);
    add_fetch(n: u64) -> Yielded = (UNAVAILABLE, 0);
    store_if_equal_at(offset: usize, expected: u64, n: u64) -> Exit = UNAVAILABLE;
    exchange_at(offset: usize, n: u64) -> Yielded = (UNAVAILABLE, 0);
    add_fetch_at(offset: usize, n: u64) -> Yielded = (UNAVAILABLE, 0);
    push(item: MaybeUninit<u64>, capacity: u64) -> Exit = UNAVAILABLE;
    pop() -> Popped = (UNAVAILABLE, MaybeUninit::uninit());
    push_some(from: *const MaybeUninit<u64>, most: u64, capacity: u64) -> Yielded = (UNAVAILABLE, 0);
    pop_some(to: *mut MaybeUninit<u64>, most: u64) -> Yielded = (UNAVAILABLE, 0);
    pop_at(offset: usize) -> Popped = (UNAVAILABLE, MaybeUninit::uninit());
    pop_counted_at(offset: usize) -> Popped = (UNAVAILABLE, MaybeUninit::uninit());
    push_at(offset: usize, item: u64) -> Exit = UNAVAILABLE;
    ring_push(item: MaybeUninit<u64>, mask: u64) -> Exit = UNAVAILABLE;
    ring_push_words(from: *const MaybeUninit<u64>, n: u64, mask: u64) -> Exit = UNAVAILABLE;
    queue_push(item: MaybeUninit<u64>) -> Exit = UNAVAILABLE;
    queue_push_words(from: *const MaybeUninit<u64>, n: u64) -> Exit = UNAVAILABLE;
    queue_link(first: *mut u8, past: *mut u8) -> Exit = UNAVAILABLE;
    trace_push(thread: u64, from: *const MaybeUninit<u64>, n: u64) -> Exit = UNAVAILABLE;
    trace_push_timed(thread: u64, time: u64, from: *const MaybeUninit<u64>, n: u64) -> Exit = UNAVAILABLE;
    trace_context(owner: u64, from: *const MaybeUninit<u64>, n: u64) -> Exit = UNAVAILABLE;
}
