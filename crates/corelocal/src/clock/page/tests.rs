//! What the bytes of each encoding are, and what they mean.

use super::layout::{FILE_BYTES, Head};
use super::lock_file::Annex;
use super::*;
use core::time::Duration;
use proptest::prelude::*;
use std::string::ToString;
use std::vec::Vec;
use std::{slice, vec};

/// The bytes of a page of ours.
fn bytes<P>(page: &P) -> Vec<u8> {
    // SAFETY: atomics without padding, which do not change meanwhile.
    unsafe { slice::from_raw_parts((&raw const *page).cast::<u8>(), size_of::<P>()).to_vec() }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(bytes[at..at + 2].try_into().unwrap())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

#[test]
fn pvclock_bytes() {
    let page = pvclock::Page::new();
    page.write(&pvclock::Content {
        counter: 0x1122_3344_5566_7788,
        nanoseconds: 0x99aa_bbcc_ddee_ff00,
        multiplier: 0x1234_5678,
        shift: -3,
        flags: pvclock::STABLE | pvclock::GUEST_STOPPED,
    });
    let bytes = bytes(&page);
    assert_eq!(bytes.len(), 32);
    assert_eq!((u32_at(&bytes, 0), u32_at(&bytes, 4)), (2, 0));
    assert_eq!(u64_at(&bytes, 8), 0x1122_3344_5566_7788);
    assert_eq!(u64_at(&bytes, 16), 0x99aa_bbcc_ddee_ff00);
    assert_eq!(u32_at(&bytes, 24), 0x1234_5678);
    assert_eq!(bytes[28..], [0xfd, 3, 0, 0]);
}

#[test]
fn vmclock_bytes() {
    let page = vmclock::Page::new();
    let content = vmclock::Content {
        counter_kind: vmclock::COUNTER_TSC,
        scale: Scale::Tai,
        disruptions: 0x11,
        flags: 0x1ff,
        status: Status::Synchronized,
        smearing: Smearing::UtcSls,
        tai_offset: -37,
        leap: Leap::Inserting,
        period_shift: 31,
        counter: 0x22,
        period: 0x33,
        period_estimated_error: 0x44,
        period_max_error: 0x55,
        seconds: 0x66,
        fraction: 0x77,
        estimated_error_ns: 0x88,
        max_error_ns: 0x99,
        generation: 0xaa,
    };
    page.write(&content);
    assert_eq!(page.content(), Ok(content));
    let bytes = bytes(&page);
    assert_eq!(bytes.len(), 112);
    assert_eq!(bytes[..4], *b"VCLK");
    assert_eq!(bytes[4..12], [112, 0, 0, 0, 1, 0, 1, 1]);
    assert_eq!(bytes[12..16], [2, 0, 0, 0]);
    assert_eq!(bytes[32..40], [0, 0, 2, 2, 0xdb, 0xff, 3, 31]);
    for (at, value) in [
        (16, 0x11),
        (24, 0x1ff),
        (40, 0x22),
        (48, 0x33),
        (56, 0x44),
        (64, 0x55),
        (72, 0x66),
        (80, 0x77),
        (88, 0x88),
        (96, 0x99),
        (104, 0xaa),
    ] {
        assert_eq!(u64::from_le(u64_at(&bytes, at)), value, "at {at}");
    }
}

#[test]
fn clockbound_bytes() {
    let page = clockbound::Page::new();
    let content = clockbound::Content {
        as_of: Duration::new(1, 2),
        void_after: Duration::new(3, 4),
        bound_ns: 5,
        disruptions: 6,
        drift_ppb: 7,
        status: Status::Disrupted,
        marker_counts: true,
    };
    page.write(&content);
    assert_eq!(page.content(), Ok(content));
    let bytes = bytes(&page);
    assert_eq!(bytes.len(), 80);
    assert_eq!((u32_at(&bytes, 0), u32_at(&bytes, 4)), (0x414d_5a4e, 0x4342_0200));
    assert_eq!((u32_at(&bytes, 8), u16_at(&bytes, 12), u16_at(&bytes, 14)), (80, 2, 2));
    let words: Vec<u64> = (16..64).step_by(8).map(|at| u64_at(&bytes, at)).collect();
    assert_eq!(words, [1, 2, 3, 4, 5, 6]);
    assert_eq!((u32_at(&bytes, 64), u32_at(&bytes, 68)), (7, 3));
    assert_eq!(bytes[72..], [1, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn the_annex_lies_behind_the_page() {
    fn check<P: Encoding>() {
        assert_eq!(size_of::<Annex>(), 32);
        assert!(P::ANNEX_AT >= size_of::<P>() && P::ANNEX_AT % align_of::<Annex>() == 0);
        assert!(P::ANNEX_AT + size_of::<Annex>() <= FILE_BYTES);
        assert!(align_of::<P>() <= 8);
    }
    check::<pvclock::Page>();
    check::<vmclock::Page>();
    check::<clockbound::Page>();
}

#[test]
fn a_counter_behind_the_point_is_taken_for_it() {
    let content = pvclock::Content {
        counter: 1000,
        nanoseconds: 5,
        multiplier: u32::MAX,
        shift: 31,
        flags: pvclock::STABLE,
    };
    assert_eq!(content.nanoseconds_at(999), Ok(5));
    assert_eq!(content.nanoseconds_at(0), Ok(5));
    assert_eq!(content.nanoseconds_at(u64::MAX), Err(ReadError::Range));
    let far = pvclock::Content { shift: 0, nanoseconds: u64::MAX - 5, ..content };
    assert_eq!(far.nanoseconds_at(1100), Err(ReadError::Range));
    for shift in [64, 127, -64, -128] {
        assert_eq!(
            pvclock::Content { shift, ..content }.nanoseconds_at(2000),
            Err(ReadError::Malformed)
        );
    }
    for shift in [-63, 63] {
        let _ = pvclock::Content { shift, ..content }.nanoseconds_at(2000);
    }
    let unstable = pvclock::Page::new();
    unstable.write(&pvclock::Content { flags: 0, shift: 0, ..content });
    assert_eq!(unstable.read(|| 1000), Err(ReadError::Unstable));
}

#[test]
fn vmclock_times() {
    let period = Period::from_hertz(2_600_000_000).unwrap();
    let content = vmclock::Content {
        counter_kind: vmclock::COUNTER_TSC,
        counter: 10,
        period: period.fraction,
        period_shift: period.shift,
        seconds: 100,
        status: Status::FreeRunning,
        ..vmclock::Content::default()
    };
    let second = Duration::from_secs(1);
    let at = content.time_at(2_600_000_010).unwrap();
    assert!(at.abs_diff(Duration::from_secs(101)) <= Duration::from_nanos(1), "{at:?}");
    assert_eq!(content.time_at(3), Ok(Duration::from_secs(100)), "three ticks behind");
    assert_eq!(content.bounds_at(10), Err(ReadError::Unbounded));
    let bounded = vmclock::Content {
        flags: vmclock::flags::MAX_ERROR_VALID | vmclock::flags::PERIOD_MAX_ERROR_VALID,
        max_error_ns: 1000,
        period_max_error: period.error(1_000_000).fraction,
        ..content
    };
    let bounds = bounded.bounds_at(2_600_000_010).unwrap();
    let width = bounds.latest - bounds.earliest;
    let expected = 2 * (Duration::from_nanos(1000) + second / 1000);
    assert!(width >= expected && width <= expected + Duration::from_nanos(4), "{width:?}");
    for status in [Status::Unknown, Status::Initializing, Status::Unreliable] {
        let content = vmclock::Content { status, ..content };
        assert_eq!(content.time_at(10), Err(ReadError::Untrusted(status)));
    }
    let none = vmclock::Content { counter_kind: vmclock::COUNTER_NONE, ..content };
    assert_eq!(none.time_at(10), Err(ReadError::Blank));
    let smeared = vmclock::Content { scale: Scale::Unknown, ..content };
    assert_eq!(smeared.time_at(10), Err(ReadError::Malformed));
    let late = vmclock::Content { seconds: u64::MAX, ..content };
    assert_eq!(late.time_at(2_600_000_010), Err(ReadError::Range));
}

/// A page of 1 GHz that was published at 10^13 ticks and 1,700,000,000 seconds.
fn trusted() -> vmclock::Content {
    let period = Period::from_hertz(1_000_000_000).unwrap();
    vmclock::Content {
        counter_kind: vmclock::COUNTER_TSC,
        counter: 10_000_000_000_000,
        period: period.fraction,
        period_shift: period.shift,
        period_max_error: period.error(1_000).fraction,
        seconds: 1_700_000_000,
        status: Status::Synchronized,
        flags: vmclock::flags::MAX_ERROR_VALID | vmclock::flags::PERIOD_MAX_ERROR_VALID,
        max_error_ns: 250,
        ..vmclock::Content::default()
    }
}

/// After a resume, a migration or a restart the counter may be anything.
#[test]
fn a_counter_that_was_set_back_is_a_doubt() {
    let content = trusted();
    let point = Duration::from_secs(content.seconds);
    // Another cpu's counter: the bounds reach back as far.
    let near = content.bounds_at(content.counter - 900).unwrap();
    assert!(near.earliest <= point - Duration::from_nanos(250 + 900), "{near:?}");
    assert!(near.latest >= point + Duration::from_nanos(250), "{near:?}");
    assert_eq!(content.time_at(content.counter - 900), Ok(point));
    for counter in [content.counter - 1_100, content.counter / 2, 1, 0] {
        assert_eq!(content.bounds_at(counter), Err(ReadError::Range), "{counter}");
        assert_eq!(content.time_at(counter), Err(ReadError::Range), "{counter}");
    }
}

#[test]
fn a_page_whose_writer_is_gone_expires() {
    const SECOND: u64 = 1_000_000_000;
    let content = trusted();
    let after = |seconds| content.bounds_at(content.counter + seconds * SECOND);
    assert_eq!(after(4).unwrap().status, Status::Synchronized);
    assert_eq!(after(6).unwrap().status, Status::FreeRunning);
    assert_eq!(after(999).unwrap().status, Status::FreeRunning);
    for seconds in [1_001, 3_600, 30 * 86_400] {
        assert_eq!(after(seconds), Err(ReadError::Expired));
        let counter = content.counter + seconds * SECOND;
        assert_eq!(content.time_at(counter), Err(ReadError::Expired));
    }
    assert_eq!(content.bounds_at(u64::MAX), Err(ReadError::Expired));
}

/// A page that was published before a leap second does not know whether it is over.
#[test]
fn bounds_are_wider_by_a_second_around_a_leap_second() {
    const SECOND: u64 = 1_000_000_000;
    const MIDNIGHT: u64 = 19_676 * 86_400;
    let width = |leap, scale, seconds: u64, after: u64| {
        let content = vmclock::Content { leap, scale, seconds, ..trusted() };
        let bounds = content.bounds_at(content.counter + after * SECOND).unwrap();
        (bounds.latest - bounds.earliest).as_secs()
    };
    for leap in [Leap::InsertionAhead, Leap::DeletionAhead, Leap::Inserting, Leap::Unknown] {
        let utc = |seconds, after| width(leap, Scale::Utc, seconds, after);
        assert_eq!(utc(MIDNIGHT - 100, 0), 0, "long before");
        assert_eq!(utc(MIDNIGHT - 100, 90), 0);
        assert_eq!(utc(MIDNIGHT - 100, 99), 2, "a second before midnight");
        assert_eq!(utc(MIDNIGHT - 100, 500), 2, "nobody published since");
        assert_eq!(utc(MIDNIGHT - 1, 0), 2);
        assert_eq!(utc(MIDNIGHT + 1, 0), 2, "the kernel is late");
        assert_eq!(utc(MIDNIGHT + 10, 50), 0, "published after it");
        assert_eq!(width(leap, Scale::Tai, MIDNIGHT - 1, 1), 0);
    }
    for leap in [Leap::None, Leap::Inserted, Leap::Deleted] {
        assert_eq!(width(leap, Scale::Utc, MIDNIGHT - 1, 1), 0);
    }
}

#[test]
fn clockbound_bounds() {
    let content = clockbound::Content {
        as_of: Duration::from_secs(100),
        void_after: Duration::from_secs(1100),
        bound_ns: 10_000,
        drift_ppb: 1000,
        status: Status::Synchronized,
        ..clockbound::Content::default()
    };
    let realtime = Duration::from_secs(5000);
    let at = |seconds| content.bounds_at(realtime, Duration::from_secs(seconds));
    let bound = |seconds| at(seconds).map(|bounds| (realtime - bounds.earliest).as_nanos());
    assert_eq!(bound(100), Ok(10_000));
    assert_eq!(bound(102), Ok(12_000));
    assert_eq!(at(104).unwrap().status, Status::Synchronized);
    assert_eq!(at(105).unwrap().status, Status::FreeRunning);
    assert_eq!(at(1100), Err(ReadError::Expired));
    assert_eq!(at(99), Err(ReadError::Range));
    let just_before = Duration::new(99, 999_999_500);
    assert!(content.bounds_at(realtime, just_before).is_ok());
    let wild = clockbound::Content { drift_ppb: 1_000_000_000, ..content };
    assert_eq!(wild.bounds_at(realtime, Duration::from_secs(101)), Err(ReadError::Malformed));
    let early = content.bounds_at(Duration::ZERO, Duration::from_secs(101)).unwrap();
    assert_eq!(early.earliest, Duration::ZERO);
}

#[test]
fn every_word_has_a_sentence() {
    for doubt in [
        ReadError::Odd,
        ReadError::Changing,
        ReadError::Blank,
        ReadError::Unstable,
        ReadError::Malformed,
        ReadError::Range,
        ReadError::Untrusted(Status::Disrupted),
        ReadError::Unbounded,
        ReadError::Expired,
        ReadError::Unwatched,
    ] {
        assert!(doubt.to_string().len() > 20);
    }
    assert!(Refusal::Held(Some(77)).to_string().contains("process 77"));
    assert!(Refusal::Unsafe { owner: 5, mode: 0o666 }.to_string().contains("0666"));
}

proptest! {
    /// Whatever bytes there are, a reading is a time or a doubt.
    #[test]
    fn any_bytes_are_read(content in prop::collection::vec(any::<u64>(), 16), counter: u64) {
        let mut words = content;
        // Even sequences, or all that would be seen is `Odd`: in either order of bytes.
        words[0] &= !(1 << 32 | 1);
        let at = words.as_mut_ptr().cast::<u8>();
        // SAFETY: 128 readable bytes that only this test uses.
        let page = unsafe { pvclock::Page::from_ptr(at) }.unwrap();
        let _ = page.read(|| counter);
        words[1] = u64::from_ne_bytes([1, 0, 1, 0, 2, 0, 0, 0]);
        words[0] = u64::from_ne_bytes([b'V', b'C', b'L', b'K', 128, 0, 0, 0]);
        let at = words.as_mut_ptr().cast::<u8>();
        // SAFETY: 128 readable bytes that only this test uses.
        let page = unsafe { vmclock::Page::from_ptr(at) }.unwrap();
        let content = page.content().unwrap();
        let _ = (content.time_at(counter), content.bounds_at(counter));
        let trusted = vmclock::Content { status: Status::Synchronized, ..content };
        let _ = (trusted.time_at(counter), trusted.bounds_at(counter));
        if let (Ok(time), Ok(bounds)) = (trusted.time_at(counter), trusted.bounds_at(counter)) {
            prop_assert!(bounds.earliest <= time && time <= bounds.latest);
        }
        let raw = clockbound::Page::new();
        prop_assert_eq!(raw.content(), Err(ReadError::Blank));
    }

    /// What was published is what is read, in every encoding.
    #[test]
    fn states_come_back(
        counter: u64, seconds in 0u64..1 << 33, nanoseconds in 0u32..1_000_000_000,
        hertz in 1_000_000u64..5_000_000_000, error in 0u64..1 << 50, drift in 0u32..1_000_000,
        ticks in 0u64..1 << 40,
    ) {
        let time = Duration::new(seconds, nanoseconds);
        let state = State {
            counter_kind: vmclock::COUNTER_TSC,
            counter,
            time,
            period: Period::from_hertz(hertz).unwrap(),
            max_error_ns: error,
            drift_ppb: drift,
            status: Status::Synchronized,
            published: Duration::from_secs(9),
            valid_for: Duration::from_secs(1000),
            tai_offset: Some(37),
            ..State::default()
        };
        let later = counter.saturating_add(ticks);
        let elapsed = Duration::from_secs_f64((later - counter) as f64 / hertz as f64);
        let near = |time: Duration, other: Duration| {
            time.abs_diff(other) <= Duration::from_nanos(2) + elapsed / 1_000_000_000
        };

        let page = pvclock::Page::new();
        page.write(&pvclock::Content::from(&state));
        let reading = page.read(|| later).unwrap();
        prop_assert!(near(Duration::from_nanos(reading.nanoseconds), time + elapsed));

        let page = vmclock::Page::new();
        let content = vmclock::Content::from(&state);
        page.write(&content);
        prop_assert_eq!(page.content(), Ok(content));
        prop_assert_eq!(content.time_at(counter), Ok(time));
        if elapsed < Duration::from_secs(999) {
            prop_assert!(near(content.time_at(later).unwrap(), time + elapsed));
            let bounds = content.bounds_at(later).unwrap();
            let error = Duration::from_nanos(error) + elapsed.mul_f64(f64::from(drift) * 1e-9);
            let latest = time + elapsed + error.mul_f64(0.999_999);
            prop_assert!(bounds.latest + Duration::from_nanos(2) >= latest);
        } else if elapsed > Duration::from_secs(1001) {
            prop_assert_eq!(content.bounds_at(later), Err(ReadError::Expired));
        }

        let page = clockbound::Page::new();
        let content = clockbound::Content::from(&state);
        page.write(&content);
        prop_assert_eq!(page.content(), Ok(content));
    }

    /// A damaged head is refused or read, never more.
    #[test]
    fn damaged_heads(
        damage in prop::collection::vec((0usize..4096, any::<u8>()), 0..20),
        len in 0usize..4097,
    ) {
        fn check<P: Encoding>(damage: &[(usize, u8)], len: usize) {
            let mut image = [0; FILE_BYTES];
            P::format(&mut image);
            assert!(P::examine(&Head::new(&image, FILE_BYTES as u64)).is_ok());
            for &(at, byte) in damage {
                image[at] = byte;
            }
            let head = Head::new(&image[..len], len as u64);
            let _ = (P::examine(&head), head.has_annex::<P>());
        }
        check::<pvclock::Page>(&damage, len);
        check::<vmclock::Page>(&damage, len);
        check::<clockbound::Page>(&damage, len);
    }
}

#[test]
fn no_page_at_a_wrong_address() {
    let words = vec![0u64; 32];
    let at = words.as_ptr().cast::<u8>();
    // SAFETY: readable, and no page at all.
    unsafe {
        assert!(pvclock::Page::from_ptr(core::ptr::null()).is_none());
        assert!(pvclock::Page::from_ptr(at.wrapping_add(4)).is_none());
        assert!(vmclock::Page::from_ptr(at).is_none());
        assert!(clockbound::Page::from_ptr(at).is_none());
    }
}
