//! Functions that run after a grace period.
//!
//! # Data flow
//! `defer` → a box on the domain's list. A batch, all of the list, waits for one grace period; then its functions run, in
//! the order of their calls. In a process of several threads one background thread does this for all domains. In a
//! process of one thread, which never gets a second one, `defer` does it now and then.
//!
//! # Invariants
//! 1. One thread at a time takes a batch and runs it, the *runner*. So batches run in the order of their calls. A runner
//!    that a fork left behind is replaced, and its batch is lost in the child: it stays allocated.
//! 2. `bytes` is what the items on the list and in the batch take. It falls after an item has run, so what is deferred
//!    never exceeds the hard limit by more than what threads push that hold guards, and so cannot wait.
//! 3. Items refer to nothing that ends: domains are statics, and functions are `'static`.

use core::mem;
use core::ptr;
use core::time::Duration;
use std::boxed::Box;
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc;
use std::thread;

use super::domain::Domain;
use super::error::Error;
use super::survivors;
use crate::percpu::{heavy_barrier, light_barrier};
use crate::primitive::global::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::sys::Errno;
use crate::sys::forks::{self, Identity};
use crate::sys::futex::{Deadline, Scope};
use crate::sys::sleep;

/// How long the background thread collects items before it waits for a grace period, unless the soft limit is reached.
const COLLECT: Duration = Duration::from_millis(2);
/// In a process of one thread, every so many calls look whether a grace period has ended.
const CALLS: u64 = 64;

/// One deferred function: the head of an `Item<F>`.
struct Head {
    next: *mut Head,
    bytes: usize,
    /// Frees the item, and runs its function.
    run: unsafe fn(*mut Head),
}

#[repr(C)]
struct Item<F> {
    head: Head,
    function: F,
}

/// What a domain defers.
pub(super) struct Deferred {
    list: AtomicPtr<Head>,
    bytes: AtomicUsize,
    soft: AtomicUsize,
    hard: AtomicUsize,
    /// The number of calls.
    calls: AtomicU64,
    panics: AtomicU64,
    /// The identity of the runner; 0 if there is none.
    runner: AtomicU64,
    /// The bytes of the runner's batch that have not run yet, so that a child can subtract what it has lost.
    of_batch: AtomicUsize,
    /// 1 while the runner is in the functions of its batch.
    is_running: AtomicU32,
    /// The error with which the kernel refused the last grace period; 0 if it did not.
    refused: AtomicU32,
    /// Counts batches that have run; threads at the hard limit sleep on it.
    room: AtomicU32,
    /// The next domain in the list of all that have deferred something.
    next: AtomicPtr<Domain>,
    /// 1 once the domain is in that list.
    is_listed: AtomicU32,
}

/// All domains that have deferred something.
static DOMAINS: AtomicPtr<Domain> = AtomicPtr::new(ptr::null_mut());
/// The generation of the process that has the background thread; 0 before the first.
static THREAD: AtomicU32 = AtomicU32::new(0);
/// Counts reasons for the background thread to look; it sleeps on it.
static WORK: AtomicU32 = AtomicU32::new(0);
/// The identity of the background thread.
static THREAD_IDENTITY: AtomicU64 = AtomicU64::new(0);
/// 1 while the background thread has nothing to do, and sleeps.
static IS_IDLE: AtomicU32 = AtomicU32::new(0);

impl Deferred {
    pub(super) const fn new() -> Deferred {
        Deferred {
            list: AtomicPtr::new(ptr::null_mut()),
            bytes: AtomicUsize::new(0),
            soft: AtomicUsize::new(1 << 20),
            hard: AtomicUsize::new(64 << 20),
            calls: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            runner: AtomicU64::new(0),
            of_batch: AtomicUsize::new(0),
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
        let runner = self.runner.load(Ordering::Relaxed);
        runner != 0
            && runner == Identity::of_this_thread().number()
            && self.is_running.load(Ordering::Relaxed) != 0
    }

    fn refused(&self) -> Option<Errno> {
        let errno = self.refused.load(Ordering::Relaxed);
        (errno != 0).then_some(Errno(errno as i32))
    }

    fn push(&self, first: *mut Head, last: *mut Head) {
        let mut head = self.list.load(Ordering::Relaxed);
        loop {
            // SAFETY: the caller's item, which no other thread has yet.
            unsafe { (*last).next = head };
            // Release: partner is the Acquire in `take`.
            match self.list.compare_exchange_weak(head, first, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// All items, the first call first.
    fn take(&self) -> *mut Head {
        // Acquire: partner is the Release in `push`.
        let mut from = self.list.swap(ptr::null_mut(), Ordering::Acquire);
        let mut batch = ptr::null_mut();
        while !from.is_null() {
            // SAFETY: items of the list, which this thread has taken.
            let next = unsafe { mem::replace(&mut (*from).next, batch) };
            batch = mem::replace(&mut from, next);
        }
        batch
    }
}

/// Calls of these functions at the hard limit wait until there is room, except under a guard, of whichever domain, and in
/// deferred functions. There they would wait for themselves; so they exceed the limit.
impl Domain {
    /// Sets the limits for deferred memory, in bytes.
    ///
    /// At the soft limit a grace period begins at once. At the hard limit [`defer`](Self::defer) waits. The defaults are
    /// 1 MiB and 64 MiB. A soft limit above the hard one counts as the hard one.
    pub fn set_limits(&self, soft: usize, hard: usize) {
        // Relaxed: numbers without further meaning.
        self.deferred.soft.store(soft.min(hard), Ordering::Relaxed);
        self.deferred.hard.store(hard, Ordering::Relaxed);
    }

    /// The bytes that are deferred now.
    pub fn deferred_bytes(&self) -> usize {
        self.deferred.bytes.load(Ordering::Relaxed)
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
    pub fn defer(&'static self, run: impl FnOnce() + Send + 'static) {
        self.defer_bytes(0, run);
    }

    /// Like [`defer`](Self::defer), for a function that frees so many bytes besides its own.
    pub fn defer_bytes(&'static self, bytes: usize, run: impl FnOnce() + Send + 'static) {
        if !self.has_room() {
            self.wait_for_room();
        }
        self.defer_now(bytes, run);
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
        if !self.has_room() {
            return Err(run);
        }
        self.defer_now(bytes, run);
        Ok(())
    }

    /// Drops the value after a grace period. It counts with its size.
    pub fn defer_drop<T: ?Sized + Send + 'static>(&'static self, value: Box<T>) {
        self.defer_bytes(size_of_val(&*value), move || drop(value));
    }

    /// Waits until all functions that were deferred before the call have run.
    ///
    /// # Errors
    /// [`Error::InCallback`] in a deferred function of this domain, [`Error::Refused`] as for
    /// [`synchronize`](Self::synchronize).
    pub fn barrier(&'static self) -> Result<(), Error> {
        if self.deferred.is_running_here() {
            return Err(Error::InCallback);
        }
        let (done, is_done) = mpsc::channel();
        self.defer_now(0, move || {
            let _ = done.send(());
        });
        loop {
            match is_done.try_recv() {
                // Disconnected: the function has been called, too, since nothing else drops it.
                Ok(()) | Err(mpsc::TryRecvError::Disconnected) => return Ok(()),
                Err(mpsc::TryRecvError::Empty) => {}
            }
            self.wait_for_runner()?;
        }
    }

    fn has_room(&self) -> bool {
        // Relaxed: a limit.
        self.deferred.bytes.load(Ordering::Relaxed) < self.deferred.hard.load(Ordering::Relaxed)
    }

    #[cold]
    fn wait_for_room(&'static self) {
        while !self.has_room()
            && survivors::of_this_thread() == 0
            && !self.deferred.is_running_here()
        {
            if self.wait_for_runner().is_err() {
                // No grace period ends any more: to wait would be for ever.
                return;
            }
        }
    }

    /// Lets a batch run, by the background thread or here, and waits for a while.
    fn wait_for_runner(&'static self) -> Result<(), Error> {
        // Acquire: partner is the Release in `run_batch`.
        let room = self.deferred.room.load(Ordering::Acquire);
        self.list();
        // A function of another domain runs on the background thread, which would wait for itself.
        if !is_thread() && (has_thread() || may_have_thread() && start_thread()) {
            if let Some(errno) = self.deferred.refused() {
                return Err(Error::Refused(errno));
            }
            WORK.fetch_add(1, Ordering::Release);
            sleep::wake(&WORK, 1, Scope::Private);
        } else if self.run_batch(true)? {
            return Ok(());
        }
        let soon = Some(Deadline::after(Duration::from_millis(1)));
        sleep::wait(&self.deferred.room, room, soon, Scope::Private);
        Ok(())
    }

    fn defer_now<F: FnOnce() + Send + 'static>(&'static self, bytes: usize, function: F) {
        let bytes = bytes + size_of::<Item<F>>();
        let head = Head { next: ptr::null_mut(), bytes, run: run::<F> };
        let item = Box::into_raw(Box::new(Item { head, function })).cast::<Head>();
        let before = self.deferred.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.deferred.push(item, item);
        // Partner: the barrier of the background thread, which then sees this item, or this thread sees that it is idle.
        light_barrier();
        let calls = self.deferred.calls.fetch_add(1, Ordering::Relaxed);
        let soft = self.deferred.soft.load(Ordering::Relaxed);
        let is_due = before < soft && before + bytes >= soft;
        if is_due || calls % CALLS == 0 || IS_IDLE.load(Ordering::Relaxed) != 0 {
            self.provide_runner(is_due, calls);
        }
    }

    /// Ensures that the items run: by the background thread, or here.
    #[cold]
    fn provide_runner(&'static self, is_due: bool, calls: u64) {
        self.list();
        let is_idle = IS_IDLE.swap(0, Ordering::Relaxed) != 0;
        // To count threads takes microseconds.
        let may_start = is_due || calls % (16 * CALLS) == 0;
        if has_thread() || may_start && may_have_thread() && start_thread() {
            if is_due || is_idle {
                WORK.fetch_add(1, Ordering::Release);
                sleep::wake(&WORK, 1, Scope::Private);
            }
        } else if self.start_poll().is_complete() == Ok(true) {
            // Probably another one ends at once, too. Otherwise the items stay.
            let _ = self.run_batch(false);
        }
    }

    /// Enters the domain into the list of all.
    fn list(&'static self) {
        if self.deferred.is_listed.swap(1, Ordering::Relaxed) != 0 {
            return;
        }
        let mut head = DOMAINS.load(Ordering::Relaxed);
        loop {
            self.deferred.next.store(head, Ordering::Relaxed);
            let own = ptr::from_ref(self).cast_mut();
            // Release: partner is the Acquire in `domains`.
            match DOMAINS.compare_exchange(head, own, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Runs all items that are there. Unless it `may_wait`, only if the grace period ends at once. False if there was
    /// nothing to do, or another thread is at it.
    fn run_batch(&'static self, may_wait: bool) -> Result<bool, Error> {
        let deferred = &self.deferred;
        let me = Identity::of_this_thread();
        if deferred.list.load(Ordering::Relaxed).is_null() {
            return Ok(false);
        }
        let runner = deferred.runner.load(Ordering::Relaxed);
        let is_free = runner == 0 || Identity::of_number(runner).is_gone(me);
        // Acquire: partner is the Release at the end.
        if !is_free
            || deferred
                .runner
                .compare_exchange(runner, me.number(), Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            return Ok(false);
        }
        // What a runner that is gone left behind is lost. (1)
        let lost = deferred.of_batch.swap(0, Ordering::Relaxed);
        deferred.bytes.fetch_sub(lost, Ordering::Relaxed);
        deferred.is_running.store(0, Ordering::Relaxed);
        let batch = deferred.take();
        deferred.of_batch.store(bytes_of(batch), Ordering::Relaxed);
        let ended = if may_wait {
            self.synchronize().map(|()| true)
        } else {
            self.start_poll().is_complete()
        };
        let has_run = ended == Ok(true) && !batch.is_null();
        if has_run {
            deferred.is_running.store(1, Ordering::Relaxed);
            self.run_all(batch);
            deferred.is_running.store(0, Ordering::Relaxed);
        } else if !batch.is_null() {
            // The last one of the batch is the first one on the list again.
            deferred.of_batch.store(0, Ordering::Relaxed);
            deferred.put_back(batch);
        }
        let refused = if let Err(Error::Refused(errno)) = ended { errno.0 } else { 0 };
        deferred.refused.store(refused as u32, Ordering::Relaxed);
        // Release: partners are the Acquires in `wait_for_runner` and above.
        deferred.runner.store(0, Ordering::Release);
        if has_run {
            deferred.room.fetch_add(1, Ordering::Release);
            sleep::wake(&deferred.room, u32::MAX, Scope::Private);
        }
        ended.map(|_| has_run)
    }

    fn run_all(&'static self, mut batch: *mut Head) {
        let deferred = &self.deferred;
        while !batch.is_null() {
            // SAFETY: items of the batch, which this thread has taken.
            let (next, bytes, run) = unsafe { ((*batch).next, (*batch).bytes, (*batch).run) };
            // SAFETY: a boxed item whose function is `run`'s, once.
            if panic::catch_unwind(AssertUnwindSafe(|| unsafe { run(batch) })).is_err() {
                deferred.panics.fetch_add(1, Ordering::Relaxed);
            }
            deferred.of_batch.fetch_sub(bytes, Ordering::Relaxed);
            deferred.bytes.fetch_sub(bytes, Ordering::Relaxed);
            batch = next;
        }
    }
}

impl Deferred {
    /// Puts a batch, the first call first, under what is on the list by now.
    fn put_back(&self, batch: *mut Head) {
        // Later calls come before it on the list. Their order is that of the next batch only if nothing came in between;
        // else these run before the others: both were deferred, and no order is promised between threads.
        let (mut first, mut rest) = (ptr::null_mut::<Head>(), batch);
        let last = batch;
        while !rest.is_null() {
            // SAFETY: items of the batch, which this thread has taken.
            let next = unsafe { mem::replace(&mut (*rest).next, first) };
            first = mem::replace(&mut rest, next);
        }
        self.push(first, last);
    }
}

/// The bytes of a batch that the calling thread has taken.
fn bytes_of(batch: *mut Head) -> usize {
    let (mut all, mut at) = (0, batch);
    while !at.is_null() {
        // SAFETY: items of the batch, which no other thread has.
        let head = unsafe { &*at };
        (all, at) = (all + head.bytes, head.next);
    }
    all
}

/// Frees an item, and runs its function.
///
/// # Safety
/// - `head` is that of a boxed `Item<F>`, which the caller owns.
unsafe fn run<F: FnOnce()>(head: *mut Head) {
    // SAFETY: the caller owns this boxed item.
    let item = unsafe { Box::from_raw(head.cast::<Item<F>>()) };
    (item.function)();
}

fn domains() -> impl Iterator<Item = &'static Domain> {
    // Acquire: partner is the Release in `list`.
    // SAFETY: null, or a static domain (3).
    let of = |at: &AtomicPtr<Domain>| unsafe { at.load(Ordering::Acquire).as_ref::<'static>() };
    core::iter::successors(of(&DOMAINS), move |domain| of(&domain.deferred.next))
}

fn has_thread() -> bool {
    THREAD.load(Ordering::Relaxed) == forks::generation()
}

/// Whether the caller is the background thread.
fn is_thread() -> bool {
    // Relaxed: a thread sees its own store.
    THREAD_IDENTITY.load(Ordering::Relaxed) == Identity::of_this_thread().number()
}

/// Whether this process has several threads already.
fn may_have_thread() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.take(2).count() > 1)
}

/// Starts the background thread of this process. False if it cannot be made.
fn start_thread() -> bool {
    let generation = forks::generation();
    let before = THREAD.load(Ordering::Relaxed);
    // Relaxed: what the thread reads is published by itself.
    let is_first = before != generation
        && THREAD
            .compare_exchange(before, generation, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
    if !is_first {
        return has_thread();
    }
    let is_made = without_signals(|| {
        thread::Builder::new().name("corelocal-rcu".into()).spawn(run_for_ever).is_ok()
    });
    if !is_made {
        THREAD.store(0, Ordering::Relaxed);
    }
    is_made
}

/// Runs `f` with all signals blocked, so that a thread that it makes handles none of the program's.
fn without_signals<T>(f: impl FnOnce() -> T) -> T {
    let (mut all, mut before) = (mem::MaybeUninit::uninit(), mem::MaybeUninit::uninit());
    // SAFETY: places for results, initialised in this order.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let result = f();
    // SAFETY: the mask that the call above has stored.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    result
}

fn run_for_ever() {
    THREAD_IDENTITY.store(Identity::of_this_thread().number(), Ordering::Relaxed);
    loop {
        // Acquire: partner is the Release in `provide_runner`.
        let work = WORK.load(Ordering::Acquire);
        let mut has_items = false;
        for domain in domains() {
            has_items |= !domain.deferred.list.load(Ordering::Relaxed).is_null();
        }
        if !has_items {
            IS_IDLE.store(1, Ordering::Relaxed);
            // Partner: the barrier in `defer_now`. Refused, a call may miss that this thread is idle: so it looks now and
            // then.
            let most = heavy_barrier().is_err().then(|| Deadline::after(Duration::from_millis(20)));
            if domains().all(|domain| domain.deferred.list.load(Ordering::Relaxed).is_null()) {
                sleep::wait(&WORK, work, most, Scope::Private);
            }
            IS_IDLE.store(0, Ordering::Relaxed);
            continue;
        }
        sleep::wait(&WORK, work, Some(Deadline::after(COLLECT)), Scope::Private);
        for domain in domains() {
            // Refused: the items stay, and this thread looks again later.
            if domain.run_batch(true).is_err() {
                sleep::nap(Duration::from_millis(100));
            }
        }
    }
}
