//! `corelocal heap --attach PID`: samples what a running process allocates, and shows what grew meanwhile.
//!
//! ```text
//!   ask for a profile ──► the process follows ──► a moment ── … ── a moment ──► end the profile
//! ```
//! A moment is the heap's size, and the samples, both read from the process's memory. Moments are also read in between:
//! if the process ends, the last one counts.
//!
//! # Invariants
//! - A profile that was off is off again at the end, also after Ctrl-C, SIGTERM and SIGHUP. One that an earlier command,
//!   which was killed, left on is ended as well.
//! - A profile that the process has of its own stays as it is.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::bail;
use corelocal::alloc::inspect::{Found, MOST_STACK, NO_PROFILE, asking_for};
use corelocal::alloc::profile::{Sample, Summary};
use corelocal::alloc::reports;
use corelocal_support::process::{proc_files, signals};
use corelocal_support::units::size;
use indicatif::ProgressBar;
use serde::Serialize;

use super::args::HeapOptions;
use super::diff::Difference;
use super::file::{self, Heap};
use super::running::Running;
use super::sites::{self, Told};
use crate::progress::spinner;

/// The time of a look.
const LOOK: Duration = Duration::from_secs(10);
/// The pause between two checks meanwhile.
const TURN: Duration = Duration::from_millis(50);
/// The least time between two moments; it is more if they take long to read.
const BETWEEN: Duration = Duration::from_secs(1);
const SHARE: u32 = 20;

/// What was seen of a process.
#[derive(Debug, Serialize)]
pub struct Growth {
    pub process: u32,
    /// The name of the program.
    pub name: String,
    /// The time between the two moments.
    pub seconds: f64,
    pub before: Size,
    pub after: Size,
    /// Whether the process had a profile of its own, which stays on.
    pub had_profile: bool,
    /// Whether the process has ended, or executed another program.
    pub is_gone: bool,
    /// The growth of what was sampled.
    pub difference: Difference,
}

/// The size of a process's heap.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Size {
    /// The bytes of objects in use.
    pub in_use: usize,
    /// The resident bytes of the whole process.
    pub resident: u64,
}

/// A process at a moment.
#[derive(Clone)]
struct Moment {
    at: Instant,
    size: Size,
    heap: Heap,
}

/// Both moments, for other formats.
pub struct Looked {
    pub growth: Growth,
    pub before: (Heap, Told),
    pub after: (Heap, Told),
}

/// Looks at a process.
///
/// # Errors
/// When it has no malloc of ours, or allocates nothing; what to do.
pub fn look(process: u32, options: &HeapOptions) -> anyhow::Result<Looked> {
    let running = Running::open(process, true)?;
    let name = running.name.clone();
    let bar = spinner();
    let lasts = options.time.unwrap_or(LOOK);
    let asked = Asked::new(&running, options.rate)?;
    let had_profile = asked.mallocs.is_empty();
    bar.set_message("waiting for the process to allocate");
    let limit = Instant::now() + lasts;
    while !asked.is_followed() {
        if signals::came() {
            bar.finish_and_clear();
            bail!("interrupted before process {process} ({name}) allocated anything");
        }
        if Instant::now() >= limit {
            bar.finish_and_clear();
            bail!(
                "process {process} ({name}) took no memory from its malloc in {:.0} s, so nothing was sampled, and \
                 nothing grew; a longer --for waits longer",
                lasts.as_secs_f64()
            );
        }
        bar.tick();
        thread::sleep(TURN);
    }
    let Some(before) = moment(&running) else {
        bail!("process {process} ({name}) has ended, or executed another program");
    };
    let (after, is_gone) = watch(&running, &bar, before.at + lasts);
    bar.finish_and_clear();
    drop(asked);
    let after = after.unwrap_or_else(|| before.clone());
    let seconds = after.at.duration_since(before.at).as_secs_f64();
    let told = |moment: Moment| {
        let told = sites::told(&moment.heap, false);
        (moment.heap, told)
    };
    let (was, is) = (before.size, after.size);
    let (before, after) = (told(before), told(after));
    let difference = Difference::of(&before, &after, options.top, false)?;
    let growth =
        Growth { process, name, seconds, before: was, after: is, had_profile, is_gone, difference };
    Ok(Looked { growth, before, after })
}

/// Waits until the time is over, Ctrl-C comes or the process ends. Returns the last moment, and whether it has ended.
fn watch(running: &Running, bar: &ProgressBar, end: Instant) -> (Option<Moment>, bool) {
    let mut last = None;
    let mut next = Instant::now() + BETWEEN;
    loop {
        let now = Instant::now();
        if now >= end || signals::came() {
            let fresh = moment(running);
            let is_gone = fresh.is_none();
            return (fresh.or(last), is_gone);
        }
        if running.headers.iter().any(|header| running.options(*header).is_err()) {
            return (last, true);
        }
        if now >= next {
            let Some(fresh) = moment(running) else { return (last, true) };
            last = Some(fresh);
            next = Instant::now() + BETWEEN.max(now.elapsed() * SHARE);
        }
        let (count, bytes) = last
            .as_ref()
            .map_or((0, 0), |last: &Moment| (last.heap.samples.len(), last.heap.in_use));
        let left = end.saturating_duration_since(Instant::now());
        bar.set_message(format!(
            "{count} samples, {} in use; {:.0} s to go, Ctrl-C ends it",
            size(bytes),
            left.as_secs_f64()
        ));
        bar.tick();
        thread::sleep(TURN.min(left));
    }
}

/// A profile that was asked for, until this is dropped.
struct Asked<'a> {
    running: &'a Running,
    /// The byte by which it was asked for.
    byte: u8,
    /// The mallocs that were asked.
    mallocs: Vec<Found>,
}

impl<'a> Asked<'a> {
    fn new(running: &'a Running, rate: u64) -> anyhow::Result<Self> {
        let (process, name) = (running.process, &running.name);
        let found = running.headers.iter().filter_map(|header| running.look(*header).ok());
        let mut found: Vec<Found> = found.collect();
        if found.is_empty() {
            bail!("process {process} ({name}) has ended, or executed another program");
        }
        found.retain(|found| !found.taken.checks);
        if found.is_empty() {
            bail!(
                "process {process} ({name}) was started with CORELOCAL_MALLOC=check, which excludes a profile; start it \
                 without that word"
            );
        }
        let mut asked = Asked { running, byte: asking_for(rate), mallocs: Vec::new() };
        for found in found {
            let is_asked = running.asked(&found).is_some_and(|byte| byte != NO_PROFILE);
            if found.taken.profile_rate.is_some() && !is_asked {
                continue;
            }
            running.ask(&found, asked.byte)?;
            asked.mallocs.push(found);
        }
        Ok(asked)
    }

    /// Returns `true` once a malloc has a profile. One that was just forked may have taken the wish for its parent's: it is
    /// asked again.
    fn is_followed(&self) -> bool {
        for found in &self.mallocs {
            if self.running.asked(found) == Some(NO_PROFILE) {
                let _ = self.running.ask(found, self.byte);
            }
        }
        let options = |header: &usize| self.running.options(*header).ok();
        let mut all = self.running.headers.iter().filter_map(options);
        all.any(|options| options.profile_rate.is_some())
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        for found in &self.mallocs {
            // A process that has ended has no profile either.
            let _ = self.running.ask(found, NO_PROFILE);
        }
    }
}

/// Reads the malloc of which most was allocated since the profile began. `None` if the process has ended.
fn moment(running: &Running) -> Option<Moment> {
    let process = running.process;
    let maps = proc_files::maps(process).ok().flatten()?;
    let mut most: Option<Moment> = None;
    let mut in_use = 0;
    for header in &running.headers {
        let found = running.look(*header).ok()?;
        in_use += reports::in_use(&found.stats);
        let mut samples = Vec::new();
        let mut sample = Box::new(Sample::EMPTY);
        let summary = running.samples(*header, &mut sample, &mut |sample| {
            samples.push(file::Sample::of(sample));
        });
        let heap = heap(process, &summary.ok()?, samples);
        if most.as_ref().is_none_or(|most| heap.asked_for > most.heap.asked_for) {
            most = Some(Moment { at: Instant::now(), size: Size::default(), heap });
        }
    }
    let mut moment = most?;
    moment.size = Size { in_use, resident: running.resident() };
    moment.heap.maps = maps;
    moment.heap.root = Some(PathBuf::from(format!("/proc/{process}/root")));
    Some(moment)
}

fn heap(process: u32, summary: &Summary, samples: Vec<file::Sample>) -> Heap {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Heap {
        rate: summary.rate,
        process: process.into(),
        time: since_1970.map_or(0, |time| time.as_nanos() as u64),
        now: 0,
        asked_for: summary.bytes,
        in_use: summary.in_use,
        peak: summary.peak,
        peak_time: summary.peak_time,
        missed: summary.missed,
        most_stack: MOST_STACK as u64,
        samples,
        is_whole: true,
        ..Heap::default()
    }
}
