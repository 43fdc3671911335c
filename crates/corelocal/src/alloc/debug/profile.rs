//! Heap profiling by sampling: about one object for each 512 KiB allocated, with the stack that allocated it.
//!
//! A profile is off unless `CORELOCAL_MALLOC` enables it when the program starts:
//!
//! ```text
//!   profile            on; files are called corelocal.PROCESS.NUMBER.heap, in the current directory
//!   profile:PREFIX     on; files are called PREFIX.PROCESS.NUMBER.heap
//!   profile-rate:SIZE  one sample for each SIZE bytes on average: default 512K; 1 samples everything
//! ```
//!
//! A sample is a copy of the stack that allocated an object ([`Sample`]). It is removed when the object is freed;
//! samples of the time when most memory was in use are kept. [`dump()`] writes them to a file, from which `corelocal
//! heap FILE` makes a table, a pprof file or a flame graph.
//!
//! ```
//! use corelocal::alloc::profile::{self, Sample};
//!
//! let mut bytes = 0;
//! let mut sample = Sample::EMPTY;
//! profile::for_each(&mut sample, &mut |sample| bytes += if sample.is_in_use() { sample.bytes() } else { 0 });
//! // No profile was asked for.
//! assert!(!profile::is_on() && bytes == 0);
//! ```
//!
//! # Cost
//! None when off. With a profile, each allocation decrements a counter. Each sample copies up to 16 KiB of stack and
//! uses the address space of a chunk, of which only the object's pages are resident.
//!
//! Stacks are copied as they are, with all data on them. Files are readable by their owner only.
//!
//! # After fork
//! A child has a copy of its parent's samples, and continues with them.
//!
//! # Signals
//! All functions are async-signal-safe.
//!
//! # Invariants
//! 1. A sampled object is allocated as a large one, with the number of its sample in its record. So a free finds it
//!    through the map, on the cold path. If its size has a class, it may be used to the class's size, and is not
//!    counted among large objects.
//! 2. One thread takes a number out of a record, and that thread removes the sample.

mod area;
mod dump;
mod sample;

pub use dump::{dump, dump_next};
pub use sample::Sample;

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::alloc::central::place::Place;
use crate::alloc::config::profile_rate;
use crate::alloc::hook;
use crate::alloc::layout::class::{self, LARGE};
use crate::alloc::layout::range::{Range, kind_of};
use crate::alloc::page_heap::large;

const R: Ordering = Ordering::Relaxed;

/// Sampled objects of each class.
pub(in crate::alloc) static SAMPLED: [AtomicUsize; class::CLASSES + 1] =
    [const { AtomicUsize::new(0) }; class::CLASSES + 1];

/// Sums over all samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// One sample for this many bytes, on average.
    pub rate: u64,
    /// Samples taken so far.
    pub samples: u64,
    /// Bytes allocated so far, estimated from the samples.
    pub bytes: u64,
    /// Bytes in use, estimated.
    pub in_use: u64,
    /// The most bytes in use so far, estimated.
    pub peak: u64,
    /// The time of the peak: nanoseconds of the monotonic clock.
    pub peak_time: u64,
    /// Samples lost for want of room or memory.
    pub missed: u64,
}

/// Returns `true` if this process has a profile.
pub fn is_on() -> bool {
    profile_rate().is_some()
}

/// Returns the sums; zeros if there is no profile.
pub fn summary() -> Summary {
    let Some(rate) = profile_rate() else { return Summary::default() };
    let Some(area) = area::get() else { return Summary { rate, ..Summary::default() } };
    Summary {
        rate,
        samples: area.count.load(R),
        bytes: area.bytes.load(R),
        in_use: area.live_bytes.load(R).max(0) as u64,
        peak: area.peak_bytes.load(R),
        peak_time: area.peak_time.load(R),
        missed: area.missed.load(R),
    }
}

/// Calls `f` with each sample of a live object or of the peak, which is read into `into`. Samples that come or go at
/// the same time may be left out.
pub fn for_each(into: &mut Sample, f: &mut dyn FnMut(&Sample)) {
    let (Some(rate), Some(area)) = (profile_rate(), area::get()) else { return };
    into.rate = rate;
    area.for_each(into, f);
}

/// Returns the probability that an object of this size is sampled.
pub(super) fn odds(size: u64, rate: u64) -> f64 {
    sample::odds(size, rate)
}

/// Allocates an object of a class as a sample; `None` if there is no room.
#[cold]
pub(super) fn allocate(place: Place, align: usize, size: usize) -> Option<u64> {
    let Place { range, class, .. } = place;
    let rate = profile_rate()?;
    let area = area::get_or_make()?;
    let number = area.take(size as u64, class as u32, rate)?;
    let usable = place.shape().size;
    let Some((object, _)) = large::allocate(range, align, usable) else {
        // The caller then allocates as usual.
        area.give_back(number, rate);
        return None;
    };
    hook::after_growth(range);
    large::set_usable(range, object, usable);
    large::sample_of(range, object).store(number, R);
    SAMPLED[class].fetch_add(1, R);
    let header = range.header();
    header.large_objects.fetch_sub(1, R);
    header.large_chunks.fetch_sub(large::chunks_for(usable), R);
    Some(object as u64)
}

/// To be called after a large object was made or resized.
pub(super) fn large_made(range: Range, object: *mut u8, size: usize, is_sampled: bool) {
    forget(range, object);
    let Some(rate) = profile_rate().filter(|_| is_sampled) else { return };
    let number = area::get_or_make().and_then(|area| area.take(size as u64, 0, rate));
    large::sample_of(range, object).store(number.unwrap_or(0), R);
}

/// To be called before an object that the map calls large is freed or resized.
pub(super) fn forget(range: Range, object: *mut u8) {
    if kind_of(object) != Some(usize::from(LARGE)) {
        return;
    }
    // Invariant 2.
    let number = large::sample_of(range, object).swap(0, R);
    let (Some(rate), Some(area)) = (profile_rate(), area::get()) else { return };
    if let Some((_, class @ 1..)) = area.give_back(number, rate) {
        show(range, class as usize);
    }
}

/// Sampled objects of a class: they are in use, and not in a span.
pub(super) fn sampled_of(class: usize) -> usize {
    SAMPLED[class].load(R)
}

/// Moves the count of an object from its class to large objects, where it is stored.
fn show(range: Range, class: usize) {
    SAMPLED[class].fetch_sub(1, R);
    let header = range.header();
    header.large_objects.fetch_add(1, R);
    header.large_chunks.fetch_add(large::chunks_for(class::shape(class).size), R);
}

/// Returns the nanoseconds of the monotonic clock.
fn now() -> u64 {
    crate::sys::kernel_clock::nanoseconds(libc::CLOCK_MONOTONIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_sampled_unless_somebody_wants_it() {
        assert!(!is_on() && summary() == Summary::default());
        let place = Place::new(Range::make().unwrap(), 1);
        assert_eq!(allocate(place, 16, 16), None);
        let large = crate::alloc::allocate(5 << 20);
        assert_eq!(large::sample_of(place.range, large).load(R), 0);
        // SAFETY: allocated above.
        unsafe { crate::alloc::deallocate(large) };
        assert!(area::get().is_none());
    }
}
