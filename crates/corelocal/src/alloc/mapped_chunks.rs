//! Chunks of the range that are mapped, and how: when they are taken for the first time, and no more when a whole
//! stretch of them is free.
//!
//! A chunk that is not open can be taken like any other, and is opened by the thread that has taken it, before
//! anything else. Around it free neighbours are taken and opened, too, in proportion to what is open: so a growing
//! program pays for few system calls, and its address space follows what it uses. Since the owner of a chunk
//! alone opens and closes it there is no lock, no thread waits, and a fork leaves at worst chunks out of use.
//!
//! A chunk where a mapping of the program lies, in whole or in part, is not opened and stays taken for ever. Where it
//! begins and ends is found by halving, in a few calls, however long it is.
//!
//! # Invariants
//! 1. The bit in `open` of a chunk is changed by its owner alone. It is set while the chunk is mapped.
//! 2. A chunk that is opened is all zero.
//! 3. The bit in `foreign` of a chunk is set by its owner, who then leaves the chunk taken. It is never cleared.

use core::ops;
use core::sync::atomic::{AtomicBool, Ordering};

use super::bits::{IN_A_WORD, mask};
use super::huge::IN_A_HUGE_PAGE;
use super::range::{CHUNK, HUGE_PAGE, Range};
use super::store::{for_each_word, free_bits};
use super::{huge, nodes};
use crate::sys::huge_pages;
use crate::sys::page_size::page_size;
use crate::sys::pages::{self, Refusal};

/// Chunks that are opened at once at least, where their neighbours are free: 512 KiB.
const LEAST_STEP: usize = 8;
/// And at most, but for a longer run: 64 MiB.
const MOST_STEP: usize = 1024;
/// Of what is open so much is opened at once.
const STEP_SHARE: usize = 4;

const R: Ordering = Ordering::Relaxed;

/// Whether the kernel filled what was opened last. A hint.
static FILLED: AtomicBool = AtomicBool::new(false);

/// What came of opening a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opened {
    /// All of it is open.
    All,
    /// The kernel has no memory, or a limit of the process is reached.
    Refused,
    /// Another mapping lies there. Its chunks stay taken; the others are free again, so the run is no longer the
    /// caller's.
    Foreign,
}

impl Range {
    /// Opens what is not open of a run of the caller's, which is the caller's no longer if the result is
    /// [`Opened::Foreign`].
    pub(super) fn open_run(self, run: ops::Range<usize>) -> Opened {
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

    /// The first stretch of chunks that are open, or that are not.
    pub(super) fn next_stretch(
        self,
        within: ops::Range<usize>,
        is_open: bool,
    ) -> Option<ops::Range<usize>> {
        let start = self.first_that(within.clone(), is_open)?;
        let end = self.first_that(start..within.end, !is_open).unwrap_or(within.end);
        Some(start..end)
    }

    /// The first chunk that is open, or that is not.
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

    /// Opens chunks of a run, none of which is open, and perhaps neighbours of the run.
    fn open_stretch(self, closed: ops::Range<usize>, run: &ops::Range<usize>) -> Opened {
        // Runs that are long lie where they are written to first: programs that share the work on an array let each
        // thread begin with its part.
        let is_placed = run.len() <= IN_A_WORD;
        let wide = if FILLED.load(R) { closed.clone() } else { self.widen(&closed, run) };
        let mut opened = self.open_whole(wide.clone(), is_placed);
        if opened.is_ok() && self.is_filled(&wide) {
            for unused in [wide.start..closed.start, closed.end..wide.end] {
                // SAFETY: neighbours, which `widen` has taken, and which hold nothing. Refused, they are locked.
                unsafe { self.close(unused) };
            }
        }
        if opened == Err(Refusal::Taken) {
            // With the neighbours: another mapping may be long.
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

    /// Whether the kernel has filled what was opened just now, since the process locks all that is mapped
    /// (`mlockall(MCL_FUTURE)`): then opening more than is used costs memory.
    fn is_filled(self, chunks: &ops::Range<usize>) -> bool {
        let last = self.address(chunks.end) - page_size();
        // The kernel takes nothing back of what is locked (`mm/madvise.c`).
        // SAFETY: a page of the caller's, mapped just now and all zero.
        let is_filled =
            unsafe { pages::advise(last as *mut u8, page_size(), libc::MADV_DONTNEED) }.is_err();
        if FILLED.load(R) != is_filled {
            FILLED.store(is_filled, R);
        }
        is_filled
    }

    /// Takes free neighbours of a run that are not open: with them one call opens more.
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
        // A long run begins with a word: what would be opened behind it is for shorter ones alone.
        if closed.end == run.end && run.len() <= IN_A_WORD {
            let step = (self.header().opened.load(R) / STEP_SHARE).clamp(LEAST_STEP, MOST_STEP);
            let end = (closed.start + step).next_multiple_of(LEAST_STEP).min(bounds.end);
            if end > closed.end {
                wide.end += self.take_closed(closed.end..end);
            }
        }
        wide
    }

    /// Takes chunks that are free and not open, from the first one on until one is not; how many.
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
            // Another owner may have opened some, and have given them back meanwhile.
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

    /// Opens chunks of the caller's, none of which is open, in one call.
    fn open_whole(self, chunks: ops::Range<usize>, is_placed: bool) -> Result<(), Refusal> {
        let (at, len) = (self.address(chunks.start), chunks.len() * CHUNK);
        #[cfg(test)]
        tests::OPENINGS.with(|openings| openings.set(openings.get() + 1));
        // SAFETY: chunks of the caller's that are not open, which nothing refers to.
        unsafe { pages::map_at(at, len, true, self.ground())? };
        for_each_word(chunks.start, chunks.len(), |word, mask| {
            self.opened(word).fetch_or(mask, R);
        });
        self.header().opened.fetch_add(chunks.len(), R);
        self.forbid_huge_pages(&chunks);
        if is_placed {
            for (node, part) in self.parts_of(chunks) {
                nodes::place(self, node, part);
            }
        }
        Ok(())
    }

    /// The kernel makes no huge pages of what was opened: it could where all chunks of one are open.
    fn forbid_huge_pages(self, chunks: &ops::Range<usize>) {
        let first = chunks.start / IN_A_HUGE_PAGE * IN_A_HUGE_PAGE;
        let end = chunks.end.next_multiple_of(IN_A_HUGE_PAGE);
        if end - first > IN_A_HUGE_PAGE || self.next_stretch(first..end, false).is_none() {
            // SAFETY: advice that changes no contents. What is not mapped there is left out.
            unsafe {
                huge_pages::forbid(self.address(first) as *mut u8, (end - first) * CHUNK);
            }
        }
    }

    /// Opens what can be opened of chunks where another mapping lies, and marks the others.
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

    /// Whether another mapping was found in any of these chunks.
    fn has_foreign(self, chunks: ops::Range<usize>) -> bool {
        let mut found = false;
        for_each_word(chunks.start, chunks.len(), |word, mask| {
            found |= self.foreign(word).load(R) & mask != 0;
        });
        found
    }

    /// Gives chunks of the caller's back, but for those where another mapping lies.
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

    /// Unmaps what is open of a run, neighbours in one call; false if some are open still, and as they were.
    ///
    /// # Safety
    /// The chunks are the caller's, who needs nothing of what is in them.
    pub(super) unsafe fn close(self, run: ops::Range<usize>) -> bool {
        let mut from = run.start;
        while let Some(open) = self.next_stretch(from..run.end, true) {
            let (at, len) = (self.address(open.start), open.len() * CHUNK);
            #[cfg(test)]
            tests::CLOSED.with(|most| most.set(most.get().max(open.len())));
            // SAFETY: the caller's promise.
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

const _: () = assert!(IN_A_HUGE_PAGE * CHUNK == HUGE_PAGE);

#[cfg(test)]
#[path = "mapped_chunks_tests.rs"]
mod tests;
