//! The memory of a recording: the shared part, and the words that lead each core to its buffer.
//!
//! # Invariants
//! 1. Both mappings stay until the process ends.
//! 2. The cores' words are wiped by a fork, and so is the page behind them, with the word that [`Recording::here`] reads
//!    and the lanes: a child finds no recording. It may make one of its own, whose words are the same.
//! 3. A buffer belongs to one core's slot, to one thread, to the reader that copies it to a file, or to none; `state` says
//!    which.
//! 4. A buffer whose last event is younger than the minimum age is begun again only if all buffers are in use.

use core::ffi::CStr;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::buffer::Buffer;
use super::format::{
    BUFFER_HEADER_LEN, BUFFER_LEN, FREE, FULL, HEADER_LEN, MAGIC, MOST_SITES, SITE_LEN, header,
};
use super::options::{self, Options, StartError};
use super::random::random;
use super::{own_sites, site, time};
use crate::cid;
use crate::clock;
use crate::rseq::{SLOT_SHIFT, Slots};
use crate::sys::file::shared_memory::{self, Place};
use crate::sys::memory::{lazy_mapping, pages};
use crate::sys::{self, Errno};

/// The offset of the first buffer: after the header and the sites, on a boundary of the buffers' length.
const BUFFERS_AT: usize = (HEADER_LEN + MOST_SITES * SITE_LEN).next_multiple_of(BUFFER_LEN);
/// The buffers that a recording with a minimum age begins with.
const FIRST_IN_USE: usize = 4;

/// The recording of this process.
#[derive(Clone, Copy)]
pub(super) struct Recording {
    start: &'static [AtomicU64; HEADER_LEN / 8],
    buffers: usize,
}

/// The memory that every fork wipes, beside the slots.
#[repr(C)]
struct Own {
    is_here: AtomicU64,
    is_made_in_child: AtomicU64,
    rules_are_changed: AtomicU64,
    /// The number of buffers given back, plus 1, at the last search that found none.
    none_at: AtomicU64,
    lanes: [AtomicPtr<Buffer>; 16],
}

/// The start of the shared memory; null before.
static START: AtomicPtr<u8> = AtomicPtr::new(null_mut());
static BUFFERS: AtomicU64 = AtomicU64::new(0);
static MIN_AGE: AtomicU64 = AtomicU64::new(0);
/// 1 if the program has started a recording, 2 if the environment has.
static IS_STARTING: AtomicU32 = AtomicU32::new(0);
/// Events that were lost before a child had made a recording.
static EARLY_LOST: AtomicU64 = AtomicU64::new(0);

/// The words of the cores' buffers. Bound from the start of a recording on, with and without a counted clock.
pub(super) static SLOTS: Slots = Slots::new();
/// The words of the cores' buffers, for sections that read the counter. Bound only if records have its time.
pub(super) static STAMPED: Slots = Slots::new();

/// The cause that started a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum By {
    Program = 1,
    Environment = 2,
}

impl Own {
    /// Returns `None` before the first recording.
    fn get() -> Option<&'static Own> {
        // SAFETY: null, or the page between slots and shared slots, which stays (1). Zeros are valid.
        unsafe { SLOTS.base().cast::<Own>().as_ref() }
    }
}

/// 1 while a thread of this process changes the rules.
pub(super) fn rules_are_changed() -> Option<&'static AtomicU64> {
    Own::get().map(|own| &own.rules_are_changed)
}

/// Returns the threads without critical sections leave their buffers here for the next one. `None` before the first
/// recording.
pub(super) fn lanes() -> Option<&'static [AtomicPtr<Buffer>; 16]> {
    Own::get().map(|own| &own.lanes)
}

impl Recording {
    /// Returns the recording, if this process has one.
    pub(super) fn here() -> Option<Recording> {
        // Acquire: partner is the Release in `publish`.
        if Own::get()?.is_here.load(Ordering::Acquire) == 0 {
            return None;
        }
        // SAFETY: set before the word above was; the header's words stay (1).
        let start = unsafe {
            START.load(Ordering::Relaxed).cast::<[AtomicU64; HEADER_LEN / 8]>().as_ref()
        }?;
        Some(Recording { start, buffers: BUFFERS.load(Ordering::Relaxed) as usize })
    }

    /// Makes the recording of a process. `None` if the environment has started one, in place of the program's.
    pub(super) fn make(options: Options<'_>, by: By) -> Result<Option<Recording>, StartError> {
        // Acquire: partner is the Release after a start that failed.
        let before =
            IS_STARTING.compare_exchange(0, by as u32, Ordering::Acquire, Ordering::Acquire);
        match before {
            Ok(_) => {}
            Err(other) if by == By::Program && other == By::Environment as u32 => {
                IS_STARTING.store(by as u32, Ordering::Relaxed);
                return Ok(None);
            }
            Err(_) => return Err(StartError::AlreadyStarted),
        }
        time::choose(options.is_coarse);
        let made = map_slots().map_err(StartError::NoMemory).and_then(|()| {
            let recording = map(options)?;
            // Last: a child that has options finds the memory of its parent.
            options::keep_for_children(options).map_err(StartError::NoMemory)?;
            Ok(recording)
        });
        let recording = made.inspect_err(|_| IS_STARTING.store(0, Ordering::Release))?;
        recording.publish();
        Ok(Some(recording))
    }

    /// Makes the recording of a forked child, if its parent's options say so. `None` if another thread, or the code
    /// that this signal handler has interrupted, is making it.
    pub(super) fn make_in_child() -> Option<Recording> {
        let options = options::for_children()?;
        let own = Own::get()?;
        if own.is_made_in_child.swap(1, Ordering::Relaxed) != 0 {
            EARLY_LOST.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        // The parent's, which is mapped here too.
        let before = START.load(Ordering::Relaxed).cast::<[AtomicU64; HEADER_LEN / 8]>();
        let Ok(recording) = map(options) else {
            // No event tries again: its sites are switched off.
            options::have_none_for_children();
            return None;
        };
        // SAFETY: a child has options only if its parent has a recording, whose mapping stays (1).
        let before = unsafe { &*before };
        for (to, rule) in
            recording.start[header::FIRST_RULE / 8..].iter().zip(&before[header::FIRST_RULE / 8..])
        {
            to.store(rule.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let rules = before[header::RULES / 8].load(Ordering::Relaxed);
        recording.word(header::RULES).store(rules, Ordering::Relaxed);
        let early = EARLY_LOST.swap(0, Ordering::Relaxed);
        recording.word(header::LOST).fetch_add(early, Ordering::Relaxed);
        site::all().for_each(|site| recording.describe(site));
        recording.publish();
        Some(recording)
    }

    /// Returns `true` if it is the recording of this process still: not if a signal handler has forked, and this is the
    /// child.
    pub(super) fn is_current(&self) -> bool {
        Recording::here().is_some_and(|now| core::ptr::eq(now.start, self.start))
    }

    fn publish(&self) {
        if let Some(own) = Own::get() {
            // Release: partner is the Acquire in `here`.
            own.is_here.store(1, Ordering::Release);
        }
    }

    /// Returns the word of the header at this offset.
    pub(super) fn word(&self, at: usize) -> &'static AtomicU64 {
        &self.start[at / 8]
    }

    /// Returns the lower half of a word of the header, as a futex word.
    #[cfg(feature = "std")]
    pub(super) fn futex_word(&self, at: usize) -> &'static AtomicU32 {
        // SAFETY: within the mapping, which stays (1). The upper half is not used.
        unsafe { &*core::ptr::from_ref(self.word(at)).cast::<AtomicU32>() }
    }

    /// Returns a byte of the header or of the sites.
    pub(super) fn byte(&self, at: usize) -> &'static AtomicU8 {
        debug_assert!(at < BUFFERS_AT);
        let at = core::ptr::from_ref(self.start).cast::<u8>().wrapping_add(at);
        // SAFETY: within the mapping, which stays (1). All accesses are atomic.
        unsafe { &*at.cast::<AtomicU8>() }
    }

    /// Returns the word at any offset; `None` behind the end.
    #[cfg(feature = "std")]
    pub(super) fn any_word(&self, at: usize) -> Option<&'static AtomicU64> {
        let is_there = at % 8 == 0 && at < BUFFERS_AT + self.buffers * BUFFER_LEN;
        let word = core::ptr::from_ref(self.start).cast::<u8>().wrapping_add(at);
        // SAFETY: within the mapping, which stays (1).
        is_there.then(|| unsafe { &*word.cast::<AtomicU64>() })
    }

    /// Reads words from this offset on, as many as there are in the mapping.
    #[cfg(feature = "std")]
    pub(super) fn read(&self, at: usize, words: &mut [u64]) -> usize {
        let len = BUFFERS_AT + self.buffers * BUFFER_LEN;
        let count = words.len().min(len.saturating_sub(at) / 8);
        let first = core::ptr::from_ref(self.start).cast::<u8>().wrapping_add(at / 8 * 8);
        for (nth, word) in words[..count].iter_mut().enumerate() {
            // SAFETY: a word of the mapping, which stays (1); accesses to its bytes are atomic.
            *word = unsafe { &*first.cast::<AtomicU64>().add(nth) }.load(Ordering::Relaxed);
        }
        count
    }

    fn buffer(&self, number: usize) -> &'static Buffer {
        debug_assert!(number < self.buffers);
        let at = core::ptr::from_ref(self.start)
            .cast::<u8>()
            .wrapping_add(BUFFERS_AT + number * BUFFER_LEN);
        // SAFETY: one of the buffers of the mapping, which stays (1). Zeros are a buffer.
        unsafe { &*at.cast::<Buffer>() }
    }

    pub(super) fn buffers(&self) -> impl Iterator<Item = &'static Buffer> + use<> {
        let this = *self;
        (0..this.buffers).map(move |number| this.buffer(number))
    }

    /// Begins a buffer: of those that no core or thread has, the one that was begun longest ago. `None` if there is
    /// none.
    pub(super) fn begin(&self) -> Option<&'static Buffer> {
        // Else each event that is lost would search all buffers.
        let none_at = &Own::get()?.none_at;
        // Acquire: partner is the Release in `release` and in drain.rs. A buffer that was given back is found.
        let given_back = self.word(header::GIVEN_BACK).load(Ordering::Acquire) + 1;
        if none_at.load(Ordering::Relaxed) == given_back {
            return None;
        }
        let in_use = self.word(header::IN_USE);
        let is_all = |n: usize| n >= self.buffers;
        for _ in 0..2 * self.buffers {
            let ticket = self.word(header::TICKETS).fetch_add(1, Ordering::Relaxed) + 1;
            let n = in_use.load(Ordering::Relaxed) as usize;
            let buffer = self.buffer(ticket as usize % n);
            if (is_all(n) || buffer.is_old(MIN_AGE.load(Ordering::Relaxed))) && buffer.take() {
                self.count_overwritten(buffer);
                return Some(buffer.reset(ticket));
            }
            // The word counts the buffers in use, so it is the number of the next one. (4)
            if !is_all(n) {
                let next = n as u64 + 1;
                let is_ours =
                    in_use.compare_exchange(n as u64, next, Ordering::Relaxed, Ordering::Relaxed);
                if is_ours.is_ok() && self.buffer(n).take() {
                    return Some(self.buffer(n).reset(ticket));
                }
            }
        }
        none_at.store(given_back, Ordering::Relaxed);
        None
    }

    /// Counts the records of a buffer that was taken, and is about to be begun again.
    fn count_overwritten(&self, buffer: &Buffer) {
        let bytes = buffer.used.load(Ordering::Relaxed).saturating_sub(BUFFER_HEADER_LEN as u64);
        // A reader has copied them, or there were none.
        if self.word(header::IS_DRAINED).load(Ordering::Relaxed) != 0 || bytes == 0 {
            return;
        }
        let until = buffer.ended.load(Ordering::Relaxed);
        self.word(header::OVERWRITTEN).fetch_add(1, Ordering::Relaxed);
        self.word(header::OVERWRITTEN_BYTES).fetch_add(bytes, Ordering::Relaxed);
        self.word(header::OVERWRITTEN_UNTIL).fetch_max(until, Ordering::Relaxed);
    }

    /// Gives a buffer back: it may be begun again, after a reader has copied it if there is one.
    pub(super) fn release(&self, buffer: &Buffer) {
        buffer.ended.store(clock::monotonic(), Ordering::Relaxed);
        let is_drained = self.word(header::IS_DRAINED).load(Ordering::Relaxed) != 0;
        let state = if is_drained { FULL } else { FREE };
        // Release: partners are the Acquires in `take` and, in another process, in drain.rs.
        buffer.state.store(state, Ordering::Release);
        let counter = if is_drained { header::HANDED_OVER } else { header::GIVEN_BACK };
        // Release: partners are the Acquires in `begin` and in drain.rs.
        self.word(counter).fetch_add(1, Ordering::Release);
    }
}

/// Maps the words of the cores and the page behind them, unless a start that failed has done so. Binds them for the
/// unit of the times.
fn map_slots() -> Result<(), Errno> {
    let mut base = SLOTS.base();
    if base.is_null() {
        let own = (cid::capacity() as usize) << SLOT_SHIFT;
        let page = sys::memory::page_size::page_size();
        let slots = lazy_mapping::map(own + page).ok_or(Errno(libc::ENOMEM))?;
        // SAFETY: the mapping just made, all zero. (2)
        unsafe { pages::advise(slots, own + page, libc::MADV_WIPEONFORK) }?;
        base = SLOTS.bind(slots.wrapping_add(own));
    }
    if time::is_counted() {
        STAMPED.bind(base);
    } else {
        STAMPED.unbind();
    }
    Ok(())
}

/// Maps the shared memory, and writes its header. Async-signal-safe.
fn map(options: Options<'_>) -> Result<Recording, StartError> {
    let buffers = options.buffers;
    let len = buffers.checked_mul(BUFFER_LEN).and_then(|len| len.checked_add(BUFFERS_AT));
    let len = len.ok_or(StartError::NoMemory(Errno(libc::ENOMEM)))?;
    let shared = match options.file {
        None => shared_memory::map(Place::Unnamed(NAME), len).map_err(StartError::NoMemory)?,
        Some(path) => {
            let path = options::expand(path, 0).map_err(StartError::NoFile)?;
            let place = Place::File(path.as_c_str(), MAGIC);
            shared_memory::map(place, len).map_err(StartError::NoFile)?
        }
    };
    START.store(shared, Ordering::Relaxed);
    BUFFERS.store(buffers as u64, Ordering::Relaxed);
    MIN_AGE.store(options.min_age, Ordering::Relaxed);
    // SAFETY: the start of a mapping of zeros, which stays (1).
    let start = unsafe { &*shared.cast::<[AtomicU64; HEADER_LEN / 8]>() };
    let recording = Recording { start, buffers };
    let in_use = if options.min_age == 0 { buffers } else { FIRST_IN_USE.min(buffers) };
    let [ticks, monotonic] = time::both();
    for (at, value) in [
        (header::BUFFERS_AT, BUFFERS_AT as u64),
        (header::BUFFERS, buffers as u64),
        (header::PROCESS, sys::process_id().into()),
        (header::REALTIME, clock::realtime().wrapping_sub(monotonic)),
        (header::START, ticks),
        (header::START + 8, monotonic),
        (header::IN_USE, in_use as u64),
        (header::IS_DRAINED, options.is_drained.into()),
        (header::MIN_AGE, options.min_age),
        (header::SPAN_KEY, random()),
        (header::IS_COUNTED, time::is_counted().into()),
        (header::LOST_SITE, own_sites::lost_number().into()),
        (header::SITES_LEFT_OUT, site::left_out()),
    ] {
        recording.word(at).store(value, Ordering::Relaxed);
    }
    recording.name_host();
    recording.name_program();
    // Release: a reader that sees the first word sees the others.
    recording.word(header::MAGIC).store(MAGIC, Ordering::Release);
    Ok(recording)
}

/// The name of the memory, for people, and for those that look for it in /proc.
const NAME: &CStr = c"corelocal-trace";
