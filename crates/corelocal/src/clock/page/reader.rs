//! A page in a file, read by any number of processes.
//!
//! Way of a reading: the clock or counter; one look at the sequence number, which is nearly always that of
//! the content kept here; the arithmetic. Only after a publication the content is copied again.
//!
//! # Whose page is believed
//! A page of this process's own user or of root is mapped: they are believed, and can end this process anyway. The page
//! of any other user is refused, unless the caller names that user ([`open_of_user`](Subscriber::open_of_user)) or asks
//! for it by [`open_untrusted`](Subscriber::open_untrusted). In the last case it is never mapped, since its owner may
//! cut the file short, and access to a mapping beyond the end of its file ends in SIGBUS. A library must not handle
//! signals, and memory that cannot be cut (a sealed memfd) has no name that other users could open. So each reading
//! copies that page by `pread(2)` (`untrusted.rs`), which fails then.
//!
//! Publishers of this library never cut, replace or remove a file; ClockBound's daemon cuts its own, at start, if it
//! finds it damaged. A reader that must survive even that takes `open_untrusted` for any file.
//!
//! Invariants:
//! 1. The mapping is one page of a file that held a whole page of the encoding when it was opened, and
//!    was neither another's to write nor shorter than that. In an untrusted subscriber it is a page of zeros.
//! 2. `content` is what the page said under `mark`, unless that is `Mark::NONE`, which no page has. It stays
//!    `Mark::NONE` in an untrusted subscriber: so each reading goes to `refresh`, and the way of the others has no
//!    instruction for it.
//! 3. The counter is read before the look at the sequence number. So the content was the page's when the
//!    counter was read, and still after.
//! 4. A hypervisor raises its marker before the guest runs on a counter that it disrupted. The marker is read
//!    after the counter. So a counter from after a disruption is found out if the content is from before it,
//!    whether or not the page's writer lives.

use core::ffi::CStr;
use core::fmt;
use core::marker::PhantomData;

use super::layout::{FILE_BYTES, Head};
use super::lock_file::Annex;
use super::sequence::Mark;
use super::untrusted::{PageCopy, Untrusted};
use super::{Bounds, Encoding, ReadError, Refusal, Status, clockbound, pvclock, vmclock};
use crate::sys::file::shared_file::{FileStatus, Mapping, SharedFile};
use crate::sys::file::trust::{Owners, Rule};

/// A reader of a page in a file.
///
/// It keeps the last content, so each thread has its own; opening one costs some microseconds and one page (two where
/// `/dev/vmclock0` is readable) of
/// address space. Readings are async-signal-safe. The file's owner, which is this process's user or root, can end its
/// readers with SIGBUS by cutting the file short; [`open_untrusted`](Subscriber::open_untrusted) makes readers that
/// survive this, at the cost of system calls.
///
/// In a forked child it goes on reading. After the writer's death it reports [`ReadError::Odd`] if that came
/// within a publication; else the content stays what it is, and its bounds grow until it expires
/// ([`clockbound`], [`vmclock`]) or become useless. A new writer of the same file is noticed without opening anew.
///
/// The number of a content is 32 bits wide ([`pvclock`], [`vmclock`]): a content that is kept while
/// 2^31 others are published, with no reading in between, may be taken for current.
pub struct Subscriber<P: Encoding> {
    mapping: Mapping,
    has_annex: bool,
    mark: Mark,
    content: P::Content,
    /// Whether a reading has succeeded.
    has_content: bool,
    owner: u32,
    is_trusted: bool,
    /// The file that is read anew for each reading, instead of the mapping.
    untrusted: Option<Untrusted>,
    /// The hypervisor's page, if it can be read.
    device: Option<Mapping>,
}

/// The device of the hypervisor's page on Linux.
const DEVICE: &CStr = c"/dev/vmclock0";

/// Returns the page in a mapping of `FILE_BYTES`.
///
/// # Safety
/// - The mapping is that long and readable.
#[inline(always)]
pub(super) unsafe fn page_in<P: Encoding>(mapping: &Mapping) -> &P {
    // SAFETY: the caller guarantees that it is readable; it is page-aligned and borrowed from the mapping. A page
    // consists of atomics, for which any bytes are valid (`Layout`), and other threads write to it as such.
    unsafe { &*mapping.at().cast() }
}

/// Returns the annex in a mapping of `FILE_BYTES`.
///
/// # Safety
/// - The conditions of [`page_in`] hold.
#[inline(always)]
pub(super) unsafe fn annex_in<P: Encoding>(mapping: &Mapping) -> &Annex {
    // SAFETY: as in `page_in`; `ANNEX_AT` keeps it within the mapping and aligned (`Layout`).
    unsafe { &*mapping.at().add(P::ANNEX_AT).cast() }
}

/// Returns what an open file holds, if it is a page of the encoding; whether it has an annex.
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

/// A file that holds a page of the encoding, and that no other user than its owner may write to.
struct Opened<P> {
    file: SharedFile,
    status: FileStatus,
    has_annex: bool,
    encoding: PhantomData<P>,
}

impl<P: Encoding> Opened<P> {
    fn open(path: &CStr, owners: Owners) -> Result<Opened<P>, Refusal> {
        let (file, status) =
            SharedFile::open(path, &Rule { owners, may_be_device: true, ..Rule::TRUSTED })?;
        let has_annex = examine::<P>(&file, &status)?;
        Ok(Opened { file, status, has_annex, encoding: PhantomData })
    }

    fn subscriber(self, mapping: Mapping, untrusted: Option<Untrusted>) -> Subscriber<P> {
        let mut subscriber = Subscriber {
            mapping,
            has_annex: self.has_annex,
            mark: Mark::NONE,
            content: P::Content::default(),
            has_content: false,
            owner: self.status.owner,
            is_trusted: Owners::OwnOrRoot.include(self.status.owner),
            untrusted,
            device: None,
        };
        if self.status.is_regular {
            // Most machines have none. A page that counts on it says so.
            let _ = subscriber.watch(DEVICE);
        }
        subscriber
    }
}

impl<P: Encoding> Subscriber<P> {
    /// Opens the page in the file or device `path`: one of a [`Publisher`](super::Publisher),
    /// `/dev/vmclock0`, or ClockBound's `/var/run/clockbound/shm0`.
    ///
    /// # Errors
    /// [`Refusal`] if there is no such file, or it is not a page of this encoding. [`Refusal::NotAFile`] for FIFOs and
    /// directories. [`Refusal::Unsafe`] if it belongs to another user than this process's and root, or others than its
    /// owner may write to it. [`Refusal::Linked`] if it has several names.
    pub fn open(path: &CStr) -> Result<Subscriber<P>, Refusal> {
        Self::open_of(path, Owners::OwnOrRoot)
    }

    /// Opens the page in the file `path` of this user besides, which is believed as root is: that of a ClockBound
    /// daemon with a user of its own, say. The user can end this process with SIGBUS, by cutting the file short.
    ///
    /// # Errors
    /// As for [`open`](Subscriber::open), with [`Refusal::Unsafe`] for a third user's file.
    pub fn open_of_user(path: &CStr, user: u32) -> Result<Subscriber<P>, Refusal> {
        Self::open_of(path, Owners::OwnOrRootOr(user))
    }

    fn open_of(path: &CStr, owners: Owners) -> Result<Subscriber<P>, Refusal> {
        let opened = Opened::<P>::open(path, owners)?;
        let mapping = opened.file.map(FILE_BYTES, false)?;
        Ok(opened.subscriber(mapping, None))
    }

    /// Opens the page in the file or device `path`, whichever user's it is.
    ///
    /// What it says is up to that user: see [`owner`](Subscriber::owner) and [`is_trusted`](Subscriber::is_trusted).
    /// Nothing that this user does to the file can end this process: it is not mapped, and each reading makes at least
    /// three system calls.
    ///
    /// ```
    /// # #[cfg(not(target_os = "linux"))] fn main() {}
    /// # #[cfg(target_os = "linux")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use corelocal::clock::page::{ReadError, Publisher, Subscriber, pvclock};
    ///
    /// # let path = format!("{}/corelocal-doc-untrusted-{}", std::env::temp_dir().display(), std::process::id());
    /// # let file = path.clone();
    /// # let path = std::ffi::CString::new(path)?;
    /// let mut publisher = Publisher::<pvclock::Page>::create(&path)?;
    /// publisher.publish(&pvclock::Content { nanoseconds: 7, ..Default::default() })?;
    /// let mut subscriber = Subscriber::<pvclock::Page>::open_untrusted(&path)?;
    /// assert_eq!(subscriber.content()?.nanoseconds, 7);
    /// std::fs::File::create(&file)?; // cuts the page
    /// assert_eq!(subscriber.content(), Err(ReadError::Cut));
    /// # std::fs::remove_file(&file)?;
    /// # std::fs::remove_file(file + ".lock")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`open`](Subscriber::open), but for the owner. [`Refusal::Unsafe`] if others than the owner may write to
    /// the file.
    pub fn open_untrusted(path: &CStr) -> Result<Subscriber<P>, Refusal> {
        let opened = Opened::<P>::open(path, Owners::Any)?;
        let zeros = Mapping::of_zeros(FILE_BYTES)?;
        let file = SharedFile::duplicate(opened.file.descriptor())?;
        Ok(opened.subscriber(zeros, Some(Untrusted::new(file))))
    }

    /// Compares disruption markers with those of the hypervisor's page at `device` from now on, instead of
    /// those of `/dev/vmclock0`, which [`open`](Subscriber::open) takes where it is readable.
    ///
    /// # Errors
    /// As for [`open`](Subscriber::open). The comparison with the page before is over then, too.
    pub fn watch(&mut self, device: &CStr) -> Result<(), Refusal> {
        self.device = None;
        let opened = Opened::<vmclock::Page>::open(device, Owners::OwnOrRoot)?;
        self.device = Some(opened.file.map(FILE_BYTES, false)?);
        Ok(())
    }

    /// Returns the hypervisor's marker now.
    #[inline]
    fn marker(&self) -> Option<u64> {
        let device = self.device.as_ref()?;
        // SAFETY: `watch` found a page there, and mapped it readable.
        Some(unsafe { page_in::<vmclock::Page>(device) }.marker())
    }

    /// Returns `true` if the counter was disrupted since the page was published, as far as can be known: `word` is the
    /// annex's, loaded before the content. (4)
    #[inline]
    fn is_disrupted(&self, word: u64) -> bool {
        word != 0 && self.marker().is_some_and(|marker| !Annex::is_marker(word, marker))
    }

    /// Returns the annex's marker, for [`is_disrupted`](Subscriber::is_disrupted).
    #[inline(always)]
    fn marker_word(&self) -> Result<u64, ReadError> {
        match self.parts().1.map_or(0, Annex::marker) {
            // An untrusted subscriber's mapping is of zeros (1).
            0 if self.untrusted.is_some() => self.marker_word_of_copy(),
            word => Ok(word),
        }
    }

    #[cold]
    fn marker_word_of_copy(&self) -> Result<u64, ReadError> {
        let Some(untrusted) = &self.untrusted else { return Ok(0) };
        let mut copy = PageCopy::new();
        untrusted.copy::<P>(self.has_annex, &mut copy)?;
        Ok(copy.parts::<P>(self.has_annex).1.map_or(0, Annex::marker))
    }

    /// Returns the user id of the file's owner. The owner can make the page report any content.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Returns `true` if it is a page of this process's user or of root, or a device's.
    pub fn is_trusted(&self) -> bool {
        self.is_trusted
    }

    /// Returns how often a writer has found that the one before it had died in a publication; `None` for another
    /// program's page.
    pub fn recoveries(&self) -> Option<u64> {
        let of = |(_, annex): (&P, Option<&Annex>)| annex.map(Annex::recoveries);
        match &self.untrusted {
            None => of(self.parts()),
            Some(untrusted) => {
                let mut copy = PageCopy::new();
                untrusted.copy::<P>(self.has_annex, &mut copy).ok()?;
                of(copy.parts(self.has_annex))
            }
        }
    }

    /// Returns the page's content.
    ///
    /// A load and a compare if it has not changed since the last call. Otherwise a copy, retried while a writer
    /// publishes, at most a thousand times.
    ///
    /// # Errors
    /// - [`ReadError::Odd`] or [`ReadError::Changing`] if every attempt met a writer.
    /// - [`ReadError::Blank`] or [`ReadError::Malformed`] where the encoding can tell.
    #[inline]
    pub fn content(&mut self) -> Result<&P::Content, ReadError> {
        self.content_with(|| ()).map(|(_, (), content)| content)
    }

    /// Returns the content at the last successful reading, for callers that prefer it to none when a reading ends in
    /// [`ReadError::Odd`]. `None` if there was none.
    #[inline]
    pub fn last(&self) -> Option<&P::Content> {
        self.has_content.then_some(&self.content)
    }

    /// Returns the content, and what `clock` said while it was the page's.
    #[inline]
    fn content_with<R>(
        &mut self,
        mut clock: impl FnMut() -> R,
    ) -> Result<(Mark, R, &P::Content), ReadError> {
        let now = clock();
        let (page, annex) = self.parts();
        // After the clock: (3).
        if page.is_current(annex, self.mark) {
            return Ok((self.mark, now, &self.content));
        }
        self.refresh(clock)
    }

    /// Returns the counter and the content, if no disruption came between.
    #[inline]
    fn undisrupted(
        &mut self,
        counter: impl FnMut() -> u64,
    ) -> Result<(Mark, u64, &P::Content), ReadError> {
        let word = self.marker_word()?;
        let (mark, counter, _) = self.content_with(counter)?;
        if self.is_disrupted(word) {
            return Err(ReadError::Untrusted(Status::Disrupted));
        }
        Ok((mark, counter, &self.content))
    }

    #[cold]
    fn refresh<R>(
        &mut self,
        clock: impl FnMut() -> R,
    ) -> Result<(Mark, R, &P::Content), ReadError> {
        let (mark, now, content) = match &self.untrusted {
            None => {
                let (page, annex) = self.parts();
                let read = page.read_with(annex, clock)?;
                self.mark = read.0;
                read
            }
            // (2)
            Some(untrusted) => untrusted.read::<P, R>(self.has_annex, clock)?,
        };
        self.content = content;
        self.has_content = true;
        Ok((mark, now, &self.content))
    }

    #[inline(always)]
    fn parts(&self) -> (&P, Option<&Annex>) {
        // SAFETY: (1), by `open`.
        unsafe { (page_in(&self.mapping), self.has_annex.then(|| annex_in::<P>(&self.mapping))) }
    }
}

impl Subscriber<pvclock::Page> {
    /// Returns the time by this page and by a counter, which must be the page's.
    ///
    /// # Errors
    /// As for [`pvclock::Page::read`]; [`ReadError::Range`] also if the counter is a microsecond or more behind the
    /// point; [`ReadError::Untrusted`] with [`Status::Disrupted`] if the hypervisor disrupted the counter since the
    /// publication.
    #[inline]
    pub fn now(&mut self, counter: impl FnMut() -> u64) -> Result<pvclock::Reading, ReadError> {
        let (mark, counter, content) = self.undisrupted(counter)?;
        content.doubt_set_back(counter)?;
        content.reading(mark, counter)
    }
}

impl Subscriber<vmclock::Page> {
    /// Returns the time by this page and by a counter, which must be the page's
    /// ([`vmclock::Content::counter_kind`]).
    ///
    /// # Errors
    /// As for [`content`](Subscriber::content) and [`vmclock::Content::time_at`]; [`ReadError::Untrusted`] with
    /// [`Status::Disrupted`] if the hypervisor disrupted the counter since the
    /// publication.
    #[inline]
    pub fn now(&mut self, counter: impl FnMut() -> u64) -> Result<core::time::Duration, ReadError> {
        let (_, counter, content) = self.undisrupted(counter)?;
        content.time_at(counter)
    }

    /// Returns between what times the true one is, by this page and by a counter, which must be the page's.
    ///
    /// # Errors
    /// As for [`now`](Subscriber::now) and [`vmclock::Content::bounds_at`].
    #[inline]
    pub fn bounds(&mut self, counter: impl FnMut() -> u64) -> Result<Bounds, ReadError> {
        let (_, counter, content) = self.undisrupted(counter)?;
        content.bounds_at(counter)
    }
}

impl Subscriber<clockbound::Page> {
    /// Returns between what times the true one is, by this page, `CLOCK_REALTIME` and `CLOCK_MONOTONIC_COARSE`.
    ///
    /// # Errors
    /// As for [`content`](Subscriber::content) and [`clockbound::Content::bounds_at`]. If the page has the
    /// hypervisor's marker: [`ReadError::Untrusted`] with [`Status::Disrupted`] if the hypervisor's page has another
    /// one, [`ReadError::Unwatched`] if that page cannot be read.
    #[inline]
    pub fn bounds(&mut self) -> Result<Bounds, ReadError> {
        let (_, (realtime, monotonic), &content) = self.content_with(|| {
            // In this order: a delay in between makes the bound larger, not wrong.
            (kernel_time(libc::CLOCK_REALTIME), kernel_time(libc::CLOCK_MONOTONIC_COARSE))
        })?;
        if content.marker_counts {
            let marker = self.marker().ok_or(ReadError::Unwatched)?;
            if marker != content.disruptions {
                return Err(ReadError::Untrusted(Status::Disrupted));
            }
        }
        content.bounds_at(realtime, monotonic)
    }
}

/// Returns the time of a clock that every kernel has.
#[inline]
fn kernel_time(clock: libc::clockid_t) -> core::time::Duration {
    let time = crate::sys::kernel_clock::read(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    core::time::Duration::new(seconds, time.tv_nsec as u32)
}

impl<P: Encoding> fmt::Debug for Subscriber<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let content = match &self.untrusted {
            None => {
                let (page, annex) = self.parts();
                page.read(annex).map(|(_, content)| content)
            }
            Some(untrusted) => {
                untrusted.read::<P, ()>(self.has_annex, || ()).map(|(_, (), content)| content)
            }
        };
        f.debug_struct("Subscriber")
            .field("encoding", &P::NAME)
            .field("content", &content)
            .finish_non_exhaustive()
    }
}
