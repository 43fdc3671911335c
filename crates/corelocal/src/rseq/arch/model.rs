//! The sections where there are none: always unavailable, so that the cold path serves.

use crate::rseq::{Exit, Index, Slots, Yielded};

const UNAVAILABLE: Exit = Exit(Exit::UNAVAILABLE);

/// Every section is the same here.
///
/// # Safety
/// None is needed; the signatures are those of the other architectures.
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

unavailable! {
    add(n: i64) -> Exit = UNAVAILABLE;
    add_at(offset: usize, n: i64) -> Exit = UNAVAILABLE;
    store_greater(n: i64) -> Exit = UNAVAILABLE;
    store_if_equal(expected: u64, n: u64) -> Exit = UNAVAILABLE;
    exchange(n: u64) -> Yielded = (UNAVAILABLE, 0);
    add_fetch(n: u64) -> Yielded = (UNAVAILABLE, 0);
    push(item: u64, capacity: u64) -> Exit = UNAVAILABLE;
    pop() -> Yielded = (UNAVAILABLE, 0);
    push_all(from: *const u64, n: u64, capacity: u64) -> Exit = UNAVAILABLE;
    pop_some(to: *mut u64, most: u64) -> Yielded = (UNAVAILABLE, 0);
}
