//! The memory of a recording: the shared part, and the words that lead each core to its buffer.
//!
//! # Invariants
//! 1. Both mappings stay until the process ends.
//! 2. The cores' words are wiped by a fork, and so is the word [`Recording::here`] reads: a child finds no recording.
//! 3. A buffer belongs to one core's slot, to one thread, or to none; `state` says whether.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

use super::format::{
    BUFFER_HEADER_LEN, BUFFER_LEN, HEADER_LEN, MAGIC, MOST_SITES, SITE_LEN, SITE_TEXT,
    SITE_TEXT_LEN, header,
};
use super::{Lost, Options, StartError};
use crate::cid;
use crate::clock::{self, Ticks};
use crate::rseq::{SLOT_SHIFT, Slots};
use crate::sys::pages::Shared;
use crate::sys::{self, Errno, lazy_mapping, pages};

/// A buffer's header; records follow it. The layout is that of `format::buffer`.
#[repr(C, align(64))]
pub(super) struct Buffer {
    pub(super) used: AtomicU64,
    pub(super) owner: AtomicU64,
    pub(super) ticket: AtomicU64,
    pub(super) state: AtomicU64,
    begin: [AtomicU64; 2],
}

/// No core or thread has it.
pub(super) const FREE: u64 = 0;
/// A core or a thread has it.
pub(super) const OPEN: u64 = 1;

/// Where buffers begin: after the header and the sites, on a boundary of their own length.
const BUFFERS_AT: usize = (HEADER_LEN + MOST_SITES * SITE_LEN).next_multiple_of(BUFFER_LEN);

/// The recording of this process.
#[derive(Clone, Copy)]
pub(super) struct Recording {
    start: &'static [AtomicU64; HEADER_LEN / 8],
    buffers: usize,
}

/// The start of the shared memory; null before.
static START: AtomicPtr<u8> = AtomicPtr::new(null_mut());
static BUFFERS: AtomicU64 = AtomicU64::new(0);
/// Counts the buffers that were begun.
static TICKETS: AtomicU64 = AtomicU64::new(0);
static IS_STARTING: AtomicU32 = AtomicU32::new(0);

/// The words of the cores' buffers. Bound from the start of a recording on, with and without a counted clock.
pub(super) static SLOTS: Slots = Slots::new();
/// The same, for sections that read the counter. Bound only where ticks are counted by it.
pub(super) static STAMPED: Slots = Slots::new();

impl Recording {
    /// The recording, if one was started in this process.
    pub(super) fn here() -> Option<Recording> {
        let base = SLOTS.base();
        // SAFETY: null, or the word between slots and shared slots, which stays (1).
        let is_here = unsafe { base.cast::<AtomicU64>().as_ref() }?;
        if is_here.load(Ordering::Relaxed) == 0 {
            return None;
        }
        // SAFETY: set before the slots were bound; the header's words stay (1).
        let start = unsafe {
            START.load(Ordering::Acquire).cast::<[AtomicU64; HEADER_LEN / 8]>().as_ref()
        }?;
        Some(Recording { start, buffers: BUFFERS.load(Ordering::Relaxed) as usize })
    }

    /// Makes a recording with so many buffers.
    pub(super) fn make(options: Options<'_>) -> Result<Recording, StartError> {
        let buffers = options.buffers;
        // Acquire: partner is the Release after a start that failed.
        if IS_STARTING.swap(1, Ordering::Acquire) != 0 {
            return Err(StartError::AlreadyStarted);
        }
        let recording = map(options).inspect_err(|_| IS_STARTING.store(0, Ordering::Release))?;
        let word = |at: usize, value: u64| recording.start[at / 8].store(value, Ordering::Relaxed);
        let [ticks, monotonic] = now();
        word(header::BUFFERS_AT, BUFFERS_AT as u64);
        word(header::BUFFERS, buffers as u64);
        word(header::PROCESS, sys::process_id().into());
        word(header::REALTIME, clock::realtime().wrapping_sub(monotonic));
        word(header::START, ticks);
        word(header::START + 8, monotonic);
        // Release: a reader that sees the first word sees the others.
        recording.start[0].store(MAGIC, Ordering::Release);
        Ok(recording)
    }

    /// The word of the header at this offset.
    pub(super) fn word(&self, at: usize) -> &'static AtomicU64 {
        &self.start[at / 8]
    }

    pub(super) fn buffer(&self, number: usize) -> &'static Buffer {
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

    /// Begins a buffer: the one that was begun longest ago, and that no core or thread has. `None` if they have all.
    pub(super) fn begin(&self) -> Option<&'static Buffer> {
        for _ in 0..2 * self.buffers {
            let ticket = TICKETS.fetch_add(1, Ordering::Relaxed) + 1;
            let buffer = self.buffer(ticket as usize % self.buffers);
            // Acquire: partner is the Release in `Buffer::release`.
            if buffer
                .state
                .compare_exchange(FREE, OPEN, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
            {
                continue;
            }
            buffer.ticket.store(0, Ordering::Relaxed);
            // Partner: the fence in `copy` of dump.rs. A reader that sees what is stored from here on sees the ticket 0, or a new one.
            fence(Ordering::Release);
            let [ticks, monotonic] = now();
            buffer.owner.store(0, Ordering::Relaxed);
            buffer.begin[0].store(ticks, Ordering::Relaxed);
            buffer.begin[1].store(monotonic, Ordering::Relaxed);
            buffer.used.store(BUFFER_HEADER_LEN as u64, Ordering::Relaxed);
            // Release: a reader that sees the ticket sees the header.
            buffer.ticket.store(ticket, Ordering::Release);
            return Some(buffer);
        }
        None
    }

    /// Describes a registered site.
    pub(super) fn describe(&self, site: &super::Site) {
        let (number, text) = site.description();
        let at = HEADER_LEN + (usize::from(number) - 1) * SITE_LEN;
        let at = core::ptr::from_ref(self.start).cast::<u8>().wrapping_add(at);
        // SAFETY: the place of this site, which is number 1 to `MOST_SITES`; other threads store the same bytes.
        let bytes = unsafe { core::slice::from_raw_parts(at.cast::<AtomicU8>(), SITE_LEN) };
        for (to, from) in bytes[SITE_TEXT..].iter().zip(text) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        for (to, from) in
            bytes[SITE_TEXT_LEN..SITE_TEXT].iter().zip((text.len() as u32).to_le_bytes())
        {
            to.store(from, Ordering::Relaxed);
        }
        // Release: a reader that sees it sees the text.
        bytes[0].store(1, Ordering::Release);
        self.word(header::SITES).fetch_max(number.into(), Ordering::Relaxed);
    }

    /// A word of the sites' descriptions.
    #[cfg(feature = "std")]
    pub(super) fn site_word(&self, at: usize) -> u64 {
        let at = core::ptr::from_ref(self.start).cast::<u8>().wrapping_add(HEADER_LEN + at);
        // SAFETY: a word of the sites' descriptions; bytes of it may be stored at the same time, by atomics.
        unsafe { &*at.cast::<AtomicU64>() }.load(Ordering::Acquire)
    }

    pub(super) fn count_lost(&self, why: Lost) {
        self.word(header::LOST + 8 * why as usize).fetch_add(1, Ordering::Relaxed);
    }
}

impl Buffer {
    /// A word of the buffer, from its first one on.
    pub(super) fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at < BUFFER_LEN / 8);
        // SAFETY: a word of this buffer, which has BUFFER_LEN bytes.
        unsafe { &*core::ptr::from_ref(self).cast::<AtomicU64>().add(at) }
    }

    /// Gives the buffer back: it may be begun again.
    pub(super) fn release(&self) {
        // Release: partner is the Acquire in `begin`.
        self.state.store(FREE, Ordering::Release);
    }
}

/// Ticks and CLOCK_MONOTONIC, of one moment.
pub(super) fn now() -> [u64; 2] {
    [Ticks::now_ordered().as_raw(), clock::monotonic()]
}

fn map(Options { buffers, file }: Options<'_>) -> Result<Recording, StartError> {
    let own = (cid::capacity() as usize) << SLOT_SHIFT;
    let page = sys::page_size::page_size();
    let len = buffers.checked_mul(BUFFER_LEN).and_then(|len| len.checked_add(BUFFERS_AT));
    let len = len.ok_or(StartError::NoMemory(Errno(libc::ENOMEM)))?;
    let (place, failed): (_, fn(Errno) -> StartError) = match file {
        None => (Shared::Unnamed(c"corelocal-trace"), StartError::NoMemory),
        Some(path) => (Shared::File(path, MAGIC), StartError::NoFile),
    };
    let at = pages::map_shared(place, len).map_err(failed)?;
    let slots = lazy_mapping::map(own + page).ok_or(StartError::NoMemory(Errno(libc::ENOMEM)))?;
    // SAFETY: the mapping just made, all zero. (2)
    unsafe { pages::advise(slots, own + page, libc::MADV_WIPEONFORK) }
        .map_err(StartError::NoMemory)?;
    let base = slots.wrapping_add(own);
    // SAFETY: the first word of the page behind the slots.
    unsafe { &*base.cast::<AtomicU64>() }.store(1, Ordering::Relaxed);
    BUFFERS.store(buffers as u64, Ordering::Relaxed);
    // Release: partner is the Acquire in `here`.
    START.store(at, Ordering::Release);
    SLOTS.bind(base);
    if clock::ticks_are_counted() {
        STAMPED.bind(base);
    }
    Recording::here().ok_or(StartError::NoMemory(Errno(libc::ENOMEM)))
}

/// The number of buffers that were begun so far.
pub(super) fn begun() -> u64 {
    TICKETS.load(Ordering::Relaxed)
}
