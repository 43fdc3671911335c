//! Heap profiling by sampling: about one object for each 512 KiB allocated, with the stack that allocated it.
//!
//! A profile is off unless the program [starts](start) it, a tracer of the probes `otel_memory:alloc` and
//! `otel_memory:free` or the command `corelocal heap --attach` asks for one, or `CORELOCAL_MALLOC` does when the program
//! starts:
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
//! 3. While an object of a class is a sample in a program with `CoreLocal`, no object is freed by its size alone: `FRONT`
//!    is empty (`core_cache/slots.rs`). Partners are the fences in `allocate` and `let_go`: either a thread that samples
//!    sees the profile stopped, or the thread that has stopped it sees the sample counted.

pub(in crate::alloc) mod area;
pub(in crate::alloc) mod asked;
mod dump;
mod sample;

pub use dump::{dump, dump_next};
pub use sample::Sample;

use core::sync::atomic::{AtomicUsize, Ordering, fence};
use core::time::Duration;

use crate::alloc::central::place::Place;
use crate::alloc::config::{self, profile_rate};
use crate::alloc::core_cache::slots;
use crate::alloc::hook;
use crate::alloc::layout::class::{self, LARGE};
use crate::alloc::layout::range::{Range, kind_of};
use crate::alloc::page_heap::large;
use crate::sys::arch::probes;
use crate::sys::try_lock::Locked;
use crate::sys::{Errno, sleep};

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

/// Returns `true` if this process has a profile, which may be [stopped](stop).
pub fn is_on() -> bool {
    profile_rate().is_some()
}

/// Starts a profile: from here on one byte in `rate` is sampled, at random. Returns the rate that counts, which is that
/// of the process's first profile.
///
/// Objects that are in use already are not in it: it shows what came since. Linear in the number of cores.
///
/// # Errors
/// `EINVAL` if `CORELOCAL_MALLOC=check` checks all objects; `EAGAIN` before libc has begun, or while another thread starts
/// or stops the profile.
///
/// ```
/// use corelocal::alloc::profile;
///
/// let rate = profile::start(64 << 10)?;
/// let much = vec![1_u8; 10 << 20];
/// # if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
/// profile::dump(c"/tmp/corelocal-example.heap")?; // `corelocal heap` shows it
/// # std::fs::remove_file("/tmp/corelocal-example.heap");
/// # }
/// profile::stop();
/// # assert!(rate == 64 << 10 && much.len() == 10 << 20);
/// # Ok::<(), corelocal::sys::Errno>(())
/// ```
pub fn start(rate: u64) -> Result<u64, Errno> {
    let Some(_mine) = hold() else { return Err(Errno::EAGAIN) };
    let rate = start_alone(rate)?;
    asked::leave();
    Ok(rate)
}

/// Does what [`start`] does. The caller holds `SWITCHES`.
fn start_alone(rate: u64) -> Result<u64, Errno> {
    if config::modes().ok_or(Errno::EAGAIN)?.checks() {
        return Err(Errno::EINVAL);
    }
    // Before the first sample: a thread that takes one, or has one, sees `FRONT` empty (3).
    slots::set_watched(true);
    slots::forget_left();
    Ok(config::start_profile(rate))
}

/// Stops the profile. Its samples stay until their objects are freed, and [`dump()`] writes them. It can be started again.
///
/// From here on allocations cost what they cost without a profile; in a program with
/// [`CoreLocal`](struct@crate::alloc::CoreLocal) only when the last sampled object of at most 1 MiB is freed.
pub fn stop() {
    // Clears a bit: it needs no lock, and takes effect whatever others do.
    config::stop_profile();
    if let Some(_mine) = hold() {
        let_go();
    }
}

/// Holds `SWITCHES`. `None` if that takes milliseconds: others hold it for microseconds, but a thread that a signal handler
/// interrupted for longer.
fn hold() -> Option<Locked<'static>> {
    (0..200).find_map(|_| {
        let held = slots::SWITCHES.try_lock();
        if held.is_none() {
            sleep::nap(Duration::from_micros(20));
        }
        held
    })
}

/// Lets allocations take the hot path again once nothing keeps them from it (3). The caller holds `SWITCHES`: a start
/// does not come between the look and the switch.
fn let_go() {
    fence(Ordering::SeqCst);
    let modes = config::modes();
    let is_free = || SAMPLED.iter().all(|sampled| sampled.load(R) == 0);
    if modes.is_some_and(|modes| !modes.is_any()) && (!slots::are_freed_by_size() || is_free()) {
        slots::set_watched(slots::is_ticked());
    }
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
    // Counted before the look (3).
    SAMPLED[class].fetch_add(1, R);
    fence(Ordering::SeqCst);
    let number = config::is_profiling().then(|| area.take(size as u64, class as u32, rate));
    let Some(number) = number.flatten() else {
        SAMPLED[class].fetch_sub(1, R);
        return None;
    };
    let usable = place.shape().size;
    let Some((object, _)) = large::allocate(range, align, usable) else {
        // The caller then allocates as usual.
        SAMPLED[class].fetch_sub(1, R);
        area.give_back(number, rate);
        return None;
    };
    hook::after_growth(range);
    large::set_usable(range, object, usable);
    large::sample_of(range, object).store(number, R);
    let header = range.header();
    header.large_objects.fetch_sub(1, R);
    header.large_chunks.fetch_sub(large::chunks_for(usable), R);
    probes::alloc(object, size as u64, sample::bytes_of(size as u64, rate));
    Some(object as u64)
}

/// To be called after a large object was made or resized.
pub(super) fn large_made(range: Range, object: *mut u8, size: usize, is_sampled: bool) {
    forget(range, object);
    let Some(rate) = profile_rate().filter(|_| is_sampled) else { return };
    let size = size as u64;
    let number = area::get_or_make().and_then(|area| area.take(size, 0, rate));
    large::sample_of(range, object).store(number.unwrap_or(0), R);
    if number.is_some() {
        probes::alloc(object, size, sample::bytes_of(size, rate));
    }
}

/// To be called before an object that the map calls large is freed or resized.
pub(super) fn forget(range: Range, object: *mut u8) {
    if kind_of(object) != Some(usize::from(LARGE)) {
        return;
    }
    // Invariant 2.
    let number = large::sample_of(range, object).swap(0, R);
    let (Some(rate), Some(area)) = (profile_rate(), area::get()) else { return };
    let Some((_, class)) = area.give_back(number, rate) else { return };
    probes::free(object);
    if class > 0 {
        show(range, class as usize);
        // Of threads that free the last samples at once one may be left out; the next sample makes up for it.
        if !config::is_profiling() {
            if let Some(_mine) = slots::SWITCHES.try_lock() {
                let_go();
            }
        }
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
