//! One process that looks at its ids and at the memory of its containers.
//!
//! Its threads go through phases together: first they look at their ids, then they use one
//! container after the other. After each of those the resident memory of all containers is looked
//! at; what is new is that container's.
//!
//! Invariants:
//! - A phase lasts until all threads have used the container, for `time` at least.
//! - What a container has in shared slots is part of it; in an ordinary process that is nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use std::{iter, thread};

use anyhow::{Context as _, anyhow, bail};
use corelocal::cid::{self, Cid};
use corelocal::percpu::{self, Counter, Histogram, Queue, Stack};
use corelocal::rseq;
use corelocal::sys::Registration;
use corelocal::sys::topology::{FsRoot, Topology};
use corelocal_support::measure::affinity::confine;
use corelocal_support::process::child;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::LIMIT;

/// The name of the child process.
pub const CHILD: &str = "memory";

/// Returns the bytes of the smallest piece of memory there is.
pub fn page() -> u64 {
    // SAFETY: no preconditions.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// A container that is looked at.
pub struct Container {
    /// Stable short name.
    pub id: &'static str,
    /// The label that a reader sees.
    pub label: &'static str,
    /// Makes one, and gives what a thread does with it again and again.
    make: fn() -> Step,
}

/// Counters in the first container: each takes a few words of a core's page.
const COUNTERS: usize = 64;

/// Every container.
pub const CONTAINERS: &[Container] = &[
    Container { id: "counters", label: "64 corelocal Counters", make: counters },
    Container { id: "histogram", label: "corelocal Histogram", make: histogram },
    Container { id: "stack", label: "corelocal Stack", make: stack },
    Container { id: "queue", label: "corelocal Queue", make: queue },
];

fn counters() -> Step {
    let counters: Vec<Counter> = (0..COUNTERS).map(|_| Counter::new()).collect();
    Box::new(move || counters.iter().for_each(|counter| counter.add(1)))
}

fn histogram() -> Step {
    let values: Box<Histogram> = Box::default();
    // A bucket of each power of two up to a million, as latencies have it.
    Box::new(move || (0..20).for_each(|bit| values.record(1 << bit)))
}

fn stack() -> Step {
    let stack: Stack<usize> = Stack::new();
    Box::new(move || {
        // Full, sooner or later.
        let _ = stack.push(1);
    })
}

fn queue() -> Step {
    let queue: Queue<usize> = Queue::new();
    Box::new(move || {
        // Should it fail, there is nothing to take.
        let _ = queue.push(1);
        queue.try_pop();
    })
}

/// The task of a child process.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Look {
    /// Confined to so many cpus, those with the highest numbers; not at all when absent.
    pub cpus: Option<usize>,
    /// The number of threads.
    pub threads: usize,
    /// The time of each phase.
    pub time: Duration,
}

/// Ids of one kind that a process met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ids {
    /// The number of ids.
    pub used: u32,
    /// The largest.
    pub largest: u32,
}

/// The observations of a child process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The requested number.
    pub cpus: Option<usize>,
    /// The requested number.
    pub threads: usize,
    /// Possible cpus.
    pub possible: u32,
    /// The way in which ids get their slots.
    pub policy: String,
    /// Cpu numbers.
    pub cpu_id: Ids,
    /// The kernel's concurrency ids; `None` where it publishes none.
    pub mm_cid: Option<Ids>,
    /// The library's slots.
    pub slot: Ids,
    /// Resident bytes of each container.
    pub containers: BTreeMap<String, u64>,
}

impl Look {
    /// Looks in a new process.
    ///
    /// # Errors
    ///
    /// Those of [`child::run`].
    pub fn in_child(self) -> anyhow::Result<Seen> {
        let value = child::run(CHILD, &[serde_json::to_string(&self)?], &[], LIMIT)?;
        Ok(serde_json::from_value(value)?)
    }

    /// Leaves the calling thread confined.
    fn run(self) -> anyhow::Result<Seen> {
        if let Some(cpus) = self.cpus {
            let allowed = Topology::read(FsRoot::SYSTEM).affinity.set;
            let spare = allowed.count().saturating_sub(cpus);
            let cpus: Vec<usize> = allowed.iter().skip(spare).collect();
            confine(&cpus).context("the process could not be confined")?;
        }
        let possible = cid::capacity();
        let has_mm_cid = Registration::of_this_thread().mm_cid;
        let marks: Arc<[Marks; 3]> = Arc::new([(); 3].map(|()| Marks::new(possible)));
        let all = marks.clone();
        let look: Step = Box::new(move || {
            let [cpu_id, mm_cid, slot] = &*all;
            cpu_id.mark(rseq::cpu_id());
            mm_cid.mark(rseq::cid());
            slot.mark(cid::current::<Cid>());
        });
        let containers = CONTAINERS.iter().map(|container| (container.make)());
        let steps: Vec<Step> = iter::once(look).chain(containers).collect();
        let resident = self.through(steps)?;
        let names = CONTAINERS.iter().map(|container| container.id.to_owned());
        let grown = resident.windows(2).map(|pair| pair[1].saturating_sub(pair[0]) as u64);
        let [cpu_id, mm_cid, slot] = &*marks;
        Ok(Seen {
            cpus: self.cpus,
            threads: self.threads,
            possible,
            policy: format!("{:?}", cid::policy()),
            cpu_id: cpu_id.ids(),
            mm_cid: has_mm_cid.then(|| mm_cid.ids()),
            slot: slot.ids(),
            containers: names.zip(grown).collect(),
        })
    }

    /// Returns all threads through all steps, the calling one among them; the bytes that were resident after
    /// each.
    fn through(self, steps: Vec<Step>) -> anyhow::Result<Vec<usize>> {
        let barrier = Barrier::new(self.threads.max(1));
        let course = Arc::new(Course { steps, barrier, time: self.time });
        let mut others = Vec::with_capacity(self.threads);
        for _ in 1..self.threads {
            let course = course.clone();
            // Not scoped: after an error the end of the process ends those that wait.
            let thread = thread::Builder::new().spawn(move || course.run(|| {}));
            others.push(thread.with_context(|| {
                format!(
                    "{} threads could not be started; raise the limit with `ulimit -u` or the \
                     cgroup's pids.max, and run again",
                    self.threads
                )
            })?);
        }
        let mut resident = Vec::with_capacity(course.steps.len());
        course.run(|| resident.push(percpu::memory().resident));
        for thread in others {
            thread.join().map_err(|_| anyhow!("a thread ended in a panic"))?;
        }
        Ok(resident)
    }
}

/// Runs in the child.
pub fn child(args: &[String]) -> anyhow::Result<Value> {
    let [look] = args else { bail!("one argument is needed, the scenario") };
    let look: Look = serde_json::from_str(look)?;
    Ok(serde_json::to_value(look.run()?)?)
}

/// The step that a thread repeats in a phase.
type Step = Box<dyn Fn() + Send + Sync>;

/// The phases that all threads go through together.
struct Course {
    steps: Vec<Step>,
    barrier: Barrier,
    time: Duration,
}

impl Course {
    /// `after` runs after each phase, while everybody waits.
    fn run(&self, mut after: impl FnMut()) {
        for step in &self.steps {
            self.barrier.wait();
            self.repeat(step);
            self.barrier.wait();
            after();
        }
    }

    /// Uses every cpu it gets: now and then it leaves the one it has.
    fn repeat(&self, step: &Step) {
        let begun = Instant::now();
        for rest in 1_u32.. {
            for _ in 0..100 {
                step();
            }
            // Not before: a thread that was kept waiting for all the time must have worked once.
            if begun.elapsed() >= self.time {
                break;
            }
            if rest % 8 == 0 {
                thread::sleep(Duration::from_micros(50));
            } else {
                thread::yield_now();
            }
        }
    }
}

/// The ids that were met.
struct Marks(Vec<AtomicBool>);

impl Marks {
    fn new(ids: u32) -> Self {
        Self((0..ids).map(|_| AtomicBool::new(false)).collect())
    }

    /// Relaxed, with `ids`: looked at when the threads have been joined.
    fn mark(&self, id: u32) {
        if let Some(mark) = self.0.get(id as usize).filter(|mark| !mark.load(Ordering::Relaxed)) {
            mark.store(true, Ordering::Relaxed);
        }
    }

    fn ids(&self) -> Ids {
        let marked = |mark: &AtomicBool| mark.load(Ordering::Relaxed);
        Ids {
            used: self.0.iter().filter(|&mark| marked(mark)).count() as u32,
            largest: self.0.iter().rposition(marked).unwrap_or(0) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_in_this_process() {
        // A thread of its own, since the confinement of the caller stays.
        let look = Look { cpus: Some(1), threads: 3, time: Duration::from_millis(2) };
        let seen = thread::spawn(move || look.run()).join().unwrap();
        match seen {
            Err(refused) => eprintln!("skipped: a_look_in_this_process: {refused:#}"),
            Ok(seen) => {
                assert_eq!(seen.cpu_id.used, 1, "{seen:?}");
                assert!(seen.slot.largest < seen.possible, "{seen:?}");
                assert_eq!(seen.containers.len(), CONTAINERS.len());
            }
        }
    }

    #[test]
    fn largest_and_number() {
        let marks = Marks::new(4);
        [3, 1, 3, 99].into_iter().for_each(|id| marks.mark(id));
        assert_eq!(marks.ids(), Ids { used: 2, largest: 3 });
    }
}
