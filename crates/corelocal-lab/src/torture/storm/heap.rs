//! The malloc as a container: a token is stored in an object, and the thread that takes it out frees the object.
//!
//! Invariants:
//! - An object belongs to the thread that exchanges it out of the table.
//! - A token is stored in the first word of its object and, scrambled by its size, in the last one. An object that
//!   was allocated twice contains an invalid token.
//! - At the end no more objects are in use than when the container was made.

use std::array;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use corelocal::alloc;

use super::bins::{Bin, Flow, token};

/// The maximum number of objects.
const PLACES: usize = 256;
/// The size of the smallest one, in bytes.
const LEAST: usize = 16;

/// Objects of the malloc: see the module's text.
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

/// Returns the number of objects in use, according to the malloc.
fn in_use() -> usize {
    let stats = alloc::stats();
    stats.large_objects + stats.classes.iter().map(|class| class.in_use).sum::<usize>()
}

/// Sizes of all kinds: mostly small, sometimes a few pages, rarely large.
fn size_of(token: u64) -> usize {
    let bound = match token % 256 {
        0 => 3 << 20,
        1..16 => 100_000,
        _ => 1000,
    };
    LEAST + hash(token) % bound
}

/// Returns the last word of an object.
///
/// # Safety
/// - The object has this many bytes.
unsafe fn last_word(object: *mut u64, size: usize) -> *mut u64 {
    // SAFETY: the caller guarantees the size, which is at least two words.
    unsafe { object.add(size / 8 - 1) }
}

/// Allocates an object and stores a token in it. `None` if there is no memory.
fn filled(token: u64) -> Option<*mut u64> {
    let size = size_of(token);
    let object = alloc::allocate(size).cast::<u64>();
    if object.is_null() {
        return None;
    }
    // SAFETY: just allocated, with this many bytes.
    unsafe {
        object.write(token);
        last_word(object, size).write(token.rotate_left(32) ^ size as u64);
    }
    Some(object)
}

/// Takes the token out of an object and frees the object. Counts the token if it is valid.
fn emptied(object: *mut u64, flow: &mut Flow) {
    if object.is_null() {
        return;
    }
    // SAFETY: this thread exchanged the object out of the table, so it owns it, and `filled` made it. An overwritten
    // token may imply a wrong size, so that is compared with the object's first.
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
            // AcqRel: the content that one thread writes to the object another one reads.
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
        // Objects in the caches of cores and depots count as in use until they are flushed.
        alloc::trim(0);
        // Each leaked object counts as a token.
        (self.in_use_before..in_use()).for_each(|_| flow.put(token()));
    }
}
