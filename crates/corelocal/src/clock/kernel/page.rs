//! Back-end 1: the data that the vDSO itself reads.
//!
//! At each timer tick the kernel writes into a page beside the vDSO when the tick was, what the counter
//! showed then, and how fast the counter goes, NTP's corrections included. The vDSO's functions add what the
//! counter has advanced since. Doing the same sum here gives the same nanosecond, without the call, the
//! choice among clocks and the more expensive of two fences.
//!
//! The page is no ABI. Layouts differ (offsets in bytes; a time is two words for each clock's number):
//!
//! | kernels | data at | sequence | mode | last | mask | multiplier | shift | times |
//! |---|---|---|---|---|---|---|---|---|
//! | x86-64: 5.10, 6.1 | vvar + 128 | 0 | 4 | 8 | 16 | 24 | 28 | 32 |
//! | 6.12 | vvar + 128 | 0 | 4 | 8 | 24 | 32 | 36 | 40 |
//! | 6.18, 7.2 | vvar | 0 | 4 | 8 | 24 | 32 | 36 | 40 |
//! | aarch64: 5.10 to 7.2 | vvar | 0 | 4 | 8 | 16 | 24 | 28 | 32 |
//!
//! `kernel/probe.rs` finds out which, and believes what it finds only if all of it makes sense; `selector.rs`
//! believes it only after a thousand comparisons with the vDSO.
//!
//! # Data's way
//! ```text
//!   word ──► first half of the line: sequence|mode, last ──► counter ──► multiplier|shift, time
//!        ──► sequence|mode once more: the same? ──► (time + (counter - last) * multiplier) >> shift
//! ```
//!
//! # Invariants
//! 1. A [`KernelPage`] names memory in which the data of that layout was found, and which stays readable: the
//!    vDSO's data is mapped as long as the process.
//! 2. One word holds everything about it, so that one load decides the back-end: the address, a multiple of
//!    128; in bit 3 the layout, as what it adds to later fields' offsets; in bit 0 the fence.
//! 3. What was read counts only if the sequence was even before and the same after, and the mode is the
//!    expected one. Both are one word. The counter is read between the two, too: the kernel changes the rate
//!    such that time is continuous at the update, which may be long after `last`, so a counter from before
//!    an update (and the interrupt that made it) with data from after would be off by parts per million of
//!    the time in between.
//! 4. Products cannot overflow: the counter's advance is below 2^32 on the fast way, and is multiplied in
//!    128 bits on the other.

use core::ptr;

use crate::clock::Clock;
use crate::clock::counter::{self, Fence};
use crate::clock::status::Cause;
use crate::primitive::global::{AtomicU32, AtomicU64, Ordering, fence};
use crate::sys::arch::counter::Halves;

/// The kernel's clock source, as the page names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::clock) enum Mode {
    /// The cpu's counter.
    Counter,
    /// KVM's page for its guest, which is read instead of the counter.
    Pvclock,
}

impl Mode {
    /// Returns the mode with the kernel's number, if it is one of these.
    ///
    /// arm64 has two for its counter, one of which says that programs of 32 bits may not read it.
    #[inline(always)]
    pub(in crate::clock) const fn of(number: u64) -> Option<Mode> {
        match number {
            1 => Some(Mode::Counter),
            2 if cfg!(target_arch = "aarch64") => Some(Mode::Counter),
            2 => Some(Mode::Pvclock),
            _ => None,
        }
    }
}

/// The mode of a page that holds a time namespace's offsets and no time. Its sequence is odd for ever.
pub(in crate::clock) const TIME_NAMESPACE: u64 = 0x7fff_ffff;

/// The layout of the page. The discriminant is the number of bytes that later fields are moved by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::clock) enum Layout {
    /// The layout without the field `max_cycles`.
    Short = 0,
    /// The layout with it.
    Long = 8,
}

/// Offsets of the short layout.
pub(in crate::clock) mod offset {
    pub(crate) const LAST: usize = 8;
    pub(crate) const MASK: usize = 16;
    pub(crate) const RATE: usize = 24;
    pub(crate) const TIMES: usize = 32;
    /// The end of the data in both layouts.
    pub(crate) const END: usize = TIMES + 8 + 12 * 16;
}

/// The number of attempts during an update before the vDSO is asked: up to about a millisecond.
const PATIENCE: u32 = 1 << 13;

/// The address of the data, combined with its layout and the fence for reading the counter (invariant 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(in crate::clock) struct KernelPage(usize);

/// The parts of a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::clock) struct Reading {
    pub(in crate::clock) counter: u64,
    pub(in crate::clock) nanos: u64,
    /// Nanoseconds per count, times 2^32.
    pub(in crate::clock) rate: u64,
    /// What [`KernelPage::is_still`] compares with: the sequence is the low half.
    pub(in crate::clock) head: u64,
}

/// The page's data of one clock.
#[derive(Clone, Copy, Debug)]
pub(in crate::clock) struct Look {
    pub(in crate::clock) last: u64,
    pub(in crate::clock) multiplier: u32,
    pub(in crate::clock) shift: u32,
    /// The whole seconds, in nanoseconds.
    pub(in crate::clock) seconds: u64,
    pub(in crate::clock) fraction: u64,
}

impl KernelPage {
    const ALIGNMENT: usize = 128;

    /// Returns the data at an address, which is a multiple of 128; otherwise `None`.
    ///
    /// # Safety
    /// - Invariant 1.
    pub(in crate::clock) unsafe fn at(
        address: usize,
        layout: Layout,
        fence: Fence,
    ) -> Option<KernelPage> {
        let is_page = address != 0 && address % Self::ALIGNMENT == 0;
        is_page.then_some(KernelPage(address | layout as usize | fence.bit()))
    }

    /// Returns it as a word, which is at least 128.
    #[inline(always)]
    pub(in crate::clock) fn word(self) -> usize {
        self.0
    }

    /// Returns the page of a word.
    ///
    /// # Safety
    /// - The word is another page's [`word`](Self::word).
    #[inline(always)]
    pub(in crate::clock) unsafe fn of_word(word: usize) -> KernelPage {
        KernelPage(word)
    }

    /// Returns by which fence the counter is read.
    #[inline(always)]
    pub(in crate::clock) fn fence(self) -> Fence {
        Fence::of_bit(self.0)
    }

    /// Returns the time of `clock`, in nanoseconds; `None` if anything is unusual: an update is under way, the mode
    /// is another than the counter, the counter lags behind or ran far ahead. Each 64th tick is unusual too: see
    /// [`is_checked`].
    #[inline(always)]
    pub(in crate::clock) fn read_fast<const ORDERED: bool>(self, clock: Clock) -> Option<u64> {
        let head = self.head();
        // A fence of aarch64 waits for loads that a branch goes by. (x86-64's waits for all, and looks later.)
        if cfg!(target_arch = "aarch64") && head & 1 != 0 {
            return None;
        }
        let now = if ORDERED {
            counter::ordered_halves(self.fence())
        } else {
            counter::unordered_halves()
        };
        let last = self.last_halves();
        let rate = self.later(offset::RATE);
        let (seconds, fraction) = self.time(clock);
        let is_still = self.is_still(head);
        // What is known before the counter is looked at after it: a fence waits for all that comes before.
        if !is_still || !is_at_rest(head, Mode::Counter) || is_checked(head) {
            return None;
        }
        let advance = advance(now, last)?;
        // The multiplier is the low half of `rate`, the shift the high one. (4)
        let product = u64::from(advance).wrapping_mul(rate & 0xffff_ffff);
        let nanos = fraction.wrapping_add(product) >> ((rate >> 32) & 63);
        Some(seconds.wrapping_mul(NANOS).wrapping_add(nanos))
    }

    /// Returns sequence and mode, if the mode is `mode` and the state is normal, as in [`read_fast`](Self::read_fast).
    /// For a caller that then reads the counter, takes a [`look`](Self::look), and checks by
    /// [`is_still`](Self::is_still) that all of it is unchanged.
    #[inline(always)]
    pub(in crate::clock) fn head_at_rest(self, mode: Mode) -> Option<u64> {
        let head = self.head();
        (is_at_rest(head, mode) && !is_checked(head)).then_some(head)
    }

    /// Returns what the data says of `clock`.
    #[inline(always)]
    pub(in crate::clock) fn look(self, clock: Clock) -> Look {
        let (last, rate) = (self.field(offset::LAST), self.later(offset::RATE));
        let (seconds, fraction) = self.time(clock);
        Look {
            last,
            multiplier: rate as u32,
            shift: (rate >> 32) as u32,
            seconds: seconds.wrapping_mul(NANOS),
            fraction,
        }
    }

    /// Returns the time of `clock`, however long an update takes, by a counter of the caller's, which goes by what
    /// `mode` says.
    ///
    /// # Errors
    /// The counter's; [`Cause::UpdateStalled`], [`Cause::SourceSwitched`], [`Cause::TimeNamespace`].
    pub(in crate::clock) fn read(
        self,
        clock: Clock,
        mode: Mode,
        mut count: impl FnMut() -> Result<u64, Cause>,
    ) -> Result<Reading, Cause> {
        for _ in 0..PATIENCE {
            let head = self.head();
            if head >> 32 == TIME_NAMESPACE {
                return Err(Cause::TimeNamespace);
            }
            if head & 1 != 0 {
                core::hint::spin_loop();
                continue;
            }
            if Mode::of(head >> 32) != Some(mode) {
                return Err(Cause::SourceSwitched);
            }
            let counter = count()?;
            let (last, rate) = (self.field(offset::LAST), self.later(offset::RATE));
            let (seconds, fraction) = self.time(clock);
            if self.is_still(head) {
                let (multiplier, shift) = (rate & 0xffff_ffff, (rate >> 32) & 63);
                // A counter that lags behind, or that was read early: the kernel counts it as none, too.
                let advance = (counter.wrapping_sub(last) as i64).max(0) as u64;
                let product = u128::from(advance) * u128::from(multiplier);
                let nanos = ((u128::from(fraction) + product) >> shift) as u64;
                return Ok(Reading {
                    counter,
                    nanos: seconds.wrapping_mul(NANOS).wrapping_add(nanos),
                    rate: ((u128::from(multiplier) << 32) >> shift) as u64,
                    head,
                });
            }
        }
        Err(Cause::UpdateStalled)
    }

    /// Returns the time of the last tick by a coarse clock; `None` while an update is under way.
    #[inline(always)]
    pub(in crate::clock) fn read_coarse(self, clock: Clock) -> Option<u64> {
        let head = self.head();
        if head & 1 != 0 {
            return None;
        }
        let (seconds, nanos) = self.time(clock);
        self.is_still(head).then_some(seconds.wrapping_mul(NANOS).wrapping_add(nanos))
    }

    /// Returns the sequence number.
    pub(in crate::clock) fn sequence(self) -> u32 {
        self.head() as u32
    }

    /// Returns the sequence in the low half, mode in the high one. What is read later is from then or later.
    #[inline(always)]
    fn head(self) -> u64 {
        // Acquire: partner is the kernel's barrier between data and the even sequence.
        word(self.0 & !(Self::ALIGNMENT - 1)).load(Ordering::Acquire)
    }

    /// Returns `true` if nothing changed since `head`.
    #[inline(always)]
    pub(in crate::clock) fn is_still(self, head: u64) -> bool {
        // Partner: the kernel's barrier between the odd sequence and data.
        fence(Ordering::Acquire);
        self.field(0) == head
    }

    /// Returns the halves of `LAST`. On x86-64 they are loaded by themselves: a compiler that saw that the low one is
    /// half of the other would wait for the whole.
    #[inline(always)]
    fn last_halves(self) -> Halves {
        if cfg!(target_arch = "aarch64") {
            let last = self.field(offset::LAST);
            return (last as u32, (last >> 32) as u32);
        }
        let address = (self.0 & !(Self::ALIGNMENT - 1)) + offset::LAST;
        let half = |at: usize| {
            let half = ptr::with_exposed_provenance::<AtomicU32>(address + at);
            // SAFETY: as in `load`; the low half comes first in memory.
            unsafe { (*half).load(Ordering::Relaxed) }
        };
        (half(0), half(4))
    }

    /// Returns the whole seconds and the rest, of a clock.
    #[inline(always)]
    fn time(self, clock: Clock) -> (u64, u64) {
        let at = offset::TIMES + 16 * clock as usize;
        (self.later(at), self.later(at + 8))
    }

    /// Returns a word before the layouts part.
    #[inline(always)]
    fn field(self, offset: usize) -> u64 {
        load((self.0 & !(Self::ALIGNMENT - 1)) + offset)
    }

    /// Returns a word after: the layout's bit is part of the address. (2)
    #[inline(always)]
    fn later(self, offset: usize) -> u64 {
        load((self.0 & !1) + offset)
    }
}

const NANOS: u64 = 1_000_000_000;

/// Returns the counts from one value of the counter to another one, if they are fewer than 2^32.
#[inline(always)]
fn advance((low, high): Halves, (last_low, last_high): Halves) -> Option<u32> {
    if cfg!(target_arch = "aarch64") {
        // Of which the halves are parts.
        let advance =
            counter::whole((low, high)).wrapping_sub(counter::whole((last_low, last_high)));
        return u32::try_from(advance).ok();
    }
    // By halves, which is a subtraction and one with borrow. The low one is known earlier.
    let (advance, borrows) = low.overflowing_sub(last_low);
    (high.wrapping_sub(last_high).wrapping_sub(borrows.into()) == 0).then_some(advance)
}

/// Returns `true` if no update is under way and the mode is `mode`. (3)
#[inline(always)]
fn is_at_rest(head: u64, mode: Mode) -> bool {
    if cfg!(target_arch = "aarch64") {
        return head & 1 == 0 && Mode::of(head >> 32) == Some(mode);
    }
    let number = if mode == Mode::Pvclock { 2 } else { 1 };
    head & 0xffff_ffff_0000_0001 == number << 32
}

/// Returns `true` if this is one of the ticks, one in 64, in which a reading is compared with the vDSO's: that is how
/// the fast way is watched without a word or an instruction more for a deadline.
#[inline(always)]
pub(in crate::clock) fn is_checked(sequence: u64) -> bool {
    sequence & 0x7e == 0
}

#[inline(always)]
fn load(address: usize) -> u64 {
    word(address).load(Ordering::Relaxed)
}

/// Returns a word of the data, for loads only.
#[inline(always)]
fn word<'a>(address: usize) -> &'a AtomicU64 {
    // SAFETY: invariant 1; the offsets are multiples of 8 within the data. Loads of a word work on memory that is
    // mapped for reading only.
    unsafe { &*ptr::with_exposed_provenance(address) }
}
