//! The choice of the source for the clock's error: chronyd if it answers, otherwise the kernel's estimate, which a
//! daemon has stored.
//!
//! chronyd knows more. The error that it tells the kernel is rounded to microseconds and grows by 500 ppm from then
//! on. Without `rtcsync` it leaves the kernel's flag at "unsynchronised".
//!
//! Invariants:
//! 1. The information is at most [`AGAIN`] old. `bound.rs` adds the uncertainty since then. After chronyd fell
//!    silent, the clock is assumed to run free, with the maximum drift.
//! 2. A chronyd that does not answer is asked again after [`AFTER_SILENCE`], so that waiting for it does not delay
//!    publications.

use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::ValueEnum;
use corelocal::clock::page::{Leap, Status};
use corelocal_support::clock::counter::Point;
use corelocal_support::clock::offset::kernel;
use corelocal_support::units::nanos;

use super::bound::Report;
use super::chrony::{Place, Tracking};
use super::discipline::{Discipline, Kernel, WORST_PPB, Whose};

/// The source that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Source {
    /// chronyd where it answers, else the kernel
    Auto,
    /// The error that the kernel states (adjtimex)
    Kernel,
    /// chronyd alone
    Chrony,
}

const AGAIN: Duration = Duration::from_secs(1);
const AFTER_SILENCE: Duration = Duration::from_secs(5);

/// The most that a kernel's clock is slewed by: a tenth (its tick), and 500 ppm (its frequency).
const FASTEST_PPB: u32 = 100_500_000;

/// For how long a silent chronyd's last words are worth something.
const SILENT: Duration = Duration::from_secs(1000);

/// The answer of chronyd, and the clocks read before and after it came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Said {
    tracking: Tracking,
    at: Instant,
    asked: Point,
    answered: Point,
}

/// Asks, and remembers.
pub struct Asker {
    source: Source,
    places: Vec<Place>,
    /// The clock that is published.
    clock: libc::clockid_t,
    vouched: Option<u64>,
    said: Option<Said>,
    /// Not before.
    next: Option<Instant>,
    /// Tells why a place is not asked where chronyd may be.
    unasked: Option<String>,
    /// The place where it answers, or why it does not.
    state: Result<String, String>,
}

impl Asker {
    /// Creates that of the source; a chronyd at one of the places, of which one may be missing for a reason. `clock`:
    /// the one that is published. `vouched`: the greatest error, whatever anybody says.
    pub fn new(
        source: Source,
        (places, unasked): (Vec<Place>, Option<String>),
        clock: libc::clockid_t,
        vouched: Option<Duration>,
    ) -> Asker {
        let vouched = vouched.map(nanos);
        Asker {
            source,
            places,
            clock,
            vouched,
            said: None,
            next: None,
            unasked,
            state: Err("chronyd was not asked".to_owned()),
        }
    }

    /// Returns the current state of the clock.
    ///
    /// # Errors
    /// A sentence, if the required source does not answer.
    pub fn query(&mut self) -> anyhow::Result<Discipline> {
        let asked = Kernel::query();
        if let Some(most) = self.vouched {
            return Ok(asked
                .map_or_else(|_| Discipline::unknown(), Discipline::from)
                .trusted_to(most));
        }
        if self.source != Source::Kernel {
            self.ask_chrony();
        }
        match (self.said, asked) {
            (Some(said), asked) => Ok(discipline(&said, asked.ok().as_ref(), self.state.is_ok())),
            (None, Ok(asked)) if self.source != Source::Chrony => Ok(Discipline::from(asked)),
            (None, _) if self.source == Source::Chrony => {
                let why = self.state.as_ref().err().map_or("", String::as_str);
                Err(anyhow!(
                    "{why}; start chronyd, give its address with --chrony, or omit --source"
                ))
            }
            (None, asked) => {
                let error = asked.err().map_or_else(String::new, |error| error.to_string());
                Err(anyhow!(
                    "the kernel does not report its clock's error (adjtimex: {error}); allow adjtimex in the \
                     seccomp profile, or give --max-error"
                ))
            }
        }
    }

    fn ask_chrony(&mut self) {
        let now = Instant::now();
        if self.next.is_none_or(|next| now >= next) {
            let asked = Point::now(self.clock);
            match Tracking::query(&self.places) {
                Ok((tracking, place)) => {
                    let answered = Point::now(self.clock);
                    self.said = Some(Said { tracking, at: now, asked, answered });
                    self.state = Ok(place.to_string());
                    self.next = Some(now + AGAIN);
                }
                Err(why) => {
                    self.state = Err(match &self.unasked {
                        None => why,
                        Some(unasked) => format!("{why}; {unasked}"),
                    });
                    self.next = Some(Instant::now() + AFTER_SILENCE);
                }
            }
        }
        let is_silent = self.state.is_err();
        // The kernel goes on where it may.
        let is_over = |said: &Said| is_silent && now.duration_since(said.at) > SILENT;
        if self.source == Source::Auto && is_silent || self.said.as_ref().is_some_and(is_over) {
            self.said = None;
        }
    }

    /// Returns the source in use, in words.
    pub fn whose(&self, discipline: &Discipline) -> String {
        match (discipline.whose, &self.state) {
            (Whose::User, _) => "by --max-error".to_owned(),
            (Whose::Chrony, Ok(place)) => format!("by chronyd at {place}"),
            (Whose::Chrony, Err(_)) => "last by chronyd, which no longer answers".to_owned(),
            (Whose::Kernel, _) => "by the kernel".to_owned(),
        }
    }

    /// Returns why the kernel is believed although a chronyd may be there.
    pub fn unasked(&self, discipline: &Discipline) -> Option<&str> {
        let is_fallback = discipline.whose == Whose::Kernel && self.source == Source::Auto;
        self.unasked.as_deref().filter(|_| is_fallback)
    }
}

/// Returns what follows from chronyd's words and the kernel's. The error is that at the report.
pub(super) fn discipline(said: &Said, kernel_says: Option<&Kernel>, is_there: bool) -> Discipline {
    let Said { tracking, asked, answered, .. } = *said;
    let of_kernel =
        kernel_says.map_or_else(Discipline::unknown, |kernel| Discipline::from(*kernel));
    let drift = tracking.drift_ppb();
    // (1)
    let (drift, status) = match (tracking.status(kernel(libc::CLOCK_REALTIME)), is_there) {
        (Status::Synchronized | Status::FreeRunning, false) => {
            (drift.max(WORST_PPB), Status::FreeRunning)
        }
        (status, _) => (drift, status),
    };
    let max_error_ns = tracking.max_error_ns();
    let leap = match of_kernel.leap {
        Leap::None => tracking.leap(),
        // What is happening, or about to, is the kernel's doing.
        leap => leap,
    };
    Discipline {
        status,
        max_error_ns,
        estimated_error_ns: Some(tracking.estimated_error_ns().min(max_error_ns)),
        drift_ppb: drift,
        // A kernel that does not tell may slew as fast as kernels do.
        slew_ppb: kernel_says.map_or(FASTEST_PPB, |kernel| tracking.slew_ppb(kernel.rate_ppm)),
        report: Some(Report { frequency_ppm: tracking.frequency_ppm, asked, answered }),
        leap,
        measured: Some(tracking.measured),
        whose: Whose::Chrony,
        ..of_kernel
    }
}

#[cfg(test)]
pub(super) mod tests;
