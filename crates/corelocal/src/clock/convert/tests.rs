//! Histories made up: a clock whose rate changes, that is set and that sleeps, looked at now and then.

use super::*;
use crate::clock;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

/// A machine's counter and clocks.
#[derive(Clone, Copy, Debug)]
struct Machine {
    ticks: u64,
    /// The monotonic clock in 2^-32 nanoseconds.
    fixed: u128,
    /// Nanoseconds per tick, times 2^32.
    rate: u64,
    ahead: u64,
}

/// The rate of a counter of 2.6 GHz.
const RATE: u64 = (5 << 32) / 13;

impl Machine {
    fn new() -> Machine {
        Machine { ticks: 1 << 40, fixed: 77 << 64, rate: RATE, ahead: 1 << 60 }
    }

    fn pass(&mut self, ticks: u64) {
        self.ticks = self.ticks.wrapping_add(ticks);
        self.fixed += u128::from(ticks) * u128::from(self.rate);
    }

    fn nanos(&self) -> u64 {
        (self.fixed >> 32) as u64
    }

    fn look(&self) -> Look {
        let rate = Some(segment::rate(self.rate, 1 << 32));
        let (ticks, nanos, ahead) = (self.ticks, self.nanos(), Some(self.ahead));
        Look { ticks, nanos, doubt: 0, rate, ahead }
    }
}

/// A step of a scripted machine.
#[derive(Clone, Debug)]
enum Step {
    /// Time passes, and the converter takes a reading.
    Pass(u64),
    /// NTP: by so many 2^-20 of the rate, and time passes.
    Slew(i64, u64),
    /// The realtime clock is set.
    Set(i64),
    /// The monotonic clock stands while the counter goes on.
    Sleep(u64),
    /// The counter begins anew.
    Restore(u64),
    /// The kernel says that something happened.
    Hint,
}

fn step() -> impl Strategy<Value = Step> {
    // From a microsecond to ten seconds.
    let some_time =
        || (1u32..13).prop_flat_map(|digits| 1000u64..1000 + 2u64.pow(digits * 2) * 1500);
    prop_oneof![
        6 => some_time().prop_map(Step::Pass),
        3 => (-500i64..500, some_time()).prop_map(|(by, ticks)| Step::Slew(by, ticks)),
        1 => prop_oneof![-5_000_000i64..5_000_000, -20_000i64..20_000].prop_map(Step::Set),
        1 => (1u64 << 20..1 << 45).prop_map(Step::Sleep),
        1 => (0u64..1 << 50).prop_map(Step::Restore),
        1 => Just(Step::Hint),
    ]
}

/// A tick, its epoch, and the clocks at that moment. `None` if the time is unknown.
type Event = (u64, u64, Option<(u64, u64)>);

/// The results of a converter over some steps, with the expected times of ticks along the way.
struct Story<const N: usize> {
    history: History<N>,
    machine: Machine,
    epoch: u64,
    before: Before,
    events: Vec<Event>,
    /// The largest deviation that NTP can have caused between two samples.
    slack: u64,
}

impl<const N: usize> Story<N> {
    fn new() -> Story<N> {
        let mut history = History::new();
        let machine = Machine::new();
        history.begin(&machine.look(), 1);
        Story { history, machine, epoch: 1, before: Before::Quiet, events: vec![], slack: 12 }
    }

    /// A look, as `Converter::add` does it.
    fn look(&mut self) -> bool {
        let look = self.machine.look();
        let broke = self.before == Before::Broken || self.history.breaks(&look, self.before);
        if broke {
            self.epoch += 1;
            self.history.begin(&look, self.epoch);
        } else {
            self.history.go_on(&look, self.epoch);
        }
        self.before = Before::Quiet;
        broke
    }

    fn event(&mut self) {
        let clocks = (self.machine.nanos(), self.machine.ahead);
        self.events.push((self.machine.ticks, self.epoch, Some(clocks)));
    }

    /// Time passes in three parts, with an event after each, and then the converter takes a reading.
    fn pass(&mut self, ticks: u64) {
        for part in [ticks / 3, ticks / 3, ticks - ticks / 3 * 2] {
            self.machine.pass(part);
            self.event();
        }
        assert!(!self.look(), "{:?}", self.machine);
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Pass(ticks) => self.pass(ticks),
            Step::Slew(by, ticks) => {
                let rate = RATE as i64 + (RATE as i64 >> 20) * by;
                let change = (rate - self.machine.rate as i64).unsigned_abs();
                self.slack =
                    self.slack.max(12 + ((u128::from(change) * u128::from(ticks)) >> 32) as u64);
                self.machine.rate = rate as u64;
                self.pass(ticks);
            }
            Step::Set(by) => {
                self.machine.ahead = self.machine.ahead.wrapping_add_signed(by);
                self.look();
            }
            Step::Sleep(ticks) => {
                self.machine.ticks += ticks;
                // A tick that is taken now, before the discontinuity is noticed.
                self.events.push((self.machine.ticks, self.epoch, None));
                if nanos_of(ticks) < 3_000_000 {
                    // So short that the kernel has to tell.
                    self.before = Before::Broken;
                }
                self.machine.pass(1000);
                assert!(self.look());
            }
            Step::Restore(ticks) => {
                self.machine.ticks = ticks;
                self.before = Before::Broken;
                assert!(self.look());
            }
            Step::Hint => self.before = Before::Suspicious,
        }
    }
}

fn nanos_of(ticks: u64) -> u64 {
    ((u128::from(ticks) * u128::from(RATE)) >> 32) as u64
}

proptest! {
    #[test]
    fn every_tick_has_its_time_or_none(steps in prop::collection::vec(step(), 1..60)) {
        let mut story = Story::<1000>::new();
        for step in &steps {
            // A hint and a slew at once are more than a coincidence.
            if matches!(step, Step::Slew(..)) {
                story.before = Before::Quiet;
            }
            story.step(step);
        }
        let slack = story.slack;
        for (tick, epoch, clocks) in story.events {
            let found = story.history.find(tick, epoch);
            match (clocks, found) {
                (None, Ok(segment)) => prop_assert!(false, "{tick} of {epoch} has a time: {segment:?}"),
                (None, Err(why)) => prop_assert!(why == Unknown::Doubtful, "{why:?}"),
                (Some((nanos, ahead)), Ok(segment)) => {
                    let time = segment.at(tick);
                    prop_assert!(time.abs_diff(nanos) <= slack, "{time} is not {nanos} within {slack}");
                    if let Some(found) = segment.ahead {
                        let off = (found.wrapping_sub(ahead) as i64).abs();
                        prop_assert!(off <= 1000, "realtime is off by {off}");
                    }
                }
                (Some(_), Err(why)) => prop_assert!(false, "{tick} of {epoch}: {why:?}"),
            }
        }
    }

    /// In a stretch without a break a later tick never gets an earlier time, and what it got it gets again.
    #[test]
    fn times_rise_and_stay(
        steps in prop::collection::vec((-500i64..500, 1000u64..1 << 33), 1..40),
    ) {
        let mut story = Story::<1000>::new();
        let mut told = Vec::new();
        for (by, ticks) in steps {
            story.step(&Step::Slew(by, ticks));
            let tick = story.machine.ticks;
            told.push((tick, story.history.find(tick, 1).unwrap().at(tick)));
        }
        let mut last = 0;
        for (tick, _, _) in &story.events {
            let time = story.history.find(*tick, 1).unwrap().at(*tick);
            prop_assert!(last <= time, "{last} {time}");
            last = time;
        }
        for (tick, time) in told {
            let again = story.history.find(tick, 1).unwrap().at(tick);
            prop_assert_eq!(again, time);
        }
    }

    #[test]
    fn many_at_once_are_what_each_is_alone(
        steps in prop::collection::vec(step(), 1..30),
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..1500),
        realtime: bool,
    ) {
        let mut story = Story::<8>::new();
        steps.iter().for_each(|step| story.step(step));
        prop_assume!(!story.events.is_empty());
        let epoch = story.epoch;
        let ticks: Vec<Ticks> = order
            .iter()
            .map(|index| Ticks::from_raw(index.get(&story.events).0))
            .collect();
        let mut times = vec![0; ticks.len()];
        let ahead = |segment: &Segment| match realtime {
            true => segment.ahead.ok_or(Unknown::RealtimeSet),
            false => Ok(0),
        };
        let all = story.history.convert(epoch, &ticks, &mut times, ahead);
        let each = ticks.iter().map(|tick| {
            let segment = story.history.find(tick.as_raw(), epoch)?;
            Ok(segment.at(tick.as_raw()).wrapping_add(ahead(segment)?))
        });
        for (at, alone) in each.enumerate() {
            match alone {
                Ok(time) => prop_assert_eq!(times[at], time),
                Err(why) => {
                    prop_assert_eq!(all, Err(NoTime { at, why }));
                    return Ok(());
                }
            }
        }
        prop_assert_eq!(all, Ok(()));
    }
}

/// While the rate is steady few segments serve, each much longer than the one before.
#[test]
fn a_steady_clock_takes_few_segments() {
    let mut story = Story::<64>::new();
    // An hour, looked at each second.
    for _ in 0..3600 {
        story.step(&Step::Pass(2_600_000_000));
    }
    assert!(story.history.len <= 10, "{}", story.history.len);
    for (tick, epoch, clocks) in story.events {
        let time = story.history.find(tick, epoch).unwrap().at(tick);
        assert!(time.abs_diff(clocks.unwrap().0) <= 12);
    }
}

#[test]
fn what_is_too_old_is_forgotten_and_what_is_too_new_has_to_wait() {
    let mut story = Story::<2>::new();
    let first = story.machine.ticks;
    for by in [100, -200, 300, -400] {
        story.step(&Step::Slew(by, 2_600_000_000));
    }
    let why = |tick, epoch| story.history.find(tick, epoch).unwrap_err();
    assert_eq!(story.history.len, 2);
    assert_eq!(why(first, 1), Unknown::Forgotten);
    assert_eq!(why(story.machine.ticks, 0), Unknown::Forgotten);
    assert_eq!(why(story.machine.ticks + 1, 1), Unknown::Later);
    assert_eq!(why(story.machine.ticks, 2), Unknown::Later);
    assert!(story.history.find(story.machine.ticks, 1).is_ok());
}

/// The same numbers mean different times before and after the counter was set back.
#[test]
fn a_tick_is_of_its_epoch() {
    let mut story = Story::<64>::new();
    let first = story.machine.ticks;
    story.step(&Step::Pass(1 << 30));
    story.machine.fixed += 1 << 70;
    story.step(&Step::Restore(first));
    story.step(&Step::Pass(1 << 30));
    let at = |epoch| story.history.find(first + 1000, epoch).unwrap().at(first + 1000);
    assert!(at(2) - at(1) > 1 << 37);
    assert_eq!(story.history.find(first + 1000, 3).unwrap_err(), Unknown::Later);
}

/// A rate that is not published is measured. A counter whose rate cannot be measured is not used.
#[test]
fn an_unknown_rate_is_measured() {
    let look = |machine: &Machine| Look { rate: None, ..machine.look() };
    let mut machine = Machine::new();
    let mut history = History::<4>::new();
    history.begin(&look(&machine), 1);
    assert!(!history.has_rate());
    machine.pass(100_000);
    assert!(!history.breaks(&look(&machine), Before::Suspicious));
    history.go_on(&look(&machine), 1);
    assert!(history.has_rate());
    let segment = history.find(machine.ticks - 50_000, 1).unwrap();
    assert!(segment.at(machine.ticks).abs_diff(machine.nanos()) <= 1);

    let mut history = History::<4>::new();
    history.begin(&look(&machine), 1);
    let mut stands = look(&machine);
    stands.nanos += 1_000_000;
    assert!(history.breaks(&stands, Before::Quiet));
}

/// A look at another cpu, whose counter lags behind by a little, says nothing.
#[test]
fn a_little_back_is_nothing() {
    let mut story = Story::<4>::new();
    story.step(&Step::Pass(1 << 30));
    let mut look = story.machine.look();
    look.ticks -= 40;
    assert!(!story.history.breaks(&look, Before::Suspicious));
    story.history.go_on(&look, 1);
    assert!(story.history.find(story.machine.ticks, 1).is_ok());
    look.ticks -= 1 << 20;
    assert!(story.history.breaks(&look, Before::Quiet));
}

/// The real clock.
#[test]
fn real_ticks_have_the_time_at_which_they_were_taken() {
    clock::settle();
    let mut converter = Converter::new();
    for _ in 0..50 {
        let (mut stamps, mut around) = (Vec::new(), Vec::new());
        for _ in 0..100 {
            let before = clock::monotonic();
            stamps.push(Stamp::now_ordered());
            around.push((before, clock::monotonic(), clock::realtime()));
        }
        converter.refresh();
        for (stamp, (before, after, realtime)) in stamps.iter().zip(around) {
            // Between looks that a busy machine tears apart there is no time.
            let time = match converter.monotonic(*stamp) {
                Ok(time) => time,
                Err(why) => {
                    assert_eq!(why, Unknown::Doubtful);
                    continue;
                }
            };
            // Where samples are followed, each is off by some ten nanoseconds.
            assert!(before <= time + 100 && time <= after + 100, "{before} {time} {after}");
            match converter.realtime(*stamp) {
                Ok(date) => assert!(date <= realtime + 1_000_000, "{date} {realtime}"),
                Err(why) => assert_eq!(why, Unknown::RealtimeSet),
            }
        }
    }
    let later = Stamp::now();
    assert_eq!(
        converter.monotonic(Stamp { epoch: later.epoch + 100, ..later }),
        Err(Unknown::Later)
    );
}
