//! Guards whose threads and stacks are known, for reports of stalls.
//!
//! # Invariants
//! 1. A guard's word has the number of its entry, from 1 on, or 0 if it has none: there are too many, or a signal handler
//!    came at a bad moment. The guard alone uses the entry from its claim until it is given back.
//! 2. No thread waits for an entry's lock. A content that could not be removed for that reason has another serial than its
//!    entry from then on.

use core::ffi::CStr;
use core::fmt;
use core::time::Duration;
use std::backtrace::Backtrace;
use std::string::String;
use std::sync::Mutex;
use std::time::Instant;
use std::vec::Vec;

use super::key::Key;
use crate::primitive::global::{AtomicU32, Ordering};
use crate::sys::forks;
use crate::sys::thread::stack;

/// The number of entries: as many as a guard's word can number.
const MOST: usize = 511;

static ENTRIES: [Entry; MOST] =
    [const { Entry { serial: AtomicU32::new(0), content: Mutex::new(None) } }; MOST];

struct Entry {
    /// The entry's serial number: odd while a guard has the entry. Each claim and each return adds 1.
    serial: AtomicU32,
    content: Mutex<Option<Content>>,
}

struct Content {
    /// The entry's serial number when it was claimed.
    serial: u32,
    domain: Key,
    generation: u32,
    thread: u32,
    name: String,
    begin: Instant,
    stack: Backtrace,
}

/// A guard whose thread is known: see [`Domain::track_readers`](super::Domain::track_readers).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Reader {
    /// The thread's number, as gettid(2) returns it.
    pub thread: u32,
    /// The thread's name; empty if it has none.
    pub name: String,
    /// The time since the guard was taken.
    pub duration: Duration,
    /// The call stack at the guard's beginning.
    pub stack: String,
}

impl fmt::Display for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reader { thread, name, duration, stack } = self;
        write!(
            f,
            "  thread {thread} ({name}) has had a guard for {duration:.1?}, begun at\n{stack}"
        )
    }
}

/// Enters a guard of the calling thread. The number of its entry.
#[cold]
pub(super) fn begin(domain: Key) -> u32 {
    // Acquire: partner is the Release in `end`.
    let claim = |entry: &Entry| {
        let free = entry.serial.load(Ordering::Relaxed) & !1;
        entry.serial.compare_exchange(free, free + 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    };
    let Some(at) = ENTRIES.iter().position(claim) else { return 0 };
    let entry = &ENTRIES[at];
    if let Ok(mut content) = entry.content.try_lock() {
        let (thread, name) = stack::this_thread();
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        *content = Some(Content {
            serial: entry.serial.load(Ordering::Relaxed),
            domain,
            generation: forks::generation(),
            thread,
            name: name.to_string_lossy().into_owned(),
            begin: Instant::now(),
            stack: Backtrace::force_capture(),
        });
    }
    at as u32 + 1
}

/// A guard with this number of an entry ends.
#[cold]
pub(super) fn end(number: u32) {
    let Some(entry) = (number as usize).checked_sub(1).and_then(|at| ENTRIES.get(at)) else {
        return;
    };
    if let Ok(mut content) = entry.content.try_lock() {
        drop(content.take());
    }
    // Release: partner is the Acquire in `begin`.
    entry.serial.fetch_add(1, Ordering::Release);
}

/// Returns the guards of this domain and process that are known, the oldest first.
pub(super) fn readers(domain: Key) -> Vec<Reader> {
    let reader = |entry: &Entry| {
        let content = entry.content.try_lock().ok()?;
        let content = content.as_ref().filter(|content| {
            content.serial == entry.serial.load(Ordering::Relaxed)
                && content.domain == domain
                && content.generation == forks::generation()
        })?;
        Some(Reader {
            thread: content.thread,
            name: content.name.clone(),
            duration: content.begin.elapsed(),
            stack: std::format!("{}", content.stack),
        })
    };
    let is_used = |entry: &&Entry| entry.serial.load(Ordering::Relaxed) % 2 == 1;
    let mut readers: Vec<_> = ENTRIES.iter().filter(is_used).filter_map(reader).collect();
    readers.sort_by_key(|reader| core::cmp::Reverse(reader.duration));
    readers
}
