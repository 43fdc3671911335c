//! Functions that run after a grace period.
//!
//! # Data flow
//! `defer` → the core's part of one of two queues, and its bytes → the core's word `near`, from which they go to `total`
//! in larger amounts. The *runner* makes the other queue the current one, takes the items of the former one as a batch,
//! waits for a grace period, and runs their functions. The runner is the background thread (`background.rs`) in a process
//! of several threads. In a process of one thread, which never gets a second one, `defer` takes its steps now and then.
//!
//! # Invariants
//! 1. One thread at a time is the runner: it holds [`Deferred::runner`]. A runner that a fork left behind is replaced, and
//!    its batch is lost in the child: it stays allocated.
//! 2. The grace period of a batch begins after its last item has been taken, and so after what the item's function frees
//!    was made unreachable.
//! 3. `takes` counts batches that have begun, `runs` those that have ended. Calls push to the queue `takes % 2`, and the
//!    next batch is of that queue. So what was deferred before `takes` was `n` is in batch `n + 1` or earlier, and batches
//!    are not prolonged by later calls.
//! 4. `total` lacks less than `chunk` bytes for each core. `ceiling` is the hard limit less that. `total` falls after a
//!    function has run, so deferred memory exceeds the hard limit only by what threads defer that cannot wait.
//! 5. A fork may come between a push and the count of its bytes, or between a run and its subtraction. So a child takes
//!    all items for its first batch, and sets the total to their bytes.
//! 6. Items refer to nothing that ends: domains are statics, and functions are `'static`.

use core::cell::UnsafeCell;
use core::mem;
use core::ptr;
use core::sync::atomic::fence;
use core::time::Duration;
use std::alloc::{Layout, handle_alloc_error};
use std::boxed::Box;
use std::panic::{self, AssertUnwindSafe};
use std::vec::Vec;

use super::background;
use super::deferral::Deferral;
use super::domain::{Domain, Ticket};
use super::error::Error;
use super::survivors;
use crate::cid;
use crate::percpu::{Queue, Word, light_barrier};
use crate::primitive::global::{AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::sys::forks::{self, Identity};
use crate::sys::futex::{Deadline, Scope};
use crate::sys::{Errno, sleep};

/// The most bytes that a core collects before it adds them to the total.
const LONGEST_CHUNK: usize = 16 << 10;
/// The bytes of functions that have run are subtracted after so many functions.
const RUN_AT_ONCE: u32 = 64;

/// What a domain defers.
pub(super) struct Deferred {
    queues: [Queue<Deferral>; 2],
    near: Word,
    /// What cores have added of their bytes, less what has run.
    total: AtomicI64,
    /// 0 until the first call has set it and `ceiling`. (4)
    chunk: AtomicUsize,
    ceiling: AtomicI64,
    soft: AtomicUsize,
    hard: AtomicUsize,
    takes: AtomicU64,
    runs: AtomicU64,
    /// `barrier` waits until so many batches have run.
    wanted: AtomicU64,
    panics: AtomicU64,
    /// The identity of the runner; 0 if there is none.
    runner: AtomicU64,
    batch: UnsafeCell<Batch>,
    /// 1 while there are items in the batch.
    has_batch: AtomicU32,
    /// The generation of the process whose bytes are counted; 0 before the first call. (5)
    counted_in: AtomicU32,
    /// 1 while the runner is in the functions of its batch.
    is_running: AtomicU32,
    /// The error with which the kernel refused the last grace period; 0 if it did not.
    refused: AtomicU32,
    /// Counts batches that have run; threads that wait for them sleep on it.
    room: AtomicU32,
    /// The next domain in the list of all that have deferred something (`background.rs`).
    pub(super) next: AtomicPtr<Domain>,
    /// 1 once the domain is in that list.
    pub(super) is_listed: AtomicU32,
}

// SAFETY: `batch` is accessed by the runner only. (1)
unsafe impl Sync for Deferred {}

/// Items that wait for a grace period.
struct Batch {
    items: Vec<Deferral>,
    ticket: Option<Ticket>,
}

/// The calling thread is the runner while this exists.
struct Runner<'a> {
    deferred: &'a Deferred,
}

impl Deferred {
    pub(super) const fn new() -> Deferred {
        Deferred {
            queues: [Queue::new(), Queue::new()],
            near: Word::new(),
            total: AtomicI64::new(0),
            chunk: AtomicUsize::new(0),
            ceiling: AtomicI64::new(i64::MAX),
            soft: AtomicUsize::new(1 << 20),
            hard: AtomicUsize::new(64 << 20),
            takes: AtomicU64::new(0),
            runs: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            runner: AtomicU64::new(0),
            batch: UnsafeCell::new(Batch { items: Vec::new(), ticket: None }),
            has_batch: AtomicU32::new(0),
            counted_in: AtomicU32::new(0),
            is_running: AtomicU32::new(0),
            refused: AtomicU32::new(0),
            room: AtomicU32::new(0),
            next: AtomicPtr::new(ptr::null_mut()),
            is_listed: AtomicU32::new(0),
        }
    }

    /// Whether the caller is a deferred function of this domain.
    pub(super) fn is_running_here(&self) -> bool {
        // Relaxed: a thread sees its own store.
        let (runner, me) = (self.runner.load(Ordering::Relaxed), Identity::of_this_thread());
        let runner_is_here = || {
            let runner = Identity::of_number(runner);
            // In a child that the function itself has made, too.
            runner.is_alike(me) && !runner.is_gone(me)
        };
        runner != 0 && runner_is_here() && self.is_running.load(Ordering::Relaxed) != 0
    }

    /// The error with which the kernel refuses grace periods.
    pub(super) fn refused(&self) -> Option<Errno> {
        let errno = self.refused.load(Ordering::Relaxed);
        (errno != 0).then_some(Errno(errno as i32))
    }

    /// Whether a grace period is due at once.
    pub(super) fn is_due(&self) -> bool {
        self.total.load(Ordering::Relaxed) >= self.soft.load(Ordering::Relaxed) as i64
    }

    /// Whether there is something for a runner.
    pub(super) fn has_work(&self) -> bool {
        let is_behind = |runs: u64| runs < self.wanted.load(Ordering::Relaxed);
        self.has_batch.load(Ordering::Relaxed) != 0
            || is_behind(self.runs.load(Ordering::Relaxed))
            || self.queues.iter().any(|queue| !queue.is_empty())
    }

    fn runner(&self) -> Option<Runner<'_>> {
        let me = Identity::of_this_thread();
        let before = self.runner.load(Ordering::Relaxed);
        let is_free = before == 0 || Identity::of_number(before).is_gone(me);
        // Acquire: partner is the Release of the runner before.
        let taken = is_free
            && self
                .runner
                .compare_exchange(before, me.number(), Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        if taken && before != 0 {
            // What a runner that is gone left behind is lost. (1)
            // SAFETY: this thread is the runner, and the old value, which may be half-written, is not used.
            unsafe { self.batch.get().write(Batch { items: Vec::new(), ticket: None }) };
            self.is_running.store(0, Ordering::Relaxed);
            self.ends_batch();
        }
        // Made only then: dropped, it gives up what it stands for.
        taken.then(|| Runner { deferred: self })
    }

    /// The batch has run, or is lost.
    fn ends_batch(&self) {
        self.has_batch.store(0, Ordering::Relaxed);
        // Release: partner is the Acquire in `barrier`.
        self.runs.store(self.takes.load(Ordering::Relaxed), Ordering::Release);
    }

    /// Adds the core's bytes to the total. Whether the soft limit was reached by it.
    #[cold]
    fn add_to_total(&self) -> bool {
        let bytes = self.near.exchange(0) as i64;
        let before = self.total.fetch_add(bytes, Ordering::Relaxed);
        let soft = self.soft.load(Ordering::Relaxed) as i64;
        // The first call of all: nothing is counted wrongly yet.
        let of_none = self.counted_in.load(Ordering::Relaxed) == 0;
        if of_none {
            let now = forks::generation();
            let _ = self.counted_in.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        }
        if self.chunk.load(Ordering::Relaxed) == 0 {
            self.divide();
        }
        before < soft && before + bytes >= soft
    }

    /// Sets `chunk` and `ceiling`. (4)
    fn divide(&self) {
        let (hard, cores) = (self.hard.load(Ordering::Relaxed), cid::capacity() as usize);
        let chunk = (hard / 16 / cores).clamp(1, LONGEST_CHUNK);
        let ceiling = hard.saturating_sub(chunk * cores) as i64;
        self.ceiling.store(ceiling, Ordering::Relaxed);
        self.chunk.store(chunk, Ordering::Relaxed);
    }

    /// The bytes that are not in the total yet.
    fn near(&self) -> i64 {
        self.near.iter().map(|(_, bytes)| bytes as i64).sum()
    }

    fn has_room(&self) -> bool {
        // Relaxed: a limit.
        self.total.load(Ordering::Relaxed) <= self.ceiling.load(Ordering::Relaxed)
    }
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        // Release: partner is the Acquire in `runner`.
        self.deferred.runner.store(0, Ordering::Release);
    }
}

/// Calls of these functions at the hard limit wait until there is room, except under a guard, of whichever domain, and in
/// deferred functions. There they would wait for themselves; so they exceed the limit. Functions run in no particular
/// order.
impl Domain {
    /// Sets the limits for deferred memory, in bytes.
    ///
    /// At the soft limit a grace period begins at once. At the hard limit [`defer`](Self::defer) waits. The defaults are
    /// 1 MiB and 64 MiB. A soft limit above the hard one counts as the hard one.
    pub fn set_limits(&self, soft: usize, hard: usize) {
        // Relaxed: numbers without further meaning.
        self.deferred.soft.store(soft.min(hard), Ordering::Relaxed);
        self.deferred.hard.store(hard, Ordering::Relaxed);
        self.deferred.divide();
    }

    /// The bytes that are deferred now. Linear in the number of cores in use.
    pub fn deferred_bytes(&self) -> usize {
        // Below 0 while a function has run before its bytes are counted.
        (self.deferred.total.load(Ordering::Relaxed) + self.deferred.near()).max(0) as usize
    }

    /// How many deferred functions have panicked. The others run all the same.
    pub fn panics(&self) -> u64 {
        self.deferred.panics.load(Ordering::Relaxed)
    }

    /// Runs `run` after a grace period: when every guard of this domain that exists now has ended.
    ///
    /// It runs on a background thread (`corelocal-rcu`) in a process of several threads, else in a later call of this
    /// function. It counts with its own size; a function that frees more memory should say so:
    /// [`defer_bytes`](Self::defer_bytes).
    ///
    /// A few nanoseconds, without a locked instruction. A function of more than 8 bytes is put into a box.
    pub fn defer(&'static self, run: impl FnOnce() + Send + 'static) {
        self.defer_bytes(0, run);
    }

    /// Like [`defer`](Self::defer), for a function that frees so many bytes besides its own.
    #[inline]
    pub fn defer_bytes(&'static self, bytes: usize, run: impl FnOnce() + Send + 'static) {
        if !self.deferred.has_room() {
            self.wait_for_room();
        }
        self.defer_now(Deferral::new(bytes, run));
    }

    /// Like [`defer_bytes`](Self::defer_bytes), but returns the function at the hard limit instead of waiting.
    ///
    /// # Errors
    /// The function.
    pub fn try_defer<F: FnOnce() + Send + 'static>(
        &'static self,
        bytes: usize,
        run: F,
    ) -> Result<(), F> {
        if !self.deferred.has_room() {
            return Err(run);
        }
        self.defer_now(Deferral::new(bytes, run));
        Ok(())
    }

    /// Drops the value after a grace period. It counts with its size.
    #[inline]
    pub fn defer_drop<T: ?Sized + Send + 'static>(&'static self, value: Box<T>) {
        self.defer_bytes(size_of_val(&*value), move || drop(value));
    }

    /// Waits until all functions that were deferred before the call have run: two grace periods at most.
    ///
    /// # Errors
    /// [`Error::InCallback`] in a deferred function of this domain, [`Error::Refused`] as for
    /// [`synchronize`](Self::synchronize).
    pub fn barrier(&'static self) -> Result<(), Error> {
        let deferred = &self.deferred;
        if deferred.is_running_here() {
            return Err(Error::InCallback);
        }
        // SeqCst: partner is the fence in `take`. A batch that this load does not see yet finds what was deferred.
        fence(Ordering::SeqCst);
        let last = deferred.takes.load(Ordering::Relaxed) + 2; // (3)
        deferred.wanted.fetch_max(last, Ordering::Relaxed);
        // Acquire: partner is the Release in `ends_batch`.
        while deferred.runs.load(Ordering::Acquire) < last {
            self.wait_for_runner()?;
        }
        Ok(())
    }

    #[cold]
    fn wait_for_room(&'static self) {
        while !self.deferred.has_room()
            && survivors::of_this_thread() == 0
            && !self.deferred.is_running_here()
        {
            if self.wait_for_runner().is_err() {
                // No grace period ends any more: to wait would be for ever.
                return;
            }
        }
    }

    /// Lets the runner go on, here if there is no other thread for it, and waits for a while.
    fn wait_for_runner(&'static self) -> Result<(), Error> {
        // Acquire: partner is the Release in `run`.
        let room = self.deferred.room.load(Ordering::Acquire);
        background::list(self);
        if background::is_there_for_others() {
            if let Some(errno) = self.deferred.refused() {
                return Err(Error::Refused(errno));
            }
            background::wake();
        } else if self.run()? {
            return Ok(());
        }
        let soon = Some(Deadline::after(Duration::from_millis(1)));
        sleep::wait(&self.deferred.room, room, soon, Scope::Private);
        Ok(())
    }

    #[inline]
    fn defer_now(&'static self, item: Deferral) {
        let deferred = &self.deferred;
        let bytes = item.bytes();
        // Relaxed: either queue will do. (3)
        let queue = &deferred.queues[deferred.takes.load(Ordering::Relaxed) as usize % 2];
        if queue.push(item).is_err() {
            handle_alloc_error(Layout::new::<Deferral>());
        }
        // Partner: the barrier of the background thread, which then sees this item, or this thread sees that it is idle.
        light_barrier();
        let near = deferred.near.add_fetch(bytes as u64);
        // Relaxed: 0 is the first call.
        if near >= deferred.chunk.load(Ordering::Relaxed) as u64 || background::is_idle() {
            self.provide_runner();
        }
    }

    /// Ensures that the items run: by the background thread, or here.
    #[cold]
    #[inline(never)]
    fn provide_runner(&'static self) {
        let is_due = self.deferred.add_to_total();
        background::list(self);
        if !background::is_provided(is_due) {
            // Refused: the items stay.
            let _ = self.run();
        }
    }

    /// Goes on as the runner, without blocking. True if a batch has run.
    pub(super) fn run(&'static self) -> Result<bool, Error> {
        let deferred = &self.deferred;
        let Some(runner) = deferred.runner() else { return Ok(false) };
        // SAFETY: this thread is the runner until the end of this function, and refers to it nowhere else. (1)
        let batch = unsafe { &mut *deferred.batch.get() };
        if batch.ticket.is_none() {
            deferred.take(batch);
        }
        let generation = forks::generation();
        let counted_in = deferred.counted_in.swap(generation, Ordering::Relaxed);
        if counted_in != generation && counted_in != 0 {
            deferred.recount(batch);
        }
        // Order: invariant 2.
        let ticket = batch.ticket.get_or_insert_with(|| self.start_poll());
        let ended = if batch.items.is_empty() { Ok(true) } else { ticket.is_complete() };
        let refused = if let Err(Error::Refused(errno)) = ended { errno.0 } else { 0 };
        deferred.refused.store(refused as u32, Ordering::Relaxed);
        if ended? {
            batch.ticket = None;
            deferred.is_running.store(1, Ordering::Relaxed);
            deferred.run_all(&mut batch.items);
            deferred.is_running.store(0, Ordering::Relaxed);
            deferred.ends_batch();
            drop(runner);
            // Release: partner is the Acquire in `wait_for_runner`.
            deferred.room.fetch_add(1, Ordering::Release);
            sleep::wake(&deferred.room, u32::MAX, Scope::Private);
            return Ok(true);
        }
        Ok(false)
    }
}

impl Deferred {
    /// Takes what is in the current queue. The other one is current from now on.
    fn take(&self, batch: &mut Batch) {
        let takes = self.takes.fetch_add(1, Ordering::Relaxed);
        // SeqCst: partner is the fence in `barrier`.
        fence(Ordering::SeqCst);
        self.queues[takes as usize % 2].take_all(&mut batch.items);
        self.has_batch.store(u32::from(!batch.items.is_empty()), Ordering::Relaxed);
    }

    /// Takes everything, and counts it. (5)
    fn recount(&self, batch: &mut Batch) {
        batch.ticket = None;
        self.queues.iter().for_each(|queue| queue.take_all(&mut batch.items));
        self.has_batch.store(u32::from(!batch.items.is_empty()), Ordering::Relaxed);
        let bytes: usize = batch.items.iter().map(Deferral::bytes).sum();
        self.total.store(bytes as i64 - self.near(), Ordering::Relaxed);
    }

    /// Runs the functions.
    fn run_all(&self, items: &mut Vec<Deferral>) {
        const KEPT: usize = 4096;
        let (mut ran, mut bytes) = (0, 0);
        for item in items.drain(..) {
            bytes += item.bytes() as i64;
            if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(|| item.run())) {
                self.panics.fetch_add(1, Ordering::Relaxed);
                // What a payload's own drop panics with is not dropped any more.
                let _ =
                    panic::catch_unwind(AssertUnwindSafe(|| drop(payload))).map_err(mem::forget);
            }
            ran += 1;
            if ran % RUN_AT_ONCE == 0 {
                self.total.fetch_sub(mem::take(&mut bytes), Ordering::Relaxed);
            }
        }
        self.total.fetch_sub(bytes, Ordering::Relaxed);
        items.shrink_to(KEPT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_runner_takes_nothing_from_the_first() {
        let deferred = Deferred::new();
        let first = deferred.runner();
        assert!(first.is_some());
        for _ in 0..2 {
            assert!(deferred.runner().is_none());
        }
        drop(first);
        assert!(deferred.runner().is_some());
    }
}
