//! What follows from what kernels say, and what this one says.

use super::*;
use crate::clock;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;
/// A noon, to the second.
const NOON: u64 = 1_700_049_600 * SECOND;
const MIDNIGHT: u64 = NOON + 43_200 * SECOND;

fn fine() -> Answer {
    Answer {
        state: Ok(libc::TIME_OK),
        time: NOON,
        status: libc::STA_NANO,
        max_error: 100,
        offset: 0,
    }
}

fn learnt(answer: &Answer) -> Learnt {
    conclude(answer, (1000, 1400), 0, None)
}

fn bounds(answer: &Answer, now: u64) -> Result<(i64, i64), Unbounded> {
    let bounds = learnt(answer).bounds(now)?;
    let off = |moment: Timestamp| moment.as_nanos() - NOON as i64;
    Ok((off(bounds.earliest), off(bounds.latest)))
}

#[test]
fn bounds_are_what_the_kernel_says_and_what_is_added() {
    // 100 us; half of what the call took; 500 ppm of a tick since the second's turn; roundings.
    let error = 100_000 + 200 + 5_000;
    let (earliest, latest) = bounds(&fine(), 1200).unwrap();
    assert!((error..error + 10).contains(&latest) && earliest == -latest, "{earliest} {latest}");
    // A second later: 500 ppm of it.
    let (earliest, latest) = bounds(&fine(), 1200 + SECOND).unwrap();
    let late = latest - SECOND as i64 - error;
    assert!((500_000..500_010).contains(&late), "{late}");
    assert_eq!(latest - SECOND as i64, SECOND as i64 - earliest);
    // As far back: whoever read the clock first and then what another had learnt meanwhile.
    assert!(bounds(&fine(), 200).unwrap().1 > error - 1000);
    // Three quarters into the second the kernel's error has not grown yet, but the clock has drifted.
    let late = Answer { time: NOON + SECOND / 4 * 3, ..fine() };
    assert_eq!(learnt(&late).error, learnt(&fine()).error + 375_000);
    // Microseconds are cut off; what is still slewed counts.
    let coarse = Answer { status: 0, offset: 7000, ..fine() };
    assert_eq!(learnt(&coarse).error, learnt(&fine()).error + 8000);
}

#[test]
fn nobody_vouches() {
    let why = |answer: &Answer| bounds(answer, 1200).unwrap_err();
    let unsynchronised = Answer { state: Ok(libc::TIME_ERROR), ..fine() };
    assert_eq!(why(&unsynchronised), Unbounded::Unsynchronised);
    let status = libc::STA_NANO | libc::STA_UNSYNC;
    assert_eq!(why(&Answer { status, ..fine() }), Unbounded::Unsynchronised);
    let forbidden = Answer { state: Err(libc::EPERM), ..fine() };
    assert_eq!(why(&forbidden), Unbounded::Untold(Errno::EPERM));
    assert_eq!(
        learnt(&Answer { max_error: u32::MAX, ..fine() }).error / SECOND,
        4_294_967_295 * 1000 / SECOND
    );
}

#[test]
fn a_leap_second_widens_bounds_around_midnight() {
    let error = |state, time| {
        let learnt = learnt(&Answer { state: Ok(state), time, ..fine() });
        (learnt.error >= SECOND, learnt.leap)
    };
    assert_eq!(error(libc::TIME_OK, MIDNIGHT - 1), (false, Leap::None));
    for (state, leap) in [(libc::TIME_INS, Leap::Insertion), (libc::TIME_DEL, Leap::Deletion)] {
        assert_eq!(error(state, NOON), (false, leap));
        assert_eq!(error(state, MIDNIGHT - 2 * SECOND - 1), (false, leap));
        for time in [MIDNIGHT - 2 * SECOND, MIDNIGHT - 1, MIDNIGHT, MIDNIGHT + SECOND] {
            assert_eq!(error(state, time), (true, leap));
        }
    }
    assert_eq!(error(libc::TIME_OOP, MIDNIGHT - 1), (true, Leap::InProgress));
    assert_eq!(error(libc::TIME_WAIT, MIDNIGHT), (true, Leap::Over));
    assert_eq!(error(libc::TIME_WAIT, MIDNIGHT + 2 * SECOND), (false, Leap::Over));
}

/// Until the daemon has looked again, which shows in an error that falls.
#[test]
fn after_an_upset_there_are_no_bounds_until_the_error_falls() {
    let mut last = None;
    let mut next = |max_error, upsets| {
        let learnt = conclude(&Answer { max_error, ..fine() }, (0, 10), upsets, last);
        last = Some(learnt);
        learnt.state
    };
    // What happened before anybody asked is nobody's business.
    assert_eq!(next(600, 3), State::Bounded);
    assert_eq!(next(1100, 3), State::Bounded);
    // It falls, but who knows whether before or after the upset.
    assert_eq!(next(100, 4), State::Disrupted);
    assert_eq!(next(100, 4), State::Disrupted);
    assert_eq!(next(600, 4), State::Disrupted);
    assert_eq!(next(599, 4), State::Bounded);
    assert_eq!(next(700, 4), State::Bounded);
    assert_eq!(next(700, 6), State::Disrupted);
    assert_eq!(next(10, 7), State::Disrupted);
    assert_eq!(next(9, 7), State::Bounded);
}

/// What an upset left unsettled stays so while the daemon is away.
#[test]
fn unsynchronised_and_upset() {
    let gone = Answer { state: Ok(libc::TIME_ERROR), max_error: 16_000_000, ..fine() };
    let first = conclude(&gone, (0, 10), 1, None);
    assert_eq!(first.state, State::Unsynchronised);
    assert_eq!(conclude(&fine(), (0, 10), 1, Some(first)).state, State::Bounded);
}

proptest! {
    #[test]
    fn words_and_back(at: u64, ahead: u64, error: u64, max_error: u32, upsets: u32, state in 0usize..4, leap in 0usize..5, number in 1i32..4000) {
        let states = [State::Bounded, State::Unsynchronised, State::Disrupted, State::Untold(number)];
        let (state, leap) = (states[state], Learnt::LEAPS[leap]);
        let learnt = Learnt { at, ahead, error, state, leap, max_error, upsets };
        prop_assert_eq!(Learnt::of(learnt.words()), learnt);
        prop_assert_eq!(leap as usize, Learnt::LEAPS.iter().position(|of| *of == leap).unwrap());
    }

    #[test]
    fn bounds_only_widen(error in 0..1u64 << 62, now: u64, later in 0..1u64 << 40) {
        let learnt = Learnt { error, ..learnt(&fine()) };
        let now = learnt.at.wrapping_add(now >> 2);
        let width = |at| learnt.bounds(at).map(|of: Bounded| of.latest.as_nanos() as i128 - of.earliest.as_nanos() as i128);
        prop_assert!(width(now).unwrap() <= width(now.wrapping_add(later)).unwrap() || now.wrapping_add(learnt.ahead) > 1 << 62);
    }
}

#[cfg(not(miri))]
#[test]
fn this_machine() {
    for _ in 0..1000 {
        let before = clock::realtime() as i64;
        match now_bounded() {
            Ok(now) => {
                let after = clock::realtime() as i64;
                assert!(now.earliest.as_nanos() <= after && before <= now.latest.as_nanos());
                assert!(now.earliest <= now.middle() && now.middle() <= now.latest);
                assert!(
                    now.is_after(Timestamp::UNIX_EPOCH) && !now.is_before(Timestamp::UNIX_EPOCH)
                );
            }
            Err(why) => assert!(!std::format!("{why}").is_empty()),
        }
    }
}
