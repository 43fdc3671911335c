//! Spans: runs of chunks cut into objects of one class. A span's record says which objects are allocated.
//!
//! A record has one bit for each object and the number of bits set. Spans with free objects are on lists of their
//! class, sorted by fullness. Objects come from the fullest span, lowest address first. So full spans fill up, others
//! become empty, and empty ones go back to the page heap.
//!
//! "Allocated" means here: not in the span, but in use by the program or in a cache.
//!
//! # Invariants
//! 1. A class's lists on a node and the records of its spans there change only under their lock. The exception is a
//!    span that no other thread has seen yet (`sprout`). A span's chunks lie in its node's part of the range.
//! 2. The bits are authoritative; number, hint and lists follow from them. If a fork left the lock held, its next
//!    holder rebuilds the others from the bits (`rebuild`), and nothing is lost.
//! 3. The map names a chunk's class after its record is initialised, and stops doing so before the run is released.
//!    At that moment all bits of the record are 0.
//! 4. An object whose bit is set belongs to the caller that got it, and returns once.

use core::sync::atomic::{AtomicU32, Ordering};

use super::parts::{self, parts_of};
use super::place::Place;
use super::thinned::count_thinned;
use crate::alloc::fault::{self, Fault};
use crate::alloc::layout::bits::IN_A_WORD;
use crate::alloc::layout::chunk::CHUNK;
use crate::alloc::layout::class::{FULLNESSES, NOTHING};
use crate::alloc::layout::record::Record;
use crate::alloc::page_heap::{self, Run};

/// The lists of a class on a node: spans with free objects, by fullness. Used under the class's lock.
pub(in crate::alloc) struct Spans {
    /// The first span's chunk plus one; 0 for an empty list.
    heads: [AtomicU32; FULLNESSES],
}

// Relaxed throughout this file: the class's lock orders accesses, or only the run's owner knows the span.
const R: Ordering = Ordering::Relaxed;

impl Spans {
    pub(in crate::alloc) const fn new() -> Spans {
        Spans { heads: [const { AtomicU32::new(0) }; FULLNESSES] }
    }

    /// Allocates objects, in descending order within a span. Returns how many; 0 when out of memory.
    pub(in crate::alloc) fn take(&self, place: Place, to: &mut [u64]) -> usize {
        let mut taken = 0;
        while taken < to.len() {
            let fullest = self.heads.iter().rev().map(|head| head.load(R)).find(|head| *head != 0);
            let chunk = match fullest {
                Some(head) => head as usize - 1,
                // A new span is not worth it for the rest of a request.
                None if taken > 0 => break,
                None => match create(place) {
                    Some(chunk) => chunk,
                    None => break,
                },
            };
            taken += take_from(place, chunk, &mut to[taken..]);
            self.settle(place, chunk);
        }
        taken
    }

    /// Frees objects. Neighbours in `objects` that lie in one span are freed together.
    pub(in crate::alloc) fn give(&self, place: Place, objects: &[u64]) {
        let mut left = objects;
        while let Some(first) = left.first() {
            let chunk = find(place, *first as usize);
            left = &left[give_to(place, chunk, left)..];
            self.settle(place, chunk);
        }
    }

    /// Rebuilds the lists and everything else that follows from the bits.
    #[cold]
    pub(in crate::alloc) fn rebuild(&self, place: Place) {
        self.heads.iter().for_each(|head| head.store(0, R));
        for chunk in starts(place) {
            let record = place.range.record(chunk);
            let out = record.bits.iter().map(|word| word.load(R).count_ones()).sum();
            record.out.store(out, R);
            record.hint.store(0, R);
            record.list.store(0, R);
            self.settle(place, chunk);
        }
    }

    /// Allocates all objects in these parts of a span; all of them must be free.
    pub(in crate::alloc) fn hold(&self, place: Place, chunk: usize, parts: u64) {
        let record = place.range.record(chunk);
        let (held, count) = objects_in(place, parts);
        for (word, held) in record.bits.iter().zip(held) {
            word.store(word.load(R) | held, R);
        }
        record.out.store(record.out.load(R) + count, R);
        self.settle(place, chunk);
    }

    /// Frees what `hold` allocated. The kernel has taken back the parts, except those that it refused.
    pub(in crate::alloc) fn unhold(&self, place: Place, chunk: usize, parts: u64) {
        let record = place.range.record(chunk);
        let (held, count) = objects_in(place, parts);
        for (word, held) in record.bits.iter().zip(held) {
            word.store(word.load(R) & !held, R);
        }
        record.out.store(record.out.load(R) - count, R);
        record.hint.store(0, R);
        record.clean.store(record.clean.load(R) | parts & !record.refused().load(R), R);
        self.settle(place, chunk);
    }

    /// Moves a span to the list that it belongs on, or releases it.
    fn settle(&self, place: Place, chunk: usize) {
        let (record, shape) = (place.range.record(chunk), place.shape());
        let out = record.out.load(R) as usize;
        let list = match out {
            out if out == shape.capacity => 0,
            out => 1 + shape.fullness_of(out) as u32,
        };
        let before = record.list.load(R);
        if out == 0 {
            self.take_off(place, record, before);
            release(place, chunk);
        } else if list != before {
            self.take_off(place, record, before);
            self.put_on(place, record, chunk, list);
            if list != 0 && list < before {
                count_thinned(place.range, shape.chunks);
            }
        }
    }

    fn take_off(&self, place: Place, record: &Record, list: u32) {
        let Some(list) = list.checked_sub(1) else { return };
        let (next, prev) = (record.next.load(R), record.prev.load(R));
        match prev {
            0 => self.heads[list as usize].store(next, R),
            prev => place.range.record(prev as usize - 1).next.store(next, R),
        }
        if next != 0 {
            place.range.record(next as usize - 1).prev.store(prev, R);
        }
        record.list.store(0, R);
    }

    fn put_on(&self, place: Place, record: &Record, chunk: usize, list: u32) {
        let Some(nth) = list.checked_sub(1) else { return };
        let head = &self.heads[nth as usize];
        let next = head.load(R);
        record.next.store(next, R);
        record.prev.store(0, R);
        if next != 0 {
            place.range.record(next as usize - 1).prev.store(chunk as u32 + 1, R);
        }
        record.list.store(list, R);
        head.store(chunk as u32 + 1, R);
    }
}

/// Returns the objects of a span that overlap these parts: their bits, and how many.
fn objects_in(place: Place, parts: u64) -> ([u64; 64], u32) {
    let (shape, mut bits, mut count) = (place.shape(), [0; 64], 0);
    for index in 0..shape.capacity {
        if parts_of(shape, index * shape.size, shape.size) & parts != 0 {
            bits[index / IN_A_WORD] |= 1 << (index % IN_A_WORD);
            count += 1;
        }
    }
    (bits, count)
}

/// Returns the first chunks of all spans of the class on the node. Linear in the node's chunks in use.
pub(in crate::alloc) fn starts(place: Place) -> impl Iterator<Item = usize> {
    let is_of_class = move |chunk: &usize| {
        // Acquire: partner is the Release in `name`; the record is initialised.
        usize::from(place.range.kind(*chunk).load(Ordering::Acquire)) == place.class
    };
    place.range.known_part(place.node).step_by(place.shape().chunks).filter(is_of_class)
}

/// Allocates objects from a fresh span that is on no list and that no other thread sees before this returns: for
/// callers that cannot have the lock. The caller must free the last object, so that the span gets on a list.
#[cold]
pub(in crate::alloc) fn sprout(place: Place, to: &mut [u64]) -> (usize, Option<usize>) {
    let Some(run) = claim(place) else { return (0, None) };
    clear(place.range.record(run.first));
    let mut taken = take_from(place, run.first, to);
    let mut one_more = [0];
    let more = take_from(place, run.first, &mut one_more);
    if more == 0 && taken > 1 {
        // All of the span.
        taken -= 1;
        one_more = [to[taken]];
    }
    name(place, run.first);
    (taken, (one_more[0] != 0).then_some(one_more[0] as usize))
}

/// Claims chunks for a span, on the node itself.
fn claim(place: Place) -> Option<Run> {
    let chunks = place.shape().chunks;
    page_heap::claim_on(place.range, place.node, chunks, chunks)
}

fn create(place: Place) -> Option<usize> {
    let chunk = claim(place)?.first;
    clear(place.range.record(chunk));
    name(place, chunk);
    Some(chunk)
}

/// Initialises the record of a span without allocated objects.
fn clear(record: &Record) {
    debug_assert!(record.bits.iter().all(|word| word.load(R) == 0));
    record.clean.store(0, R);
    record.refused().store(0, R);
    record.generation.store(record.generation.load(R).wrapping_add(1), R);
    [&record.out, &record.next, &record.prev, &record.list, &record.hint, &record.out_seen]
        .into_iter()
        .for_each(|word| word.store(0, R));
}

/// Writes the class of a span's chunks into the map.
fn name(place: Place, first: usize) {
    naming(place, first).for_each(drop);
}

/// Names one chunk at each step, the first chunk last. So after a fork at any step, the child finds a span with all
/// chunks named, or none.
fn naming(place: Place, first: usize) -> impl Iterator<Item = ()> {
    (first..first + place.shape().chunks).rev().map(move |chunk| {
        // Release: partner is the Acquire in `starts`.
        place.range.kind(chunk).store(place.class as u8, Ordering::Release);
    })
}

fn release(place: Place, first: usize) {
    let chunks = place.shape().chunks;
    (first..first + chunks).for_each(|chunk| place.range.kind(chunk).store(NOTHING, R));
    page_heap::release(place.range, first, chunks);
}

/// Returns the generation of an object's span: differs from those of all other spans that ever began there.
pub(in crate::alloc) fn generation(place: Place, object: usize) -> u32 {
    let start = place.range.chunk_of(object) & !(place.shape().chunks - 1);
    place.range.record(start).generation.load(R)
}

/// Returns `true` if an object is allocated. Reports a fault if the address is not an object of the class.
pub(in crate::alloc) fn is_out(place: Place, object: usize) -> bool {
    let chunk = find(place, object);
    let Some(index) = place.shape().index_of(object - place.range.address(chunk)) else {
        fault::report(Fault::Misaligned, object)
    };
    place.range.record(chunk).bits[index / IN_A_WORD].load(R) >> (index % IN_A_WORD) & 1 != 0
}

/// Returns the span of an object. Reports a fault if the address is not in a span of the class.
fn find(place: Place, object: usize) -> usize {
    let chunk = place.range.chunk_of(object);
    match place.range.kind(chunk).load(R) {
        NOTHING => fault::report(Fault::Twice, object),
        kind if usize::from(kind) != place.class => fault::report(Fault::Size, object),
        _ => {}
    }
    chunk & !(place.shape().chunks - 1)
}

/// Frees leading objects of `objects` that lie in the span. Returns how many.
fn give_to(place: Place, chunk: usize, objects: &[u64]) -> usize {
    let (record, shape) = (place.range.record(chunk), place.shape());
    let (start, len) = (place.range.address(chunk), shape.chunks * CHUNK);
    let (mut given, mut lowest) = (0, usize::MAX);
    while let Some(object) = objects.get(given).map(|object| *object as usize) {
        let offset = object.wrapping_sub(start);
        if offset >= len {
            break;
        }
        let Some(index) = shape.index_of(offset) else { fault::report(Fault::Misaligned, object) };
        // Objects often arrive in the order of their addresses: free those of one word together.
        let (nth, bit) = (index / IN_A_WORD, index % IN_A_WORD);
        let most = (IN_A_WORD - bit).min(shape.capacity - index);
        let neighbours = (1..most).map(|n| (object + n * shape.size) as u64);
        let run = 1 + neighbours.zip(&objects[given + 1..]).take_while(|(a, b)| a == *b).count();
        let mask = (u64::MAX >> (IN_A_WORD - run)) << bit;
        let bits = record.bits[nth].load(R);
        if bits & mask != mask {
            let first = (!bits & mask).trailing_zeros() as usize - bit;
            fault::report(Fault::Twice, object + first * shape.size);
        }
        record.bits[nth].store(bits & !mask, R);
        (given, lowest) = (given + run, lowest.min(nth));
    }
    record.out.store(record.out.load(R) - given as u32, R);
    record.hint.store(record.hint.load(R).min(lowest as u32), R);
    given
}

/// Allocates free objects of a span, lowest addresses first, into `to` in descending order. Returns how many.
fn take_from(place: Place, chunk: usize, to: &mut [u64]) -> usize {
    let (record, shape) = (place.range.record(chunk), place.shape());
    let words = shape.capacity.div_ceil(IN_A_WORD);
    // `to` is filled from its end.
    let (mut nth, mut left) = (record.hint.load(R) as usize, to.len());
    while nth < words && left > 0 {
        let in_word = (shape.capacity - nth * IN_A_WORD).min(IN_A_WORD);
        let bits = record.bits[nth].load(R);
        let mut room = !bits & (u64::MAX >> (IN_A_WORD - in_word));
        let start = place.range.address(chunk) + nth * IN_A_WORD * shape.size;
        while room != 0 && left > 0 {
            // Neighbours together: free objects often lie side by side.
            let bit = room.trailing_zeros() as usize;
            let run = ((room >> bit).trailing_ones() as usize).min(left);
            let mut next = start + bit * shape.size;
            for object in to[left - run..left].iter_mut().rev() {
                *object = next as u64;
                next += shape.size;
            }
            left -= run;
            room &= !((u64::MAX >> (IN_A_WORD - run)) << bit);
        }
        // All objects of the word but those that are still free.
        record.bits[nth].store(bits | (!room & (u64::MAX >> (IN_A_WORD - in_word))), R);
        if room == 0 {
            nth += 1;
        }
    }
    let taken = to.len() - left;
    record.hint.store(nth as u32, R);
    record.out.store(record.out.load(R) + taken as u32, R);
    if let (Some(last), Some(first)) = (to.get(left), to.last()) {
        let from = *first as usize - place.range.address(chunk);
        parts::touched(place, record, from, (*last - *first) as usize + shape.size);
    }
    if left > 0 {
        to.copy_within(left.., 0);
    }
    taken
}

/// Returns the number of a class's spans on a node, and of objects allocated from them. For statistics: may be out of
/// date.
pub(in crate::alloc) fn count(place: Place) -> (usize, usize) {
    starts(place).fold((0, 0), |(spans, out), chunk| {
        (spans + 1, out + place.range.record(chunk).out.load(R) as usize)
    })
}

const _: () = assert!(CHUNK / 16 <= 64 * IN_A_WORD, "a bit for each of the smallest objects");

#[cfg(test)]
pub(in crate::alloc) mod tests;
