//! Huge pages, made only of memory that is densely used and has been so for a while.
//!
//! A huge page saves TLB misses, and wastes whatever part of it is unused. So the kernel makes none by itself in the
//! range (`layout/range.rs`), neither at a first touch nor later. The thread that gives memory back makes one where all
//! 32 chunks are used and nearly all pages are resident, and were so one period ago.
//!
//! ```text
//!   all chunks used ── still used a period later, and nearly all pages resident ──► huge
//!        ▲                                                                            │
//!        └───────────── a part of it goes back to the kernel (`break_up`) ◄───────────┘
//! ```
//!
//! # Invariants
//! 1. Contents do not change: the kernel copies resident pages, and missing ones become 0. So chunks may be used,
//!    claimed and released at the same time, and a chunk that is neither used nor dirty stays zero (`mod.rs`).
//! 2. A bit in `huge` is set before the kernel is asked, and cleared before a part of the page is given back; the
//!    header counts the bits. A set bit is a hint: the kernel may have split the page since.
//! 3. Between calls the range has as many mappings as it would have without huge pages; before Linux 6.1 up to two
//!    more for each of [`MOST_AREAS`] areas.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::pressure;
use crate::alloc::config;
use crate::alloc::layout::bits::IN_A_WORD;
use crate::alloc::layout::chunk::{CHUNK, HUGE_PAGE, IN_A_HUGE_PAGE};
use crate::alloc::layout::class::CLASSES;
use crate::alloc::layout::range::Range;
use crate::sys::Errno;
use crate::sys::memory::page_size::page_size;
use crate::sys::memory::{huge_pages, pages};

/// Returns the pages of it that must be resident: all but those of two chunks, which spans of some sizes do not use
/// completely.
fn enough() -> usize {
    (HUGE_PAGE - 2 * CHUNK) / page_size()
}

/// The most huge pages made in one call, which bounds the copying.
const MOST_MADE: usize = 32;
/// The most huge pages whose resident pages are counted in one call.
const MOST_COUNTED: usize = 256;
/// The most areas of huge pages that are separate mappings, where the kernel makes huge pages by itself.
const MOST_AREAS: usize = 32;
/// After this many refusals, without a success, the kernel counts as unable.
const REFUSALS: usize = 3;

const R: Ordering = Ordering::Relaxed;

/// The way in which huge pages are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Way {
    /// Not determined yet.
    Unknown,
    /// Not at all.
    None,
    /// At once, by `MADV_COLLAPSE`.
    Collapse,
    /// By the kernel some time later, where it is allowed to: before Linux 6.1.
    Allow,
}

static WAY: AtomicU8 = AtomicU8::new(Way::Unknown as u8);

impl Way {
    fn known() -> Way {
        // Relaxed: all threads that race find the same, or a later state.
        let way = WAY.load(R);
        let is_it = |known: &Way| *known as u8 == way;
        [Way::None, Way::Collapse, Way::Allow].into_iter().find(is_it).unwrap_or(Way::Unknown)
    }

    fn set(self) -> Way {
        WAY.store(self as u8, R);
        self
    }

    /// Determined by the machine's settings. Never in checking mode, where closed pages lie between objects.
    fn get() -> Way {
        match Way::known() {
            Way::Unknown if config::is_checked() => Way::None.set(),
            Way::Unknown if huge_pages::wanted() == Some(HUGE_PAGE) => Way::Collapse.set(),
            Way::Unknown => Way::None.set(),
            known => known,
        }
    }
}

/// Makes huge pages of memory that is densely used and was at the last call, a bounded number at a time. Returns
/// whether another call may have more to do.
///
/// For a thread that calls [`release_idle`](crate::alloc::release_idle) regularly, after that call; one thread at a
/// time. Each call makes at most 64 MiB, by a copy. Does nothing if huge pages are disabled for the machine
/// (`/sys/kernel/mm/transparent_hugepage/enabled`, read once) or for the process (`PR_SET_THP_DISABLE`), in checking
/// mode, or [under pressure](crate::alloc::watch_pressure), since a copy needs memory first.
///
/// Memory that a forked child shares with its parent is copied as well, so do not call this for a while after a fork.
pub fn use_huge_pages() -> bool {
    let Some(range) = Range::get().filter(|_| !pressure::is_high()) else { return false };
    match Way::get() {
        Way::Unknown | Way::None => false,
        way => make(range, way),
    }
}

/// Returns `true` if memory grew since the last scan, in a process that makes huge pages.
pub(in crate::alloc) fn has_grown(range: Range) -> bool {
    is_wanted() && range.header().high_seen.load(R) < range.header().high.load(R)
}

/// Returns `true` if the process makes huge pages.
pub(in crate::alloc) fn is_wanted() -> bool {
    matches!(Way::known(), Way::Collapse | Way::Allow)
}

/// Returns the bytes of huge pages of which no part has been given back since.
pub(in crate::alloc) fn bytes(range: Range) -> usize {
    range.header().huge.load(R) * HUGE_PAGE
}

/// A range of huge page numbers.
type Pages = core::ops::Range<usize>;

/// One bit of a huge page's state.
struct Bit {
    word: &'static AtomicU64,
    mask: u64,
}

impl Bit {
    /// The page was dense at the last scan.
    fn dense(range: Range, page: usize) -> Bit {
        Bit { word: range.dense(page / IN_A_WORD), mask: 1 << (page % IN_A_WORD) }
    }

    /// The page is huge.
    fn huge(range: Range, page: usize) -> Bit {
        Bit { word: range.huge(page / IN_A_WORD), mask: 1 << (page % IN_A_WORD) }
    }

    fn is_set(&self) -> bool {
        self.word.load(R) & self.mask != 0
    }

    /// Sets the bit; whether it was clear.
    fn set(&self) -> bool {
        self.word.fetch_or(self.mask, R) & self.mask == 0
    }

    /// Clears the bit; whether it was set.
    fn clear(&self) -> bool {
        self.is_set() && self.word.fetch_and(!self.mask, R) & self.mask != 0
    }
}

/// Returns `true` if all chunks of a huge page are used.
fn is_used(range: Range, page: usize) -> bool {
    let used = range.words(page * IN_A_HUGE_PAGE / IN_A_WORD).used.load(R);
    let half = used >> (page * IN_A_HUGE_PAGE % IN_A_WORD);
    half & (u64::MAX >> (IN_A_WORD - IN_A_HUGE_PAGE)) == u64::MAX >> (IN_A_WORD - IN_A_HUGE_PAGE)
}

fn address(range: Range, page: usize) -> *mut u8 {
    range.address(page * IN_A_HUGE_PAGE) as *mut u8
}

fn make(range: Range, way: Way) -> bool {
    let header = range.header();
    header.high_seen.store(header.high.load(R), R);
    let mut look = Look { range, way, areas: 0, found: 0..0, made: 0 };
    if way == Way::Allow {
        look.areas = areas(range);
    }
    // Continue where the last call ended, so that every page gets its turn.
    let first = header.next_huge.load(R);
    let (mut counted, mut is_more, mut is_new) = (0, false, false);
    for page in pages_from(range, first) {
        if !is_used(range, page) {
            Bit::dense(range, page).clear();
            continue;
        }
        if Bit::huge(range, page).is_set() {
            continue;
        }
        if Bit::dense(range, page).set() {
            // Dense only since this scan.
            is_new = true;
            continue;
        }
        if look.made + look.found.len() >= MOST_MADE || counted == MOST_COUNTED {
            header.next_huge.store(page, R);
            // Bounded: a range whose chunks are all used but not resident would be scanned for ever.
            is_more |= header.huge_in_vain.load(R) < range.header().opened.load(R) / IN_A_HUGE_PAGE;
            break;
        }
        counted += 1;
        if is_there(range, page) && !look.find(page) {
            header.next_huge.store(page, R);
            break;
        }
    }
    look.make_found();
    is_new |= look.made > 0;
    let in_vain = if is_new { 0 } else { header.huge_in_vain.load(R) + counted };
    header.huge_in_vain.store(in_vain, R);
    is_more || is_new
}

/// Returns all mapped pages, from `first` on, then those before it.
fn pages_from(range: Range, first: usize) -> impl Iterator<Item = usize> {
    let within = move |least: usize, end: usize| {
        let page = move |chunk: usize| (chunk / IN_A_HUGE_PAGE).clamp(least, end);
        range.known_parts().flat_map(move |part| page(part.start)..page(part.end))
    };
    within(first, usize::MAX).chain(within(0, first))
}

/// Huge pages to be made, neighbours in one call: each call makes the kernel interrupt all cpus.
struct Look {
    range: Range,
    way: Way,
    areas: usize,
    /// The pages to be made next.
    found: Pages,
    made: usize,
}

impl Look {
    /// Adds a page; false if there is no memory for more.
    fn find(&mut self, page: usize) -> bool {
        if self.found.end == page && !self.found.is_empty() {
            self.found.end += 1;
            return true;
        }
        let goes_on = self.make_found();
        if goes_on {
            self.found = page..page + 1;
        }
        goes_on
    }

    /// Makes the pages found; false if there is no memory for more.
    fn make_found(&mut self) -> bool {
        let found = core::mem::take(&mut self.found);
        if found.is_empty() {
            return true;
        }
        if self.way == Way::Allow && is_new_area(self.range, &found) {
            if self.areas == MOST_AREAS {
                return true;
            }
            self.areas += 1;
        }
        self.make(found)
    }

    fn make(&mut self, found: Pages) -> bool {
        let (range, len) = (self.range, found.len());
        let header = range.header();
        for page in found.clone() {
            if Bit::huge(range, page).set() {
                header.huge.fetch_add(1, R);
            }
        }
        let at = address(range, found.start);
        // SAFETY: whole huge pages of the range.
        let result = unsafe {
            match self.way {
                Way::Allow => huge_pages::allow(at, len * HUGE_PAGE),
                _ => huge_pages::collapse(at, len * HUGE_PAGE),
            }
        };
        let Err(error) = result else {
            header.huge_ever.fetch_add(len, R);
            self.made += len;
            return true;
        };
        found.clone().for_each(|page| _ = unset(range, &Bit::huge(range, page)));
        match error {
            // One of them cannot be made, and the others may have been. Halve to find out which; pages that are huge
            // already return at once.
            Errno::EINVAL | Errno::EAGAIN if len > 1 => {
                let middle = found.start + len / 2;
                self.make(found.start..middle) && self.make(middle..found.end)
            }
            // The kernel is unable, the process is not allowed, or the program has changed the mapping. The first
            // pages tell which.
            Errno::EINVAL => {
                let refused = header.huge_refused.fetch_add(1, R) + 1;
                let cannot = refused >= REFUSALS && header.huge_ever.load(R) == 0;
                if cannot && self.way == Way::Collapse {
                    Way::Allow.set();
                }
                !cannot
            }
            // A page is in use by the kernel at the moment.
            Errno::EAGAIN => true,
            _ => false,
        }
    }
}

/// Returns `true` if nearly all of a huge page is resident. Pages of zeros that were only read do not count.
fn is_there(range: Range, page: usize) -> bool {
    let (at, mut there) = (address(range, page), 0);
    pages::for_each_placed(at, HUGE_PAGE, |_| there += 1);
    // Nothing found, or the kernel does not tell, as in many containers. Then count resident pages, among which zero
    // pages cannot be told apart. Spans have none: a program writes to its objects.
    if there == 0 && is_of_spans(range, page) && pages::is_resident(at) {
        pages::for_each_resident(at, HUGE_PAGE, |_| there += 1);
    }
    there >= enough()
}

/// Returns `true` if all chunks of a huge page belong to spans.
fn is_of_spans(range: Range, page: usize) -> bool {
    let first = page * IN_A_HUGE_PAGE;
    let mut kinds = (first..first + IN_A_HUGE_PAGE).map(|chunk| range.kind(chunk).load(R));
    kinds.all(|kind| (1..=CLASSES).contains(&usize::from(kind)))
}

/// Areas of adjacent huge pages, which are separate mappings.
fn areas(range: Range) -> usize {
    let begins = |page: &usize| {
        let is_huge = |page: usize| Bit::huge(range, page).is_set();
        is_huge(*page) && page.checked_sub(1).is_none_or(|before| !is_huge(before))
    };
    pages_from(range, 0).filter(begins).count()
}

fn is_new_area(range: Range, pages: &Pages) -> bool {
    let is_huge = |page: usize| Bit::huge(range, page).is_set();
    !is_huge(pages.end) && pages.start.checked_sub(1).is_none_or(|before| !is_huge(before))
}

/// Clears the bit and counts; whether it was set.
fn unset(range: Range, bit: &Bit) -> bool {
    let was_set = bit.clear();
    if was_set {
        range.header().huge.fetch_sub(1, R);
    }
    was_set
}

/// Splits the huge pages that a part of the range lies in. To be called before the part goes back to the kernel.
///
/// # Safety
/// - The part is whole pages that belong to the caller alone.
/// - Their content is not needed.
pub(in crate::alloc) unsafe fn break_up(range: Range, part: usize, len: usize) {
    let page_of = |address: usize| range.chunk_of(address) / IN_A_HUGE_PAGE;
    for page in page_of(part)..=page_of(part + len - 1) {
        if !unset(range, &Bit::huge(range, page)) {
            continue;
        }
        let at = address(range, page);
        let (start, end) = (part.max(at as usize), (part + len).min(at as usize + HUGE_PAGE));
        // SAFETY: one huge page of the range; advice leaves the contents of parts that others own alone.
        unsafe {
            if Way::known() == Way::Allow {
                huge_pages::forbid(at, HUGE_PAGE);
            }
            if end - start < HUGE_PAGE {
                huge_pages::split(start as *mut u8, end - start);
            }
        }
    }
}

#[cfg(test)]
mod tests;
