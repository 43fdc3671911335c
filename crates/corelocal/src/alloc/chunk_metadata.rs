//! What is written down of chunks besides the map: bitmaps and records, in groups of 4096 chunks, 256 MiB.
//!
//! A group's memory is mapped when the first of its chunks is looked for, a block of records when the first span or
//! large object begins there. So a process pays for the part of the range that it uses. The kernel chooses where
//! they lie, and a compare-exchange publishes them: two threads that make the same group both succeed.
//!
//! # Invariants
//! 1. A pointer to a group or to a block of records goes from null to its final value once. Neither is unmapped then.
//! 2. All bytes 0 is a group of which no chunk is open.
//! 3. The map has writable bytes for the chunks of a group that is published (`address_range.rs`).
//! 4. A span or large object has a record before the map names its first chunk.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::address_range;
use super::bits::{IN_A_WORD, Words};
use super::range::{CHUNK, HUGE_PAGE, MOST_CHUNKS, Range, Record};
use crate::sys::page_size::page_size;
use crate::sys::pages;

/// Chunks of a group: those whose bytes in the map fill a page.
pub(super) const IN_A_GROUP: usize = 4096;
/// Chunks whose records are mapped at once.
const IN_A_BLOCK: usize = 128;
const WORDS: usize = IN_A_GROUP / IN_A_WORD;
const HUGE_PAGES: usize = IN_A_GROUP * CHUNK / HUGE_PAGE;
const HUGE_WORDS: usize = HUGE_PAGES / IN_A_WORD;

/// See the module's text.
#[repr(C)]
struct Group {
    used: [AtomicU64; WORDS],
    dirty: [AtomicU64; WORDS],
    aged: [AtomicU64; WORDS],
    kept: [AtomicU64; WORDS],
    /// Chunks that are mapped.
    open: [AtomicU64; WORDS],
    /// Chunks where a mapping of the program lies, at least in part.
    foreign: [AtomicU64; WORDS],
    dense: [AtomicU64; HUGE_WORDS],
    huge: [AtomicU64; HUGE_WORDS],
    records: [AtomicPtr<Record>; IN_A_GROUP / IN_A_BLOCK],
}

impl Group {
    const fn new() -> Group {
        Group {
            used: [const { AtomicU64::new(0) }; WORDS],
            dirty: [const { AtomicU64::new(0) }; WORDS],
            aged: [const { AtomicU64::new(0) }; WORDS],
            kept: [const { AtomicU64::new(0) }; WORDS],
            open: [const { AtomicU64::new(0) }; WORDS],
            foreign: [const { AtomicU64::new(0) }; WORDS],
            dense: [const { AtomicU64::new(0) }; HUGE_WORDS],
            huge: [const { AtomicU64::new(0) }; HUGE_WORDS],
            records: [const { AtomicPtr::new(null_mut()) }; IN_A_GROUP / IN_A_BLOCK],
        }
    }
}

/// Those of the range.
static GROUPS: [AtomicPtr<Group>; MOST_CHUNKS / IN_A_GROUP] =
    [const { AtomicPtr::new(null_mut()) }; MOST_CHUNKS / IN_A_GROUP];
/// What is read of chunks without a group. Nothing is written to it.
static NONE: Group = Group::new();

fn group(nth: usize) -> &'static Group {
    // Acquire: partner is the Release in `publish`; its bytes are 0.
    let group = GROUPS[nth].load(Ordering::Acquire);
    // SAFETY: null, or mapped for ever (invariants 1 and 2).
    unsafe { group.as_ref() }.unwrap_or(&NONE)
}

/// Maps a `T` for each of `count`, and publishes it where there is none; false without memory.
#[cold]
pub(super) fn publish<T>(place: &AtomicPtr<T>, count: usize) -> bool {
    let len = (count * size_of::<T>()).next_multiple_of(page_size());
    let Some(fresh) = pages::map(len) else { return false };
    // Release: partner is the Acquire where it is loaded.
    let published =
        place.compare_exchange(null_mut(), fresh.cast(), Ordering::Release, Ordering::Relaxed);
    if published.is_err() {
        // SAFETY: no other thread saw it.
        unsafe { pages::unmap(fresh, len) };
    }
    true
}

impl Range {
    /// Makes the group of a chunk, unless there is one; false without memory.
    pub(super) fn make_group(self, chunk: usize) -> bool {
        let nth = chunk / IN_A_GROUP;
        let place = &GROUPS[nth];
        // Relaxed: only whether there is one.
        !place.load(Ordering::Relaxed).is_null()
            || address_range::extend_map(self, (nth + 1) * IN_A_GROUP) && publish(place, 1)
    }

    /// Makes room for the record of a chunk; false without memory.
    pub(super) fn make_record(self, chunk: usize) -> bool {
        let place = &group(chunk / IN_A_GROUP).records[chunk % IN_A_GROUP / IN_A_BLOCK];
        !place.load(Ordering::Relaxed).is_null() || publish(place, IN_A_BLOCK)
    }

    /// Of a chunk that a span or a large object begins with, or has begun with.
    pub(super) fn record(self, chunk: usize) -> &'static Record {
        let place = &group(chunk / IN_A_GROUP).records[chunk % IN_A_GROUP / IN_A_BLOCK];
        // Acquire: partner is the Release in `publish`.
        let block = place.load(Ordering::Acquire);
        debug_assert!(!block.is_null());
        // SAFETY: a block of so many records (invariant 4), mapped for ever.
        unsafe { &*block.add(chunk % IN_A_BLOCK) }
    }

    /// The bits of 64 chunks.
    pub(super) fn words(self, nth: usize) -> Words<'static> {
        let (group, nth) = (group(nth / WORDS), nth % WORDS);
        Words {
            used: &group.used[nth],
            dirty: &group.dirty[nth],
            aged: &group.aged[nth],
            kept: &group.kept[nth],
        }
    }

    /// 64 chunks: a bit says that it is open.
    pub(super) fn opened(self, nth: usize) -> &'static AtomicU64 {
        &group(nth / WORDS).open[nth % WORDS]
    }

    /// 64 chunks: a bit says that something else lies there. It stays taken.
    pub(super) fn foreign(self, nth: usize) -> &'static AtomicU64 {
        &group(nth / WORDS).foreign[nth % WORDS]
    }

    /// 64 huge pages: a bit says that all chunks were used at the last look.
    pub(super) fn dense(self, nth: usize) -> &'static AtomicU64 {
        &group(nth / HUGE_WORDS).dense[nth % HUGE_WORDS]
    }

    /// 64 huge pages: a bit says that it is one.
    pub(super) fn huge(self, nth: usize) -> &'static AtomicU64 {
        &group(nth / HUGE_WORDS).huge[nth % HUGE_WORDS]
    }
}

const _: () = assert!(size_of::<Group>() <= 4096);
