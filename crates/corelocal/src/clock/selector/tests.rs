//! Faults, injected into pages of our own: each must lead to the next back-end, be counted, and never show in
//! a reading.

use super::super::anchor;
use super::super::synthetic::{self, Synthetic};
use super::validate::{CHANGES, ENOUGH};
use super::*;
use crate::clock::kernel::page::{Layout, TIME_NAMESPACE};
use core::cell::Cell;
use std::boxed::Box;

mod handover;

std::thread_local! {
    /// The page whose time is this thread's reference clock, and below it the offset between both.
    static PAGE: Cell<Option<&'static Synthetic>> = const { Cell::new(None) };
    static AHEAD: Cell<i64> = const { Cell::new(0) };
    static REALTIME_AHEAD: Cell<i64> = const { Cell::new(0) };
}

struct ByPage;

impl Truth for ByPage {
    fn read(clock: Clock) -> u64 {
        let page = PAGE.get().expect("the test names its page");
        let ahead = match clock {
            Clock::Realtime | Clock::Tai => AHEAD.get() + REALTIME_AHEAD.get(),
            _ => AHEAD.get(),
        };
        page.time_now(clock).wrapping_add_signed(ahead)
    }
}

fn selector() -> &'static Selector<ByPage> {
    Box::leak(Box::new(Selector::new()))
}

fn begin(layout: Layout) -> (&'static Selector<ByPage>, &'static Synthetic) {
    let page = Synthetic::new(layout);
    PAGE.set(Some(page));
    let selector = selector();
    let found = Ok((page.page(Fence::FENCED), Mode::Counter));
    selector.choose_among(route::UNSETTLED, Fence::FENCED, found);
    (selector, page)
}

/// A selector whose page was validated; its route leads to the page.
fn validated(layout: Layout) -> (&'static Selector<ByPage>, &'static Synthetic) {
    let (selector, page) = begin(layout);
    for _ in 0..2 * ENOUGH {
        page.tick();
        check(selector);
    }
    let status = selector.status();
    assert_eq!((status.backend, status.fallbacks.total()), (Backend::KernelPage, 0), "{status:?}");
    (selector, page)
}

/// A reading of each clock lies between two of the truth.
fn check(selector: &Selector<ByPage>) {
    for clock in [Clock::Monotonic, Clock::Realtime, Clock::Boottime, Clock::Tai] {
        let before = ByPage::read(clock);
        let ordered = selector.read::<true>(clock);
        assert!(
            (before..=ByPage::read(clock)).contains(&ordered),
            "{clock:?} {:?}",
            selector.status()
        );
    }
}

#[test]
fn a_page_serves_after_enough_comparisons_over_enough_ticks() {
    for layout in [Layout::Short, Layout::Long] {
        let (selector, page) = begin(layout);
        assert!(selector.status().validating);
        for _ in 0..2 * ENOUGH {
            check(selector);
        }
        assert!(selector.status().validating, "no tick was seen");
        for _ in 0..CHANGES {
            page.tick();
            check(selector);
        }
        let status = selector.status();
        assert_eq!((status.backend, status.validating), (Backend::KernelPage, false));
        assert!(status.validated >= ENOUGH.into());
        for _ in 0..200 {
            page.tick();
            check(selector);
            assert!(selector.read::<false>(Clock::Monotonic) <= ByPage::read(Clock::Monotonic));
        }
        assert_eq!(selector.status().fallbacks.total(), 0);
        assert_eq!(selector.epoch(), 0);
    }
}

#[test]
fn a_page_that_is_off_is_never_believed() {
    let (selector, _) = begin(Layout::Long);
    AHEAD.set(5_000);
    check(selector);
    let status = selector.status();
    assert_eq!(status.backend, Backend::Vdso);
    assert_eq!((status.fallbacks.count(Cause::Inconsistent), status.epoch), (1, 1));
}

#[test]
fn a_page_that_goes_off_later_is_found_out() {
    let (selector, page) = validated(Layout::Short);
    AHEAD.set(5_000);
    for _ in 0..64 {
        page.tick();
        selector.read::<true>(Clock::Monotonic);
    }
    assert_eq!(selector.status().fallbacks.count(Cause::Inconsistent), 1);
    check(selector);
}

#[test]
fn a_sequence_that_stays_odd_leads_on() {
    let (selector, page) = validated(Layout::Long);
    page.turn(1);
    check(selector);
    let status = selector.status();
    assert_eq!(status.fallbacks.count(Cause::UpdateStalled), 1, "{status:?}");
    assert_eq!(status.backend, Backend::Vdso);
}

#[test]
fn a_switched_source_leads_on_and_is_not_trusted() {
    for (mode, cause) in [
        (0, Cause::SourceSwitched),
        // KVM's page; on aarch64 the counter.
        (if cfg!(target_arch = "aarch64") { 3 } else { 2 }, Cause::SourceSwitched),
        (3, Cause::SourceSwitched),
        (TIME_NAMESPACE, Cause::TimeNamespace),
    ] {
        let (selector, page) = validated(Layout::Long);
        selector.counters_agree.store(1, Ordering::Relaxed);
        page.set_mode(mode);
        let before = ByPage::read(Clock::Monotonic);
        let read = selector.read::<true>(Clock::Monotonic);
        assert!(before <= read);
        let status = selector.status();
        assert_eq!(status.fallbacks.count(cause), 1, "{status:?}");
        let trusted = cause == Cause::TimeNamespace;
        let next = if trusted { Backend::Anchor } else { Backend::Vdso };
        assert_eq!(status.backend, next);
    }
}

#[test]
fn a_counter_that_lags_or_leads_is_no_fault() {
    let (selector, page) = validated(Layout::Long);
    let last = page.get(page::offset::LAST);
    // Another cpu's counter, ahead of ours: none has passed.
    page.set(page::offset::LAST, synthetic::now() + (1 << 40));
    check(selector);
    // No tick for minutes.
    page.set(page::offset::LAST, last.saturating_sub(1 << 40));
    check(selector);
    assert_eq!(selector.status().fallbacks.total(), 0);
}

/// Whether a reading lies between two of the truth, but for a millisecond.
fn is_near(selector: &Selector<ByPage>, clock: Clock) {
    const SLACK: u64 = 1_000_000;
    let before = ByPage::read(clock);
    let read = selector.read::<true>(clock);
    let after = ByPage::read(clock);
    let message = format_args!("{clock:?}: {before}, {read}, {after}");
    assert!(before <= read + SLACK && read <= after + SLACK, "{message}");
}

fn anchored() -> (&'static Selector<ByPage>, &'static Synthetic) {
    let page = Synthetic::new(Layout::Long);
    PAGE.set(Some(page));
    let selector = selector();
    selector.counters_agree.store(1, Ordering::Relaxed);
    selector.choose_among(route::UNSETTLED, Fence::FENCED, Err(Cause::UnknownLayout));
    assert_eq!(selector.status().backend, Backend::Anchor);
    assert_eq!(selector.status().fallbacks.count(Cause::UnknownLayout), 1);
    (selector, page)
}

#[test]
fn an_anchor_rises_and_stays_near_the_truth() {
    let (selector, page) = anchored();
    let (mut last, mut worst, mut changed) = (0, 0, false);
    let start = ByPage::read(Clock::Monotonic);
    while ByPage::read(Clock::Monotonic) - start < 400_000_000 {
        let before = ByPage::read(Clock::Monotonic);
        let read = selector.read::<true>(Clock::Monotonic);
        let after = ByPage::read(Clock::Monotonic);
        assert!(read >= last, "{read} after {last}");
        last = read;
        worst = worst.max(before.saturating_sub(read)).max(read.saturating_sub(after));
        if !changed && after - start > 200_000_000 {
            // 400 ppm faster.
            changed = true;
            page.tick();
            let rate = page.later(page::offset::RATE);
            page.set_later(page::offset::RATE, rate + synthetic::MULTIPLIER / 2500);
        }
    }
    // 32 ms of 400 ppm are 13 us.
    assert!(worst < 40_000, "{worst} ns off");
    let status = selector.status();
    assert_eq!((status.backend, status.fallbacks.total()), (Backend::Anchor, 1), "{status:?}");
    for clock in [Clock::Realtime, Clock::Boottime, Clock::Tai] {
        is_near(selector, clock);
    }
}

#[test]
fn an_anchor_follows_a_step_of_the_realtime_clock() {
    let (selector, _) = anchored();
    let epoch = selector.epoch();
    for step in [3_600_000_000_000, -7_200_000_000_000] {
        REALTIME_AHEAD.set(step);
        let start = ByPage::read(Clock::Monotonic);
        while ByPage::read(Clock::Monotonic) - start < 100_000_000 {
            selector.read::<true>(Clock::Monotonic);
        }
        is_near(selector, Clock::Realtime);
    }
    // A thread that is not run in the middle of a look may see one more.
    let steps = selector.epoch() - epoch;
    assert!((2..=3).contains(&steps), "{steps} steps");
}

/// A thread that was not run in the middle of its first look knows little; what it learns later is no step.
#[test]
fn an_interruption_of_the_first_look_is_no_step() {
    let interrupted = [8, 2_000_000, 7_000, 2_000, 2_000_000];
    for attempts in 1..interrupted.len() {
        let (now, looks) = (Cell::new(0), Cell::new(0));
        let monotonic = || {
            now.set(now.get() + 20);
            now.get()
        };
        let other = |_| {
            // A third of it before the other clock was read, and the rest after.
            let long = *interrupted[..attempts].get(looks.replace(looks.get() + 1)).unwrap_or(&40);
            let time = now.get() + long / 3 + 1_000_000_000;
            now.set(now.get() + long);
            time
        };
        let (first, jumped, _) = anchor::offsets(None, monotonic, other);
        assert!(!jumped && first.iter().all(|it| it.abs_diff(1_000_000_000) < 1000), "{first:?}");
        assert!(!anchor::offsets(Some(&first), monotonic, other).1);
    }
}

/// Soon, unless the thread is preempted in each of its samples, which say little then.
fn reads_until_the_vdso_serves(selector: &Selector<ByPage>, mut each: impl FnMut(u64)) {
    let start = ByPage::read(Clock::Monotonic);
    while selector.status().backend != Backend::Vdso {
        assert!(ByPage::read(Clock::Monotonic) - start < 20_000_000_000, "{:?}", selector.status());
        each(selector.read::<true>(Clock::Monotonic));
    }
}

#[test]
fn an_anchor_whose_truth_goes_back_is_given_up_without_going_back() {
    let (selector, _) = anchored();
    let before = selector.read::<true>(Clock::Monotonic);
    AHEAD.set(-10_000_000);
    let mut last = before;
    reads_until_the_vdso_serves(selector, |read| {
        assert!(read >= last);
        last = read;
    });
    let status = selector.status();
    assert_eq!((status.backend, status.fallbacks.count(Cause::Inconsistent)), (Backend::Vdso, 1));
    // It stays where it is until the truth comes past.
    while ByPage::read(Clock::Monotonic) < last {
        assert!(selector.read::<true>(Clock::Monotonic) >= last);
    }
    check(selector);
}

/// As after a journey into a time namespace and back: that is another clock, and not to be waited for.
#[test]
fn a_clock_that_is_a_day_back_is_believed_at_once() {
    // The counter of a machine that was just started has not a day behind it.
    AHEAD.set(200_000_000_000_000);
    let (selector, _) = anchored();
    selector.read::<true>(Clock::Monotonic);
    AHEAD.set(100_000_000_000_000);
    reads_until_the_vdso_serves(selector, |_| {});
    check(selector);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn kvms_page_serves_until_it_does_not_speak_for_all() {
    let (selector, page) = begin(Layout::Long);
    let shared: &'static pvclock::Page = Box::leak(Box::new(pvclock::Page::new()));
    let content = pvclock::Content {
        counter: synthetic::now(),
        nanoseconds: 1_000_000,
        multiplier: (synthetic::MULTIPLIER << 9) as u32,
        shift: -1,
        flags: pvclock::STABLE,
    };
    shared.write(&content);
    selector.pvclock.store((&raw const *shared).expose_provenance(), Ordering::Relaxed);
    page.set_mode(0);
    selector.read::<true>(Clock::Monotonic);
    assert_eq!(selector.status().backend, Backend::Paravirtual, "{:?}", selector.status());
    for _ in 0..1000 {
        is_near(selector, Clock::Monotonic);
    }
    shared.write(&pvclock::Content { flags: 0, ..content });
    selector.read::<true>(Clock::Monotonic);
    assert_eq!(selector.status().fallbacks.count(Cause::Unsynchronised), 1);
    assert_eq!(selector.status().backend, Backend::Vdso);
}

/// The one multiplication is the two, but for a nanosecond.
#[cfg(target_arch = "x86_64")]
#[test]
fn reading_through_kvms_page_is_reading_both() {
    let data = Synthetic::new(Layout::Long);
    data.set_mode(2);
    let shared = pvclock::Page::new();
    // The data's last tick was a millisecond ago by KVM's clock, whose point is now or hours ago.
    for (age, shift, multiplier) in [
        (0u64, -1i8, 3_305_332_736u32),
        (1 << 45, -1, 3_305_332_736),
        (1 << 45, 0, 2_863_311_530),
        (1 << 40, -3, 4_000_000_000),
    ] {
        // A machine that was just started has no hours ago.
        let content = pvclock::Content {
            counter: synthetic::now().saturating_sub(age),
            nanoseconds: 123_456_789,
            multiplier,
            shift,
            flags: pvclock::STABLE,
        };
        shared.write(&content);
        let now = content.nanoseconds_at(synthetic::now()).unwrap();
        data.set(page::offset::LAST, now - 1_000_000.min(now));
        for (rate, fraction) in [(1 << 23, 7), ((1 << 23) + 4000, 900_000_000 << 23)] {
            data.set_later(page::offset::RATE, 23 << 32 | rate);
            data.set_later(page::offset::TIMES + 16 * Clock::Tai as usize + 8, fraction);
            let page = data.page(Fence::FENCED);
            let both = || {
                let count = || paravirtual::count(&shared, synthetic::now);
                page.read(Clock::Tai, Mode::Pvclock, count).unwrap().nanos
            };
            for ordered in [true, true, false] {
                let before = both();
                let through = match ordered {
                    true => paravirtual::read_through::<{ how::FENCED }>(page, &shared, Clock::Tai),
                    false => {
                        paravirtual::read_through::<{ how::UNORDERED }>(page, &shared, Clock::Tai)
                    }
                };
                let through = through.expect("nothing is unusual");
                let after = both();
                assert!(through <= after + 1, "{through} after {after}");
                assert!(!ordered || before <= through, "{through} before {before}");
            }
        }
    }
    shared.write(&pvclock::Content { flags: 0, ..shared.content().unwrap().1 });
    let page = data.page(Fence::FENCED);
    let read = paravirtual::read_through::<{ how::FENCED }>(page, &shared, Clock::Tai);
    assert_eq!(read, None);
}

#[test]
fn points_lie_on_the_clock() {
    let (selector, _) = validated(Layout::Long);
    let point = selector.point().unwrap();
    assert_eq!(point.width, 0);
    let rate = point.rate.unwrap();
    assert_eq!(rate, synthetic::MULTIPLIER << (32 - synthetic::SHIFT));
    assert_eq!(point.nanos, PAGE.get().unwrap().time(Clock::Monotonic, point.ticks));
}
