//! The background thread, which runs deferred functions of all domains in a process of several threads.
//!
//! It takes a step for each domain in turn, and waits for none of them: a reader that stays in one domain delays the
//! functions of that domain only.

use core::ptr;
use core::time::Duration;
use std::thread;

use super::domain::Domain;
use crate::percpu::heavy_barrier;
use crate::primitive::global::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use crate::sys::forks::{self, Identity};
use crate::sys::futex::{Deadline, Scope};
use crate::sys::{signals, sleep};

/// How long it collects items before it begins a grace period, unless a soft limit is reached.
const COLLECT: Duration = Duration::from_millis(2);
/// How long it pauses while guards are in the way: at first, and at most.
const PAUSES: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(2)];

/// All domains that have deferred something.
static DOMAINS: AtomicPtr<Domain> = AtomicPtr::new(ptr::null_mut());
/// The generation of the process that has the thread; 0 before the first.
static THREAD: AtomicU32 = AtomicU32::new(0);
/// The identity of the thread.
static IDENTITY: AtomicU64 = AtomicU64::new(0);
/// Counts reasons for the thread to look; it sleeps on it.
static WORK: AtomicU32 = AtomicU32::new(0);
/// The generation of the process whose thread is awake, or is known not to be there; 0 while the thread sleeps for lack of
/// work.
static AWAKE: AtomicU32 = AtomicU32::new(0);

/// Whether an item that is deferred needs a call of [`is_provided`]. Three loads.
#[inline(always)]
pub(super) fn is_idle() -> bool {
    AWAKE.load(Ordering::Relaxed) != forks::generation()
}

/// Makes the thread go on at once.
pub(super) fn wake() {
    // Release: partner is the Acquire in `run_for_ever`.
    WORK.fetch_add(1, Ordering::Release);
    sleep::wake(&WORK, 1, Scope::Private);
}

/// Whether there is a thread that will look, now if it is due. Starts it if this process has several threads.
pub(super) fn is_provided(is_due: bool) -> bool {
    let generation = forks::generation();
    let was_idle = AWAKE.swap(generation, Ordering::Relaxed) != generation;
    let is_there = has_thread() || has_several_threads() && start();
    if is_there && (is_due || was_idle) {
        wake();
    }
    is_there
}

/// Whether there is a thread, or can be, and the caller is another one. A deferred function runs on that thread, which
/// would wait for itself.
pub(super) fn is_there_for_others() -> bool {
    // Relaxed: a thread sees its own store.
    let is_this = IDENTITY.load(Ordering::Relaxed) == Identity::of_this_thread().number();
    !is_this && (has_thread() || has_several_threads() && start())
}

/// Enters the domain into the list of all.
pub(super) fn list(domain: &'static Domain) {
    if domain.deferred.is_listed.swap(1, Ordering::Relaxed) != 0 {
        return;
    }
    let mut head = DOMAINS.load(Ordering::Relaxed);
    loop {
        domain.deferred.next.store(head, Ordering::Relaxed);
        let own = ptr::from_ref(domain).cast_mut();
        // Release: partner is the Acquire in `domains`.
        match DOMAINS.compare_exchange(head, own, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

fn domains() -> impl Iterator<Item = &'static Domain> {
    // Acquire: partner is the Release in `list`.
    // SAFETY: null, or a static domain.
    let of = |at: &AtomicPtr<Domain>| unsafe { at.load(Ordering::Acquire).as_ref::<'static>() };
    core::iter::successors(of(&DOMAINS), move |domain| of(&domain.deferred.next))
}

fn has_thread() -> bool {
    THREAD.load(Ordering::Relaxed) == forks::generation()
}

/// One system call in a process of one thread. Linux counts the threads among the links of this folder; where that is not
/// so, they are counted in it.
#[cfg(target_os = "linux")]
fn has_several_threads() -> bool {
    use std::os::unix::fs::MetadataExt;
    const LINKS_OF_ONE: u64 = 3;
    let links = std::fs::metadata("/proc/self/task").map(|folder| folder.nlink());
    if matches!(links, Ok(LINKS_OF_ONE)) {
        return false;
    }
    std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.take(2).count() > 1)
}

/// Not known.
#[cfg(not(target_os = "linux"))]
fn has_several_threads() -> bool {
    true
}

/// Starts the thread of this process. False if it cannot be made.
fn start() -> bool {
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
    let is_made = signals::without(|| {
        thread::Builder::new().name("corelocal-rcu".into()).spawn(run_for_ever).is_ok()
    });
    if !is_made {
        THREAD.store(0, Ordering::Relaxed);
    }
    is_made
}

fn run_for_ever() {
    IDENTITY.store(Identity::of_this_thread().number(), Ordering::Relaxed);
    let mut pause = PAUSES[0];
    loop {
        // Acquire: partner is the Release in `wake`.
        let work = WORK.load(Ordering::Acquire);
        // Errors: the items stay, and the next look is later.
        let (mut has_run, mut has_work, mut is_due) = (false, false, false);
        for domain in domains().filter(|domain| domain.deferred.has_work()) {
            has_work = true;
            let has_run_here = domain.run() == Ok(true);
            has_run |= has_run_here;
            is_due |= has_run_here && domain.deferred.is_due();
        }
        if has_work {
            pause = if has_run { PAUSES[0] } else { PAUSES[1].min(pause * 2) };
            let span = if has_run { COLLECT } else { pause };
            if !is_due {
                sleep::wait(&WORK, work, Some(Deadline::after(span)), Scope::Private);
            }
            continue;
        }
        AWAKE.store(0, Ordering::Relaxed);
        // Partner: the barrier in `defer_now`. Refused, a call may miss that this thread is idle: so it looks now and then.
        let most = heavy_barrier().is_err().then(|| Deadline::after(Duration::from_millis(20)));
        if domains().all(|domain| !domain.deferred.has_work()) {
            sleep::wait(&WORK, work, most, Scope::Private);
        }
        AWAKE.store(forks::generation(), Ordering::Relaxed);
    }
}
