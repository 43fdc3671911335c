//! Mapping of chunks: a chunk is mapped when it is first claimed, and unmapped when a long stretch around it is free.
//!
//! A chunk that is not mapped ("not open") can be claimed like any other; the thread that claims it maps it first. It
//! also claims and maps free neighbours, in proportion to what is mapped already. So a growing program makes few
//! system calls, and its address space follows its use. Only the owner of a chunk maps and unmaps it: there is no
//! lock and no wait, and a fork leaves at worst unused chunks.
//!
//! A chunk that overlaps a mapping of the program ("foreign") is not mapped and stays claimed for good. Its extent is
//! found by halving, in a few calls, however long the foreign mapping is.
//!
//! # Invariants
//! 1. Only a chunk's owner changes its bit in `open`. The bit is set while the chunk is mapped.
//! 2. A chunk is all zero when it has just been mapped.
//! 3. Only a chunk's owner sets its bit in `foreign`, and then leaves the chunk claimed. The bit is never cleared.

use core::ops;
use core::sync::atomic::{AtomicBool, Ordering};

use super::runs::{for_each_word, free_bits};
use super::{huge, nodes};
use crate::alloc::layout::bits::{IN_A_WORD, mask};
use crate::alloc::layout::chunk::{CHUNK, IN_A_HUGE_PAGE};
use crate::alloc::layout::range::Range;
use crate::alloc::limit;
use crate::sys::memory::huge_pages;
use crate::sys::memory::page_size::page_size;
use crate::sys::memory::pages::{self, Refusal};

/// The least number of chunks mapped at once, if their neighbours are free: 512 KiB.
const LEAST_STEP: usize = 8;
/// The most, unless the run itself is longer: 64 MiB.
const MOST_STEP: usize = 1024;
/// Otherwise this fraction of the chunks already mapped.
const STEP_SHARE: usize = 4;

const R: Ordering = Ordering::Relaxed;

/// Whether the kernel populated the last chunks at once. A hint.
static FILLED: AtomicBool = AtomicBool::new(false);

/// The outcome of mapping a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::alloc) enum Opened {
    /// All of it is mapped.
    All,
    /// The kernel has no memory, or a limit of the process is reached.
    Refused,
    /// Another mapping overlaps the run. The chunks that it overlaps stay claimed; the others are freed, so the
    /// caller no longer owns the run.
    Foreign,
}

impl Range {
    /// Maps the unmapped chunks of a run of the caller's. The caller loses the run if the result is
    /// [`Opened::Foreign`].
    pub(in crate::alloc) fn open_run(self, run: ops::Range<usize>) -> Opened {
        let mut from = run.start;
        while let Some(closed) = self.next_stretch(from..run.end, false) {
            match self.open_stretch(closed.clone(), &run) {
                Opened::All => from = closed.end,
                Opened::Refused => return Opened::Refused,
                Opened::Foreign => {
                    self.free_own(run);
                    return Opened::Foreign;
                }
            }
        }
        Opened::All
    }

    /// Returns the first stretch of chunks that are mapped, or that are not.
    pub(in crate::alloc) fn next_stretch(
        self,
        within: ops::Range<usize>,
        is_open: bool,
    ) -> Option<ops::Range<usize>> {
        let start = self.first_that(within.clone(), is_open)?;
        let end = self.first_that(start..within.end, !is_open).unwrap_or(within.end);
        Some(start..end)
    }

    /// Returns the first chunk that is mapped, or that is not.
    fn first_that(self, within: ops::Range<usize>, is_open: bool) -> Option<usize> {
        let mut at = within.start;
        while at < within.end {
            let open = self.opened(at / IN_A_WORD).load(R);
            let bits = if is_open { open } else { !open } >> (at % IN_A_WORD);
            if bits != 0 {
                return Some(at + bits.trailing_zeros() as usize).filter(|at| *at < within.end);
            }
            at = (at / IN_A_WORD + 1) * IN_A_WORD;
        }
        None
    }

    /// Maps chunks of a run, none of which is mapped, and possibly neighbours of the run.
    fn open_stretch(self, closed: ops::Range<usize>, run: &ops::Range<usize>) -> Opened {
        // Long runs are not placed on a node: programs that divide work on an array let each thread touch its own
        // part first.
        let is_placed = run.len() <= IN_A_WORD;
        let wide = if FILLED.load(R) { closed.clone() } else { self.widen(&closed, run) };
        let mut opened = self.open_whole(wide.clone(), is_placed);
        if opened.is_ok() && self.is_filled(&wide) {
            for unused in [wide.start..closed.start, closed.end..wide.end] {
                // SAFETY: neighbours that `widen` claimed, with nothing in them. A refusal means that they are
                // locked.
                unsafe { self.close(unused) };
            }
        }
        if opened == Err(Refusal::Taken) {
            // With the neighbours, since the other mapping may be long.
            self.open_around(wide.clone(), is_placed);
        }
        self.free_own(wide.start..closed.start);
        self.free_own(closed.end..wide.end);
        if opened == Err(Refusal::NoMemory) && wide != closed {
            opened = self.open_whole(closed.clone(), is_placed);
            if opened == Err(Refusal::Taken) {
                self.open_around(closed.clone(), is_placed);
            }
        }
        match opened {
            Ok(()) => Opened::All,
            Err(_) if self.next_stretch(closed.clone(), false).is_none() => Opened::All,
            Err(_) if self.has_foreign(closed) => Opened::Foreign,
            Err(_) => Opened::Refused,
        }
    }

    /// Returns `true` if the kernel populates mappings at once because the process locks future memory
    /// (`mlockall(MCL_FUTURE)`). Mapping more than is needed then costs memory.
    fn is_filled(self, chunks: &ops::Range<usize>) -> bool {
        let last = self.address(chunks.end) - page_size();
        // The kernel does not take back locked memory (`mm/madvise.c`). SAFETY: a page of the caller's that was just
        // mapped and is all zero.
        let is_filled =
            unsafe { pages::advise(last as *mut u8, page_size(), libc::MADV_DONTNEED) }.is_err();
        if FILLED.load(R) != is_filled {
            FILLED.store(is_filled, R);
        }
        is_filled
    }

    /// Claims free, unmapped neighbours of a run, so that one call maps more.
    fn widen(self, closed: &ops::Range<usize>, run: &ops::Range<usize>) -> ops::Range<usize> {
        let bounds = self.known_part(self.node_of(closed.start));
        let mut wide = closed.clone();
        if closed.start == run.start {
            let floor = (closed.start & !(LEAST_STEP - 1)).max(bounds.start);
            let taken = self.take_closed(floor..closed.start);
            if taken == closed.start - floor {
                wide.start = floor;
            } else {
                free_bits(self, floor, taken);
            }
        }
        // A long run begins at a word; neighbours behind it would only serve shorter runs.
        if closed.end == run.end && run.len() <= IN_A_WORD {
            let step = (self.header().opened.load(R) / STEP_SHARE).clamp(LEAST_STEP, MOST_STEP);
            let end = (closed.start + step).next_multiple_of(LEAST_STEP).min(bounds.end);
            if end > closed.end {
                wide.end += self.take_closed(closed.end..end);
            }
        }
        wide
    }

    /// Claims free, unmapped chunks from the first one on until one is neither. Returns how many.
    fn take_closed(self, chunks: ops::Range<usize>) -> usize {
        let mut at = chunks.start;
        while at < chunks.end {
            let bit = at % IN_A_WORD;
            let most = (IN_A_WORD - bit).min(chunks.end - at);
            let words = self.words(at / IN_A_WORD);
            let taken = (words.used.load(R) | self.opened(at / IN_A_WORD).load(R)) >> bit;
            let count = (taken.trailing_zeros() as usize).min(most);
            if count == 0 || !words.take(mask(bit, count)) {
                break;
            }
            // Another thread may have mapped and freed some of them in between.
            if self.opened(at / IN_A_WORD).load(R) & mask(bit, count) != 0 {
                words.free(mask(bit, count));
                break;
            }
            at += count;
            if count < most {
                break;
            }
        }
        at - chunks.start
    }

    /// Maps chunks of the caller's, none of which is mapped, in one call.
    fn open_whole(self, chunks: ops::Range<usize>, is_placed: bool) -> Result<(), Refusal> {
        let (at, len) = (self.address(chunks.start), chunks.len() * CHUNK);
        #[cfg(test)]
        tests::OPENINGS.with(|openings| openings.set(openings.get() + 1));
        if !limit::count(self.header(), chunks.len()) {
            return Err(Refusal::NoMemory);
        }
        // SAFETY: chunks of the caller's that are not mapped, so nothing refers to them.
        if let Err(why) = unsafe { pages::map_at(at, len, true, self.ground()) } {
            self.header().opened.fetch_sub(chunks.len(), R);
            return Err(why);
        }
        for_each_word(chunks.start, chunks.len(), |word, mask| {
            self.opened(word).fetch_or(mask, R);
        });
        self.forbid_huge_pages(&chunks);
        if is_placed {
            for (node, part) in self.parts_of(chunks) {
                nodes::place(self, node, part);
            }
        }
        Ok(())
    }

    /// Forbids huge pages for newly mapped chunks, where a whole huge page is mapped now.
    fn forbid_huge_pages(self, chunks: &ops::Range<usize>) {
        let first = chunks.start / IN_A_HUGE_PAGE * IN_A_HUGE_PAGE;
        let end = chunks.end.next_multiple_of(IN_A_HUGE_PAGE);
        if end - first > IN_A_HUGE_PAGE || self.next_stretch(first..end, false).is_none() {
            // SAFETY: advice that leaves contents alone; unmapped parts are skipped.
            unsafe {
                huge_pages::forbid(self.address(first) as *mut u8, (end - first) * CHUNK);
            }
        }
    }

    /// Maps those chunks that no foreign mapping overlaps, and marks the others.
    #[cold]
    #[inline(never)]
    fn open_around(self, chunks: ops::Range<usize>, is_placed: bool) {
        let (at, len) = (self.address(chunks.start), chunks.len() * CHUNK);
        if chunks.len() == 1 || pages::is_mapped(at as *mut u8, len) {
            for_each_word(chunks.start, chunks.len(), |word, mask| {
                self.foreign(word).fetch_or(mask, R);
            });
            return;
        }
        let middle = chunks.start + chunks.len() / 2;
        for half in [chunks.start..middle, middle..chunks.end] {
            if self.open_whole(half.clone(), is_placed) == Err(Refusal::Taken) {
                self.open_around(half, is_placed);
            }
        }
    }

    /// Returns `true` if any of these chunks is foreign.
    fn has_foreign(self, chunks: ops::Range<usize>) -> bool {
        let mut found = false;
        for_each_word(chunks.start, chunks.len(), |word, mask| {
            found |= self.foreign(word).load(R) & mask != 0;
        });
        found
    }

    /// Frees chunks of the caller's, except foreign ones.
    fn free_own(self, chunks: ops::Range<usize>) {
        for_each_word(chunks.start, chunks.len(), |word, all| {
            let mut own = all & !self.foreign(word).load(R);
            while own != 0 {
                let bit = own.trailing_zeros() as usize;
                let count = (own >> bit).trailing_ones() as usize;
                free_bits(self, word * IN_A_WORD + bit, count);
                own &= !mask(bit, count);
            }
        });
    }

    /// Unmaps the mapped chunks of a run, neighbours in one call. False if some are still mapped and unchanged.
    ///
    /// # Safety
    /// - The chunks belong to the caller.
    /// - Their content is not needed.
    pub(in crate::alloc) unsafe fn close(self, run: ops::Range<usize>) -> bool {
        let mut from = run.start;
        while let Some(open) = self.next_stretch(from..run.end, true) {
            let (at, len) = (self.address(open.start), open.len() * CHUNK);
            #[cfg(test)]
            tests::CLOSED.with(|most| most.set(most.get().max(open.len())));
            // SAFETY: mapped chunks of the caller's whose content is not needed.
            let is_closed = unsafe {
                huge::break_up(self, at, len);
                pages::unmap_at(at, len, self.ground())
            };
            if !is_closed {
                return false;
            }
            for_each_word(open.start, open.len(), |word, mask| {
                self.opened(word).fetch_and(!mask, R);
            });
            self.header().opened.fetch_sub(open.len(), R);
            from = open.end;
        }
        true
    }
}

#[cfg(test)]
mod tests;
