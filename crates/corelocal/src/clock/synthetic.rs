//! A page such as the kernel writes, for tests: in either layout, ticked by hand, damaged at will.

use core::sync::atomic::{AtomicU64, Ordering};
use std::boxed::Box;
use std::vec::Vec;

use super::Clock;
use super::counter::{self, Fence};
use super::kernel::page::{KernelPage, Layout, offset};

/// The clocks' times at the beginning, in seconds.
const START: [(Clock, u64); 6] = [
    (Clock::Realtime, 1_700_000_000),
    (Clock::Monotonic, 5_000),
    (Clock::Boottime, 6_000),
    (Clock::Tai, 1_700_000_037),
    (Clock::RealtimeCoarse, 1_700_000_000),
    (Clock::MonotonicCoarse, 5_000),
];

pub(super) const SHIFT: u64 = 24;

/// 0.385 ns a count: a counter of 2.6 GHz. On aarch64 16 ns: QEMU's counter of 62.5 MHz.
pub(super) const MULTIPLIER: u64 =
    if cfg!(target_arch = "aarch64") { 16 << SHIFT } else { 6_455_728 };

#[repr(align(128))]
pub(super) struct Synthetic {
    words: [AtomicU64; 48],
    layout: Layout,
    /// Twice the number of ticks, plus 1 during one. Threads that use the page as reference clock read this, since tests
    /// damage `words`.
    ticks: AtomicU64,
}

pub(super) fn now() -> u64 {
    counter::ordered_by(Fence::FENCED)
}

impl Synthetic {
    /// Creates a page of mode TSC whose last tick is now; never freed.
    pub(super) fn new(layout: Layout) -> &'static Synthetic {
        let words = core::array::from_fn(|_| AtomicU64::new(0));
        let page = Box::leak(Box::new(Synthetic { words, layout, ticks: AtomicU64::new(0) }));
        // Sequence 2: ticks 0, 64, … are those in which readings are compared.
        page.set(0, 1 << 32 | 2);
        page.set(offset::LAST, now());
        page.set_later(offset::MASK, u64::MAX);
        page.set_later(offset::RATE, SHIFT << 32 | MULTIPLIER);
        for (clock, seconds) in START {
            page.set_later(offset::TIMES + 16 * clock as usize, seconds);
        }
        page
    }

    pub(super) fn page(&'static self, fence: Fence) -> KernelPage {
        // SAFETY: leaked, so it stays; of that layout.
        unsafe { KernelPage::at(self.words.as_ptr().expose_provenance(), self.layout, fence) }
            .unwrap()
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect()
    }

    pub(super) fn get(&self, at: usize) -> u64 {
        self.words[at / 8].load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, at: usize, value: u64) {
        self.words[at / 8].store(value, Ordering::SeqCst);
    }

    pub(super) fn later(&self, at: usize) -> u64 {
        self.get(at + self.layout as usize)
    }

    pub(super) fn set_later(&self, at: usize, value: u64) {
        self.set(at + self.layout as usize, value);
    }

    pub(super) fn set_mode(&self, mode: u64) {
        self.set(0, mode << 32 | self.get(0) & 0xffff_ffff);
    }

    pub(super) fn sequence(&self) -> u64 {
        self.get(0) & 0xffff_ffff
    }

    /// Adds to the sequence number.
    pub(super) fn turn(&self, by: u64) {
        self.set(0, self.get(0) & !0xffff_ffff | (self.sequence() + by) & 0xffff_ffff);
    }

    /// Does what the kernel does at each tick.
    pub(super) fn tick(&self) {
        self.tick_to(self.later(offset::RATE));
    }

    /// A tick from which on the clock has another rate.
    pub(super) fn tick_to(&self, new_rate: u64) {
        self.ticks.fetch_add(1, Ordering::SeqCst);
        self.turn(1);
        let (last, now) = (self.get(offset::LAST), now());
        let rate = self.later(offset::RATE);
        for (clock, _) in START {
            let at = offset::TIMES + 16 * clock as usize;
            let advance = now.wrapping_sub(last) * (rate & 0xffff_ffff);
            let fraction = self.later(at + 8) + advance;
            self.set_later(at, self.later(at) + (fraction >> SHIFT) / 1_000_000_000);
            self.set_later(at + 8, fraction % (1_000_000_000 << SHIFT));
        }
        self.set(offset::LAST, now);
        self.set_later(offset::RATE, new_rate);
        self.turn(1);
        self.ticks.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the time of a clock now, while another thread may tick.
    pub(super) fn time_now(&self, clock: Clock) -> u64 {
        loop {
            let before = self.ticks.load(Ordering::SeqCst);
            let time = self.time(clock, now());
            if before % 2 == 0 && self.ticks.load(Ordering::SeqCst) == before {
                return time;
            }
            std::thread::yield_now();
        }
    }

    /// Returns the time of a clock by the page, in other words than the code under test; whatever its sequence says.
    pub(super) fn time(&self, clock: Clock, counter: u64) -> u64 {
        let at = offset::TIMES + 16 * clock as usize;
        let advance = u128::from(counter.saturating_sub(self.get(offset::LAST)));
        let shifted = advance * u128::from(self.later(offset::RATE) & 0xffff_ffff)
            + u128::from(self.later(at + 8));
        self.later(at) * 1_000_000_000 + (shifted >> SHIFT) as u64
    }
}
