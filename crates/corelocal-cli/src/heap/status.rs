//! `corelocal heap --status PID`: the malloc of a process that runs, read from its memory. The process does nothing for
//! it, and need not have been started for it.
//!
//! Invariant: nothing is written to the process.

use corelocal::alloc::inspect::{Found, Taken};
use corelocal::alloc::{ClassStats, Stats, reports};
use corelocal_support::process::proc_files;
use serde::Serialize;

use super::running::{Running, kib};

/// The state of a process's mallocs.
#[derive(Debug, Serialize)]
pub struct Status {
    pub process: u32,
    /// The name of the program.
    pub program: String,
    /// The bytes of the whole process that are resident.
    pub resident: u64,
    /// Its mallocs: a Rust program with `CoreLocal` may have another one preloaded.
    pub mallocs: Vec<Malloc>,
}

/// The state of one malloc.
#[derive(Debug, Serialize)]
pub struct Malloc {
    /// The bytes of objects in use by the program.
    pub in_use: usize,
    /// The bytes of free objects in caches of cores and in depots.
    pub cached: usize,
    /// The bytes between objects: of spans that have others in use.
    pub in_spans: usize,
    /// The bytes of whole free chunks that were not given back.
    pub idle: usize,
    /// The resident bytes of all of these; `None` where the kernel does not tell.
    pub resident: Option<u64>,
    /// The bytes of huge pages that it made, and the resident ones.
    pub huge: usize,
    pub huge_resident: Option<u64>,
    /// The bytes given back to the kernel so far.
    pub released: usize,
    /// Large objects, and their bytes.
    pub large_objects: usize,
    pub large_bytes: usize,
    /// The classes that have spans.
    pub classes: Vec<Class>,
    pub options: Options,
}

/// The state of a size class.
#[derive(Debug, Serialize)]
pub struct Class {
    /// The size of its objects in bytes.
    pub size: usize,
    pub in_use: usize,
    pub cached: usize,
    pub spans: usize,
    pub span_bytes: usize,
}

/// The options that the process took.
#[derive(Debug, Serialize)]
pub struct Options {
    /// What gives memory back: `thread`, `calls`, or `target` where all is kept below one.
    pub gives_back: &'static str,
    /// Which processes get a background thread.
    pub background: &'static str,
    pub huge_pages: bool,
    pub pressure: bool,
    pub target: Option<usize>,
    pub counts: bool,
    pub checks: bool,
    pub guard_rate: Option<u32>,
    pub profile_rate: Option<u64>,
}

/// The name of the malloc's own thread.
const THREAD: &str = "corelocal-idle";

/// Reads the mallocs of a process.
///
/// # Errors
/// When there is none, or it cannot be read; what to do.
pub fn of(process: u32) -> anyhow::Result<Status> {
    let running = Running::open(process, false)?;
    let pages = Pages::of(process);
    let has_thread = has_thread(process);
    let found = running.headers.iter().filter_map(|header| running.look(*header).ok());
    let mallocs = found.map(|found| Malloc::of(&found, &pages, has_thread)).collect();
    let resident = running.resident();
    Ok(Status { process, program: running.name, resident, mallocs })
}

fn has_thread(process: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let mut names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.any(|name| name.trim_end() == THREAD)
}

/// The resident pages of a process's mappings.
struct Pages(Vec<Mapping>);

struct Mapping {
    start: usize,
    resident: u64,
    huge: u64,
}

impl Pages {
    fn of(process: u32) -> Pages {
        let mut mappings: Vec<Mapping> = Vec::new();
        for line in proc_files::text(process, "smaps").lines() {
            let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
            if let Some(start) = range.and_then(|range| usize::from_str_radix(range.0, 16).ok()) {
                mappings.push(Mapping { start, resident: 0, huge: 0 });
            } else if let Some(last) = mappings.last_mut() {
                last.resident += kib(line, "Rss:").unwrap_or(0);
                last.huge += kib(line, "AnonHugePages:").unwrap_or(0);
            }
        }
        Pages(mappings)
    }

    /// Returns the sum over mappings of these addresses; `None` if there is no list.
    fn sum(&self, (from, to): (usize, usize), of: impl Fn(&Mapping) -> u64) -> Option<u64> {
        let inside = self.0.iter().filter(|mapping| (from..to).contains(&mapping.start));
        (!self.0.is_empty()).then(|| inside.map(of).sum())
    }
}

impl Malloc {
    fn of(found: &Found, pages: &Pages, has_thread: bool) -> Malloc {
        let stats = &found.stats;
        let (in_use, cached) = (reports::in_use(stats), reports::cached(stats));
        Malloc {
            in_use,
            cached,
            in_spans: small(stats)
                .saturating_sub(in_use.saturating_sub(stats.large_bytes).saturating_add(cached)),
            idle: stats.idle,
            resident: pages.sum(found.range, |mapping| mapping.resident),
            huge: stats.huge,
            huge_resident: pages.sum(found.range, |mapping| mapping.huge),
            released: stats.released,
            large_objects: stats.large_objects,
            large_bytes: stats.large_bytes,
            classes: stats.classes.iter().filter(|class| class.spans > 0).map(Class::of).collect(),
            options: Options::of(&found.taken, has_thread),
        }
    }
}

/// Returns the bytes of all spans.
fn small(stats: &Stats) -> usize {
    stats.classes.iter().map(|class| class.span_bytes).sum()
}

impl Class {
    fn of(class: &ClassStats) -> Class {
        Class {
            size: class.size,
            in_use: class.in_use,
            cached: class.on_cores + class.in_depot,
            spans: class.spans,
            span_bytes: class.span_bytes,
        }
    }
}

impl Options {
    fn of(taken: &Taken, has_thread: bool) -> Options {
        Options {
            gives_back: match (taken.target, has_thread) {
                (Some(_), _) => "target",
                (None, true) => "thread",
                (None, false) => "calls",
            },
            background: taken.background,
            huge_pages: taken.huge_pages,
            pressure: taken.pressure,
            target: taken.target,
            counts: taken.counts,
            checks: taken.checks,
            guard_rate: taken.guard_rate,
            profile_rate: taken.profile_rate,
        }
    }
}
