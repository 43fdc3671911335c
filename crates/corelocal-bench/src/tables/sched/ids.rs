//! How far the ids reach that index per-core memory: a structure needs memory for every id up to
//! the largest one it meets, so small ids are what mm_cid is for.
//!
//! Invariants:
//! - Each figure is from a process of its own: ids depend on what a process did before.
//! - Threads look all the time, from their common start to their common end.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use corelocal::rseq;
use corelocal::sys::Registration;
use corelocal::sys::topology::{CpuSet, FsRoot, Topology};
use corelocal_support::measure::affinity::confine;
use corelocal_support::measure::noise::Watch;
use corelocal_support::process::child;
use corelocal_support::schema::{self, Better, Point, Row, Stat};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::contest::{Context, Table};

/// The table.
pub struct Ids;

const CHILD: &str = "ids";

/// Far more than a look takes.
const LIMIT: Duration = Duration::from_secs(20);

const THREADS: [usize; 4] = [1, 4, 16, 64];

/// Between a confinement of running threads and the look: longer than the 100 ms between two scans
/// in which the kernels before 6.19 take back ids that are out of use.
const SETTLING: Duration = Duration::from_millis(150);

/// The cpus that the threads may run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Place {
    /// All cpus of the process.
    Free,
    /// This many cpus, from before the threads start.
    Confined(usize),
    /// One cpu, after the threads have run freely.
    ConfinedLate,
}

const PLACES: [Place; 4] =
    [Place::Free, Place::Confined(2), Place::Confined(1), Place::ConfinedLate];

impl Place {
    fn id(self) -> String {
        match self {
            Place::Free => "free".to_owned(),
            Place::Confined(cpus) => format!("confined-{cpus}"),
            Place::ConfinedLate => "confined-late".to_owned(),
        }
    }

    fn label(self) -> String {
        match self {
            Place::Free => "free".to_owned(),
            Place::Confined(1) => "confined to one cpu".to_owned(),
            Place::Confined(cpus) => format!("confined to {cpus} cpus"),
            Place::ConfinedLate => "confined to one cpu after running free".to_owned(),
        }
    }

    /// Returns the cpus the threads end up on, when there are fewer than at first: the highest numbers,
    /// which show best what a small id saves.
    fn cpus(self, allowed: &CpuSet) -> Option<Vec<usize>> {
        let keep = match self {
            Place::Free => return None,
            Place::Confined(cpus) => cpus,
            Place::ConfinedLate => 1,
        };
        Some(allowed.iter().skip(allowed.count().saturating_sub(keep)).collect())
    }
}

/// The largest ids seen by any thread of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Largest {
    /// `None` when a thread has none.
    mm_cid: Option<u32>,
    cpu_id: u32,
}

impl Largest {
    fn or(self, other: Self) -> Self {
        Self {
            mm_cid: self.mm_cid.zip(other.mm_cid).map(|(a, b)| a.max(b)),
            cpu_id: self.cpu_id.max(other.cpu_id),
        }
    }
}

impl Table for Ids {
    fn id(&self) -> &'static str {
        "mm_cid"
    }

    fn title(&self) -> &'static str {
        "Largest id that indexes per-core memory"
    }

    fn run(&self, cx: &mut Context<'_>) -> anyhow::Result<schema::Table> {
        // The largest of a few processes is near enough to the largest there is.
        let rounds = cx.plan.long_rounds.div_ceil(5);
        let watch = Watch::start(false, None);
        let bar = cx.progress();
        bar.begin((rounds * THREADS.len() * PLACES.len()) as u64);
        bar.set_message(self.title());
        let mut seen: [Seen; PLACES.len()] = PLACES.map(|place| match place {
            Place::Confined(cpus) if cpus > cx.machine.cpus_allowed => {
                Err("only one cpu is allowed here".to_owned())
            }
            _ => Ok([None; THREADS.len()]),
        });
        for _ in 0..rounds {
            for (nth, &threads) in THREADS.iter().enumerate() {
                for (&place, seen) in PLACES.iter().zip(&mut seen) {
                    bar.advance();
                    if cx.plan.is_over() {
                        continue;
                    }
                    let Ok(so_far) = seen else { continue };
                    match (Look { threads, place, time: cx.plan.slice * 3 }).in_child() {
                        Ok(largest) => {
                            let so_far = &mut so_far[nth];
                            *so_far = Some(so_far.map_or(largest, |other| other.or(largest)));
                        }
                        Err(error) => *seen = Err(format!("{error:#}")),
                    }
                }
            }
        }
        bar.finish();
        let mm_cid = PLACES.iter().zip(&seen).map(|(place, seen)| {
            let row = Row::new(&place.id(), format!("mm_cid, {}", place.label()));
            filled(row, seen, |largest| largest.mm_cid.ok_or_else(why_no_mm_cid))
        });
        let cpu_id = PLACES.iter().zip(&seen).map(|(place, seen)| {
            let row =
                Row::new(&format!("cpu-{}", place.id()), format!("cpu_id, {}", place.label()));
            filled(row, seen, |largest| Ok(largest.cpu_id))
        });
        Ok(schema::Table {
            id: self.id().to_owned(),
            title: self.title().to_owned(),
            about: format!(
                "Memory indexed by an id must extend to the largest one. A process with few threads or few cpus \
                 has small concurrency ids (mm_cid, Linux 6.3), while its cpu numbers depend on the cpus it \
                 runs on; here they go up to {}.",
                cx.machine.cpus_possible.saturating_sub(1)
            ),
            source: None,
            unit: "id".to_owned(),
            better: Better::Neither,
            x_label: Some("threads".to_owned()),
            x_names: Vec::new(),
            baseline: None,
            tile: None,
            is_sized: false,
            rows: mm_cid.chain(cpu_id).collect(),
            notes: vec![format!(
                "Confining running threads does not always lower their ids: those rows show them {} ms later. \
                 So arrays must be sized by possible cpus, not by allowed ones.",
                SETTLING.as_millis()
            )],
            noise: watch.finish(),
        })
    }

    fn children(&self) -> &'static [(&'static str, child::Body)] {
        &[(CHILD, look)]
    }
}

/// The results for one place, by number of threads; or the reason why there are none.
type Seen = Result<[Option<Largest>; THREADS.len()], String>;

/// `row` with the figures that `id` takes from what was seen.
fn filled(mut row: Row, seen: &Seen, id: impl Fn(&Largest) -> Result<u32, String>) -> Row {
    let points = seen.as_ref().map_err(Clone::clone).and_then(|seen| {
        let mut points = Vec::new();
        for (&threads, largest) in THREADS.iter().zip(seen) {
            let Some(largest) = largest else { continue };
            // One figure: the largest of all rounds, which no median would tell.
            let stat = Stat::of(&[f64::from(id(largest)?)]);
            points.extend(stat.map(|stat| Point {
                x: Some(threads as f64),
                stat,
                ratio: None,
                extra: BTreeMap::new(),
                disturbed: false,
            }));
        }
        Ok(points)
    });
    match points {
        Ok(points) => row.points = points,
        Err(why) => row.unavailable = Some(why),
    }
    row
}

fn why_no_mm_cid() -> String {
    match Registration::of_this_thread().refusal {
        Some(refusal) => format!("no thread is registered for rseq here: {refusal}"),
        None => "this kernel has no mm_cid, which needs Linux 6.3; corelocal uses cpu_id instead"
            .to_owned(),
    }
}

/// A process that observes its ids.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Look {
    threads: usize,
    place: Place,
    time: Duration,
}

/// Reads of the ids between two rests: some tens of microseconds.
const READS: usize = 20_000;

/// One pause out of this many is a sleep; the others yield the cpu.
const REST: usize = 8;

impl Look {
    fn in_child(self) -> anyhow::Result<Largest> {
        let value = child::run(CHILD, &[serde_json::to_string(&self)?], &[], LIMIT)?;
        Ok(serde_json::from_value(value)?)
    }

    /// Leaves the calling thread confined.
    fn run(self) -> anyhow::Result<Largest> {
        let allowed = Topology::read(FsRoot::SYSTEM).affinity.set;
        let mut cpus = self.place.cpus(&allowed);
        if self.place != Place::ConfinedLate {
            if let Some(cpus) = cpus.take() {
                confine(&cpus).context("the process could not be confined")?;
            }
        }
        let start = Barrier::new(self.threads);
        let course = Arc::new(Course { time: self.time, cpus, start, begun: OnceLock::new() });
        let mut others = Vec::with_capacity(self.threads);
        for _ in 1..self.threads {
            let course = course.clone();
            // Not scoped: after an error the end of the process ends those that wait.
            let thread = thread::Builder::new().spawn(move || course.run());
            others.push(thread.with_context(|| {
                format!(
                    "{} threads could not be started; raise the limit with `ulimit -u` or the \
                     cgroup's pids.max, and run again",
                    self.threads
                )
            })?);
        }
        let mut seen = vec![course.run()];
        for thread in others {
            seen.push(thread.join().map_err(|_| anyhow!("a thread ended in a panic"))?);
        }
        let seen = seen.into_iter().collect::<io::Result<Vec<Largest>>>();
        let seen = seen.context("a running thread could not be confined")?;
        let largest = seen.into_iter().reduce(Largest::or);
        largest.context("there was no observing thread")
    }
}

/// Runs in the child.
fn look(args: &[String]) -> anyhow::Result<Value> {
    let [look] = args else { bail!("one argument is needed, the scenario") };
    let look: Look = serde_json::from_str(look)?;
    Ok(serde_json::to_value(look.run()?)?)
}

/// The phases that all threads of a process go through together, the main thread among them: a look that lasts for
/// `time`; with `cpus`, before it as long a free run, the confinement, and the settling.
struct Course {
    time: Duration,
    cpus: Option<Vec<usize>>,
    start: Barrier,
    begun: OnceLock<Instant>,
}

impl Course {
    fn run(&self) -> io::Result<Largest> {
        let has_mm_cid = Registration::of_this_thread().mm_cid;
        self.start.wait();
        let begun = *self.begun.get_or_init(Instant::now);
        let mut confinement = self.cpus.as_deref();
        let look_from = confinement.map_or(Duration::ZERO, |_| self.time + SETTLING);
        let (mut mm_cid, mut cpu_id) = (0, 0);
        for rest in 1.. {
            let now = begun.elapsed();
            if let Some(cpus) = confinement.take_if(|_| now >= self.time) {
                confine(cpus)?;
            }
            for _ in 0..READS {
                let ids = (rseq::cid(), rseq::cpu_id());
                if now >= look_from {
                    mm_cid = ids.0.max(mm_cid);
                    cpu_id = ids.1.max(cpu_id);
                }
            }
            // Not before: a thread that was kept waiting for all its time must have looked once.
            if now >= look_from + self.time {
                break;
            }
            if rest % REST == 0 {
                thread::sleep(Duration::from_micros(50));
            } else {
                thread::yield_now();
            }
        }
        Ok(Largest { mm_cid: has_mm_cid.then_some(mm_cid), cpu_id })
    }
}

#[cfg(test)]
mod tests;
