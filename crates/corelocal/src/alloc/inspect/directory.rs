//! The addresses of a malloc's state in its process, for a reader of its memory.
//!
//! Invariant: the number of the layout comes first, in every version.

use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};

use crate::alloc::background::by_itself::IS_ALLOWED;
use crate::alloc::background::target::TARGET;
use crate::alloc::central::{CENTRALS, Central, Centrals};
use crate::alloc::config;
use crate::alloc::core_cache::slots::BLOCK;
use crate::alloc::debug::profile::area::remote as samples;
use crate::alloc::debug::profile::asked::{ASKED, ASKED_OF};
use crate::alloc::debug::profile::{SAMPLED, area};
use crate::alloc::layout::chunk::{IN_A_GROUP, MOST_CHUNKS};
use crate::alloc::layout::chunk_metadata::{GROUPS, Group};
use crate::alloc::layout::class::CLASSES;
use crate::alloc::layout::header::Header;
use crate::alloc::layout::node_ranges::{STATE, STATES};
use crate::alloc::layout::range::BASE;
use crate::alloc::layout::record::Record;
use crate::alloc::layout::stack;
use crate::rseq::SLOT_SHIFT;

/// The first word of a range's header.
pub const MARK: u64 = u64::from_le_bytes(*b"CLmalloc");

/// A number that differs where the layout does, as far as it is used here.
pub(super) const LAYOUT: usize = {
    let sizes = [
        2,
        size_of::<Header>(),
        size_of::<Group>(),
        size_of::<Record>(),
        size_of::<Central>(),
        offset_of!(Central, count),
        size_of::<Directory>(),
        samples::LAYOUT,
        stack::at(1),
        CLASSES,
        SLOT_SHIFT as usize,
        STATE,
    ];
    let (mut sum, mut nth) = (0usize, 0);
    while nth < sizes.len() {
        sum = sum.wrapping_mul(1_000_003).wrapping_add(sizes[nth]);
        nth += 1;
    }
    sum
};

/// Where the state of a malloc is, in its process.
#[repr(C)]
struct Directory {
    layout: usize,
    base: &'static AtomicUsize,
    groups: &'static [AtomicPtr<Group>; MOST_CHUNKS / IN_A_GROUP],
    block: &'static AtomicPtr<u8>,
    centrals: &'static Centrals,
    states: &'static AtomicPtr<u8>,
    sampled: &'static [AtomicUsize; CLASSES + 1],
    modes: &'static AtomicU32,
    guard_rate: &'static AtomicU32,
    profile_rate: &'static AtomicU64,
    background: &'static AtomicU8,
    is_allowed: &'static AtomicBool,
    is_without_huge_pages: &'static AtomicBool,
    is_pressure_ignored: &'static AtomicBool,
    resident: &'static AtomicUsize,
    target: &'static AtomicUsize,
    asked: &'static AtomicU8,
    asked_of: &'static AtomicU32,
    area: &'static AtomicPtr<area::Area>,
}

static DIRECTORY: Directory = Directory {
    layout: LAYOUT,
    base: &BASE,
    groups: &GROUPS,
    block: &BLOCK,
    centrals: &CENTRALS,
    states: &STATES,
    sampled: &SAMPLED,
    modes: &config::MODES,
    guard_rate: &config::GUARD_RATE,
    profile_rate: &config::PROFILE_RATE,
    background: &config::BACKGROUND,
    is_allowed: &IS_ALLOWED,
    is_without_huge_pages: &config::IS_WITHOUT_HUGE_PAGES,
    is_pressure_ignored: &config::IS_PRESSURE_IGNORED,
    resident: &config::RESIDENT,
    target: &TARGET,
    asked: &ASKED,
    asked_of: &ASKED_OF,
    area: &area::AREA,
};

/// Returns the directory's address.
pub(super) fn address() -> usize {
    (&raw const DIRECTORY).expose_provenance()
}

/// The addresses in a directory.
pub(super) struct Places {
    pub(super) base: usize,
    pub(super) groups: usize,
    pub(super) block: usize,
    pub(super) centrals: usize,
    pub(super) states: usize,
    pub(super) sampled: usize,
    pub(super) modes: usize,
    pub(super) guard_rate: usize,
    pub(super) profile_rate: usize,
    pub(super) background: usize,
    pub(super) is_allowed: usize,
    pub(super) is_without_huge_pages: usize,
    pub(super) is_pressure_ignored: usize,
    pub(super) resident: usize,
    pub(super) target: usize,
    pub(super) asked: usize,
    pub(super) asked_of: usize,
    pub(super) area: usize,
}

impl Places {
    /// Reads them, by a function that reads a word at a distance from the directory.
    pub(super) fn of<E>(mut word: impl FnMut(usize) -> Result<usize, E>) -> Result<Places, E> {
        Ok(Places {
            base: word(offset_of!(Directory, base))?,
            groups: word(offset_of!(Directory, groups))?,
            block: word(offset_of!(Directory, block))?,
            centrals: word(offset_of!(Directory, centrals))?,
            states: word(offset_of!(Directory, states))?,
            sampled: word(offset_of!(Directory, sampled))?,
            modes: word(offset_of!(Directory, modes))?,
            guard_rate: word(offset_of!(Directory, guard_rate))?,
            profile_rate: word(offset_of!(Directory, profile_rate))?,
            background: word(offset_of!(Directory, background))?,
            is_allowed: word(offset_of!(Directory, is_allowed))?,
            is_without_huge_pages: word(offset_of!(Directory, is_without_huge_pages))?,
            is_pressure_ignored: word(offset_of!(Directory, is_pressure_ignored))?,
            resident: word(offset_of!(Directory, resident))?,
            target: word(offset_of!(Directory, target))?,
            asked: word(offset_of!(Directory, asked))?,
            asked_of: word(offset_of!(Directory, asked_of))?,
            area: word(offset_of!(Directory, area))?,
        })
    }
}
