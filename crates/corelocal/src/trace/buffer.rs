//! A buffer of records, which belongs to one core, thread or reader at a time.
//!
//! Invariant: a buffer whose state is not `FREE` is changed by its owner alone (`memory.rs`, 3).

use core::sync::atomic::{AtomicU64, Ordering, fence};

use super::format::{BUFFER_HEADER_LEN, BUFFER_LEN, FREE, OPEN};
use super::time;
use crate::clock;

/// A buffer's header; records follow it. The layout is that of `format::buffer`.
#[repr(C, align(64))]
pub(super) struct Buffer {
    pub(super) used: AtomicU64,
    pub(super) owner: AtomicU64,
    pub(super) ticket: AtomicU64,
    pub(super) state: AtomicU64,
    begin: [AtomicU64; 2],
    pub(super) ended: AtomicU64,
    _room: AtomicU64,
    _since: AtomicU64,
}

/// The owner of a buffer without records: the number of no context.
const NO_OWNER: u64 = u64::MAX;

impl Buffer {
    /// Returns a word of the buffer, from its first one on.
    pub(super) fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at < BUFFER_LEN / 8);
        // SAFETY: a word of this buffer, which has BUFFER_LEN bytes.
        unsafe { &*core::ptr::from_ref(self).cast::<AtomicU64>().add(at) }
    }

    /// Returns `true` if the last event is older than this age, or there is none.
    pub(super) fn is_old(&self, age: u64) -> bool {
        let ended = self.ended.load(Ordering::Relaxed);
        ended == 0 || clock::monotonic().saturating_sub(ended) > age
    }

    /// Takes the buffer, if no core or thread has it.
    pub(super) fn take(&self) -> bool {
        // Acquire: partner is the Release in `Recording::release`.
        self.state.compare_exchange(FREE, OPEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Makes a buffer that was taken empty.
    pub(super) fn reset(&'static self, ticket: u64) -> &'static Buffer {
        self.ticket.store(0, Ordering::Relaxed);
        // Partner: the fence in `copy` of dump.rs. A reader that sees what is stored from here on sees the ticket 0, or
        // a new one.
        fence(Ordering::Release);
        let [ticks, monotonic] = time::both();
        self.owner.store(NO_OWNER, Ordering::Relaxed);
        self.begin[0].store(ticks, Ordering::Relaxed);
        self.begin[1].store(monotonic, Ordering::Relaxed);
        self.used.store(BUFFER_HEADER_LEN as u64, Ordering::Relaxed);
        // Release: a reader that sees the ticket sees the header.
        self.ticket.store(ticket, Ordering::Release);
        self
    }
}
