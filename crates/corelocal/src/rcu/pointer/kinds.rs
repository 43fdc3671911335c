//! What can be a version: owning pointers of the standard library, and `Option`s of them.

use core::ptr;
use std::boxed::Box;
use std::sync::Arc;

/// A value that [`Rcu`](super::Rcu) can hold: `Box<T>`, `Arc<T>`, or an `Option` of one of them.
///
/// # Safety
/// - `into_raw` and `from_raw` convert a value into a pointer and back, and nothing but `from_raw` or `borrow` uses the
///   pointer.
/// - `borrow` returns a reference that is valid as long as the value is not dropped.
pub unsafe trait Pointer: Sized {
    /// The type that it points to.
    type Target;
    /// A reference to the target; an `Option` of one for an `Option`.
    type Ref<'g>: Copy
    where
        Self: 'g;

    /// Returns the value as a pointer.
    fn into_raw(this: Self) -> *mut Self::Target;

    /// Returns the value of a pointer.
    ///
    /// # Safety
    /// - `at` is a result of `into_raw`, used once.
    unsafe fn from_raw(at: *mut Self::Target) -> Self;

    /// Returns a reference to what the value of a pointer points to.
    ///
    /// # Safety
    /// - `at` is a result of `into_raw`, whose value is not dropped during `'g`.
    unsafe fn borrow<'g>(at: *mut Self::Target) -> Self::Ref<'g>
    where
        Self: 'g;

    /// Returns the pointer of which this is the reference.
    fn as_raw<'g>(this: Self::Ref<'g>) -> *mut Self::Target
    where
        Self: 'g;

    /// Returns the bytes that are freed when the value is dropped, as far as its type tells.
    fn bytes(at: *mut Self::Target) -> usize;
}

/// A value that can be cloned from the pointer: an `Arc`.
///
/// # Safety
/// - `clone_raw` makes another value, and leaves the pointer's as it was.
pub unsafe trait Shared: Pointer {
    /// Returns another value with the same target.
    ///
    /// # Safety
    /// - `at` is a result of `into_raw`, whose value is not dropped during the call.
    unsafe fn clone_raw(at: *mut Self::Target) -> Self;
}

/// Implements the traits for pointers that are never null.
macro_rules! plain {
    ($($pointer:ident)+) => {
        $(
            // SAFETY: the conversions of the standard library, in both directions.
            unsafe impl<T> Pointer for $pointer<T> {
                type Target = T;
                type Ref<'g>
                    = &'g T
                where
                    T: 'g;

                #[inline(always)]
                fn into_raw(this: Self) -> *mut T {
                    $pointer::into_raw(this) as *mut T
                }

                unsafe fn from_raw(at: *mut T) -> Self {
                    // SAFETY: the caller guarantees a result of `into_raw`, used once.
                    unsafe { $pointer::from_raw(at) }
                }

                #[inline(always)]
                unsafe fn borrow<'g>(at: *mut T) -> &'g T
                where
                    T: 'g,
                {
                    // SAFETY: the caller guarantees a value that lives for `'g`.
                    unsafe { &*at }
                }

                fn as_raw<'g>(this: &'g T) -> *mut T
                where
                    T: 'g,
                {
                    ptr::from_ref(this).cast_mut()
                }

                fn bytes(_at: *mut T) -> usize {
                    size_of::<T>()
                }
            }

            // SAFETY: the standard library guarantees it.
            unsafe impl<T> NeverNull for $pointer<T> {}
        )+
    };
}

plain!(Box Arc);

/// A pointer of which an `Option` can be held: null is its `None`.
///
/// # Safety
/// - `into_raw` returns no null pointer.
pub unsafe trait NeverNull: Pointer {}

// SAFETY: the pointer's own, or null for `None`.
unsafe impl<P: NeverNull> Pointer for Option<P> {
    type Target = P::Target;
    type Ref<'g>
        = Option<P::Ref<'g>>
    where
        P: 'g;

    #[inline(always)]
    fn into_raw(this: Self) -> *mut P::Target {
        this.map_or(ptr::null_mut(), P::into_raw)
    }

    unsafe fn from_raw(at: *mut P::Target) -> Self {
        // SAFETY: not null, so a value's, as the caller guarantees.
        (!at.is_null()).then(|| unsafe { P::from_raw(at) })
    }

    #[inline(always)]
    unsafe fn borrow<'g>(at: *mut P::Target) -> Option<P::Ref<'g>>
    where
        P: 'g,
    {
        // SAFETY: not null, so a value's, as the caller guarantees.
        (!at.is_null()).then(|| unsafe { P::borrow(at) })
    }

    fn as_raw<'g>(this: Option<P::Ref<'g>>) -> *mut P::Target
    where
        P: 'g,
    {
        this.map_or(ptr::null_mut(), P::as_raw)
    }

    fn bytes(at: *mut P::Target) -> usize {
        if at.is_null() { 0 } else { P::bytes(at) }
    }
}

// SAFETY: the count grows by 1 for the new value.
unsafe impl<T> Shared for Arc<T> {
    unsafe fn clone_raw(at: *mut T) -> Self {
        // SAFETY: the caller guarantees an `Arc`'s pointer, and that its value stays during the call.
        unsafe {
            Arc::increment_strong_count(at);
            Arc::from_raw(at)
        }
    }
}

// SAFETY: that of the value, if there is one.
unsafe impl<P: Shared + NeverNull> Shared for Option<P> {
    unsafe fn clone_raw(at: *mut P::Target) -> Self {
        // SAFETY: not null, so a value's, as the caller guarantees.
        (!at.is_null()).then(|| unsafe { P::clone_raw(at) })
    }
}
