//! Rust objects in the memory of C programs.

use corelocal::foreign::ZeroIsNew;

/// A C type whose words are a Rust object. Implemented by `rust_object!` only, which checks length and alignment.
///
/// # Safety
/// - It is as long and as aligned as `Inner`, and made of integers.
pub unsafe trait Object: Sized {
    /// The Rust object.
    type Inner: ZeroIsNew;
}

/// Returns the object in C's memory.
///
/// # Safety
/// - `at` points to an object: zeros at first, and since then used by functions of this library only.
/// - It is not destroyed while the reference is used.
pub unsafe fn object<'a, T: Object>(at: *const T) -> &'a T::Inner {
    // SAFETY: as long and aligned as that (`Object`), and valid: zeros are a new one (`ZeroIsNew`).
    unsafe { &*at.cast() }
}

/// Ends the object in C's memory, which is a new one afterwards.
///
/// # Safety
/// - As for [`object`], and no other thread uses it.
pub unsafe fn destroy<T: Object>(at: *mut T) {
    // SAFETY: by the contract this is the only user; zeros are a new object.
    unsafe {
        core::ptr::drop_in_place(at.cast::<T::Inner>());
        at.write_bytes(0, 1);
    }
}

/// Says that the words of a C type are those of this Rust type.
macro_rules! rust_object {
    ($name:ident, $inner:ty) => {
        const _: () = {
            assert!(size_of::<$name>() == size_of::<$inner>());
            assert!(align_of::<$name>() == align_of::<$inner>());
        };
        // SAFETY: checked above.
        unsafe impl $crate::object::Object for $name {
            type Inner = $inner;
        }
    };
}
pub(crate) use rust_object;
