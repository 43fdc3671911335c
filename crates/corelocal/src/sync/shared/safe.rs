//! Which types may lie in memory that several processes map.
//!
//! Invariant: an implementation's `LAYOUT` tells apart what differs in memory: the type, its version, the
//! types in it.

use core::sync::atomic;

use crate::sync::machinery::scope::Shared;
use crate::sync::pi::{PiCondvar, PiMutex};
use crate::sync::robust::{RobustMutex, Waiting};
use crate::sys::thread::robust_list;

/// Types that mean the same in every process that maps them, wherever.
///
/// ```
/// use corelocal::sync::shared::{SharedSafe, layout};
/// use std::sync::atomic::AtomicU64;
///
/// #[repr(C)]
/// struct Totals {
///     bytes: AtomicU64,
///     packets: [AtomicU64; 4],
/// }
///
/// // SAFETY: `repr(C)`, and made of such types; the name changes with the fields.
/// unsafe impl SharedSafe for Totals {
///     const LAYOUT: u64 = layout("Totals 1", &[AtomicU64::LAYOUT, <[AtomicU64; 4]>::LAYOUT]);
/// }
/// ```
///
/// # Safety
/// - A value holds no pointer, reference, descriptor or other thing that only one process understands.
/// - It needs no destructor: none ever runs.
/// - It is laid out in memory in a way that does not depend on the compiler: `repr(C)`, `repr(transparent)`,
///   or a primitive.
/// - Types that are laid out differently, or that mean something else, have another `LAYOUT`.
pub unsafe trait SharedSafe: Sized {
    /// The layout's number, which must be equal in the process that made the object and in the one that opens it. See
    /// [`layout`].
    const LAYOUT: u64;
}

/// Returns a number for a type of this name, made of parts of these numbers.
pub const fn layout(name: &str, parts: &[u64]) -> u64 {
    // FNV-1a.
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let name = name.as_bytes();
    let mut at = 0;
    while at < name.len() {
        hash = (hash ^ name[at] as u64).wrapping_mul(PRIME);
        at += 1;
    }
    let mut part = 0;
    while part < parts.len() {
        let bytes = parts[part].to_le_bytes();
        let mut at = 0;
        while at < bytes.len() {
            hash = (hash ^ bytes[at] as u64).wrapping_mul(PRIME);
            at += 1;
        }
        part += 1;
    }
    hash
}

macro_rules! shared_safe {
    ($($type:ty,)*) => {
        $(
            // SAFETY: a primitive, or one that may be changed by many.
            unsafe impl SharedSafe for $type {
                const LAYOUT: u64 = layout(stringify!($type), &[]);
            }
        )*
    };
}

shared_safe! {
    (), bool, char, u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64,
    atomic::AtomicBool, atomic::AtomicU8, atomic::AtomicU16, atomic::AtomicU32, atomic::AtomicU64,
    atomic::AtomicUsize, atomic::AtomicI8, atomic::AtomicI16, atomic::AtomicI32, atomic::AtomicI64,
    atomic::AtomicIsize,
}

// SAFETY: one after the other.
unsafe impl<T: SharedSafe, const N: usize> SharedSafe for [T; N] {
    const LAYOUT: u64 = layout("array", &[T::LAYOUT, N as u64]);
}

// SAFETY: `repr(C)`, words and the data. The list's pointers are the owner's alone.
unsafe impl<T: SharedSafe, W: Waiting> SharedSafe for RobustMutex<T, Shared, W> {
    const LAYOUT: u64 = {
        let offset = robust_list::FUTEX_OFFSET as u64;
        layout("RobustMutex 1", &[T::LAYOUT, W::INHERITS as u64, offset])
    };
}

// SAFETY: `repr(C)`, two words and the data.
unsafe impl<T: SharedSafe> SharedSafe for PiMutex<T, Shared> {
    const LAYOUT: u64 = layout("PiMutex 1", &[T::LAYOUT]);
}

// SAFETY: `repr(C)`, two words.
unsafe impl SharedSafe for PiCondvar<Shared> {
    const LAYOUT: u64 = layout("PiCondvar 1", &[]);
}
