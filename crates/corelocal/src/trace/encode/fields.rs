//! Which types fields may have, and how each is written.

use core::fmt;
use core::time::Duration;

use super::{Encoder, Field, sealed};
use crate::trace::format::{FieldType, Type};

macro_rules! numbers {
    ($($type:ty: $of:ident;)+) => {
        $(
            impl sealed::Sealed for $type {}
            impl Field for $type {
                const TYPE: FieldType = FieldType { of: Type::$of, is_array: false };

                #[inline(always)]
                fn bits(&self) -> u64 {
                    const LEN: usize = size_of::<$type>();
                    let mut bytes = [0; 8];
                    bytes[..LEN].copy_from_slice(&self.to_le_bytes());
                    u64::from_le_bytes(bytes)
                }

                #[inline(always)]
                fn put(&self, into: &mut Encoder) {
                    into.put(self.to_le_bytes());
                }
            }
        )+
    };
}

macro_rules! arrays {
    ($($type:ty)+) => {
        $(
            impl sealed::Sealed for [$type] {}
            impl Field for [$type] {
                const TYPE: FieldType = FieldType { is_array: true, ..<$type>::TYPE };

                #[inline]
                fn put(&self, into: &mut Encoder) {
                    let len = into.put_len(size_of_val(self), size_of::<$type>());
                    self[..len / size_of::<$type>()].iter().for_each(|number| number.put(into));
                }
            }
        )+
    };
}

arrays! { u16 u32 u64 i8 i16 i32 i64 f32 f64 }
#[cfg(target_pointer_width = "64")]
arrays! { usize isize }

numbers! {
    u8: U8;
    u16: U16;
    u32: U32;
    u64: U64;
    i8: I8;
    i16: I16;
    i32: I32;
    i64: I64;
    f32: F32;
    f64: F64;
}

#[cfg(target_pointer_width = "64")]
numbers! {
    usize: U64;
    isize: I64;
}

impl sealed::Sealed for bool {}
impl Field for bool {
    const TYPE: FieldType = FieldType { of: Type::Bool, is_array: false };

    #[inline(always)]
    fn bits(&self) -> u64 {
        (*self).into()
    }

    #[inline(always)]
    fn put(&self, into: &mut Encoder) {
        into.put([u8::from(*self)]);
    }
}

/// Nanoseconds, up to 584 years.
impl sealed::Sealed for Duration {}
impl Field for Duration {
    const TYPE: FieldType = FieldType { of: Type::Duration, is_array: false };

    #[inline(always)]
    fn bits(&self) -> u64 {
        u64::try_from(self.as_nanos()).unwrap_or(u64::MAX)
    }

    #[inline(always)]
    fn put(&self, into: &mut Encoder) {
        into.put(self.bits().to_le_bytes());
    }
}

/// As a string.
impl sealed::Sealed for char {}
impl Field for char {
    const TYPE: FieldType = str::TYPE;

    #[inline]
    fn put(&self, into: &mut Encoder) {
        self.encode_utf8(&mut [0; 4]).put(into);
    }
}

#[cfg(feature = "std")]
impl sealed::Sealed for std::string::String {}
#[cfg(feature = "std")]
impl Field for std::string::String {
    const TYPE: FieldType = str::TYPE;

    #[inline]
    fn put(&self, into: &mut Encoder) {
        self.as_str().put(into);
    }
}

/// A value, or none. Not of arrays.
impl<T: Field> sealed::Sealed for Option<T> {}
impl<T: Field> Field for Option<T> {
    const TYPE: FieldType = {
        assert!(!T::TYPE.is_array, "an option of an array is recorded by `?value`");
        FieldType { of: Type::Any, is_array: false }
    };

    #[inline]
    fn put(&self, into: &mut Encoder) {
        match self {
            Some(value) => into.put_any(value),
            None => into.put_missing(),
        }
    }
}

/// For `field = ?value`.
#[doc(hidden)]
#[allow(missing_debug_implementations, reason = "of the macro alone")]
pub struct DebugText<'a, T: ?Sized>(pub &'a T);
impl<T: fmt::Debug + ?Sized> sealed::Sealed for DebugText<'_, T> {}
impl<T: fmt::Debug + ?Sized> Field for DebugText<'_, T> {
    const TYPE: FieldType = str::TYPE;

    fn put(&self, into: &mut Encoder) {
        into.put_text(format_args!("{:?}", self.0));
    }
}

/// For `field = %value`.
#[doc(hidden)]
#[allow(missing_debug_implementations, reason = "of the macro alone")]
pub struct DisplayText<'a, T: ?Sized>(pub &'a T);
impl<T: fmt::Display + ?Sized> sealed::Sealed for DisplayText<'_, T> {}
impl<T: fmt::Display + ?Sized> Field for DisplayText<'_, T> {
    const TYPE: FieldType = str::TYPE;

    fn put(&self, into: &mut Encoder) {
        into.put_text(format_args!("{}", self.0));
    }
}

impl sealed::Sealed for str {}
impl Field for str {
    const TYPE: FieldType = FieldType { of: Type::Str, is_array: false };

    #[inline]
    fn put(&self, into: &mut Encoder) {
        into.put_some(self.as_bytes());
    }
}

impl sealed::Sealed for [u8] {}
impl Field for [u8] {
    const TYPE: FieldType = FieldType { of: Type::Bytes, is_array: false };

    #[inline]
    fn put(&self, into: &mut Encoder) {
        into.put_some(self);
    }
}

impl<T, const N: usize> sealed::Sealed for [T; N] where [T]: Field {}
impl<T, const N: usize> Field for [T; N]
where
    [T]: Field,
{
    const TYPE: FieldType = <[T]>::TYPE;

    #[inline(always)]
    fn put(&self, into: &mut Encoder) {
        self.as_slice().put(into);
    }
}

impl<T: Field + ?Sized> sealed::Sealed for &T {}
impl<T: Field + ?Sized> Field for &T {
    const TYPE: FieldType = T::TYPE;

    #[inline(always)]
    fn bits(&self) -> u64 {
        T::bits(self)
    }

    #[inline(always)]
    fn put(&self, into: &mut Encoder) {
        T::put(self, into);
    }
}
