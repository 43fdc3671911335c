//! Functions that run after a grace period.
//!
//! # The rule
//! In a process of one thread, which has no guard, `defer` calls the function at once. Else functions run on the
//! background thread, or inside `barrier`, `synchronize` and `flush` of a domain that has none: because the program
//! asked for that ([`Domain::on_caller`]), or because it cannot be started. A call that waits at the hard limit of such
//! a domain runs them, too. No other call does.
//!
//! # Data flow
//! `defer` → bytes of the budget (`budget.rs`) → the core's part of one of two queues. The *runner* (`runner.rs`) makes
//! the other queue the current one, takes the items of the former one as a batch, waits for a grace period, and runs
//! their functions. The runner is the background thread (`thread.rs`), or a caller as the rule says.
//!
//! # Invariants
//! 1. The grace period of a batch begins after its last item has been taken, and so after what the item's function frees
//!    was made unreachable.
//! 2. `takes` counts batches that have begun, `runs` those that have ended. Calls push to the queue `takes % 2`, and the
//!    next batch is of that queue. So what was deferred before `takes` was `n` is in batch `n + 1` or earlier, and batches
//!    are not prolonged by later calls.
//! 3. A fork may come between a push and the count of its bytes, or between a run and its subtraction. So a child takes
//!    all items for its first batch, and sets the budget to their bytes.
//! 4. Items refer to nothing that ends: domains are statics, and functions are `'static`.
//! 5. A function is called at once only if no thread of the process can have a guard: libc says that there is one thread,
//!    or a grace period ends in which no guard is found.

mod budget;
mod deferral;
pub(super) mod runner;
mod state;
pub(super) mod thread;

use core::mem;
use core::sync::atomic::fence;
use core::time::Duration;
use std::alloc::{Layout, handle_alloc_error};
use std::boxed::Box;
use std::panic::{self, AssertUnwindSafe};
use std::vec::Vec;

use super::domain::Domain;
use super::error::Error;
use super::survivors;
use crate::percpu::light_barrier;
use crate::primitive::global::Ordering;
use crate::sys::forks;
use crate::sys::futex::{Deadline, Scope};
use crate::sys::sleep;
use crate::sys::thread::count::{Threads, threads};
use budget::Room;
use deferral::Deferral;
pub(super) use state::Deferred;

/// The number of functions after which the bytes of those that have run are given back.
const RUN_AT_ONCE: u32 = 64;

/// In a process of one thread, which has no guard, a deferred function is called at once. Else it runs on the
/// background thread, or where [`on_caller`](Domain::on_caller) says. Functions run in no particular order. One that
/// has not run when the process exits does not run: call [`barrier`](Domain::barrier) before.
///
/// Calls of these functions at the hard limit wait until there is room, except under a guard and in deferred functions,
/// of whichever domain. There they might wait for themselves; so they exceed the limit.
impl Domain {
    /// Sets the limits for deferred memory, in bytes.
    ///
    /// At the soft limit a grace period begins at once. At the hard limit [`defer`](Self::defer) waits. The defaults
    /// are 1 MiB and 64 MiB. A soft limit above the hard one counts as the hard one; `usize::MAX` is no limit. An item
    /// of more than 15 sixteenths of the hard limit waits until nothing else is deferred.
    pub fn set_limits(&self, soft: usize, hard: usize) {
        self.deferred.budget.set_limits(soft, hard);
    }

    /// Keeps deferred functions of this domain from the background thread, which is not started for them. From now on
    /// they run inside [`barrier`](Self::barrier), [`synchronize`](Self::synchronize) and [`flush`](Self::flush), and
    /// in calls that wait at the hard limit.
    ///
    /// For programs that want no second thread, or values dropped by a thread that they choose.
    pub fn on_caller(&'static self) {
        self.deferred.is_on_caller.store(1, Ordering::Relaxed);
    }

    /// Returns the bytes that are deferred now. Linear in the number of cores in use.
    pub fn deferred_bytes(&self) -> usize {
        // Below 0 while a function has run before its bytes are counted.
        self.deferred.budget.deferred().max(0) as usize
    }

    /// Returns how many deferred functions of this domain, and stall hooks called for it, have panicked. The others run
    /// all the same.
    pub fn panics(&self) -> u64 {
        self.deferred.panics.load(Ordering::Relaxed)
    }

    /// Runs `run` after a grace period: when every guard of this domain that exists now has ended.
    ///
    /// It counts with its own size; a function that frees more memory should say so:
    /// [`defer_bytes`](Self::defer_bytes).
    ///
    /// A few nanoseconds, without a locked instruction. A function of more than 8 bytes is put into a box.
    pub fn defer(&'static self, run: impl FnOnce() + Send + 'static) {
        self.defer_bytes(0, run);
    }

    /// Runs `run` after a grace period, which frees so many bytes besides its own. Like [`defer`](Self::defer); more
    /// than 1 TiB count as 1 TiB.
    #[inline]
    pub fn defer_bytes(&'static self, bytes: usize, run: impl FnOnce() + Send + 'static) {
        if !thread::is_awake() && self.may_run_at_once() {
            return self.run_at_once(run);
        }
        let item = Deferral::new(bytes, run);
        let room = match self.deferred.budget.reserve(item.bytes()) {
            Room::None => self.wait_for_room(item.bytes()),
            room => room,
        };
        self.push(item, room);
    }

    /// Does what [`defer_bytes`](Self::defer_bytes) does, but returns the function at the hard limit instead of
    /// waiting.
    ///
    /// # Errors
    /// The function.
    pub fn try_defer<F: FnOnce() + Send + 'static>(
        &'static self,
        bytes: usize,
        run: F,
    ) -> Result<(), F> {
        if !thread::is_awake() && self.may_run_at_once() {
            self.run_at_once(run);
            return Ok(());
        }
        match self.deferred.budget.reserve(Deferral::bytes_of::<F>(bytes)) {
            Room::None => Err(run),
            room => {
                self.push(Deferral::new(bytes, run), room);
                Ok(())
            }
        }
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
        if runner::is_inside_of(self.key()) {
            return Err(Error::InCallback);
        }
        // SeqCst: partner is the fence in `take`. A batch that this load does not see yet finds what was deferred.
        fence(Ordering::SeqCst);
        let last = deferred.takes.load(Ordering::Relaxed) + 2; // (2)
        deferred.wanted.fetch_max(last, Ordering::Relaxed);
        // Acquire: partner is the Release in `end_batch`.
        while deferred.runs.load(Ordering::Acquire) < last {
            self.wait_for_runner()?;
        }
        Ok(())
    }

    /// Begins the grace period of what is deferred, and does not wait for it. Where the background thread does not run
    /// the functions, those whose grace period has ended run now.
    pub fn flush(&'static self) {
        if !self.deferred.has_work() || runner::is_inside_of(self.key()) {
            return;
        }
        thread::list(self);
        if !self.runs_on_caller() {
            thread::wake();
            return;
        }
        // What waited for a grace period, and what was queued since. Refused: the items stay.
        if self.run() == Ok(true) {
            let _ = self.run();
        }
    }

    /// Runs functions whose grace period has ended, where the background thread does not.
    pub(super) fn flush_on_caller(&'static self) {
        // A domain that has never deferred anything is in no list.
        let has_deferred = self.deferred.is_listed.load(Ordering::Relaxed) != 0;
        if has_deferred && (self.deferred.is_on_caller() || !thread::exists()) {
            self.flush();
        }
    }

    /// Returns `true` if no other thread runs the functions of this domain for the caller.
    #[cold]
    fn runs_on_caller(&self) -> bool {
        self.deferred.is_on_caller()
            // A deferred function may be on the background thread, which cannot go on meanwhile.
            || runner::is_inside()
            // What a child has from its parent, or what was deferred under a guard.
            || !thread::exists() && threads() != Threads::Several
            || !thread::provide(false, true)
    }

    /// Returns `true` if a function may be called at once. (5)
    #[cold]
    fn may_run_at_once(&'static self) -> bool {
        if thread::exists() || survivors::of_this_thread() != 0 {
            return false;
        }
        match threads() {
            Threads::One => true,
            Threads::OneNow => self.start_poll().poll() == Ok(true),
            Threads::Several => false,
        }
    }

    #[cold]
    fn run_at_once(&'static self, run: impl FnOnce()) {
        self.catch(run);
    }

    /// Calls a deferred function, and counts its panic.
    fn catch(&'static self, run: impl FnOnce()) {
        let ended = panic::catch_unwind(AssertUnwindSafe(|| runner::inside(self.key(), run)));
        if let Err(payload) = ended {
            self.deferred.count_panic();
            // What a payload's own drop panics with is not dropped any more.
            let _ = panic::catch_unwind(AssertUnwindSafe(|| drop(payload))).map_err(mem::forget);
        }
    }

    /// Reserves bytes when there is room, or at once if the caller cannot wait.
    #[cold]
    #[inline(never)]
    fn wait_for_room(&'static self, bytes: usize) -> Room {
        while survivors::of_this_thread() == 0 && !runner::is_inside() {
            if self.wait_for_runner().is_err() {
                // No grace period ends any more: to wait would be for ever.
                break;
            }
            match self.deferred.budget.reserve(bytes) {
                Room::None => {}
                room => return room,
            }
        }
        self.deferred.budget.force(bytes);
        Room::Due
    }

    /// Lets the runner go on, here if there is no other thread for it, and waits for a while.
    fn wait_for_runner(&'static self) -> Result<(), Error> {
        // Acquire: partner is the Release in `run`.
        let room = self.deferred.room.load(Ordering::Acquire);
        thread::list(self);
        if self.runs_on_caller() {
            if self.run()? {
                return Ok(());
            }
        } else {
            if let Some(errno) = self.deferred.refused() {
                return Err(Error::Refused(errno));
            }
            thread::wake();
        }
        let soon = Some(Deadline::after(Duration::from_millis(1)));
        sleep::wait(&self.deferred.room, room, soon, Scope::Private);
        Ok(())
    }

    /// Pushes an item whose bytes are reserved.
    #[inline]
    fn push(&'static self, item: Deferral, room: Room) {
        let deferred = &self.deferred;
        // Relaxed: either queue will do. (2)
        let queue = &deferred.queues[deferred.takes.load(Ordering::Relaxed) as usize % 2];
        if queue.push(item).is_err() {
            handle_alloc_error(Layout::new::<Deferral>());
        }
        // Partner: the barrier of the background thread (`thread.rs`, 2).
        light_barrier();
        if room != Room::Near || !thread::is_awake() {
            self.provide_runner(room);
        }
    }

    /// Ensures that the background thread looks, unless callers run the functions.
    #[cold]
    #[inline(never)]
    fn provide_runner(&'static self, room: Room) {
        let deferred = &self.deferred;
        if deferred.counted_in.load(Ordering::Relaxed) == 0 {
            // The first call of all: nothing is counted wrongly yet.
            let now = forks::generation();
            let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
            let _ = deferred.counted_in.compare_exchange(0, now, success, failure);
        }
        thread::list(self);
        if !deferred.is_on_caller() {
            thread::provide(room == Room::Due, room != Room::Near);
        }
    }

    /// Goes on as the runner, without blocking. Returns `true` if a batch has run.
    fn run(&'static self) -> Result<bool, Error> {
        let deferred = &self.deferred;
        let Some(mut runner) = deferred.runners.enter() else { return Ok(false) };
        if runner.has_lost {
            deferred.end_batch();
        }
        let batch = runner.batch();
        if batch.grace_period.is_none() {
            deferred.take(batch);
        }
        let generation = forks::generation();
        let counted_in = deferred.counted_in.swap(generation, Ordering::Relaxed);
        if counted_in != generation && counted_in != 0 {
            deferred.recount(batch);
        }
        // Order: invariant 1.
        let ticket = self.ticket(batch.grace_period.unwrap_or_else(|| self.next_grace_period()));
        let ended = if batch.items.is_empty() { Ok(true) } else { ticket.is_complete() };
        batch.grace_period = Some(ticket.number());
        let refused = if let Err(Error::Refused(errno)) = ended { errno.0 } else { 0 };
        deferred.refused.store(refused as u32, Ordering::Relaxed);
        if ended? {
            batch.grace_period = None;
            self.run_all(&mut batch.items);
            deferred.end_batch();
            drop(runner);
            // Release: partner is the Acquire in `wait_for_runner`.
            deferred.room.fetch_add(1, Ordering::Release);
            sleep::wake(&deferred.room, u32::MAX, Scope::Private);
            return Ok(true);
        }
        Ok(false)
    }

    /// Runs the functions.
    fn run_all(&'static self, items: &mut Vec<Deferral>) {
        const KEPT: usize = 4096;
        let (mut ran, mut bytes) = (0, 0);
        let budget = &self.deferred.budget;
        for item in items.drain(..) {
            bytes += item.bytes() as i64;
            self.catch(|| item.run());
            ran += 1;
            if ran % RUN_AT_ONCE == 0 {
                budget.release(mem::take(&mut bytes));
            }
        }
        budget.release(bytes);
        items.shrink_to(KEPT);
    }
}
