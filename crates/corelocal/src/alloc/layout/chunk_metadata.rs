//! Metadata of chunks other than the map: bitmaps and records, in groups of 4096 chunks (256 MiB).
//!
//! A group is mapped when its first chunk is searched for, a block of records when the first span or large object
//! begins there. So a process pays for the part of the range that it uses. The kernel chooses the addresses and a
//! compare-exchange publishes them: of two threads that make the same group, both succeed.
//!
//! # Invariants
//! 1. A pointer to a group or to a block of records changes from null to its final value once, and its memory is
//!    never unmapped.
//! 2. All bytes 0 is a group without mapped chunks.
//! 3. The map has writable bytes for the chunks of a published group (`address_range.rs`).
//! 4. A span or large object has a record before the map names its first chunk.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::address_range;
use super::bits::{IN_A_WORD, Words};
use super::chunk::{IN_A_GROUP, IN_A_HUGE_PAGE, MOST_CHUNKS};
use super::range::Range;
use super::record::Record;
use crate::sys::memory::page_size::page_size;
use crate::sys::memory::pages;

/// Chunks whose records are mapped together.
pub(in crate::alloc) const IN_A_BLOCK: usize = 128;
const WORDS: usize = IN_A_GROUP / IN_A_WORD;
const HUGE_PAGES: usize = IN_A_GROUP / IN_A_HUGE_PAGE;
const HUGE_WORDS: usize = HUGE_PAGES / IN_A_WORD;

/// The metadata of 4096 chunks.
#[repr(C)]
pub(in crate::alloc) struct Group {
    pub(in crate::alloc) used: [AtomicU64; WORDS],
    dirty: [AtomicU64; WORDS],
    aged: [AtomicU64; WORDS],
    kept: [AtomicU64; WORDS],
    /// Mapped chunks.
    pub(in crate::alloc) open: [AtomicU64; WORDS],
    /// Chunks that a mapping of the program overlaps.
    foreign: [AtomicU64; WORDS],
    dense: [AtomicU64; HUGE_WORDS],
    huge: [AtomicU64; HUGE_WORDS],
    pub(in crate::alloc) records: [AtomicPtr<Record>; IN_A_GROUP / IN_A_BLOCK],
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

/// The groups of the range.
pub(in crate::alloc) static GROUPS: [AtomicPtr<Group>; MOST_CHUNKS / IN_A_GROUP] =
    [const { AtomicPtr::new(null_mut()) }; MOST_CHUNKS / IN_A_GROUP];
/// Stands for missing groups. It is only read.
static NONE: Group = Group::new();

fn group(nth: usize) -> &'static Group {
    // Acquire: partner is the Release in `publish`; the group is zeroed.
    let group = GROUPS[nth].load(Ordering::Acquire);
    // SAFETY: null, or a zeroed group that is never unmapped (1, 2).
    unsafe { group.as_ref() }.unwrap_or(&NONE)
}

/// Maps `count` zeroed `T`s and publishes them unless `place` is set already; false when out of memory.
#[cold]
pub(in crate::alloc) fn publish<T>(place: &AtomicPtr<T>, count: usize) -> bool {
    let len = (count * size_of::<T>()).next_multiple_of(page_size());
    let Some(fresh) = pages::map(len) else { return false };
    // Release: partner is the Acquire of the thread that loads `place`.
    let published =
        place.compare_exchange(null_mut(), fresh.cast(), Ordering::Release, Ordering::Relaxed);
    if published.is_err() {
        // SAFETY: this mapping lost the race and was never published.
        unsafe { pages::unmap(fresh, len) };
    }
    true
}

impl Range {
    /// Makes the group of a chunk if necessary; false when out of memory.
    pub(in crate::alloc) fn make_group(self, chunk: usize) -> bool {
        let nth = chunk / IN_A_GROUP;
        let place = &GROUPS[nth];
        // Relaxed: the pointer is not followed here.
        !place.load(Ordering::Relaxed).is_null()
            || address_range::extend_map(self, (nth + 1) * IN_A_GROUP) && publish(place, 1)
    }

    /// Makes room for the record of a chunk if necessary; false when out of memory.
    pub(in crate::alloc) fn make_record(self, chunk: usize) -> bool {
        let place = &group(chunk / IN_A_GROUP).records[chunk % IN_A_GROUP / IN_A_BLOCK];
        !place.load(Ordering::Relaxed).is_null() || publish(place, IN_A_BLOCK)
    }

    /// Returns the record of a chunk at which a span or large object begins, or once began.
    pub(in crate::alloc) fn record(self, chunk: usize) -> &'static Record {
        let place = &group(chunk / IN_A_GROUP).records[chunk % IN_A_GROUP / IN_A_BLOCK];
        // Acquire: partner is the Release in `publish`.
        let block = place.load(Ordering::Acquire);
        debug_assert!(!block.is_null());
        // SAFETY: a block of `IN_A_BLOCK` records (4), never unmapped.
        unsafe { &*block.add(chunk % IN_A_BLOCK) }
    }

    /// Returns the bitmap words of 64 chunks.
    pub(in crate::alloc) fn words(self, nth: usize) -> Words<'static> {
        let (group, nth) = (group(nth / WORDS), nth % WORDS);
        Words {
            used: &group.used[nth],
            dirty: &group.dirty[nth],
            aged: &group.aged[nth],
            kept: &group.kept[nth],
        }
    }

    /// Returns the word that tells which of 64 chunks are mapped.
    pub(in crate::alloc) fn opened(self, nth: usize) -> &'static AtomicU64 {
        &group(nth / WORDS).open[nth % WORDS]
    }

    /// Returns the word that tells which of 64 chunks a foreign mapping overlaps. They stay claimed.
    pub(in crate::alloc) fn foreign(self, nth: usize) -> &'static AtomicU64 {
        &group(nth / WORDS).foreign[nth % WORDS]
    }

    /// Returns the word that tells in which of 64 huge pages all chunks were used at the last scan.
    pub(in crate::alloc) fn dense(self, nth: usize) -> &'static AtomicU64 {
        &group(nth / HUGE_WORDS).dense[nth % HUGE_WORDS]
    }

    /// Returns the word that tells which of 64 huge pages were made huge.
    pub(in crate::alloc) fn huge(self, nth: usize) -> &'static AtomicU64 {
        &group(nth / HUGE_WORDS).huge[nth % HUGE_WORDS]
    }
}

const _: () = assert!(size_of::<Group>() <= 4096);
