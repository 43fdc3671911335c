//! What follows from what kernels say, and what this one says.

use super::*;
use crate::clock;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;
/// Noon of a day, as a realtime in nanoseconds.
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

/// Half of what lies between the bounds.
fn error(answer: &Answer) -> u64 {
    let learnt = learnt(answer);
    learnt.latest.wrapping_sub(learnt.earliest) / 2
}

#[test]
fn bounds_are_what_the_kernel_says_and_what_is_added() {
    // 100 us; half of what the call took; 500 ppm of a tick since the second's turn, and of the time
    // that it is kept; roundings.
    let least = 100_000 + 200 + 5_000 + 2_000;
    assert!((least..least + 10).contains(&error(&fine())), "{}", error(&fine()));
    let (earliest, latest) = bounds(&fine(), 1200).unwrap();
    assert_eq!((earliest, latest), (-(error(&fine()) as i64), error(&fine()) as i64));
    assert_eq!(bounds(&fine(), 1900), Ok((earliest + 700, latest + 700)));
    // Three quarters into the second the kernel's error has not grown yet, but the clock has drifted.
    let late = Answer { time: NOON + SECOND / 4 * 3, ..fine() };
    assert_eq!(error(&late), error(&fine()) + 375_000);
    // Microseconds are cut off; what is still slewed counts.
    assert_eq!(error(&Answer { status: 0, offset: 7000, ..fine() }), error(&fine()) + 8000);
}

#[test]
fn what_was_learnt_holds_for_a_while_before_and_after() {
    let answer = fine();
    let learnt = conclude(&answer, (PERIOD * 3, PERIOD * 3 + 400), 0, None);
    let at = PERIOD * 3 + 200;
    for now in [at - PERIOD, at, at + PERIOD] {
        assert!(learnt.holds(now));
    }
    for now in [0, at - PERIOD - 1, at + PERIOD + 1, u64::MAX] {
        assert!(!learnt.holds(now));
    }
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
    let worst = Answer { max_error: u32::MAX, ..fine() };
    assert_eq!(error(&worst) / SECOND, u64::from(u32::MAX) * 1000 / SECOND);
}

#[test]
fn a_leap_second_widens_bounds_around_midnight() {
    let error = |state, time| {
        let answer = Answer { state: Ok(state), time, ..fine() };
        (error(&answer) >= SECOND, learnt(&answer).leap)
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
        last = Some(learnt.past);
        learnt.state
    };
    // Events before the first reading are irrelevant.
    assert_eq!(next(600, 3), State::Bounded);
    assert_eq!(next(1100, 3), State::Bounded);
    // It falls, but it is unknown whether before or after the upset.
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
    assert_eq!(conclude(&fine(), (0, 10), 1, Some(first.past)).state, State::Bounded);
    // What the kernel says, or does not, in between changes nothing.
    let upset = conclude(&fine(), (0, 10), 2, Some(first.past));
    let forbidden = Answer { state: Err(libc::EPERM), max_error: 0, ..fine() };
    let unsynchronised = Answer { state: Ok(libc::TIME_ERROR), ..fine() };
    for (answer, state) in
        [(&unsynchronised, State::Unsynchronised), (&forbidden, State::Untold(libc::EPERM))]
    {
        let between = conclude(answer, (0, 10), 2, Some(upset.past));
        assert_eq!(between.state, state);
        let next = |max_error| {
            let answer = Answer { max_error, ..fine() };
            conclude(&answer, (0, 10), 2, Some(between.past)).state
        };
        assert_eq!((next(100), next(99)), (State::Disrupted, State::Bounded));
    }
    // An upset that shows while the kernel does not tell is new to the next thread.
    let told = conclude(&fine(), (0, 10), 2, None);
    let between = conclude(&forbidden, (0, 10), 3, Some(told.past));
    assert_eq!(conclude(&fine(), (0, 10), 3, Some(between.past)).state, State::Disrupted);
}

/// As if the thread had been stopped after it looked for upsets.
#[test]
fn an_upset_while_the_kernel_is_asked() {
    let upsets = core::cell::Cell::new(3);
    let ask = |answer: Answer| {
        let upsets = &upsets;
        move || {
            upsets.set(upsets.get() + 1);
            answer
        }
    };
    let upset = learn_by(|| upsets.get(), ask(fine()), None);
    assert_eq!(upset.state, State::Disrupted);
    // The error before the upset is not what it must fall below.
    let answer = |max_error| move || Answer { max_error, ..fine() };
    let next = learn_by(|| upsets.get(), answer(50), Some(upset.past));
    assert_eq!(next.state, State::Disrupted);
    assert_eq!(learn_by(|| upsets.get(), answer(50), Some(next.past)).state, State::Disrupted);
    assert_eq!(learn_by(|| upsets.get(), answer(49), Some(next.past)).state, State::Bounded);
    let gone = Answer { state: Ok(libc::TIME_ERROR), ..fine() };
    assert_eq!(learn_by(|| upsets.get(), ask(gone), None).state, State::Unsynchronised);
}

/// Whether a thread is writing, or a fork left one behind in the middle.
#[test]
fn an_upset_is_not_forgotten_while_the_cache_cannot_be_read() {
    let learn = |max_error, upsets| {
        move |last| conclude(&Answer { max_error, ..fine() }, (0, 10), upsets, last)
    };
    let state = |cache: &Cache, max_error, upsets| {
        let learnt = learn_into(cache, learn(max_error, upsets));
        assert_eq!(Past::of(cache.last_word()).map(|past| past.upsets), Some(upsets));
        learnt.state
    };
    let busy = |cache: &Cache, max_error, upsets| {
        let mut state = None;
        cache.update(|_| {
            state = Some(learn_into(cache, learn(max_error, upsets)).state);
            [cache.last_word(); super::cache::WORDS]
        });
        state
    };
    let cache = Cache::new();
    // Events before the first reading.
    assert_eq!(busy(&Cache::new(), 100, 3), Some(State::Bounded));
    assert_eq!(state(&cache, 100, 3), State::Bounded);
    assert_eq!(busy(&cache, 100, 4), Some(State::Disrupted));
    cache.leave_odd();
    assert_eq!((cache.read(), busy(&cache, 100, 4)), (None, Some(State::Disrupted)));

    for upset in 5..7 {
        assert_eq!(state(&cache, 100, upset), State::Disrupted);
        for max_error in [100, 600] {
            assert_eq!(busy(&cache, max_error, upset), Some(State::Disrupted));
        }
        cache.leave_odd();
        assert_eq!(state(&cache, 100, upset), State::Disrupted);
        cache.leave_odd();
        assert_eq!(state(&cache, 99, upset), State::Bounded);
        cache.leave_odd();
    }
}

proptest! {
    #[test]
    fn words_and_back(
        times in any::<[u64; 3]>(),
        upsets: u32,
        below in proptest::option::of(0..=Past::MOST),
        kinds in (0usize..4, 0usize..5),
        number in 1i32..4000,
    ) {
        let states =
            [State::Bounded, State::Unsynchronised, State::Disrupted, State::Untold(number)];
        let [at, earliest, latest] = times;
        let (state, leap) = (states[kinds.0], Learnt::LEAPS[kinds.1]);
        let past = Past { upsets, below };
        let learnt = Learnt { at, earliest, latest, state, leap, past };
        prop_assert_eq!(Learnt::of(&learnt.words()), learnt);
        prop_assert_eq!(leap as usize, kinds.1);
        prop_assert_eq!(Past::of(past.word()), Some(past));
        // An error that there is no room for.
        let worse = Past { below: Some(u32::MAX), ..past };
        let most = Past { below: Some(Past::MOST), ..past };
        prop_assert_eq!(Past::of(worse.word()), Some(most));
    }
}

#[test]
fn what_bounds_are_worth_in_a_word() {
    assert_eq!(worth_of(0), (State::Bounded, Leap::None));
    assert_eq!(worth_of(Learnt::UNSYNCHRONISED), (State::Unsynchronised, Leap::None));
    let near = worth_of(Leap::Deletion as u64);
    assert_eq!(near, (State::Bounded, Leap::Deletion));
    assert_eq!(unusual(1, 2, Leap::Deletion as u64).map(|now| now.leap), Ok(Leap::Deletion));
    assert_eq!(unusual(1, 2, 2 << 8), Err(Unbounded::Disrupted));
}

/// A cache of its own, as if a daemon had just said that the clock is right to within a microsecond.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux", not(miri)))]
#[test]
fn a_line_is_the_realtime_clock_until_the_next_tick() {
    const ERROR: u64 = 1000;
    let backend = clock::settle();
    if SELECTOR.serving().is_none() {
        std::eprintln!("skipped: a_line_is_the_realtime_clock_until_the_next_tick: {backend:?}");
        return;
    }
    let cache = Cache::new();
    assert_eq!(line::read(&cache), None);
    let (mut read, mut steps) = (0, 0);
    while read < 10_000 && steps < 1_000_000 {
        steps += 1;
        let (monotonic, ahead) = (clock::monotonic(), clock::realtime());
        let width = clock::monotonic() - monotonic;
        let ahead = ahead.wrapping_sub(monotonic);
        let answer = Learnt {
            at: monotonic,
            earliest: ahead.wrapping_sub(width + ERROR),
            latest: ahead.wrapping_add(ERROR),
            ..learnt(&fine())
        };
        let words = cache.update(|_| answer.words()).unwrap();
        assert_eq!(Learnt::of(&words), answer);
        for _ in 0..50 {
            let before = clock::realtime();
            let Some((earliest, latest, 0)) = line::read(&cache) else { break };
            let after = clock::realtime();
            assert!(earliest <= after && before <= latest, "{before} {earliest} {latest} {after}");
            // What is added for the time until the line ends: 500 ppm of up to 4 ms.
            assert!(latest - earliest <= width + 2 * ERROR + 2 * 2_200, "{}", latest - earliest);
            read += 1;
        }
    }
    assert_eq!(read >= 10_000, steps < 1_000_000, "{read} of {steps}");
    // A tick that is none of the kernel's; a base that was long ago, or is to come.
    let words = cache.read().unwrap();
    assert!(!line::is_over(words[0], words[1]) || SELECTOR.tick().is_some());
    for (at, by) in [(0, 2), (1, 1 << 23), (1, 1 << 32), (1, u64::MAX - (1 << 40))] {
        let mut wrong = words;
        wrong[at] = wrong[at].wrapping_sub(by);
        cache.update(|_| wrong);
        assert_eq!(line::read(&cache), None, "{at} {by}");
        assert!(line::is_over(wrong[0], wrong[1]));
    }
}

/// As if the thread had been stopped for longer than what it learnt holds, before it drew the line.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux", not(miri)))]
#[test]
fn no_line_begins_where_what_was_learnt_no_longer_holds() {
    let backend = clock::settle();
    let cache = Cache::new();
    let read = |by: i64| {
        let learnt = learnt(&fine());
        let at = clock::monotonic().wrapping_add_signed(by);
        let words = cache.update(|_| Learnt { at, ..learnt }.words()).unwrap();
        (words[..line::WORDS].iter().any(|word| *word != 0), line::read(&cache))
    };
    let period = PERIOD as i64;
    if !(0..1000).any(|_| read(0).0) {
        let test = "no_line_begins_where_what_was_learnt_no_longer_holds";
        std::eprintln!("skipped: {test}: no lines by {backend:?}");
        return;
    }
    for by in [-period - 1, -(1 << 40), 1 << 40, i64::MIN] {
        assert_eq!(read(by), (false, None), "{by}");
    }
    assert!((0..1000).any(|_| read(-period / 4).0 && read(period / 4).0));
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
