//! The memory of a lock profile (the page). The process and its observers both map it.
//!
//! Invariants:
//! 1. All bytes 0 is an empty page, except for the magic number, which is written last, when the page is complete. A
//!    reader that finds the number sees the rest.
//! 2. It holds no pointers: addresses in it are numbers.
//! 3. Others may write to the file, so numbers that are read are checked against their bounds before use.
//! 4. No function waits or allocates: all are async-signal-safe.

use super::files::{self, FILES_BYTES};
use super::record::{Key, Record};
use super::trace::Trace;
use crate::primitive::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// "CLLOCKS", and the layout's version.
const MAGIC: u64 = u64::from_le_bytes(*b"CLLOCKS\x01");

/// Capacity for locks. Different kinds of waits for one lock count as separate locks.
pub(super) const LOCKS: usize = 1024;
/// The number of entries that are probed for a lock.
const REACH: usize = 64;
/// Capacity for stacks.
const TRACES: usize = 256;

/// The page.
#[repr(C)]
pub(super) struct Page {
    magic: AtomicU64,
    /// The process id that the process has for itself.
    pub(super) process: AtomicU64,
    /// The fork generation of the process that made the page: a forked child has a different one (`sys/forks.rs`).
    pub(super) generation: AtomicU64,
    /// The number of requests to record.
    wanted: AtomicU64,
    /// The time when recording was last switched on.
    pub(super) began: AtomicU64,
    /// Waits for locks that found no free entry.
    pub(super) missed: AtomicU64,
    /// The number of traces handed out or requested.
    pub(super) traces_used: AtomicU64,
    files_len: AtomicU64,
    unused: [u64; 504],
    files: [AtomicU64; FILES_BYTES / 8],
    records: [Record; LOCKS],
    traces: [Trace; TRACES],
}

/// The length of a file that holds a page.
pub(super) const LEN: usize = size_of::<Page>();
const _: () = assert!(LEN == 32 * 1024 + LOCKS * size_of::<Record>() + TRACES * size_of::<Trace>());

impl Page {
    /// Marks the page as complete (invariant 1).
    pub(super) fn complete(&self) {
        // Release: partner is the Acquire in `is_complete`.
        self.magic.store(MAGIC, Release);
    }

    pub(super) fn is_complete(&self) -> bool {
        // Acquire: partner is the Release in `complete`.
        self.magic.load(Acquire) == MAGIC
    }

    #[inline]
    pub(super) fn is_on(&self) -> bool {
        // Relaxed: recording slightly too long or too short does no harm.
        self.wanted.load(Relaxed) != 0
    }

    /// Adds a request to record.
    pub(super) fn want(&self, now: u64) {
        if self.wanted.fetch_add(1, Relaxed) == 0 {
            self.began.store(now, Relaxed);
            self.records
                .iter()
                .filter(|record| record.key().is_some())
                .for_each(Record::begin_anew);
        }
    }

    /// Takes a request back.
    pub(super) fn want_no_more(&self) {
        let one_less = |wanted: u64| wanted.checked_sub(1);
        // The error means that there was no request.
        let _ = self.wanted.fetch_update(Relaxed, Relaxed, one_less);
    }

    pub(super) fn record_of(&self, key: Key) -> Option<&Record> {
        self.places_of(key).find(|record| record.is_or_becomes(key))
    }

    /// Returns the record of a lock that a thread has waited for before.
    pub(super) fn known_record_of(&self, key: Key) -> Option<&Record> {
        let mut places = self.places_of(key).map_while(|record| Some((record, record.key()?)));
        places.find(|(_, of)| *of == key).map(|(record, _)| record)
    }

    fn places_of(&self, key: Key) -> impl Iterator<Item = &Record> {
        let first = (key.hash() >> (u64::BITS - LOCKS.ilog2())) as usize;
        (first..first + REACH).map(|place| &self.records[place % LOCKS])
    }

    pub(super) fn records(&self) -> &[Record; LOCKS] {
        &self.records
    }

    /// Returns the trace whose number plus one is in the word, or a new one if the word is 0. `None` if none is left.
    pub(super) fn trace_at(&self, word: &AtomicU64) -> Option<&Trace> {
        if let Some(trace) = self.trace(word.load(Relaxed)) {
            return Some(trace);
        }
        let fresh = self.traces_used.fetch_add(1, Relaxed) + 1;
        self.trace(fresh)?;
        // If another thread stored its number first, the new trace is lost.
        let number =
            word.compare_exchange(0, fresh, Relaxed, Relaxed).map_or_else(|it| it, |_| fresh);
        self.trace(number)
    }

    /// Returns the trace with this number minus one.
    pub(super) fn trace(&self, number: u64) -> Option<&Trace> {
        self.traces.get(usize::try_from(number).ok()?.checked_sub(1)?)
    }

    /// Returns the number of traces that were requested when none was left.
    pub(super) fn traces_missed(&self) -> u64 {
        self.traces_used.load(Relaxed).saturating_sub(TRACES as u64)
    }

    /// Adds a line to the list of files, before the page is complete. False if the list is full.
    pub(super) fn add_file(&self, line: &[u8]) -> bool {
        files::add(&self.files_len, &self.files, line)
    }

    /// Copies the list of files and returns its length in bytes.
    pub(super) fn read_files(&self, into: &mut [u8; FILES_BYTES]) -> usize {
        files::read(&self.files_len, &self.files, into)
    }
}

#[cfg(all(test, not(miri)))]
pub(super) mod tests;
