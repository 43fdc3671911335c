//! The traits of guards that give access to a value: `Deref`, `DerefMut`, `Debug` and `Display`.

/// Implements access to a value for a guard, shared or exclusive. `pointer` is the address of the value, given the
/// guard.
///
/// The invocation vouches, like an unsafe block, that while a shared guard exists no thread writes to the value, and
/// that while an exclusive one exists no other reference to the value is used.
macro_rules! guard_traits {
    (shared [$($generics:tt)*] $guard:ty, -> $target:ty, |$this:ident| $pointer:expr) => {
        impl<$($generics)*> core::ops::Deref for $guard {
            type Target = $target;

            #[inline(always)]
            fn deref(&self) -> &$target {
                let $this = self;
                // SAFETY: the guard holds the lock, so no thread writes to the value, and the reference borrows the
                // guard.
                unsafe { &*$pointer }
            }
        }

        impl<$($generics)*> core::fmt::Debug for $guard
        where
            $target: core::fmt::Debug,
        {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                (**self).fmt(f)
            }
        }

        impl<$($generics)*> core::fmt::Display for $guard
        where
            $target: core::fmt::Display,
        {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                (**self).fmt(f)
            }
        }
    };
    (exclusive [$($generics:tt)*] $guard:ty, -> $target:ty, |$this:ident| $pointer:expr) => {
        guard_traits!(shared [$($generics)*] $guard, -> $target, |$this| $pointer);

        impl<$($generics)*> core::ops::DerefMut for $guard {
            #[inline(always)]
            fn deref_mut(&mut self) -> &mut $target {
                let $this = self;
                // SAFETY: the guard holds the lock exclusively, and is borrowed exclusively.
                unsafe { &mut *$pointer }
            }
        }
    };
}

pub(crate) use guard_traits;
