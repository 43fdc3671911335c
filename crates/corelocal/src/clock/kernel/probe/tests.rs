//! Copies of pages, whole and damaged: what is not the vDSO's data in that layout must be refused.

use super::*;
use crate::clock::synthetic::{self, Synthetic};
use proptest::prelude::*;

const LAYOUTS: [Layout; 2] = [Layout::Short, Layout::Long];

/// The clocks that a page tells.
fn truth(page: &Synthetic) -> Truth {
    let counter = synthetic::now();
    let time = |clock| page.time(clock, counter);
    Truth {
        realtime: time(Clock::Realtime),
        monotonic: time(Clock::Monotonic),
        boottime: time(Clock::Boottime),
        tai: time(Clock::Tai),
        counter,
    }
}

#[test]
fn each_layout_is_recognised_and_taken_for_no_other() {
    for (layout, other) in [(LAYOUTS[0], LAYOUTS[1]), (LAYOUTS[1], LAYOUTS[0])] {
        let page = Synthetic::new(layout);
        let truth = truth(page);
        assert_eq!(examine(&page.bytes(), layout, &truth), Ok(Mode::Counter));
        assert_eq!(examine(&page.bytes(), other, &truth), Err(Cause::UnknownLayout));
        for shifted in [8, 16, 64, 128] {
            let wrong = examine(&page.bytes()[shifted..], layout, &truth);
            assert_eq!(wrong, Err(Cause::UnknownLayout), "{layout:?} moved by {shifted}");
        }
    }
}

#[test]
fn modes_and_updates_are_told_apart() {
    let page = Synthetic::new(Layout::Long);
    let truth = truth(page);
    let modes = |mode| {
        page.set_mode(mode);
        examine(&page.bytes(), Layout::Long, &truth)
    };
    assert_eq!(modes(0), Err(Cause::SourceSwitched));
    let second = if cfg!(target_arch = "aarch64") { Mode::Counter } else { Mode::Pvclock };
    assert_eq!(modes(2), Ok(second));
    assert_eq!(modes(3), Err(Cause::SourceSwitched));
    assert_eq!(modes(4), Err(Cause::UnknownLayout));
    assert_eq!(modes(TIME_NAMESPACE), Err(Cause::TimeNamespace));
    assert_eq!(modes(1), Ok(Mode::Counter));
    page.turn(1);
    assert_eq!(modes(1), Err(Cause::UpdateStalled));
}

/// aarch64's counter has 56 bits or more.
#[test]
fn a_mask_is_that_of_a_counter() {
    let page = Synthetic::new(Layout::Short);
    let truth = truth(page);
    for (mask, is_one) in [
        (u64::MAX, true),
        (u64::MAX >> 8, cfg!(target_arch = "aarch64")),
        (u64::MAX >> 2, cfg!(target_arch = "aarch64")),
        (u64::MAX >> 9, false),
        (u64::MAX >> 8 | 1 << 60, false),
        (u64::MAX - 1, false),
        (0, false),
    ] {
        page.set(offset::MASK, mask);
        let examined = examine(&page.bytes(), Layout::Short, &truth);
        assert_eq!(examined.is_ok(), is_one, "{mask:#x}: {examined:?}");
    }
}

#[test]
fn what_is_short_stale_or_ahead_is_refused() {
    for layout in LAYOUTS {
        let page = Synthetic::new(layout);
        let whole = page.bytes();
        let needed = offset::TIMES + layout as usize + 16 * Clock::Tai as usize + 16;
        for length in 0..needed {
            let wrong = examine(&whole[..length], layout, &truth(page));
            assert_eq!(wrong, Err(Cause::UnknownLayout), "{length} bytes");
        }
        assert_eq!(examine(&whole[..needed], layout, &truth(page)), Ok(Mode::Counter));
        for wrong in [-40_000_000_000i64, 40_000_000_000] {
            for clock in 0..4 {
                let mut truth = truth(page);
                let clocks = [
                    &mut truth.realtime,
                    &mut truth.monotonic,
                    &mut truth.boottime,
                    &mut truth.tai,
                ];
                let [a, b, c, d] = clocks;
                let clock = [a, b, c, d].into_iter().nth(clock).unwrap();
                *clock = clock.wrapping_add_signed(wrong);
                assert_eq!(examine(&whole, layout, &truth), Err(Cause::UnknownLayout));
            }
        }
    }
}

proptest! {
    /// No bytes whatever make it panic, and hardly any are a page.
    #[test]
    fn garbage_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let page = Synthetic::new(Layout::Short);
        let truth = truth(page);
        for layout in LAYOUTS {
            prop_assert!(examine(&bytes, layout, &truth).is_err());
        }
    }

    /// A page with a damaged word is refused, or still tells a time within reason.
    #[test]
    fn damage_is_refused_or_harmless(at in 0usize..29, value: u64, flip in 0u32..64, is_flip: bool) {
        for layout in LAYOUTS {
            let page = Synthetic::new(layout);
            let truth = truth(page);
            let value = if is_flip { page.get(at * 8) ^ 1 << flip } else { value };
            page.set(at * 8, value);
            if let Ok(mode) = examine(&page.bytes(), layout, &truth) {
                let page = page.page(Fence::FENCED);
                let read = page.read(Clock::Monotonic, mode, || Ok(truth.counter));
                let nanos = read.expect("even and of that mode").nanos;
                // Half a minute for the tick, as much for the counter since, and a multiplier that is wrong.
                prop_assert!(mode == Mode::Pvclock || nanos.abs_diff(truth.monotonic) < 120_000_000_000);
            }
        }
    }

    /// The same for KVM's page.
    #[test]
    fn a_damaged_pvclock_page_never_panics(bytes: [u8; 32], counter: u64) {
        is_pvclock(&Aligned(bytes), counter);
    }
}

#[test]
fn this_machine_is_probed() {
    let fence = counter::cheaper_fence();
    let clock = |clock| crate::clock::kernel::vdso::read(clock as libc::clockid_t);
    let found = probe(fence, clock);
    std::eprintln!("found {found:?}");
    if let Ok((page, Mode::Counter)) = found.page {
        let before = clock(Clock::Monotonic);
        let count = || Ok(counter::ordered_by(fence));
        let read = page.read(Clock::Monotonic, Mode::Counter, count).unwrap().nanos;
        assert!(before <= read && read <= clock(Clock::Monotonic));
    }
}

#[test]
fn a_pvclock_page_must_speak_for_all_cpus() {
    let page = |flags: u8| {
        let page = pvclock::Page::new();
        page.write(&pvclock::Content {
            counter: 1000,
            nanoseconds: 70,
            multiplier: 1 << 31,
            shift: 0,
            flags,
        });
        let mut bytes = [0; 32];
        // SAFETY: a page is 32 bytes without padding, and does not change.
        let from = unsafe { core::slice::from_raw_parts((&raw const page).cast::<u8>(), 32) };
        bytes.copy_from_slice(from);
        Aligned(bytes)
    };
    assert!(is_pvclock(&page(pvclock::STABLE), 5000));
    assert!(is_pvclock(&page(pvclock::STABLE | pvclock::GUEST_STOPPED), 5000));
    assert!(!is_pvclock(&page(0), 5000));
    assert!(!is_pvclock(&page(pvclock::STABLE), 999), "published in the future");
    assert!(!is_pvclock(&page(pvclock::STABLE), u64::MAX), "published centuries ago");
    assert!(!is_pvclock(&Aligned([0; 32]), 5000));
}
