//! The malloc as a container: a token lies in an object, and whoever takes it out frees the object.
//!
//! Invariants:
//! - An object belongs to whoever exchanges it out of the table.
//! - A token lies in the first word of its object and, scrambled by its size, in the last one: an object that
//!   two have at a time holds what is no token of its size.
//! - In the end no object is in use that was not when the container was made.

use std::array;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use corelocal::alloc;

use super::bins::{Bin, Flow, token};

/// Objects at a time.
const PLACES: usize = 256;
/// Bytes of the smallest one.
const LEAST: usize = 16;

/// See the module's text.
pub struct Heap {
    places: [AtomicPtr<u64>; PLACES],
    in_use_before: usize,
}

impl Heap {
    pub fn new() -> Heap {
        Heap { places: array::from_fn(|_| AtomicPtr::new(null_mut())), in_use_before: in_use() }
    }

    fn place(&self, token: u64) -> &AtomicPtr<u64> {
        &self.places[hash(token) % PLACES]
    }
}

fn hash(token: u64) -> usize {
    (token.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
}

/// Objects in use, as far as the malloc knows.
fn in_use() -> usize {
    let stats = alloc::stats();
    stats.large_objects + stats.classes.iter().map(|class| class.in_use).sum::<usize>()
}

/// Of each kind: mostly small, now and then of some pages, seldom large.
fn size_of(token: u64) -> usize {
    let bound = match token % 256 {
        0 => 3 << 20,
        1..16 => 100_000,
        _ => 1000,
    };
    LEAST + hash(token) % bound
}

/// The last word of an object.
///
/// # Safety
/// It has so many bytes.
unsafe fn last_word(object: *mut u64, size: usize) -> *mut u64 {
    // SAFETY: the caller's promise; two words at least, so it is not the first one.
    unsafe { object.add(size / 8 - 1) }
}

/// An object with a token in it; `None` without memory.
fn filled(token: u64) -> Option<*mut u64> {
    let size = size_of(token);
    let object = alloc::allocate(size).cast::<u64>();
    if object.is_null() {
        return None;
    }
    // SAFETY: just allocated, with so many bytes.
    unsafe {
        object.write(token);
        last_word(object, size).write(token.rotate_left(32) ^ size as u64);
    }
    Some(object)
}

/// Takes an object's token out, if it is one.
fn emptied(object: *mut u64, flow: &mut Flow) {
    if object.is_null() {
        return;
    }
    // SAFETY: exchanged out of the table, so ours, and made by `filled`. A token that was overwritten may
    // tell a wrong size, so that is compared with the object's first.
    unsafe {
        let token = object.read();
        let size = size_of(token);
        let is_whole = alloc::usable_size(object.cast()) >= size
            && last_word(object, size).read() == token.rotate_left(32) ^ size as u64;
        flow.take(if is_whole { token } else { u64::MAX });
        alloc::deallocate(object.cast());
    }
}

impl Bin for Heap {
    fn put(&self, token: u64, flow: &mut Flow) {
        if let Some(object) = filled(token) {
            flow.put(token);
            // Of both: what one wrote into the object the other reads.
            emptied(self.place(token).swap(object, Ordering::AcqRel), flow);
        }
    }

    fn take(&self, flow: &mut Flow) {
        emptied(self.place(token()).swap(null_mut(), Ordering::Acquire), flow);
    }

    fn drain(&self, flow: &mut Flow) {
        for place in &self.places {
            emptied(place.swap(null_mut(), Ordering::Acquire), flow);
        }
        if token() % 2 == 0 {
            alloc::trim(0);
        } else {
            alloc::release_idle();
        }
    }

    fn empty(&mut self, flow: &mut Flow) {
        for place in &self.places {
            emptied(place.swap(null_mut(), Ordering::Acquire), flow);
        }
        // What cores and depots have is told apart from what is in use, or it is not there.
        alloc::trim(0);
        // An object that nobody has any more is as good as its token.
        (self.in_use_before..in_use()).for_each(|_| flow.put(token()));
    }
}
