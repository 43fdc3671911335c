//! A value that is made when it is first needed.

use core::fmt;
use core::ops::Deref;

use super::once_lock::OnceLock;

/// A value that is made when it is first needed, by the thread that needs it.
///
/// ```
/// use corelocal::sync::LazyLock;
///
/// static SQUARES: LazyLock<Vec<u32>> = LazyLock::new(|| (0..10).map(|n| n * n).collect());
///
/// assert_eq!(SQUARES[3], 9);
/// ```
///
/// The initialiser is one that can run again (`Fn`): after a panic, and in a forked child if another thread of
/// the parent was in the middle of it, the next one that needs the value makes it. So a lazy value is never
/// poisoned. Two calls may overlap so, as those of two threads would: therefore a lazy value can be shared only if
/// its initialiser is `Sync`.
pub struct LazyLock<T, F = fn() -> T> {
    value: OnceLock<T>,
    init: F,
}

// SAFETY: `&T` is given to any thread, and `&F` to those that call it, one at a time. In a forked child a call may begin
// while one of a thread that is gone has not ended, and never will: so `F` must allow two at once.
unsafe impl<T: Send + Sync, F: Send + Sync> Sync for LazyLock<T, F> {}

impl<T, F: Fn() -> T> LazyLock<T, F> {
    /// A value that is not made yet.
    #[cfg(not(loom))]
    pub const fn new(init: F) -> Self {
        LazyLock { value: OnceLock::new(), init }
    }

    /// As above.
    #[cfg(loom)]
    pub fn new(init: F) -> Self {
        LazyLock { value: OnceLock::new(), init }
    }

    /// The value, made now if it was not. Waits while another thread makes it.
    ///
    /// # Panics
    /// If the initialiser does, or if it needs the value itself.
    #[inline]
    pub fn force(this: &Self) -> &T {
        this.value.get_or_init(&this.init)
    }

    /// The value, if it was made.
    #[inline]
    pub fn get(this: &Self) -> Option<&T> {
        this.value.get()
    }

    /// The value, made now if it was not.
    ///
    /// # Panics
    /// As [`force`](Self::force).
    pub fn force_mut(this: &mut Self) -> &mut T {
        Self::force(this);
        match this.value.get_mut() {
            Some(value) => value,
            None => unreachable!("it was made just now"),
        }
    }
}

impl<T, F: Fn() -> T> Deref for LazyLock<T, F> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        Self::force(self)
    }
}

impl<T: Default> Default for LazyLock<T> {
    fn default() -> Self {
        LazyLock::new(T::default)
    }
}

impl<T: fmt::Debug, F> fmt::Debug for LazyLock<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tuple = f.debug_tuple("LazyLock");
        match self.value.get() {
            Some(value) => tuple.field(value).finish(),
            None => tuple.field(&format_args!("<not made>")).finish(),
        }
    }
}
