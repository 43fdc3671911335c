//! What `inline.h` asks when an object with its sections is loaded.
//!
//! # Data flow
//! Each executable or shared object that includes `inline.h` has one `struct corelocal_inline`, hidden, at first zeros, and a
//! constructor that has it filled by [`corelocal_inline_bind`]. Sections read its words without a relocation. While they are
//! zeros each operation is a call into the library: before the constructor, where this refuses, and where this processor has
//! no sections.
//!
//! # Invariants
//! 1. Words are given only to a header of the same layout: the sections in it and those in here find slots and words in the
//!    same way (`rseq/operand.rs` and `rseq.rs` of the library).
//! 2. And only to an object that stays loaded: the kernel reads a section's descriptor after the section has ended.
//! 3. `area` is stored last, and is never 0: a thread that sees it sees the other words.

use core::ffi::c_int;
use core::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

use corelocal::foreign::{inline_words, stays_loaded};

/// The layout that sections of inline.h rely on. It changes with the place of any word that they read.
pub const CORELOCAL_INLINE_LAYOUT: u32 = 1;

/// What inline sections read. Private to inline.h.
#[repr(C)]
pub struct corelocal_inline {
    /// Where the rseq area is, from the thread pointer; 0 for no sections.
    area: AtomicIsize,
    /// Where the concurrency id is, from the thread pointer.
    id: AtomicIsize,
    /// The table from ids to slots.
    offsets: AtomicUsize,
}

/// Fills words for an object with inline sections. Called by inline.h when the object is loaded.
///
/// Returns 0; -ENOTSUP for another layout, or where there are no sections; -EBUSY for an object that may be unloaded. Then
/// its operations are calls.
///
/// # Safety
/// - See the crate's invariant 3. The words are in that object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelocal_inline_bind(words: *mut corelocal_inline, layout: u32) -> c_int {
    if layout != CORELOCAL_INLINE_LAYOUT {
        return -libc::ENOTSUP;
    }
    let Some(found) = inline_words() else { return -libc::ENOTSUP };
    if !stays_loaded(words.addr()) {
        return -libc::EBUSY;
    }
    // SAFETY: by the contract.
    let words = unsafe { &*words };
    words.id.store(found.id, Ordering::Relaxed);
    words.offsets.store(found.offsets, Ordering::Relaxed);
    // Release: partner is the load of `area` in inline.h, and the dependency of the others on it being set (invariant 3).
    words.area.store(found.area, Ordering::Release);
    0
}
