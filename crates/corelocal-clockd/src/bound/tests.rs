//! Truth lies within the published bounds, whatever chronyd did before and does after.
//!
//! The machine is simulated: a counter with an oscillator that wanders, a kernel's clock with a rate that chronyd
//! sets, and a chronyd that knows how far its clock is off only as well as it says. It measures at any time, slews
//! at any rate up to the most that it is allowed, ends slews late, steps, changes its mind within a slew, and dies.

use proptest::prelude::*;

use corelocal::clock::page::{ReadError, Status, clockbound, vmclock};

use super::super::chrony::Tracking;
use super::super::discipline::{Discipline, Kernel};
use super::super::source;
use super::super::state_tracker::StateTracker;
use super::*;

const HERTZ: f64 = 2e9;
const BASE: f64 = 1_000_000.0;

/// The most that chronyd slews by unless it is told otherwise (`maxslewrate`), in parts per million.
const SLEW_PPM: f64 = 83_333.333;

/// Something that happens, and how long after the last event.
#[derive(Clone, Debug)]
enum Event {
    /// Time passes.
    Nothing,
    /// chronyd measures: its estimate is so far from the truth, as a part of what it says; it begins to slew at this
    /// part of the fastest rate, and ends the slew so late, in seconds.
    Measures { wrong: f64, rate: f64, late: f64 },
    /// It believes in another frequency, as far from the truth as it says.
    Frequency { wrong: f64 },
    /// It sets the clock to what it believes.
    Steps,
    /// It dies, and leaves the kernel as it is.
    Dies,
    /// clockd asks it.
    Reports,
    /// clockd publishes.
    Publishes,
}

/// All times in seconds; all rates are parts of one.
#[derive(Clone, Debug)]
struct Machine {
    truth: f64,
    /// What the oscillator gains on truth.
    oscillator: f64,
    raw: f64,
    clock: f64,
    /// The clock, but for steps.
    slewed: f64,
    /// What the kernel corrects its rate by.
    correction: f64,
    /// What chronyd says: the frequency, how far that may be off, what is to be slewed, how far that may be off.
    frequency: f64,
    skew: f64,
    to_slew: f64,
    uncertain: f64,
    slew: f64,
    until: f64,
    is_alive: bool,
}

impl Machine {
    fn new(oscillator: f64, skew: f64, uncertain: f64, off: f64) -> Machine {
        Machine {
            truth: BASE,
            oscillator,
            raw: BASE,
            clock: BASE + off,
            slewed: BASE,
            correction: -oscillator,
            frequency: oscillator,
            skew,
            to_slew: -off,
            uncertain,
            slew: 0.0,
            until: f64::MAX,
            is_alive: true,
        }
    }

    /// Time passes, up to the end of a slew and on.
    fn pass(&mut self, seconds: f64) {
        let left =
            if self.is_alive { (self.until - self.truth).clamp(0.0, seconds) } else { seconds };
        self.advance(left);
        if self.is_alive && self.until <= self.truth {
            (self.slew, self.until) = (0.0, f64::MAX);
            self.set_rate();
        }
        self.advance(seconds - left);
    }

    fn advance(&mut self, seconds: f64) {
        // RAW by definition: truth advances by 1 - oscillator for each of its seconds.
        let raw = seconds / (1.0 - self.oscillator);
        self.truth += seconds;
        self.raw += raw;
        self.clock += raw * (1.0 + self.correction);
        self.slewed += raw * (1.0 + self.correction);
        // What chronyd believes that it has slewed by, and what it may be off by more.
        self.to_slew -= raw * self.slew;
        self.uncertain += raw * (self.skew + 1e-6);
    }

    fn set_rate(&mut self) {
        self.correction = -self.frequency + self.slew;
    }

    fn happens(&mut self, event: &Event) {
        if !self.is_alive {
            return;
        }
        match *event {
            Event::Measures { wrong, rate, late } => {
                let off = self.clock - self.truth;
                self.to_slew = -off + wrong * self.uncertain;
                self.slew = self.to_slew.signum() * (rate * SLEW_PPM * 1e-6).max(1e-7);
                self.until = self.truth + self.to_slew.abs() / self.slew.abs() + late;
                self.set_rate();
            }
            Event::Frequency { wrong } => {
                self.frequency = self.oscillator + wrong * self.skew;
                self.set_rate();
            }
            Event::Steps => {
                self.clock += self.to_slew;
                (self.to_slew, self.slew, self.until) = (0.0, 0.0, f64::MAX);
                self.set_rate();
            }
            Event::Dies => self.is_alive = false,
            Event::Nothing | Event::Reports | Event::Publishes => {}
        }
    }

    fn point(&self) -> Point {
        Point {
            counter: (self.raw * HERTZ) as u64,
            nanos: (self.clock * 1e9).round() as u64,
            raw: (self.raw * 1e9).round() as u64,
            error: 20,
            width: 20,
        }
    }

    fn tracking(&self) -> Tracking {
        Tracking {
            reference: 1,
            stratum: 1,
            leap: 0,
            measured: u64::MAX,
            correction: self.to_slew,
            last_offset: 0.0,
            rms_offset: 0.0,
            frequency_ppm: self.frequency * 1e6,
            residual_ppm: 0.0,
            skew_ppm: self.skew * 1e6,
            root_delay: 0.0,
            // The simulation's own rounding: numbers of 1e6 seconds are off by 1e-10.
            root_dispersion: self.uncertain + 1e-9,
            interval: 16.0,
        }
    }

    fn kernel(&self) -> Kernel {
        Kernel { rate_ppm: self.correction * 1e6, is_kept: true, ..Kernel::default() }
    }
}

/// What clockd knows.
struct Clockd {
    by_counter: StateTracker,
    by_clock: StateTracker,
    said: Option<(Tracking, Point)>,
}

impl Clockd {
    fn new() -> Clockd {
        let state_tracker =
            |by_counter| StateTracker::new(libc::CLOCK_REALTIME, by_counter, None, None);
        Clockd { by_counter: state_tracker(true), by_clock: state_tracker(false), said: None }
    }

    fn asks(&mut self, machine: &Machine) {
        if machine.is_alive {
            self.said = Some((machine.tracking(), machine.point()));
        }
    }

    fn discipline(&self, machine: &Machine) -> Option<Discipline> {
        let (tracking, at) = self.said?;
        let said = source::tests::said_at(tracking, at);
        Some(source::discipline(&said, Some(&machine.kernel()), machine.is_alive))
    }

    fn publishes(&mut self, machine: &Machine) -> Option<(vmclock::Content, clockbound::Content)> {
        let discipline = self.discipline(machine)?;
        let by_counter = self.by_counter.state_at(&discipline, machine.point());
        let by_clock = self.by_clock.state_at(&discipline, machine.point());
        Some((vmclock::Content::from(&by_counter), clockbound::Content::from(&by_clock)))
    }
}

/// Truth lies within what the page says by the counter.
fn holds(page: &vmclock::Content, machine: &Machine) -> Result<(), TestCaseError> {
    match page.bounds_at(machine.point().counter) {
        Ok(bounds) => within(bounds.earliest.as_secs_f64(), machine, bounds.latest.as_secs_f64()),
        // No rate yet; or too old, which is not to say anything wrong.
        Err(ReadError::Untrusted(Status::Disrupted) | ReadError::Expired) => Ok(()),
        Err(doubt) => Err(TestCaseError::fail(format!("{doubt}"))),
    }
}

fn within(earliest: f64, machine: &Machine, latest: f64) -> Result<(), TestCaseError> {
    // Seconds of 1e6 as an f64 are off by 1e-10.
    const ROUNDING: f64 = 2e-9;
    let Machine { truth, clock, .. } = machine;
    let is_within = earliest - ROUNDING <= *truth && *truth <= latest + ROUNDING;
    prop_assert!(
        is_within,
        "truth is {:.1} ns before the earliest, {:.1} ns after the latest; the clock is {:.1} ns ahead: {machine:?}",
        (earliest - truth) * 1e9,
        (truth - latest) * 1e9,
        (clock - truth) * 1e9
    );
    Ok(())
}

fn event() -> impl Strategy<Value = Event> {
    let part = || -1.0..=1.0_f64;
    prop_oneof![
        2 => Just(Event::Nothing),
        3 => (part(), 0.0..=1.0_f64, prop_oneof![3 => Just(0.0), 1 => 0.0..0.5_f64])
            .prop_map(|(wrong, rate, late)| Event::Measures { wrong, rate, late }),
        1 => part().prop_map(|wrong| Event::Frequency { wrong }),
        1 => Just(Event::Steps),
        1 => Just(Event::Dies),
        6 => Just(Event::Reports),
        12 => Just(Event::Publishes),
    ]
}

/// Events, and how long it takes until each.
fn history() -> impl Strategy<Value = Vec<(f64, Event)>> {
    let pause = prop_oneof![6 => 0.0001..0.2_f64, 2 => 0.2..3.0_f64, 1 => 3.0..40.0_f64];
    proptest::collection::vec((pause, event()), 1..80)
}

proptest! {
    /// A vmclock page's bound holds at any time after its publication, whatever chronyd and the kernel do then, and
    /// whether or not the page is published again.
    #[test]
    fn truth_lies_within_the_bounds_of_any_history(
        oscillator in -300e-6..300e-6_f64,
        skew in 0.0..5e-6_f64,
        uncertain in 1e-7..1e-3_f64,
        off in -1.0..1.0_f64,
        history in history(),
        ages in proptest::collection::vec(0.0..900.0_f64, 3),
    ) {
        let mut machine = Machine::new(oscillator, skew, uncertain, off);
        let mut clockd = Clockd::new();
        clockd.asks(&machine);
        let mut page = None;
        for (pause, event) in &history {
            machine.pass(*pause);
            if let Some((page, _)) = &page {
                holds(page, &machine)?;
            }
            machine.happens(event);
            match event {
                Event::Reports => clockd.asks(&machine),
                Event::Publishes => page = clockd.publishes(&machine),
                _ => {}
            }
            if let Some((page, _)) = &page {
                holds(page, &machine)?;
            }
        }
        // The publisher is killed here.
        if let Some((page, _)) = &page {
            for age in &ages {
                let mut later = machine.clone();
                later.pass(*age);
                holds(page, &later)?;
            }
        }
    }

    /// A ClockBound page's bound holds at its publication after any history, and for as long as it is believed if
    /// chronyd begins nothing new meanwhile, be it that it dies within a slew.
    #[test]
    fn the_kernels_clock_lies_within_the_bounds_of_any_history(
        oscillator in -300e-6..300e-6_f64,
        skew in 0.0..5e-6_f64,
        uncertain in 1e-7..1e-3_f64,
        off in -1.0..1.0_f64,
        history in history(),
        dies: bool,
        ages in proptest::collection::vec(0.0..13.0_f64, 3),
    ) {
        let mut machine = Machine::new(oscillator, skew, uncertain, off);
        let mut clockd = Clockd::new();
        clockd.asks(&machine);
        for (pause, event) in &history {
            machine.pass(*pause);
            machine.happens(event);
            let page = match event {
                Event::Reports => {
                    clockd.asks(&machine);
                    None
                }
                Event::Publishes => clockd.publishes(&machine),
                _ => None,
            };
            let Some((_, page)) = page else { continue };
            for age in [0.0].iter().chain(&ages) {
                let mut later = machine.clone();
                later.is_alive &= !dies;
                later.pass(*age);
                let seconds = |s: f64| core::time::Duration::from_secs_f64(s);
                let realtime = seconds(later.clock);
                // The monotonic clock is slewed as well.
                let monotonic = page.as_of + seconds(later.slewed - machine.slewed);
                let bounds = page.bounds_at(realtime, monotonic);
                let bounds = bounds.map_err(|doubt| TestCaseError::fail(format!("{doubt}")))?;
                within(bounds.earliest.as_secs_f64(), &later, bounds.latest.as_secs_f64())?;
            }
        }
    }
}

/// The history that was wrong: a slew ends, and the page is not published again.
#[test]
fn a_page_does_not_go_on_with_a_slew_that_is_over() {
    for (slew_ppm, every) in [(100.0, 0.1), (500.0, 1.0), (83_000.0, 0.1), (83_000.0, 5.0)] {
        let seconds = 12.0;
        let off = -seconds * slew_ppm * 1e-6;
        let mut machine = Machine::new(5e-6, 20e-9, 1e-6, off);
        machine.happens(&Event::Measures { wrong: 0.0, rate: slew_ppm / SLEW_PPM, late: 0.0 });
        let mut clockd = Clockd::new();
        let (mut page, mut asked) = (None, BASE - 1.0);
        while machine.truth < BASE + 2.0 * seconds {
            if machine.truth >= asked + 1.0 {
                asked = machine.truth;
                clockd.asks(&machine);
            }
            page = clockd.publishes(&machine);
            for _ in 0..10 {
                machine.pass(every / 10.0);
                holds(&page.unwrap().0, &machine).unwrap();
            }
            // Killed here.
            for age in [1.0, 60.0, 900.0] {
                let mut later = machine.clone();
                later.pass(age);
                holds(&page.unwrap().0, &later).unwrap();
            }
        }
        let (page, _) = page.unwrap();
        let bounds = page.bounds_at(machine.point().counter).unwrap();
        assert!(
            (bounds.latest - bounds.earliest).as_micros() < 100,
            "not by being useless: {bounds:?}"
        );
    }
}
