//! The contestant with many producers and one consumer.
//!
//! A round starts all threads together and lets the producers push for a fixed time. They push in
//! batches, each of which but the first needs a permit; the consumer gives one for as many items that came out. Cpu
//! time is taken around the batches, so that waiting is left out.
//!
//! Invariants:
//! - No thread works before all have started; each producer pushes one batch at least.
//! - Each item is a number that no other of the round is; the consumer counts and adds up what
//!   comes out, and both must be what the producers put in.
//! - At most [`MOST_WAITING`] items and a batch of each producer are under way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};

use corelocal_support::measure::engine::{Body, Plan, Sample, thread_cpu_time};

/// Items for which there are permits. Enough to keep the consumer from running out of them: one that
/// runs after a producer, item by item, is another measurement, whose figure is the time in which a
/// cache line gets from core to core.
pub const MOST_WAITING: u64 = 1 << 16;

/// Long against the two readings of a clock around it, and against what a thread needs to find its
/// way after a rest.
const BATCH: u64 = 4096;

/// The rest of a consumer that waits for items.
const REST: Duration = Duration::from_micros(50);

/// Numbers of one producer.
const NUMBERS: u64 = 1 << 40;

/// A queue as the relay uses it.
pub trait Queue: Send + Sync + 'static {
    /// Puts an item in.
    fn push(&self, item: u64);

    /// Takes items out until there is none or `most` are taken; called by one thread at a time.
    fn drain(&self, most: u64, each: impl FnMut(u64));
}

/// The same, with the loops inside, where pushes are inlined.
pub trait Passing: Send + Sync {
    fn push_all(&self, items: std::ops::Range<u64>);
    fn drain(&self, most: u64) -> Passed;
}

impl<Q: Queue> Passing for Q {
    fn push_all(&self, items: std::ops::Range<u64>) {
        for item in items {
            self.push(item);
        }
    }

    fn drain(&self, most: u64) -> Passed {
        let mut passed = Passed::default();
        Queue::drain(self, most, |item| passed.count(item));
        passed
    }
}

/// Items that went by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    items: u64,
    sum: u64,
}

impl Passed {
    fn count(&mut self, item: u64) {
        self.items += 1;
        self.sum = self.sum.wrapping_add(item);
    }

    fn and(self, other: Self) -> Self {
        Self { items: self.items + other.items, sum: self.sum.wrapping_add(other.sum) }
    }
}

type Made = anyhow::Result<Arc<dyn Passing>>;

/// A contestant of the queue table: see the module's text.
pub struct Relay {
    build: fn() -> Made,
    shift: Option<Shift>,
}

struct Shift {
    queue: Arc<dyn Passing>,
    producers: usize,
    slice: Duration,
}

/// Returns a contestant whose queue is made anew for every number of producers.
pub fn relay(build: fn() -> Made) -> Relay {
    Relay { build, shift: None }
}

impl Body for Relay {
    const SINGLE_THREAD: bool = false;

    fn rounds(plan: &Plan) -> usize {
        plan.long_rounds
    }

    fn prepare(&mut self, x: Option<f64>, plan: &Plan) -> anyhow::Result<()> {
        let producers = x.map_or(1, |x| x as usize).max(1);
        self.shift = Some(Shift { queue: (self.build)()?, producers, slice: plan.slice });
        Ok(())
    }

    fn round(&mut self) -> anyhow::Result<Sample> {
        let shift = self.shift.as_ref().context("the contestant was not prepared")?;
        let Round { producers, consumer, wall } = shift.run()?;
        let (put, got) = (producers.passed, consumer.passed);
        ensure!(
            put == got,
            "got {} items and delivered {}, or different ones, so its speed is meaningless",
            put.items,
            got.items
        );
        let per_item = |time: Duration| time.as_nanos() as f64 / put.items as f64;
        Ok(Sample {
            value: per_item(producers.cpu),
            extra: vec![
                ("Mops/s", put.items as f64 / wall.as_secs_f64() / 1e6),
                ("both ends ns", per_item(producers.cpu + consumer.cpu)),
            ],
        })
    }
}

/// The result of one end in a round.
#[derive(Clone, Copy, Default)]
struct End {
    passed: Passed,
    cpu: Duration,
}

struct Round {
    producers: End,
    consumer: End,
    wall: Duration,
}

/// The state that the threads of a round share.
struct Course {
    /// Closed while threads are being started: each waits for a read lock.
    gate: RwLock<()>,
    /// The permits for batches; `None` when no more are to begin.
    permits: Mutex<Option<u64>>,
    permitted: Condvar,
    /// Set when nothing is pushed any more.
    done: AtomicBool,
}

impl Course {
    fn new() -> Self {
        Self {
            gate: RwLock::new(()),
            permits: Mutex::new(Some(MOST_WAITING / BATCH)),
            permitted: Condvar::new(),
            done: AtomicBool::new(false),
        }
    }

    fn permits(&self) -> MutexGuard<'_, Option<u64>> {
        self.permits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a permit; false when there will be none.
    fn may_push(&self) -> bool {
        let wait = |permits: &mut Option<u64>| *permits == Some(0);
        let permits = self.permitted.wait_while(self.permits(), wait);
        match &mut *permits.unwrap_or_else(PoisonError::into_inner) {
            None => false,
            Some(permits) => {
                *permits -= 1;
                true
            }
        }
    }

    /// A batch came out.
    fn permit(&self) {
        if let Some(permits) = &mut *self.permits() {
            *permits += 1;
        }
        self.permitted.notify_one();
    }

    fn stop(&self) {
        *self.permits() = None;
        self.permitted.notify_all();
    }
}

impl Shift {
    fn run(&self) -> anyhow::Result<Round> {
        let course = Course::new();
        thread::scope(|scope| {
            let closed = course.gate.write();
            let mut producers = Vec::with_capacity(self.producers);
            let consumer = start(scope, || self.consume(&course));
            let mut refused = consumer.as_ref().err().map(ToString::to_string);
            let wanted = if refused.is_none() { self.producers } else { 0 };
            for nth in 0..wanted {
                let course = &course;
                match start(scope, move || self.produce(nth as u64, course)) {
                    Ok(producer) => producers.push(producer),
                    Err(error) => {
                        refused = Some(error.to_string());
                        break;
                    }
                }
            }
            let begin = Instant::now();
            drop(closed);
            if refused.is_none() {
                thread::sleep(self.slice);
            }
            course.stop();
            // All are joined, whatever became of the first.
            let ends: Vec<thread::Result<End>> =
                producers.into_iter().map(ScopedJoinHandle::join).collect();
            // Release: partner is the Acquire of the consumer, which then finds the remaining items.
            course.done.store(true, Ordering::Release);
            let consumer = consumer.map(ScopedJoinHandle::join);
            if let Some(error) = refused {
                return Err(anyhow!(error).context(format!(
                    "{} threads could not be started; raise the limit with `ulimit -u` or the \
                     cgroup's pids.max, and run again",
                    self.producers + 1
                )));
            }
            let ends: thread::Result<Vec<End>> = ends.into_iter().collect();
            let (Ok(ends), Ok(Ok(consumer))) = (ends, consumer) else {
                return Err(anyhow!("a thread of this contestant ended in a panic"));
            };
            let sum = |all: End, end: End| End {
                passed: all.passed.and(end.passed),
                cpu: all.cpu + end.cpu,
            };
            let producers = ends.into_iter().fold(End::default(), sum);
            Ok(Round { producers, consumer, wall: begin.elapsed() })
        })
    }

    fn produce(&self, nth: u64, course: &Course) -> End {
        drop(course.gate.read());
        let mut end = End::default();
        let mut next = nth * NUMBERS;
        while end.passed.items == 0 || course.may_push() {
            let cpu = thread_cpu_time();
            self.queue.push_all(next..next + BATCH);
            end.cpu += thread_cpu_time().saturating_sub(cpu);
            (next..next + BATCH).for_each(|item| end.passed.count(item));
            next += BATCH;
        }
        end
    }

    fn consume(&self, course: &Course) -> End {
        drop(course.gate.read());
        let mut end = End::default();
        let mut permitted = 0;
        loop {
            // Acquire: partner is the Release of the thread that joined the producers.
            let done = course.done.load(Ordering::Acquire);
            let cpu = thread_cpu_time();
            let now = self.queue.drain(BATCH);
            end.cpu += thread_cpu_time().saturating_sub(cpu);
            end.passed = end.passed.and(now);
            while end.passed.items - permitted >= BATCH {
                permitted += BATCH;
                course.permit();
            }
            match now.items {
                0 if done => break,
                0 => thread::sleep(REST),
                _ => {}
            }
        }
        end
    }
}

fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    body: impl FnOnce() -> End + Send + 'scope,
) -> std::io::Result<ScopedJoinHandle<'scope, End>> {
    thread::Builder::new().spawn_scoped(scope, body)
}

#[cfg(test)]
mod tests;
