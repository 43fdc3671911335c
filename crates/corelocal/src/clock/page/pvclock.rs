//! The page in which KVM and Xen tell a guest the time: 32 bytes for each virtual cpu, a point, a rate
//! and a version.
//!
//! Way of a reading: version, counter, fields, version again (`sequence.rs`); then
//! `system_time + ((counter - tsc_timestamp) shifted by tsc_shift) * multiplier / 2^32`.
//!
//! Layout (native byte order; `arch/x86/include/asm/pvclock-abi.h`):
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | version: odd while the rest changes |
//! | 4 | 4 | padding |
//! | 8 | 8 | counter at the point |
//! | 16 | 8 | nanoseconds at the point |
//! | 24 | 4 | multiplier: nanoseconds per shifted tick, times 2^32 |
//! | 28 | 1 | shift of ticks: to the left, or to the right if negative |
//! | 29 | 1 | flags: 1 stable, 2 guest was stopped |
//! | 30 | 2 | padding |
//!
//! Invariants:
//! 1. The flags are part of the copy. A look at them before a stable copy may see those of an earlier
//!    publication: a page that has just lost its stability would be believed.
//! 2. A counter behind the point is taken for the point: the clock stands still, it never goes back. Readers of a file
//!    ([`Subscriber`](super::Subscriber)) doubt one that is a microsecond behind or more: cpus differ by less.
//! 3. The arithmetic is the guest kernel's, to the bit, so that both clocks agree: the shift comes
//!    first, and what it shifts out is lost.

use super::clock_state::State;
use super::layout::{self, Head, Layout};
use super::lock_file::Annex;
use super::sequence::{self, Mark, Sequence, get, get32, put, put32};
use super::units::SKEW_NS;
use super::{ReadError, Refusal};
use crate::primitive::atomic::{AtomicU32, AtomicU64, Ordering};

/// All cpus' counters agree, so one page serves them all.
pub const STABLE: u8 = 1;
/// The guest was stopped for a while: by a debugger, a snapshot, a migration. Set by the hypervisor for
/// each cpu, cleared by the guest's kernel: a hint.
pub const GUEST_STOPPED: u8 = 2;

/// A page, in any memory: a hypervisor's, a shared file's, or the program's own.
///
/// ```
/// use corelocal::clock::page::ReadError;
/// use corelocal::clock::page::pvclock::{Content, Page, STABLE};
///
/// let page = Page::new();
/// assert_eq!(page.read(|| 0), Err(ReadError::Blank));
///
/// // A counter of 2 GHz: half a nanosecond a tick.
/// let content = Content {
///     counter: 1000,
///     nanoseconds: 70,
///     multiplier: 1 << 31,
///     shift: 0,
///     flags: STABLE,
/// };
/// page.write(&content);
/// let reading = page.read(|| 3000)?;
/// assert_eq!((reading.nanoseconds, reading.version), (1070, 2));
/// # Ok::<(), ReadError>(())
/// ```
#[repr(C)]
pub struct Page {
    version: AtomicU32,
    padding: AtomicU32,
    counter: AtomicU64,
    nanoseconds: AtomicU64,
    multiplier: AtomicU32,
    shift_and_flags: AtomicU32,
}

/// The content of a pvclock page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// The counter at the point.
    pub counter: u64,
    /// Nanoseconds since the page's epoch, at the point.
    pub nanoseconds: u64,
    /// Nanoseconds per shifted tick, times 2^32.
    pub multiplier: u32,
    /// The bits by which ticks are shifted left; right if negative.
    pub shift: i8,
    /// [`STABLE`], [`GUEST_STOPPED`]. Other bits are kept.
    pub flags: u8,
}

impl From<&State> for Content {
    /// Returns the nanoseconds beyond 2^64, which a page cannot tell, are cut off there.
    fn from(state: &State) -> Content {
        let (multiplier, shift) = state.period.for_pvclock();
        Content {
            counter: state.counter,
            nanoseconds: u64::try_from(state.time.as_nanos()).unwrap_or(u64::MAX),
            multiplier,
            shift,
            flags: if state.is_stable { STABLE } else { 0 },
        }
    }
}

/// A time read from a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The counter at the reading.
    pub counter: u64,
    /// The time at that counter: nanoseconds since the page's epoch, which no ABI defines. With KVM it
    /// is near the guest's boot.
    pub nanoseconds: u64,
    /// The page's version. It changes with each publication.
    pub version: u32,
    /// The page's flags.
    pub flags: u8,
}

impl Content {
    /// Returns the time at `counter`, in nanoseconds since the page's epoch.
    ///
    /// Constant time; one multiplication. Async-signal-safe.
    ///
    /// # Errors
    /// [`ReadError::Blank`] for a page of zeros, [`ReadError::Malformed`] for a shift that no page has,
    /// [`ReadError::Range`] if the counter is centuries away from the point.
    #[inline]
    pub fn nanoseconds_at(&self, counter: u64) -> Result<u64, ReadError> {
        if self.multiplier == 0 {
            return Err(ReadError::Blank);
        }
        // Saturating: (2).
        let passed = self.distance(counter.saturating_sub(self.counter))?;
        self.nanoseconds.checked_add(passed).ok_or(ReadError::Range)
    }

    /// Returns how many nanoseconds so many ticks take.
    #[inline]
    fn distance(&self, ticks: u64) -> Result<u64, ReadError> {
        let by = u32::from(self.shift.unsigned_abs());
        if by >= u64::BITS {
            return Err(ReadError::Malformed);
        }
        let shifted = if self.shift < 0 {
            ticks >> by
        } else if ticks.leading_zeros() < by {
            return Err(ReadError::Range);
        } else {
            ticks << by
        };
        let nanoseconds = (u128::from(shifted) * u128::from(self.multiplier)) >> 32;
        u64::try_from(nanoseconds).map_err(|_| ReadError::Range)
    }

    /// Doubts a counter that is further behind the point than those of two cpus are apart: it was set back.
    #[inline]
    pub(super) fn doubt_set_back(&self, counter: u64) -> Result<(), ReadError> {
        match self.counter.checked_sub(counter) {
            Some(behind) if self.distance(behind)? >= SKEW_NS => Err(ReadError::Range),
            _ => Ok(()),
        }
    }

    /// Returns the time at `counter`, if the page speaks for every cpu.
    #[inline]
    pub(super) fn reading(&self, mark: Mark, counter: u64) -> Result<Reading, ReadError> {
        let nanoseconds = self.nanoseconds_at(counter)?;
        if !self.is_stable() {
            return Err(ReadError::Unstable);
        }
        Ok(Reading { counter, nanoseconds, version: mark.number, flags: self.flags })
    }

    /// Returns `true` if the page speaks for every cpu.
    #[inline]
    pub fn is_stable(&self) -> bool {
        self.flags & STABLE != 0
    }
}

impl Page {
    const_unless_loom! {
        /// Creates a page that says nothing yet.
        pub fn new() -> Page {
            Page {
                version: AtomicU32::new(0),
                padding: AtomicU32::new(0),
                counter: AtomicU64::new(0),
                nanoseconds: AtomicU64::new(0),
                multiplier: AtomicU32::new(0),
                shift_and_flags: AtomicU32::new(0),
            }
        }
    }

    /// Returns the page at an address; `None` if the address is null or no multiple of 8.
    ///
    /// # Safety
    /// - A non-null, aligned address is that of 32 bytes of memory, readable for as long as `'a`.
    /// - The hypervisor and other writers change them by atomic stores only.
    /// - For [`write`](Page::write) they are also writable.
    pub unsafe fn from_ptr<'a>(at: *const u8) -> Option<&'a Page> {
        // SAFETY: the caller guarantees a readable page.
        unsafe { layout::at(at) }
    }

    /// Returns the time by this page and by a counter, which is read once for each attempt.
    ///
    /// The counter is read after the version. If its instruction may execute before earlier loads (`rdtsc` without a
    /// fence), the reading may belong to a moment some nanoseconds before the page was read.
    ///
    /// Constant time, apart from retries while a writer publishes, of which there are at most a thousand.
    /// Async-signal-safe if `counter` is.
    ///
    /// # Errors
    /// - [`ReadError::Odd`] or [`ReadError::Changing`] if every attempt met a writer.
    /// - [`ReadError::Unstable`] if it is not valid for every cpu.
    /// - [`ReadError::Blank`], [`ReadError::Malformed`] or [`ReadError::Range`] if its content does not lead to a time.
    #[inline]
    pub fn read(&self, counter: impl FnMut() -> u64) -> Result<Reading, ReadError> {
        let (mark, counter, content) = self.read_with(None, counter)?;
        content.reading(mark, counter)
    }

    /// Returns what the page says, in one piece, and its version.
    ///
    /// # Errors
    /// [`ReadError::Odd`] or [`ReadError::Changing`] if no attempt saw the page at rest.
    #[inline]
    pub fn content(&self) -> Result<(u32, Content), ReadError> {
        Layout::read(self, None).map(|(mark, content)| (mark.number, content))
    }

    /// Publishes `content`, as KVM does.
    ///
    /// One writer at a time: of two at once, readers may see a mixture. [`super::Publisher`] sees to
    /// that for files. Wait-free. Async-signal-safe, unless the signal interrupted another `write` to
    /// the same page.
    #[inline]
    pub fn write(&self, content: &Content) {
        self.publish(None, content);
    }
}

impl Layout for Page {
    const NUMBER: u8 = 1;
    const ANNEX_AT: usize = 32;
    const NEEDS_ANNEX: bool = true;

    fn examine(head: &Head<'_>) -> Result<(), Refusal> {
        // Nothing in a page tells that it is one.
        if head.len() < 32 { Err(Refusal::Short(head.len())) } else { Ok(()) }
    }

    fn format(_: &mut [u8; 4096]) {}

    #[inline(always)]
    fn mark(&self, _: Option<&Annex>) -> Mark {
        Sequence::load(&self.version, Ordering::Relaxed)
    }

    #[inline(always)]
    fn is_current(&self, _: Option<&Annex>, mark: Mark) -> bool {
        sequence::is_current(&self.version, mark)
    }

    #[inline]
    fn read_with<R>(
        &self,
        _: Option<&Annex>,
        mut clock: impl FnMut() -> R,
    ) -> Result<(Mark, R, Content), ReadError> {
        let (mark, (now, content)) = sequence::read(&self.version, || {
            let now = clock();
            let [shift, flags, _, _] = get32(&self.shift_and_flags).to_ne_bytes();
            let content = Content {
                counter: get(&self.counter),
                nanoseconds: get(&self.nanoseconds),
                multiplier: get32(&self.multiplier),
                shift: i8::from_ne_bytes([shift]),
                flags, // (1)
            };
            (now, content)
        })?;
        Ok((mark, now, content))
    }

    #[inline]
    fn publish(&self, _: Option<&Annex>, content: &Content) {
        sequence::write(&self.version, || {
            put(&self.counter, content.counter);
            put(&self.nanoseconds, content.nanoseconds);
            put32(&self.multiplier, content.multiplier);
            let [shift] = content.shift.to_ne_bytes();
            put32(&self.shift_and_flags, u32::from_ne_bytes([shift, content.flags, 0, 0]));
        });
    }
}

encoding!(Page, Content, "pvclock");
