//! The observers' parent: starts one for each back-end, one after the other so that none disturbs the
//! other's first look, and then watches all of them together.
//!
//! Invariants:
//! 1. An observer never outlives the watch: it is ended when its [`Observer`] goes away.
//! 2. What ends a watch early (Ctrl-C, an observer's death) costs nothing that was seen.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use corelocal_support::clock::offset::{Offset, kernel};
use corelocal_support::process::signals;

use super::observer::{Agreement, Line, SUBCOMMAND, Sample, Sight};

/// The back-ends, as `CORELOCAL_CLOCK` names them, best first.
pub const BACKENDS: [&str; 4] = ["kernel-page", "paravirtual", "anchor", "vdso"];

/// An observer has had its first look by then.
const FIRST_LOOK: Duration = Duration::from_secs(20);

/// A back-end and what its observer saw first; or why there is nothing.
pub struct Observed {
    /// The back-end's name.
    pub backend: &'static str,
    /// The first observation of a process that may use no better back-end.
    pub sight: anyhow::Result<Sight>,
}

/// The course of a clock during a watch.
#[derive(Clone, Debug)]
pub struct Series {
    /// A back-end's name, or another clock's.
    pub clock: String,
    /// Whether its zero is `CLOCK_MONOTONIC`'s. Another's is compared with its own first sample.
    pub ours: bool,
    /// The seconds since the watch began, each with the distance from `CLOCK_MONOTONIC`.
    pub points: Vec<(f64, Offset)>,
    /// The comparisons during the watch.
    pub agreement: Agreement,
    /// The back-end that took over, if one did.
    pub fallen_to: Option<String>,
    first: Option<Offset>,
}

impl Series {
    /// Creates an empty one.
    pub fn new(clock: &str) -> Series {
        Series {
            clock: clock.to_owned(),
            ours: BACKENDS.contains(&clock),
            points: Vec::new(),
            agreement: Agreement::default(),
            fallen_to: None,
            first: None,
        }
    }

    /// Adds a sample that was taken when the watch was `seconds` old.
    pub fn add(&mut self, seconds: f64, sample: &Sample) {
        let first = *self.first.get_or_insert(sample.offset);
        let offset = if self.ours { sample.offset } else { sample.offset.since(first) };
        self.points.push((seconds, offset));
        self.agreement = self.agreement.and(sample.agreement);
        if sample.backend.as_ref().is_some_and(|backend| *backend != self.clock) {
            self.fallen_to.clone_from(&sample.backend);
        }
    }

    /// Returns when, and how far it certainly was from `CLOCK_MONOTONIC` then, in nanoseconds.
    pub fn curve(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.points.iter().map(|(at, offset)| (*at, offset.outside() as f64))
    }

    /// Returns how far in the end.
    pub fn last(&self) -> Option<f64> {
        self.curve().last().map(|(_, nanos)| nanos)
    }

    /// Returns how far at most.
    pub fn farthest(&self) -> Option<f64> {
        self.curve().map(|(_, nanos)| nanos.abs()).reduce(f64::max)
    }
}

/// The observers of all clocks.
pub struct Watch {
    observers: Vec<Observer>,
    lines: Receiver<(usize, Line)>,
    sender: Sender<(usize, Line)>,
}

struct Observer(Child);

impl Drop for Observer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Watch {
    /// Creates a watch without observers.
    pub fn new() -> Watch {
        let (sender, lines) = mpsc::channel();
        Watch { observers: Vec::new(), lines, sender }
    }

    /// Starts an observer of a back-end and waits for its first look; it goes on for `time`, with a
    /// sample `every` so often.
    pub fn observe(&mut self, backend: &'static str, time: Duration, every: Duration) -> Observed {
        let sight = self.start(Some(backend), time, every).and_then(|nth| self.first(nth));
        if sight.as_ref().map_or(true, |sight| sight.backend != backend) {
            // What serves in its place is observed under its own name.
            self.observers.pop();
        }
        Observed { backend, sight }
    }

    /// Starts an observer of clocks that are not ours.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn observe_others(&mut self, time: Duration, every: Duration) -> anyhow::Result<()> {
        if !cfg!(feature = "report") {
            return Ok(()); // They come with what is measured beside ours.
        }
        self.start(None, time, every).map(|_| ())
    }

    fn start(
        &mut self,
        backend: Option<&str>,
        time: Duration,
        every: Duration,
    ) -> anyhow::Result<usize> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let mut command = Command::new(program);
        // It ends with its parent; the time is for a parent that is stopped.
        let patience = time.as_millis().saturating_mul(2).saturating_add(60_000);
        command.args([SUBCOMMAND, "--every-ms", &every.as_millis().to_string()]);
        command.args(["--for-ms", &patience.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        match backend {
            Some("kernel-page") => command.env_remove("CORELOCAL_CLOCK"),
            Some(limit) => command.env("CORELOCAL_CLOCK", limit),
            None => command.arg("--others"),
        };
        // Ctrl-C is for the parent, which then writes what was seen.
        let mut child = command.process_group(0).spawn().context("cannot start an observer")?;
        let stdout = child.stdout.take().context("no standard output")?;
        let nth = self.observers.len();
        self.observers.push(Observer(child));
        let sender = self.sender.clone();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let Ok(line) = serde_json::from_str(&line) else { return };
                if sender.send((nth, line)).is_err() {
                    return;
                }
            }
        });
        Ok(nth)
    }

    fn first(&self, nth: usize) -> anyhow::Result<Sight> {
        let end = Instant::now() + FIRST_LOOK;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok((from, Line::Sight(sight))) if from == nth => return Ok(sight),
                // Of others, before the watch begins.
                Ok(_) => {}
                Err(_) => bail!("its observer has not answered for {} s", FIRST_LOOK.as_secs()),
            }
        }
    }

    /// Watches for `time`, and tells `show` from time to time how it goes.
    pub fn watch(self, time: Duration, mut show: impl FnMut(&[Series], f64)) -> (Vec<Series>, f64) {
        const LOOK: Duration = Duration::from_millis(100);
        let began = kernel(libc::CLOCK_MONOTONIC);
        let since = |at: u64| at.saturating_sub(began) as f64 / 1e9;
        let end = Instant::now() + time;
        let mut all: Vec<Series> = Vec::new();
        let mut shown = Instant::now();
        while !signals::came() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            match self.lines.recv_timeout(left.min(LOOK)) {
                Ok((_, Line::Sample(sample))) if sample.at >= began => {
                    let at = all.iter().position(|series| series.clock == sample.clock);
                    let at = at.unwrap_or_else(|| {
                        all.push(Series::new(&sample.clock));
                        all.len() - 1
                    });
                    all[at].add(since(sample.at), &sample);
                }
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if shown.elapsed() >= LOOK {
                shown = Instant::now();
                show(&all, since(kernel(libc::CLOCK_MONOTONIC)));
            }
        }
        let watched = since(kernel(libc::CLOCK_MONOTONIC));
        show(&all, watched);
        (all, watched)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(low: i64, high: i64) -> Sample {
        Sample {
            clock: String::new(),
            at: 0,
            offset: Offset { low, high },
            agreement: Agreement { samples: 1, outside: 0, farthest_ns: 0 },
            backend: Some("anchor".to_owned()),
        }
    }

    #[test]
    fn ours_are_absolute_and_others_relative() {
        let (mut ours, mut other) = (Series::new("anchor"), Series::new("quanta"));
        for series in [&mut ours, &mut other] {
            series.add(0.0, &sample(1000, 1010));
            series.add(1.0, &sample(1500, 1510));
        }
        assert_eq!(ours.last(), Some(1500.0));
        assert_eq!(ours.farthest(), Some(1500.0));
        assert_eq!(other.last(), Some(490.0));
        assert_eq!((ours.agreement.samples, ours.fallen_to.is_none()), (2, true));
        let mut best = Series::new("kernel-page");
        best.add(0.0, &sample(-5, 5));
        assert_eq!((best.last(), best.fallen_to.as_deref()), (Some(0.0), Some("anchor")));
    }
}
