//! The page in which the ClockBound daemon publishes how far `CLOCK_REALTIME` may be from true time: version 2 of its
//! shared memory protocol.
//!
//! It holds no time. A reader asks the kernel for the time, and the page for the error.
//!
//! Layout (native byte order):
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4, 4 | magic: two words, 0x414D5A4E and 0x43420200 |
//! | 8 | 4 | size of the segment |
//! | 12 | 2 | version: 2; 0 before the first publication |
//! | 14 | 2 | generation: odd while the rest changes, 0 before the first publication |
//! | 16, 24 | 8, 8 | as of: seconds, nanoseconds of `CLOCK_MONOTONIC_COARSE` |
//! | 32, 40 | 8, 8 | void after: likewise |
//! | 48 | 8 | bound in nanoseconds |
//! | 56 | 8 | disruption marker |
//! | 64 | 4 | greatest drift in parts per billion |
//! | 68 | 4 | status |
//! | 72 | 1 | whether the marker means something |
//!
//! Invariants:
//! 1. Sixteen bits of generation wrap after 32768 publications, within half a millisecond of continuous publishing.
//!    In this library's files a number of 64 bits stands beside it and follows the same protocol (`lock_file.rs`):
//!    both must be unchanged after the read, and only the generation is odd during a change. A foreign writer that
//!    takes over leaves the wide number as it is, and readers are then as safe as its own. In a foreign file the time
//!    of publication is compared, as part of the content.
//! 2. The generation is never 0 again: other readers take that for a page under construction.
//! 3. Bounds are rounded outwards.

mod content;

use super::layout::{self, Head, Layout};
use super::lock_file::Annex;
use super::sequence::{self, Mark, Sequence, get, get32, put};
use super::{ReadError, Refusal, Status};
use crate::primitive::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
pub use content::Content;
use content::{Raw, decode, of_halves};

const MAGIC: [u32; 2] = [0x414d_5a4e, 0x4342_0200];
const VERSION: u16 = 2;
const PAGE_BYTES: u32 = 80;
/// The length of the segment with our annex, which other readers take for fields of a later version.
const SEGMENT_BYTES: u32 = 128;

/// A page, in any memory.
///
/// ```
/// use corelocal::clock::page::{ReadError, Status, clockbound};
/// use std::time::Duration;
///
/// let page = clockbound::Page::new();
/// assert_eq!(page.content(), Err(ReadError::Blank));
/// page.write(&clockbound::Content {
///     as_of: Duration::from_secs(100),
///     void_after: Duration::from_secs(1100),
///     bound_ns: 40_000,
///     drift_ppb: 1_000,
///     status: Status::Synchronized,
///     ..clockbound::Content::default()
/// });
/// let content = page.content()?;
/// let realtime = Duration::from_secs(1_700_000_000);
/// // Two seconds later the clock may have drifted another 2 us.
/// let bounds = content.bounds_at(realtime, Duration::from_secs(102))?;
/// assert_eq!(bounds.latest - bounds.earliest, Duration::from_micros(84));
/// # Ok::<(), ReadError>(())
/// ```
#[repr(C)]
pub struct Page {
    magic: [AtomicU32; 2],
    size: AtomicU32,
    version: AtomicU16,
    generation: AtomicU16,
    as_of: [AtomicU64; 2],
    void_after: [AtomicU64; 2],
    bound_ns: AtomicU64,
    disruptions: AtomicU64,
    drift_and_status: AtomicU64,
    marker_counts: AtomicU64,
}

impl Page {
    const_unless_loom! {
        /// Creates a page that says nothing yet.
        pub fn new() -> Page {
            Page {
                magic: [AtomicU32::new(MAGIC[0]), AtomicU32::new(MAGIC[1])],
                size: AtomicU32::new(PAGE_BYTES),
                version: AtomicU16::new(VERSION),
                generation: AtomicU16::new(0),
                as_of: [AtomicU64::new(0), AtomicU64::new(0)],
                void_after: [AtomicU64::new(0), AtomicU64::new(0)],
                bound_ns: AtomicU64::new(0),
                disruptions: AtomicU64::new(0),
                drift_and_status: AtomicU64::new(0),
                marker_counts: AtomicU64::new(0),
            }
        }
    }

    /// Returns the page at an address; `None` if the address is null or no multiple of 8, or if what is there
    /// does not begin with the magic, a sufficient size and version 2.
    ///
    /// # Safety
    /// - A non-null, aligned address is that of 80 bytes of memory, readable for as long as `'a`.
    /// - A daemon and other writers change them by atomic stores only.
    /// - For [`write`](Page::write) they are also writable.
    pub unsafe fn from_ptr<'a>(at: *const u8) -> Option<&'a Page> {
        // SAFETY: the caller guarantees a readable page.
        let page: &Page = unsafe { layout::at(at) }?;
        let is_page = get32(&page.magic[0]) == MAGIC[0]
            && get32(&page.magic[1]) == MAGIC[1]
            && get32(&page.size) >= PAGE_BYTES
            && page.version.load(Ordering::Relaxed) == VERSION;
        is_page.then_some(page)
    }

    content_and_write!(Content,
        /// [`ReadError::Blank`] before the first publication; [`ReadError::Malformed`] for times and states that
        /// there are not.
    );
}

/// The generation and its mirror (invariant 1).
pub(super) struct Generation<'a> {
    pub(super) narrow: &'a AtomicU16,
    pub(super) wide: Option<&'a AtomicU64>,
}

impl Sequence for Generation<'_> {
    /// Returns the narrow number first, always with Acquire: its partner is the Release store of an even one. So if a
    /// thread takes a narrow number for an earlier one, since it wrapped, it sees a wide one that is at least as new.
    #[inline(always)]
    fn load(&self, order: Ordering) -> Mark {
        let number = u32::from(self.narrow.load(Ordering::Acquire));
        Mark { number, wide: self.wide.map_or(0, |wide| wide.load(order)) }
    }

    #[inline(always)]
    fn store(&self, mark: Mark, order: Ordering) {
        if let Some(wide) = self.wide {
            wide.store(mark.wide, order);
            sequence::stopping_point();
        }
        self.narrow.store(mark.number as u16, order);
    }

    #[inline(always)]
    fn next(mark: Mark) -> Mark {
        // 65535 is odd; its successor is 2. (2)
        let number = if mark.number == 0xffff { 2 } else { mark.number + 1 };
        Mark { number, wide: mark.wide.wrapping_add(1) }
    }
}

impl Page {
    /// Sets it as a page of many publications.
    #[cfg(all(test, not(loom)))]
    pub(super) fn set_generation(&self, generation: u16) {
        self.generation.store(generation, Ordering::Relaxed);
    }

    /// Returns the generation for a reader. In a foreign file the time of publication stands in for the wide number: it
    /// is mostly another one each time.
    #[inline(always)]
    fn generation<'a>(&'a self, annex: Option<&'a Annex>) -> Generation<'a> {
        let wide = annex.map_or(&self.as_of[1], |annex| &annex.wide);
        Generation { narrow: &self.generation, wide: Some(wide) }
    }
}

impl Layout for Page {
    const NUMBER: u8 = 3;
    const ANNEX_AT: usize = 96;

    fn examine(head: &Head<'_>) -> Result<(), Refusal> {
        match (head.word(0), head.word(4), head.word(8), head.half(12)) {
            (Some(first), Some(second), Some(size), Some(version)) => {
                if [first, second] != MAGIC {
                    Err(Refusal::Foreign)
                } else if size < PAGE_BYTES || u64::from(size) > head.file_len() {
                    Err(Refusal::Size(u64::from(size)))
                } else if version != VERSION {
                    Err(Refusal::Version(version))
                } else {
                    Ok(())
                }
            }
            _ => Err(Refusal::Short(head.len())),
        }
    }

    fn format(image: &mut [u8; 4096]) {
        image[..4].copy_from_slice(&MAGIC[0].to_ne_bytes());
        image[4..8].copy_from_slice(&MAGIC[1].to_ne_bytes());
        image[8..12].copy_from_slice(&SEGMENT_BYTES.to_ne_bytes());
        image[12..14].copy_from_slice(&VERSION.to_ne_bytes());
    }

    #[inline(always)]
    fn mark(&self, annex: Option<&Annex>) -> Mark {
        self.generation(annex).load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn is_current(&self, annex: Option<&Annex>, mark: Mark) -> bool {
        sequence::is_current(&self.generation(annex), mark)
    }

    #[inline]
    fn read_with<R>(
        &self,
        annex: Option<&Annex>,
        mut clock: impl FnMut() -> R,
    ) -> Result<(Mark, R, Content), ReadError> {
        let (mark, (now, raw)) = sequence::read(&self.generation(annex), || {
            let now = clock();
            let raw = Raw {
                version: self.version.load(Ordering::Relaxed),
                as_of: [get(&self.as_of[0]), get(&self.as_of[1])],
                void_after: [get(&self.void_after[0]), get(&self.void_after[1])],
                bound_ns: get(&self.bound_ns),
                disruptions: get(&self.disruptions),
                drift_and_status: get(&self.drift_and_status),
                marker_counts: get(&self.marker_counts),
            };
            (now, raw)
        })?;
        // While the daemon makes its file anew both are 0; a later daemon has another version.
        if mark.number == 0 || raw.version == 0 {
            return Err(ReadError::Blank);
        }
        if raw.version != VERSION {
            return Err(ReadError::Malformed);
        }
        Ok((mark, now, decode(&raw)?))
    }

    #[inline]
    fn publish(&self, annex: Option<&Annex>, content: &Content) {
        let status = match content.status {
            Status::Unknown | Status::Initializing | Status::Unreliable => 0,
            Status::Synchronized => 1,
            Status::FreeRunning => 2,
            Status::Disrupted => 3,
        };
        // A hypervisor's marker is compared with the hypervisor's page: it stays what it is.
        let recoveries = annex.map_or(0, Annex::recoveries);
        let recoveries = if content.marker_counts { 0 } else { recoveries };
        let wide = annex.map(|annex| &annex.wide);
        sequence::write(&Generation { narrow: &self.generation, wide }, || {
            put(&self.as_of[0], content.as_of.as_secs());
            put(&self.as_of[1], u64::from(content.as_of.subsec_nanos()));
            put(&self.void_after[0], content.void_after.as_secs());
            put(&self.void_after[1], u64::from(content.void_after.subsec_nanos()));
            put(&self.bound_ns, content.bound_ns.min(i64::MAX as u64));
            put(&self.disruptions, content.disruptions.wrapping_add(recoveries));
            put(&self.drift_and_status, of_halves([content.drift_ppb, status]));
            let marker_counts = u8::from(content.marker_counts);
            put(&self.marker_counts, u64::from_ne_bytes([marker_counts, 0, 0, 0, 0, 0, 0, 0]));
        });
    }
}

encoding!(Page, Content, "clockbound");
