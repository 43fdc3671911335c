//! Huge pages: for what is dense and has been for a while, and for nothing else.
//!
//! A huge page saves the processor's tables of addresses, and wastes what of it nobody uses. So the kernel
//! makes none by itself in the range (`range.rs`), be it at a first touch or later. The thread that gives memory
//! back makes one where all 32 chunks are somebody's and nearly all pages are there, and were a period ago.
//!
//! ```text
//!   all chunks used ── a period later still, and nearly all pages are in memory ──► huge
//!        ▲                                                                            │
//!        └───────────── a part of it goes back to the kernel (`break_up`) ◄───────────┘
//! ```
//!
//! # Invariants
//! 1. What is in memory stays as it is: the kernel copies, and what was missing is 0 then. So anybody may use,
//!    take and give back chunks meanwhile, and what is neither used nor dirty stays zero (`store.rs`).
//! 2. A bit in `huge` is set before the kernel is asked, and cleared by whoever gives a part back, before he
//!    does; the header counts the bits. It is advice to ourselves: the kernel may have split the page since.
//! 3. Between calls the range has as many mappings as without huge pages; before Linux 6.1 up to
//!    [`MOST_AREAS`] times two more.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::bits::IN_A_WORD;
use super::class::CLASSES;
use super::range::{CHUNK, HUGE_PAGE, Range};
use super::{debug, pressure};
use crate::sys::page_size::page_size;
use crate::sys::{Errno, huge_pages, pages};

/// Chunks of a huge page.
pub(super) const IN_A_HUGE_PAGE: usize = HUGE_PAGE / CHUNK;
/// Pages of it that must be in memory: all but two chunks', which spans of some sizes do not use.
fn enough() -> usize {
    (HUGE_PAGE - 2 * CHUNK) / page_size()
}

/// Huge pages made in one call, which is as much as is copied.
const MOST_MADE: usize = 32;
/// Those whose pages are counted in one call.
const MOST_COUNTED: usize = 256;
/// Stretches of huge pages that are mappings of their own, where the kernel makes them by itself.
const MOST_AREAS: usize = 32;
/// So often the kernel may refuse before it is taken for one that cannot.
const REFUSALS: usize = 3;

const R: Ordering = Ordering::Relaxed;

/// How huge pages are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Way {
    /// Nobody has asked yet.
    Unknown,
    /// Not at all.
    None,
    /// At once.
    Collapse,
    /// By the kernel, some day, where it may: before Linux 6.1.
    Allow,
}

static WAY: AtomicU8 = AtomicU8::new(Way::Unknown as u8);

impl Way {
    fn known() -> Way {
        // Relaxed: every racer finds the same, or what one has learned since.
        let way = WAY.load(R);
        let is_it = |known: &Way| *known as u8 == way;
        [Way::None, Way::Collapse, Way::Allow].into_iter().find(is_it).unwrap_or(Way::Unknown)
    }

    fn set(self) -> Way {
        WAY.store(self as u8, R);
        self
    }

    /// As the machine wants it. An object that is checked has closed pages beside it, now and then.
    fn get() -> Way {
        match Way::known() {
            Way::Unknown if debug::is_checked() => Way::None.set(),
            Way::Unknown if huge_pages::wanted() == Some(HUGE_PAGE) => Way::Collapse.set(),
            Way::Unknown => Way::None.set(),
            known => known,
        }
    }
}

/// Makes huge pages of memory that is densely used and was at the last call, some at a time; whether there may be
/// more to do in the next call.
///
/// For a thread that calls [`release_idle`](super::release_idle) now and then, after that; one thread at a time. Each
/// call makes 64 MiB at most, by a copy. Does nothing where the machine wants no huge pages
/// (`/sys/kernel/mm/transparent_hugepage/enabled`, read once) or the process (`PR_SET_THP_DISABLE`), and in a process
/// that checks its objects.
///
/// Makes none [under pressure](super::watch_pressure), since a copy takes memory first.
///
/// What a forked child shares with its parent is copied, too: so it is better not called for a while after a fork.
pub fn use_huge_pages() -> bool {
    let Some(range) = Range::get().filter(|_| !pressure::is_high()) else { return false };
    match Way::get() {
        Way::Unknown | Way::None => false,
        way => make(range, way),
    }
}

/// Whether memory was taken since the last look, in a process that makes huge pages.
pub(super) fn has_grown(range: Range) -> bool {
    is_wanted() && range.header().high_seen.load(R) < range.header().high.load(R)
}

/// Whether the process makes huge pages.
pub(super) fn is_wanted() -> bool {
    matches!(Way::known(), Way::Collapse | Way::Allow)
}

/// Bytes in huge pages made here, of which nothing has gone back since.
pub(super) fn bytes(range: Range) -> usize {
    range.header().huge.load(R) * HUGE_PAGE
}

/// Huge pages by their numbers.
type Pages = core::ops::Range<usize>;

/// A bit of a huge page.
struct Bit {
    word: &'static AtomicU64,
    mask: u64,
}

impl Bit {
    /// It was dense when it was last looked at.
    fn dense(range: Range, page: usize) -> Bit {
        Bit { word: range.dense(page / IN_A_WORD), mask: 1 << (page % IN_A_WORD) }
    }

    /// It is huge.
    fn huge(range: Range, page: usize) -> Bit {
        Bit { word: range.huge(page / IN_A_WORD), mask: 1 << (page % IN_A_WORD) }
    }

    fn is_set(&self) -> bool {
        self.word.load(R) & self.mask != 0
    }

    /// Whether it was clear.
    fn set(&self) -> bool {
        self.word.fetch_or(self.mask, R) & self.mask == 0
    }

    /// Whether it was set.
    fn clear(&self) -> bool {
        self.is_set() && self.word.fetch_and(!self.mask, R) & self.mask != 0
    }
}

/// Whether all chunks of a huge page are somebody's.
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
    // Where the last call ended: so all have their turn.
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
            // Since now only.
            is_new = true;
            continue;
        }
        if look.made + look.found.len() >= MOST_MADE || counted == MOST_COUNTED {
            header.next_huge.store(page, R);
            // Not for ever, where all chunks are used and little of them is there.
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

/// All pages that are open, from one on, and then those before it.
fn pages_from(range: Range, first: usize) -> impl Iterator<Item = usize> {
    let within = move |least: usize, end: usize| {
        let page = move |chunk: usize| (chunk / IN_A_HUGE_PAGE).clamp(least, end);
        range.known_parts().flat_map(move |part| page(part.start)..page(part.end))
    };
    within(first, usize::MAX).chain(within(0, first))
}

/// Huge pages that are being made, neighbours at once: the kernel has each cpu do something for each call.
struct Look {
    range: Range,
    way: Way,
    areas: usize,
    /// Those to be made next.
    found: Pages,
    made: usize,
}

impl Look {
    /// One more; false if there is no memory to make more of.
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

    /// Makes those that were found; false if there is no memory to make more of.
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
        // SAFETY: huge pages of the range.
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
            // Something is with one of them, and the others may be huge: which one? Who is huge already is so at
            // once.
            Errno::EINVAL | Errno::EAGAIN if len > 1 => {
                let middle = found.start + len / 2;
                self.make(found.start..middle) && self.make(middle..found.end)
            }
            // A kernel that cannot, a process that must not, or a program that has done something to its mapping:
            // the first ones of all tell.
            Errno::EINVAL => {
                let refused = header.huge_refused.fetch_add(1, R) + 1;
                let cannot = refused >= REFUSALS && header.huge_ever.load(R) == 0;
                if cannot && self.way == Way::Collapse {
                    Way::Allow.set();
                }
                !cannot
            }
            // Somebody has his hands on it.
            Errno::EAGAIN => true,
            _ => false,
        }
    }
}

/// Whether nearly all of a huge page is in memory. Zeros that were only read are none.
fn is_there(range: Range, page: usize) -> bool {
    let (at, mut there) = (address(range, page), 0);
    pages::for_each_placed(at, HUGE_PAGE, |_| there += 1);
    // Nothing; or the kernel does not say, as in many containers. Then zeros that were only read look like others:
    // there are none in spans, where a program writes to its objects.
    if there == 0 && is_of_spans(range, page) && pages::is_resident(at) {
        pages::for_each_resident(at, HUGE_PAGE, |_| there += 1);
    }
    there >= enough()
}

/// Whether all chunks of a huge page are of spans.
fn is_of_spans(range: Range, page: usize) -> bool {
    let first = page * IN_A_HUGE_PAGE;
    let mut kinds = (first..first + IN_A_HUGE_PAGE).map(|chunk| range.kind(chunk).load(R));
    kinds.all(|kind| (1..=CLASSES).contains(&usize::from(kind)))
}

/// Stretches of pages that are mappings of their own.
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

/// Whether the bit was set.
fn unset(range: Range, bit: &Bit) -> bool {
    let was_set = bit.clear();
    if was_set {
        range.header().huge.fetch_sub(1, R);
    }
    was_set
}

/// Before a part of the range goes back to the kernel: huge pages that it lies in are small ones from here on.
///
/// # Safety
/// The part is whole pages; the caller has it alone and needs nothing of what is in it.
pub(super) unsafe fn break_up(range: Range, part: usize, len: usize) {
    let page_of = |address: usize| range.chunk_of(address) / IN_A_HUGE_PAGE;
    for page in page_of(part)..=page_of(part + len - 1) {
        if !unset(range, &Bit::huge(range, page)) {
            continue;
        }
        let at = address(range, page);
        let (start, end) = (part.max(at as usize), (part + len).min(at as usize + HUGE_PAGE));
        // SAFETY: one huge page of the range, and what the caller has of it.
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
#[path = "huge_tests.rs"]
mod tests;
