//! One back-end follows another while threads read: no clock goes back.

use core::sync::atomic::{AtomicBool, AtomicU64};
use std::vec::Vec;

use super::*;

/// The state that the threads below share.
struct Shared {
    selector: &'static Selector<ByPage>,
    page: &'static Synthetic,
    /// The latest reading of any thread, by clock.
    latest: [AtomicU64; 4],
    back: AtomicU64,
    stop: AtomicBool,
}

impl Shared {
    const CLOCKS: [Clock; 4] = [Clock::Monotonic, Clock::Boottime, Clock::Realtime, Clock::Tai];

    fn new(selector: &'static Selector<ByPage>, page: &'static Synthetic) -> &'static Shared {
        let word = || AtomicU64::new(0);
        let latest = core::array::from_fn(|_| word());
        let stop = AtomicBool::new(false);
        Box::leak(Box::new(Shared { selector, page, latest, back: word(), stop }))
    }

    /// Reads all clocks, and compares each with the latest reading that happened before.
    fn read_all(&self) {
        for (clock, latest) in Shared::CLOCKS.into_iter().zip(&self.latest) {
            // Acquire: partner is the Release below, after that reading.
            let before = latest.load(Ordering::Acquire);
            let read = self.selector.read::<true>(clock);
            if read < before {
                self.back.fetch_max(before - read, Ordering::Relaxed);
            }
            latest.fetch_max(read, Ordering::Release);
        }
    }

    /// Two threads read until `body` is done.
    fn while_threads_read(&'static self, body: impl FnOnce()) {
        let threads: Vec<_> = (0..2)
            .map(|_| {
                std::thread::spawn(move || {
                    PAGE.set(Some(self.page));
                    while !self.stop.load(Ordering::Relaxed) {
                        self.read_all();
                    }
                })
            })
            .collect();
        body();
        self.stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(self.back.load(Ordering::Relaxed), 0, "nanoseconds back");
    }

    /// The true clock goes faster by 4000 ppm than usual, or by so many parts of that.
    fn slew(&self, parts: i64) {
        let by = parts * (synthetic::MULTIPLIER / 250) as i64;
        let rate = synthetic::MULTIPLIER.wrapping_add_signed(by);
        self.page.tick_to(synthetic::SHIFT << 32 | rate);
    }

    fn read_for(&self, milliseconds: u64) {
        let start = ByPage::read(Clock::Monotonic);
        while ByPage::read(Clock::Monotonic) - start < milliseconds * 1_000_000 {
            self.read_all();
        }
    }
}

/// `settle` where an anchor is the best there is, while the true clock's rate changes.
#[test]
fn nothing_goes_back_while_an_anchor_is_settled_again() {
    let (selector, page) = anchored();
    selector.limit.store(Backend::Anchor as u32, Ordering::Relaxed);
    let shared = Shared::new(selector, page);
    shared.while_threads_read(|| {
        shared.read_for(100);
        for round in 0..8 {
            for (parts, milliseconds) in [(1, 70), (-1, 12)] {
                shared.slew(if round % 2 == 0 { parts } else { -parts });
                shared.read_for(milliseconds);
            }
            let route = selector.route.load(Ordering::Acquire);
            selector.choose_among(route, Fence::FENCED, Err(Cause::UnknownLayout));
        }
    });
    assert_eq!(selector.status().backend, Backend::Anchor);
}

/// From an anchor to the vDSO, to a page that is being validated, and back, while the rate changes.
#[test]
fn nothing_goes_back_when_back_ends_follow_one_another() {
    let (selector, page) = anchored();
    let shared = Shared::new(selector, page);
    let now = || selector.route.load(Ordering::Acquire);
    shared.while_threads_read(|| {
        shared.read_for(70);
        for round in 0..24 {
            shared.slew([1, -1, 0, -1][round % 4]);
            shared.read_for(12);
            match round % 3 {
                0 => selector.fall_back(now(), Cause::Inconsistent),
                1 => {
                    let found = Ok((page.page(Fence::FENCED), Mode::Counter));
                    selector.choose_among(now(), Fence::FENCED, found);
                    assert!(kind(now()) != route::ANCHOR_COUNTER);
                    shared.read_for(1);
                    selector.fall_back(now(), Cause::Inconsistent);
                }
                _ => {}
            }
            // As `settle`.
            selector.choose_among(now(), Fence::FENCED, Err(Cause::UnknownLayout));
            shared.read_for(round as u64 % 40);
        }
    });
    assert_eq!(selector.status().backend, Backend::Anchor);
}

/// A thread that was stopped in the middle of giving a back-end up ends no later one.
#[test]
fn a_late_loser_leaves_no_ended_anchor_behind() {
    let (selector, _) = anchored();
    let old = selector.route.load(Ordering::Acquire);
    selector.fall_back(old, Cause::Inconsistent);
    let vdso = selector.route.load(Ordering::Acquire);
    selector.choose_among(vdso, Fence::FENCED, Err(Cause::UnknownLayout));
    let new = selector.route.load(Ordering::Acquire);
    assert!(kind(new) == route::ANCHOR_COUNTER && new != old);
    selector.fall_back(old, Cause::Inconsistent);
    assert_eq!(selector.route.load(Ordering::Acquire), new);
    is_near(selector, Clock::Boottime);
}

/// As in a child that a fork took into a time namespace, whose clocks are behind.
#[test]
fn a_floor_of_another_time_namespace_is_none() {
    AHEAD.set(200_000_000_000_000);
    let (selector, _) = anchored();
    for clock in Shared::CLOCKS {
        selector.read::<true>(clock);
    }
    selector.fall_back(selector.route.load(Ordering::Acquire), Cause::Inconsistent);
    assert_eq!(selector.status().backend, Backend::Vdso);
    for seconds in [100_000_000_000_000, 150_000_000_000_000, 199_000_000_000_000] {
        AHEAD.set(seconds);
        check(selector);
        selector.choose_among(
            selector.route.load(Ordering::Acquire),
            Fence::FENCED,
            Err(Cause::UnknownLayout),
        );
        assert_eq!(selector.status().backend, Backend::Anchor);
        for clock in Shared::CLOCKS {
            is_near(selector, clock);
        }
        selector.fall_back(selector.route.load(Ordering::Acquire), Cause::Inconsistent);
    }
}
