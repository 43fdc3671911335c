//! What a slot may hold.

use crate::primitive::atomic::{AtomicI64, AtomicU64};

/// Types whose value is valid when all its bytes are 0, which is how a core's part of an object
/// starts out, and needs no drop.
///
/// # Safety
/// All bytes 0 is a valid value; there is nothing to drop.
pub(crate) unsafe trait Zeroed: Sync + 'static {
    /// The value, for the model's heap.
    #[cfg(loom)]
    fn zeroed() -> Self;
}

macro_rules! words {
    ($($word:ident),+) => {
        $(
            // SAFETY: an integer.
            unsafe impl Zeroed for $word {
                #[cfg(loom)]
                fn zeroed() -> Self {
                    $word::new(0)
                }
            }
        )+
    };
}

words!(AtomicI64, AtomicU64);

// SAFETY: the elements are.
unsafe impl<T: Zeroed, const N: usize> Zeroed for [T; N] {
    #[cfg(loom)]
    fn zeroed() -> Self {
        core::array::from_fn(|_| T::zeroed())
    }
}
