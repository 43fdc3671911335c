//! Who has how much memory: a profile of samples, of an object for each 512 KiB that are asked for, about.
//!
//! A profile is off unless `CORELOCAL_MALLOC` in the environment says otherwise when the program begins:
//!
//! ```text
//!   profile            on; files are called corelocal.PROCESS.NUMBER.heap, in the current folder
//!   profile:PREFIX     on; files are called PREFIX.PROCESS.NUMBER.heap
//!   profile-rate:SIZE  one object for each SIZE bytes on average: 512K if nothing is said; 1 samples all
//! ```
//!
//! A sample is a copy of the stack of whoever asked for an object ([`Sample`]). It goes when the object does; those
//! of the time when most was in use stay. [`dump()`] writes all of them into a file, which `corelocal heap FILE` makes
//! a table, a file for pprof or a flame graph of.
//!
//! ```
//! use corelocal::alloc::profile::{self, Sample};
//!
//! let mut bytes = 0;
//! let mut sample = Sample::EMPTY;
//! profile::for_each(&mut sample, &mut |sample| bytes += if sample.is_in_use() { sample.bytes() } else { 0 });
//! // Nobody asked for a profile.
//! assert!(!profile::is_on() && bytes == 0);
//! ```
//!
//! # What it costs
//! Who does not want it pays nothing. In a process that has it every allocation counts a number down; each sample
//! copies up to 16 KiB of stack, and takes a chunk of addresses, of which the object's pages are memory.
//!
//! The stacks are copied as they are, with whatever was on them. Files are readable to their owner only.
//!
//! # After fork
//! A child has a copy of its parent's samples, and goes on with them.
//!
//! # Signals
//! All of it is async-signal-safe.
//!
//! # Invariants
//! 1. A sampled object is a large one, whose record has the number of its sample: so who gives it back finds it
//!    on the cold path, by the map alone. If it is small by its size, it may be used as far as one of its class,
//!    and does not count among the large ones.
//! 2. A record's number is taken out of it by one thread: it gives the sample back.

mod area;
mod dump;
mod sample;

pub use dump::{dump, dump_next};
pub use sample::Sample;

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::range::{LARGE, Range, kind_of};
use super::spans::Place;
use super::{class, debug, large, release};

const R: Ordering = Ordering::Relaxed;
const RATE: u64 = 512 << 10;

/// 0 as long as there is no profile.
static WANTED: AtomicU64 = AtomicU64::new(0);
/// Sampled objects of each class.
static SAMPLED: [AtomicUsize; class::CLASSES + 1] =
    [const { AtomicUsize::new(0) }; class::CLASSES + 1];

/// What was sampled, and what it stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// An object was sampled for so many bytes, on average.
    pub rate: u64,
    /// Samples since the beginning.
    pub samples: u64,
    /// Bytes that were asked for since, by what the samples stand for.
    pub bytes: u64,
    /// Bytes in use now.
    pub in_use: u64,
    /// Bytes in use when these were most.
    pub peak: u64,
    /// When that was: nanoseconds of the monotonic clock.
    pub peak_time: u64,
    /// Objects that were to be sampled when there was no room for it, or no memory.
    pub missed: u64,
}

/// Whether this process has a profile.
pub fn is_on() -> bool {
    rate().is_some()
}

/// The sums; zeros if there is no profile.
pub fn summary() -> Summary {
    let Some(rate) = rate() else { return Summary::default() };
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

/// Calls `f` with each sample of an object that is in use, or was when most bytes were; each is read into `into`.
/// What comes or goes meanwhile may be left out.
pub fn for_each(into: &mut Sample, f: &mut dyn FnMut(&Sample)) {
    let (Some(rate), Some(area)) = (rate(), area::get()) else { return };
    into.rate = rate;
    area.for_each(into, f);
}

/// An object was sampled for so many bytes, if there is a profile.
pub(super) fn rate() -> Option<u64> {
    Some(WANTED.load(R)).filter(|rate| *rate > 0)
}

/// A word of the environment; whether it wants a profile.
pub(super) fn configure(word: &[u8]) -> bool {
    if let Some(prefix) = word.strip_prefix(b"profile:") {
        dump::set_prefix(prefix);
        return true;
    }
    word == b"profile"
}

/// All words of the environment are read, and one of them wants a profile.
pub(super) fn begin<'a>(mut words: impl Iterator<Item = &'a [u8]>) {
    let rate = words.find_map(|word| debug::bytes(word.strip_prefix(b"profile-rate:")?));
    dump::begin();
    WANTED.store(rate.unwrap_or(RATE), R);
}

/// How likely an object of this size is sampled.
pub(super) fn odds(size: u64, rate: u64) -> f64 {
    sample::odds(size, rate)
}

/// An object of a class that is sampled; `None` if there is no room.
#[cold]
pub(super) fn allocate(place: Place, align: usize, size: usize) -> Option<u64> {
    let Place { range, class, .. } = place;
    let rate = rate()?;
    let area = area::get_or_make()?;
    let number = area.take(size as u64, class as u32, rate)?;
    let usable = place.shape().size;
    let Some((object, _)) = large::allocate(range, align, usable) else {
        // The caller tries the usual way.
        area.give_back(number, rate);
        return None;
    };
    release::after_growth(range);
    large::set_usable(range, object, usable);
    large::sample_of(range, object).store(number, R);
    SAMPLED[class].fetch_add(1, R);
    let header = range.header();
    header.large_objects.fetch_sub(1, R);
    header.large_chunks.fetch_sub(large::chunks_for(usable), R);
    Some(object as u64)
}

/// A large object was made, or has another size now.
pub(super) fn large_made(range: Range, object: *mut u8, size: usize, is_sampled: bool) {
    forget(range, object);
    let Some(rate) = rate().filter(|_| is_sampled) else { return };
    let number = area::get_or_make().and_then(|area| area.take(size as u64, 0, rate));
    large::sample_of(range, object).store(number.unwrap_or(0), R);
}

/// An object that the map says is large is about to be given back, or resized.
pub(super) fn forget(range: Range, object: *mut u8) {
    if kind_of(object) != Some(usize::from(LARGE)) {
        return;
    }
    // Invariant 2.
    let number = large::sample_of(range, object).swap(0, R);
    let (Some(rate), Some(area)) = (rate(), area::get()) else { return };
    if let Some((_, class @ 1..)) = area.give_back(number, rate) {
        show(range, class as usize);
    }
}

/// Objects of a class that are sampled: they are in use, and in no span.
pub(super) fn sampled_of(class: usize) -> usize {
    SAMPLED[class].load(R)
}

/// Counts an object of a class, which is a large one by its place, among those, and not among its class.
fn show(range: Range, class: usize) {
    SAMPLED[class].fetch_sub(1, R);
    let header = range.header();
    header.large_objects.fetch_add(1, R);
    header.large_chunks.fetch_add(large::chunks_for(class::shape(class).size), R);
}

/// Nanoseconds of the monotonic clock.
fn now() -> u64 {
    crate::sys::kernel_clock::nanoseconds(libc::CLOCK_MONOTONIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        assert!(configure(b"profile"));
        assert!(!configure(b"profiles") && !configure(b"profile-rate:7") && !configure(b""));
    }

    #[test]
    fn nothing_is_sampled_unless_somebody_wants_it() {
        assert!(!is_on() && summary() == Summary::default());
        let place = Place::new(Range::make().unwrap(), 1);
        assert_eq!(allocate(place, 16, 16), None);
        let large = super::super::allocate(5 << 20);
        assert_eq!(large::sample_of(place.range, large).load(R), 0);
        // SAFETY: allocated above.
        unsafe { super::super::deallocate(large) };
        assert!(area::get().is_none());
    }
}
