//! The page in which a hypervisor tells a guest the true time, how well it is known, and that the
//! guest's counter was disrupted: `/dev/vmclock0`, `include/uapi/linux/vmclock-abi.h`.
//!
//! Layout (little endian; bytes 0 to 12 never change):
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic "VCLK" |
//! | 4 | 4 | size of the region |
//! | 8 | 2 | version: 1 |
//! | 10, 11 | 1, 1 | which counter; which time scale |
//! | 12 | 4 | sequence |
//! | 16 | 8 | disruption marker |
//! | 24 | 8 | flags |
//! | 34, 35 | 1, 1 | status; smearing hint |
//! | 36 | 2 | TAI - UTC in seconds |
//! | 38, 39 | 1, 1 | leap indicator; shift of the periods |
//! | 40 | 8 | counter at the point |
//! | 48, 56, 64 | 8 each | period of the counter, its estimated and its greatest error: 2^-(64 + shift) s |
//! | 72, 80 | 8, 8 | time at the point: seconds; 2^-64 s |
//! | 88, 96 | 8, 8 | its estimated and its greatest error: ns |
//! | 104 | 8 | generation of the machine: another one after it was restored or cloned |
//!
//! Invariants:
//! 1. A counter a microsecond behind the point is taken for the point, and the bounds reach back that far. One
//!    further behind was set back since the publication: the page says nothing about it.
//! 2. Bounds are rounded outwards.
//! 3. The generation, which came later than the rest, is nothing without its flag: a region may end
//!    before it.

mod content;

use super::layout::{self, Head, Layout};
use super::lock_file::Annex;
use super::sequence::{self, Mark, Sequence, get, get32, put, put32};
use super::{ReadError, Refusal};
use crate::primitive::atomic::{AtomicU32, AtomicU64, Ordering};
pub use content::Content;
use content::{Raw, decode, kinds_of, small_of};

/// The bits of [`Content::flags`].
pub mod flags {
    /// `tai_offset` is valid.
    pub const TAI_OFFSET_VALID: u64 = 1 << 0;
    /// A disruption is expected within a day or so.
    pub const DISRUPTION_SOON: u64 = 1 << 1;
    /// A disruption is expected within an hour or so.
    pub const DISRUPTION_IMMINENT: u64 = 1 << 2;
    /// `period_estimated_error` is valid.
    pub const PERIOD_ESTIMATED_ERROR_VALID: u64 = 1 << 3;
    /// `period_max_error` is valid.
    pub const PERIOD_MAX_ERROR_VALID: u64 = 1 << 4;
    /// `estimated_error_ns` is valid.
    pub const ESTIMATED_ERROR_VALID: u64 = 1 << 5;
    /// `max_error_ns` is valid.
    pub const MAX_ERROR_VALID: u64 = 1 << 6;
    /// The time never goes back from one publication to the next.
    pub const MONOTONIC: u64 = 1 << 7;
    /// `generation` is valid.
    pub const GENERATION_PRESENT: u64 = 1 << 8;
}

/// The value of [`Content::counter_kind`] for the Arm generic timer.
pub const COUNTER_ARM: u8 = 0;
/// The value of [`Content::counter_kind`] for the x86 time-stamp counter.
pub const COUNTER_TSC: u8 = 1;
/// The value of [`Content::counter_kind`] for a page that only reports disruptions.
pub const COUNTER_NONE: u8 = super::clock_state::NO_COUNTER;

const MAGIC: u32 = u32::from_le_bytes(*b"VCLK");
const VERSION: u16 = 1;
/// The words `kinds` of a page of version 1 without a counter.
const NOTHING: u32 = u32::from_le_bytes([VERSION as u8, 0, COUNTER_NONE, 0]);
const FILE_BYTES: u32 = 4096;
/// The shortest length: up to the machine's generation, a later field that has a flag.
const LEAST_BYTES: u32 = 104;

/// A page, in any memory.
///
/// ```
/// use corelocal::clock::page::{Period, Status, vmclock};
/// use std::time::Duration;
///
/// let page = vmclock::Page::new();
/// let period = Period::from_hertz(1_000_000_000).unwrap();
/// page.write(&vmclock::Content {
///     counter_kind: vmclock::COUNTER_TSC,
///     counter: 5_000,
///     period: period.fraction,
///     period_shift: period.shift,
///     seconds: 1_700_000_000,
///     status: Status::Synchronized,
///     max_error_ns: 250,
///     period_max_error: period.error(1_000).fraction, // 1 ppm
///     flags: vmclock::flags::MAX_ERROR_VALID | vmclock::flags::PERIOD_MAX_ERROR_VALID,
///     ..vmclock::Content::default()
/// });
/// let content = page.content().unwrap();
/// assert_eq!(content.time_at(6_000).unwrap(), Duration::new(1_700_000_000, 1_000));
/// let bounds = content.bounds_at(6_000).unwrap();
/// assert_eq!(bounds.earliest, Duration::new(1_700_000_000, 1_000 - 251));
/// ```
#[repr(C)]
pub struct Page {
    magic: AtomicU32,
    size: AtomicU32,
    /// The version, the counter kind and the scale.
    kinds: AtomicU32,
    sequence: LittleEndian,
    disruptions: AtomicU64,
    flags: AtomicU64,
    /// The status, smearing, TAI offset, leap second and period shift, after some padding.
    small: AtomicU64,
    counter: AtomicU64,
    period: AtomicU64,
    period_estimated_error: AtomicU64,
    period_max_error: AtomicU64,
    seconds: AtomicU64,
    fraction: AtomicU64,
    estimated_error_ns: AtomicU64,
    max_error_ns: AtomicU64,
    generation: AtomicU64,
}

/// A sequence number that is little endian on every machine.
#[repr(transparent)]
struct LittleEndian(AtomicU32);

impl Sequence for LittleEndian {
    #[inline(always)]
    fn load(&self, order: Ordering) -> Mark {
        Mark { number: u32::from_le(self.0.load(order)), wide: 0 }
    }

    #[inline(always)]
    fn store(&self, mark: Mark, order: Ordering) {
        self.0.store(mark.number.to_le(), order);
    }
}

impl Page {
    const_unless_loom! {
        /// Creates a page that says nothing yet.
        pub fn new() -> Page {
            Page {
                magic: AtomicU32::new(MAGIC.to_le()),
                size: AtomicU32::new((size_of::<Page>() as u32).to_le()),
                kinds: AtomicU32::new(NOTHING.to_le()),
                sequence: LittleEndian(AtomicU32::new(0)),
                disruptions: AtomicU64::new(0),
                flags: AtomicU64::new(0),
                small: AtomicU64::new(0),
                counter: AtomicU64::new(0),
                period: AtomicU64::new(0),
                period_estimated_error: AtomicU64::new(0),
                period_max_error: AtomicU64::new(0),
                seconds: AtomicU64::new(0),
                fraction: AtomicU64::new(0),
                estimated_error_ns: AtomicU64::new(0),
                max_error_ns: AtomicU64::new(0),
                generation: AtomicU64::new(0),
            }
        }
    }

    /// Returns the page at an address; `None` if the address is null or no multiple of 8, or if what is there
    /// does not begin with the magic, a sufficient size and version 1.
    ///
    /// # Safety
    /// - A non-null, aligned address is that of 112 bytes of memory, readable for as long as `'a`.
    /// - The hypervisor and other writers change them by atomic stores only.
    /// - For [`write`](Page::write) they are also writable.
    pub unsafe fn from_ptr<'a>(at: *const u8) -> Option<&'a Page> {
        // SAFETY: the caller guarantees a readable page.
        let page: &Page = unsafe { layout::at(at) }?;
        let is_page = u32::from_le(get32(&page.magic)) == MAGIC
            && u32::from_le(get32(&page.size)) >= LEAST_BYTES
            && u32::from_le(get32(&page.kinds)) as u16 == VERSION;
        is_page.then_some(page)
    }

    content_and_write!(Content,);

    /// Returns the disruption marker by itself, which is one word.
    #[inline]
    pub fn marker(&self) -> u64 {
        // Acquire: partner is the hypervisor's store, before it lets the guest run on another counter.
        u64::from_le(self.disruptions.load(Ordering::Acquire))
    }
}

impl Layout for Page {
    const NUMBER: u8 = 2;
    const ANNEX_AT: usize = 4064;

    fn examine(head: &Head<'_>) -> Result<(), Refusal> {
        match (head.word(0), head.word(4), head.word(8)) {
            (Some(magic), Some(size), Some(kinds)) => {
                let size = u32::from_le(size);
                if u32::from_le(magic) != MAGIC {
                    Err(Refusal::Foreign)
                } else if u32::from_le(kinds) as u16 != VERSION {
                    Err(Refusal::Version(u32::from_le(kinds) as u16))
                } else if size < LEAST_BYTES || u64::from(size) > head.file_len() {
                    Err(Refusal::Size(u64::from(size)))
                } else {
                    Ok(())
                }
            }
            _ => Err(Refusal::Short(head.len())),
        }
    }

    fn format(image: &mut [u8; 4096]) {
        image[..4].copy_from_slice(&MAGIC.to_le_bytes());
        image[4..8].copy_from_slice(&FILE_BYTES.to_le_bytes());
        image[8..12].copy_from_slice(&NOTHING.to_le_bytes());
    }

    #[inline(always)]
    fn mark(&self, _: Option<&Annex>) -> Mark {
        self.sequence.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn is_current(&self, _: Option<&Annex>, mark: Mark) -> bool {
        sequence::is_current(&self.sequence, mark)
    }

    #[inline]
    fn read_with<R>(
        &self,
        _: Option<&Annex>,
        mut clock: impl FnMut() -> R,
    ) -> Result<(Mark, R, Content), ReadError> {
        let (mark, (now, raw)) = sequence::read(&self.sequence, || {
            let now = clock();
            let word = |word: &AtomicU64| u64::from_le(get(word));
            let raw = Raw {
                kinds: u32::from_le(get32(&self.kinds)),
                disruptions: word(&self.disruptions),
                flags: word(&self.flags),
                small: word(&self.small),
                counter: word(&self.counter),
                period: word(&self.period),
                period_estimated_error: word(&self.period_estimated_error),
                period_max_error: word(&self.period_max_error),
                seconds: word(&self.seconds),
                fraction: word(&self.fraction),
                estimated_error_ns: word(&self.estimated_error_ns),
                max_error_ns: word(&self.max_error_ns),
                generation: word(&self.generation),
            };
            (now, raw)
        })?;
        let mut content = decode(&raw);
        if content.flags & flags::GENERATION_PRESENT == 0 {
            // (3)
            content.generation = 0;
        }
        Ok((mark, now, content))
    }

    #[inline]
    fn publish(&self, annex: Option<&Annex>, content: &Content) {
        let recoveries = annex.map_or(0, Annex::recoveries);
        sequence::write(&self.sequence, || {
            let put = |word: &AtomicU64, value: u64| put(word, value.to_le());
            put32(&self.kinds, kinds_of(content).to_le());
            put(&self.disruptions, content.disruptions.wrapping_add(recoveries));
            put(&self.flags, content.flags);
            put(&self.small, small_of(content));
            put(&self.counter, content.counter);
            put(&self.period, content.period);
            put(&self.period_estimated_error, content.period_estimated_error);
            put(&self.period_max_error, content.period_max_error);
            put(&self.seconds, content.seconds);
            put(&self.fraction, content.fraction);
            put(&self.estimated_error_ns, content.estimated_error_ns);
            put(&self.max_error_ns, content.max_error_ns);
            put(&self.generation, content.generation);
        });
    }
}

encoding!(Page, Content, "vmclock");
