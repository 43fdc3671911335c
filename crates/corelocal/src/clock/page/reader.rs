//! A page in a file, read by whoever likes.
//!
//! Way of a reading: the clock or counter; one look at the sequence number, which is nearly always that of
//! the content kept here; the arithmetic. Only after a publication the content is copied again.
//!
//! Invariants:
//! 1. The mapping is one page of a file that held a whole page of the encoding when it was opened, and
//!    was neither another's to write nor shorter than that.
//! 2. `content` is what the page said under `mark`, unless that is `Mark::NONE`, which no page has.
//! 3. The counter is read before the look at the sequence number. So the content was the page's when the
//!    counter was read, and still after.
//!
//! A file that is cut short after it was opened takes its memory along, and the next reading ends in
//! SIGBUS. That is why files are refused that others may write to: what remains is whom the reader trusts
//! anyway. Our publishers never cut, replace or remove a file; ClockBound's daemon cuts its own, at start, if
//! it finds it damaged.

use core::ffi::CStr;
use core::fmt;

use super::annex::Annex;
use super::layout::{FILE_BYTES, Head};
use super::sequence::Mark;
use super::{Bounds, Doubt, Encoding, Refusal, clockbound, pvclock, vmclock};
use crate::sys::shared_file::{FileStatus, Mapping, SharedFile};

/// A reader of a page in a file.
///
/// It keeps the last content, so each thread has its own; opening one costs some microseconds and a page of
/// address space. Readings are async-signal-safe. Whoever owns the file can end its readers with SIGBUS, by
/// cutting it short; see [`owner`](Subscriber::owner).
///
/// In a forked child it goes on reading. After the writer's death it reports [`Doubt::Odd`] if that came
/// within a publication; else the content stays what it is, and its bounds grow until it expires
/// ([`clockbound`]) or become useless. A new writer of the same file is noticed without opening anew.
///
/// The number of a content is 32 bits wide ([`pvclock`], [`vmclock`]): a content that is kept while
/// 2^31 others are published, with no reading in between, may be taken for current.
pub struct Subscriber<P: Encoding> {
    mapping: Mapping,
    has_annex: bool,
    mark: Mark,
    content: P::Content,
    owner: u32,
}

/// The page in a mapping of `FILE_BYTES`.
///
/// # Safety
/// The mapping is that long and readable.
#[inline(always)]
pub(super) unsafe fn page_in<P: Encoding>(mapping: &Mapping) -> &P {
    // SAFETY: readable by the caller's promise, aligned to a page, borrowed from the mapping; a page is
    // atomics, of which any bytes are values (`Layout`), and who else writes there does it as to such.
    unsafe { &*mapping.at().cast() }
}

/// The annex in a mapping of `FILE_BYTES`.
///
/// # Safety
/// As for [`page_in`].
#[inline(always)]
pub(super) unsafe fn annex_in<P: Encoding>(mapping: &Mapping) -> &Annex {
    // SAFETY: as in `page_in`; `ANNEX_AT` keeps it within the mapping and aligned (`Layout`).
    unsafe { &*mapping.at().add(P::ANNEX_AT).cast() }
}

/// What an open file holds, if it is a page of the encoding; whether it has an annex.
pub(super) fn examine<P: Encoding>(
    file: &SharedFile,
    status: &FileStatus,
) -> Result<bool, Refusal> {
    let mut bytes = [0; FILE_BYTES];
    let read = file.read_head(&mut bytes)?;
    let file_len = if status.is_device { u64::MAX } else { status.len };
    let head = Head::new(&bytes[..read], file_len);
    P::examine(&head)?;
    // A device's page is the hypervisor's, whatever it holds.
    let has_annex = status.is_regular && head.has_annex::<P>();
    if P::NEEDS_ANNEX && !has_annex { Err(Refusal::Foreign) } else { Ok(has_annex) }
}

impl<P: Encoding> Subscriber<P> {
    /// Opens the page in the file or device `path`: one of a [`Publisher`](super::Publisher),
    /// `/dev/vmclock0`, or ClockBound's `/var/run/clockbound/shm0`.
    ///
    /// # Errors
    /// [`Refusal`] if there is no such file, or it is not a page of this encoding, or others than its owner
    /// may write to it. [`Refusal::Short`] also while a file is just being made: try again.
    pub fn open(path: &CStr) -> Result<Subscriber<P>, Refusal> {
        let file = SharedFile::open(path)?;
        let status = file.status()?;
        if !status.is_regular && !status.is_device {
            return Err(Refusal::NotAFile);
        }
        if status.is_regular && status.mode & 0o022 != 0 {
            return Err(Refusal::Unsafe { owner: status.owner, mode: status.mode });
        }
        let has_annex = examine::<P>(&file, &status)?;
        let mapping = file.map(FILE_BYTES, false)?;
        let content = P::Content::default();
        Ok(Subscriber { mapping, has_annex, mark: Mark::NONE, content, owner: status.owner })
    }

    /// The number of the user whose file it is: who can make it say anything.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// How often a writer has found that the one before it had died in a publication; `None` for another
    /// program's page.
    pub fn recoveries(&self) -> Option<u64> {
        self.parts().1.map(Annex::recoveries)
    }

    /// What the page says.
    ///
    /// A load and a compare if that has not changed since the last call; else a copy, repeated while
    /// somebody publishes, a thousand times at most.
    ///
    /// # Errors
    /// [`Doubt::Odd`] or [`Doubt::Changing`] if no attempt saw the page at rest; [`Doubt::Blank`] or
    /// [`Doubt::Malformed`] where the encoding tells.
    #[inline]
    pub fn content(&mut self) -> Result<&P::Content, Doubt> {
        self.content_with(|| ()).map(|(_, (), content)| content)
    }

    /// What the page said at the last reading that succeeded: for whoever would rather go on with that
    /// than without when a reading ends in [`Doubt::Odd`]. `None` if none did.
    #[inline]
    pub fn last(&self) -> Option<&P::Content> {
        // (2)
        (self.mark != Mark::NONE).then_some(&self.content)
    }

    /// The content, and what `clock` said while it was the page's.
    #[inline]
    fn content_with<R>(
        &mut self,
        mut clock: impl FnMut() -> R,
    ) -> Result<(Mark, R, &P::Content), Doubt> {
        let now = clock();
        let (page, annex) = self.parts();
        // After the clock: (3).
        if page.is_current(annex, self.mark) {
            return Ok((self.mark, now, &self.content));
        }
        self.refresh(clock)
    }

    #[cold]
    fn refresh<R>(&mut self, clock: impl FnMut() -> R) -> Result<(Mark, R, &P::Content), Doubt> {
        let (page, annex) = self.parts();
        let (mark, now, content) = page.read_with(annex, clock)?;
        self.mark = mark;
        self.content = content;
        Ok((mark, now, &self.content))
    }

    #[inline(always)]
    fn parts(&self) -> (&P, Option<&Annex>) {
        // SAFETY: (1), by `open`.
        unsafe { (page_in(&self.mapping), self.has_annex.then(|| annex_in::<P>(&self.mapping))) }
    }
}

impl Subscriber<pvclock::Page> {
    /// The time by this page and by a counter, which must be the page's.
    ///
    /// # Errors
    /// As for [`pvclock::Page::read`].
    #[inline]
    pub fn now(&mut self, counter: impl FnMut() -> u64) -> Result<pvclock::Reading, Doubt> {
        let (mark, counter, content) = self.content_with(counter)?;
        content.reading(mark, counter)
    }
}

impl Subscriber<vmclock::Page> {
    /// The time by this page and by a counter, which must be the page's
    /// ([`vmclock::Content::counter_kind`]).
    ///
    /// # Errors
    /// As for [`content`](Subscriber::content) and [`vmclock::Content::time_at`].
    #[inline]
    pub fn now(&mut self, counter: impl FnMut() -> u64) -> Result<core::time::Duration, Doubt> {
        let (_, counter, content) = self.content_with(counter)?;
        content.time_at(counter)
    }

    /// Between what times the true one is, by this page and by a counter, which must be the page's.
    ///
    /// # Errors
    /// As for [`content`](Subscriber::content) and [`vmclock::Content::bounds_at`].
    #[inline]
    pub fn bounds(&mut self, counter: impl FnMut() -> u64) -> Result<Bounds, Doubt> {
        let (_, counter, content) = self.content_with(counter)?;
        content.bounds_at(counter)
    }
}

impl Subscriber<clockbound::Page> {
    /// Between what times the true one is, by this page, `CLOCK_REALTIME` and `CLOCK_MONOTONIC_COARSE`.
    ///
    /// # Errors
    /// As for [`content`](Subscriber::content) and [`clockbound::Content::bounds_at`].
    #[inline]
    pub fn bounds(&mut self) -> Result<Bounds, Doubt> {
        let (_, (realtime, monotonic), content) = self.content_with(|| {
            // In this order: a delay in between makes the bound larger, not wrong.
            (kernel_time(libc::CLOCK_REALTIME), kernel_time(libc::CLOCK_MONOTONIC_COARSE))
        })?;
        content.bounds_at(realtime, monotonic)
    }
}

/// The time of a clock that every kernel has.
#[inline]
fn kernel_time(clock: libc::clockid_t) -> core::time::Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place for the time. Cannot fail for these clocks; 1970 would be its answer.
    unsafe { libc::clock_gettime(clock, &mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    core::time::Duration::new(seconds, time.tv_nsec as u32)
}

impl<P: Encoding> fmt::Debug for Subscriber<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (page, annex) = self.parts();
        let content = page.read(annex).map(|(_, content)| content);
        f.debug_struct("Subscriber")
            .field("encoding", &P::NAME)
            .field("content", &content)
            .finish_non_exhaustive()
    }
}
