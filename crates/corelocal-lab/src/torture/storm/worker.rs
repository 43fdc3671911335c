//! One thread of a storm: random operations for a short life.

use std::sync::atomic::Ordering;

use corelocal::cid::{Cid, CpuId, NodeCid, SlotIndex};
use corelocal::percpu::{Counter, Max};

use super::bins::{BATCH, BINS, Flow, token};
use super::lives;
use super::objects::{Accounts, EACH, Objects, VALUES};
use super::{Operations, Random, Shared, Totals};
use crate::torture::registration::Area;

/// The maximum number of operations in a life.
const LIFE: u64 = 50_000;

/// The result of a thread's life.
#[derive(Default)]
pub struct Worker {
    operations: Operations,
    accounts: Accounts,
    unregistered: bool,
    violations: Vec<String>,
    /// The largest values of the grown counters that it has read.
    seen: [i64; EACH],
    seen_by_cpu: [i64; EACH],
    /// The largest values of the maxima that it has read.
    peaks: [u64; EACH],
    peaks_by_cpu: [u64; EACH],
}

impl Worker {
    /// Adds its accounts to the totals.
    pub fn settle(self, totals: &mut Totals, accounts: &mut Accounts) {
        totals.threads += 1;
        totals.unregistered += u64::from(self.unregistered);
        totals.operations.add(&self.operations);
        accounts.add(&self.accounts);
        self.violations.into_iter().for_each(|sentence| totals.violation(sentence));
    }
}

/// Runs one life.
pub fn work(seat: usize, objects: &Objects, shared: &Shared, mut random: Random) -> Worker {
    let mut worker = Worker::default();
    if random.below(8) == 0 {
        let lost = Area::of_this_thread().map(Area::unregister);
        worker.unregistered = matches!(lost, Some(Ok(())));
    }
    // SAFETY: no arguments.
    shared.threads[seat].store(unsafe { libc::gettid() }, Ordering::Relaxed);
    for _ in 0..random.below(LIFE) {
        if shared.done.load(Ordering::Relaxed) {
            break;
        }
        worker.operate(objects, &mut random);
    }
    if random.below(8) == 0 {
        shared.forks.fetch_add(1, Ordering::Relaxed);
        worker.fork(objects, &mut random);
    }
    shared.threads[seat].store(0, Ordering::Relaxed);
    worker
}

impl Worker {
    fn operate(&mut self, objects: &Objects, random: &mut Random) {
        let i = random.below(EACH as u64) as usize;
        let n = random.below(1000) as i64;
        let (operations, accounts) = (&mut self.operations, &mut self.accounts);
        match random.below(128) {
            0..12 => add(&objects.grown[i], &mut accounts.grown[i], n, operations),
            12..24 => add(&objects.grown_by_cpu[i], &mut accounts.grown_by_cpu[i], n, operations),
            24..32 => add(&objects.flow[i], &mut accounts.flow[i], n - 500, operations),
            32..40 => {
                add(&objects.flow_by_cpu[i], &mut accounts.flow_by_cpu[i], n - 500, operations);
            }
            40..48 => record(&objects.largest[i], &mut accounts.largest[i], random, operations),
            48..56 => {
                let account = &mut accounts.largest_by_cpu[i];
                record(&objects.largest_by_cpu[i], account, random, operations);
            }
            56 => take(&objects.flow[i], &mut accounts.flow[i], operations),
            57 => take(&objects.flow_by_cpu[i], &mut accounts.flow_by_cpu[i], operations),
            58 => self.look_at_growth(i, objects),
            59 => self.look_at_peaks(i, objects),
            60 => self.live_briefly::<Cid>(n),
            61 => self.live_briefly::<CpuId>(n),
            62 => self.live_briefly::<NodeCid>(n),
            63 => std::thread::yield_now(),
            64..70 => self.sample(objects, random),
            70..76 => self.lock(objects, n, random),
            _ => self.fill_and_empty(objects, random),
        }
    }

    fn sample(&mut self, objects: &Objects, random: &mut Random) {
        let value = random.below(VALUES as u64);
        objects.samples.record(value);
        self.accounts.samples[value as usize] += 1;
        let _ = objects.vec.add(value as usize, 1);
        self.accounts.vec[value as usize] += 1;
        objects.sum.add_fetch(value);
        self.accounts.sum = self.accounts.sum.wrapping_add(value as i64);
        self.operations.samples += 3;
    }

    fn lock(&mut self, objects: &Objects, n: i64, random: &mut Random) {
        let mut add = |part: &mut (i64, i64)| {
            if !Objects::add_locked(part, n) {
                self.violations.push("two threads held the same lock".to_owned());
            }
            self.accounts.locked = self.accounts.locked.wrapping_add(n);
            self.operations.locks += 1;
        };
        match random.below(1024) {
            // On all cores. If it is refused, some parts are left out.
            0 => _ = objects.lock.for_each_locked(|_, part| add(part)),
            1..512 => objects.lock.try_lock().iter_mut().for_each(|part| add(part)),
            _ => add(&mut objects.lock.lock()),
        }
    }

    /// Puts tokens into a bin and takes tokens out.
    fn fill_and_empty(&mut self, objects: &Objects, random: &mut Random) {
        let i = random.below(BINS as u64) as usize;
        let ((_, bin), flow) = (&objects.bins[i], &mut self.accounts.bins[i]);
        match random.below(1024) {
            0 => {
                bin.drain(flow);
                self.operations.drains += 1;
            }
            1..400 => {
                bin.put(token(), flow);
                self.operations.items += 1;
            }
            400..800 => {
                bin.take(flow);
                self.operations.items += 1;
            }
            _ => {
                bin.exchange_batches(flow);
                self.operations.items += 2 * BATCH as u64;
            }
        }
    }

    fn look_at_growth(&mut self, i: usize, objects: &Objects) {
        self.operations.gets += 2;
        let looks = [
            (objects.grown[i].get(), &mut self.seen[i]),
            (objects.grown_by_cpu[i].get(), &mut self.seen_by_cpu[i]),
        ];
        for (now, seen) in looks {
            if now < *seen {
                self.violations
                    .push(format!("a counter that only grows fell from {seen} to {now}"));
            }
            *seen = now;
        }
    }

    fn look_at_peaks(&mut self, i: usize, objects: &Objects) {
        self.operations.maxima += 2;
        let looks = [
            (objects.largest[i].get(), self.accounts.largest[i], &mut self.peaks[i]),
            (
                objects.largest_by_cpu[i].get(),
                self.accounts.largest_by_cpu[i],
                &mut self.peaks_by_cpu[i],
            ),
        ];
        for (now, recorded, seen) in looks {
            let now = now.unwrap_or(0);
            let least = recorded.max(*seen);
            if now < least {
                self.violations
                    .push(format!("a maximum was {now} after {least} had been recorded"));
            }
            *seen = now;
        }
    }

    /// Makes, uses and drops its own containers, whose memory must then be zeroed for the next owner.
    fn live_briefly<I: SlotIndex>(&mut self, n: i64) {
        self.operations.lives += 5;
        self.violations.extend(lives::of_items::<I>());
        let (counter, max) = (Counter::<I>::new(), Max::<I>::new());
        let mut sum = 0;
        for i in 0..8 {
            counter.add(n - i);
            max.record((n + i).unsigned_abs());
            sum += n - i;
        }
        let largest = Some((n + 7).unsigned_abs());
        if counter.get() != sum || counter.take() != sum || counter.get() != 0 {
            self.violations.push(format!("a new counter did not hold {sum}, then 0"));
        }
        if max.get() != largest {
            self.violations.push(format!("a new maximum was {:?}, not {largest:?}", max.get()));
        }
    }

    /// The child has a single thread: what it adds is there at once, exactly.
    fn fork(&mut self, objects: &Objects, random: &mut Random) {
        let i = random.below(EACH as u64) as usize;
        let n = random.below(1000) as i64;
        // SAFETY: no arguments; the child makes async-signal-safe calls only until it ends.
        match unsafe { libc::fork() } {
            -1 => {}
            0 => {
                let counters = (&objects.grown[i], &objects.flow_by_cpu[i]);
                let before = (counters.0.get(), counters.1.get());
                for _ in 0..100 {
                    counters.0.add(n);
                    counters.1.add(n);
                }
                let sum = 100 * n;
                let exact = counters.0.get() == before.0.wrapping_add(sum)
                    && counters.1.get() == before.1.wrapping_add(sum);
                for (_, bin) in &objects.bins {
                    let mut unaccounted = Flow::default();
                    bin.exchange_batches(&mut unaccounted);
                }
                // SAFETY: ends the child, in which no other thread exists, without destructors.
                unsafe { libc::_exit(i32::from(!exact)) };
            }
            child => {
                let mut status = 0;
                // SAFETY: a valid place for the status.
                let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
                if waited == child && status != 0 {
                    let sentence = format!("a forked child lost something (status {status:#x})");
                    self.violations.push(sentence);
                }
            }
        }
    }
}

fn add<I: SlotIndex>(counter: &Counter<I>, account: &mut i64, n: i64, done: &mut Operations) {
    counter.add(n);
    *account = account.wrapping_add(n);
    done.adds += 1;
}

fn take<I: SlotIndex>(counter: &Counter<I>, account: &mut i64, done: &mut Operations) {
    *account = account.wrapping_sub(counter.take());
    done.takes += 1;
}

/// Records mostly values below the maximum; sometimes a larger one.
fn record<I: SlotIndex>(
    max: &Max<I>,
    account: &mut u64,
    random: &mut Random,
    done: &mut Operations,
) {
    let value = *account + random.below(3);
    max.record(value);
    *account = value.max(*account);
    done.records += 1;
}
