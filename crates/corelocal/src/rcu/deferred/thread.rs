//! The background thread, which runs deferred functions of all domains in a process of several threads.
//!
//! It takes a step for each domain in turn, and waits for none of them: a reader that stays in one domain delays the
//! functions of that domain only.
//!
//! ```text
//!   NONE ──► STARTING ──► AWAKE ◄──► ASLEEP       ASLEEP: it has found no work; the next item wakes it
//!     ▲         │  ▲
//!     │         ▼  │ at the next charge of a budget, barrier, synchronize or flush
//!     │        FAILED                             libc made no thread; callers run the functions
//!     └── any state of another generation: a fork has left the thread behind
//! ```
//!
//! # Invariants
//! 1. [`STATE`] has the generation of the process. The thread that exchanges NONE or FAILED for STARTING makes the
//!    thread.
//! 2. An item is pushed before the state is loaded; the thread stores ASLEEP before it looks at queues for the last time.
//!    A barrier in all threads lies in between. So either the thread sees the item, or the caller that it is asleep.

use core::ptr;
use core::time::Duration;
use std::io::Write;
use std::{io, thread};

use crate::percpu::heavy_barrier;
use crate::primitive::global::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use crate::rcu::domain::Domain;
use crate::sys::forks;
use crate::sys::futex::{Deadline, Scope};
use crate::sys::sleep;
use crate::sys::thread::signals;

/// The time for which the thread collects items before it begins a grace period, unless a soft limit is reached.
const COLLECT: Duration = Duration::from_millis(2);
/// The thread's first and longest pause while guards hold up a grace period.
const PAUSES: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(2)];

/// All domains that have deferred something.
static DOMAINS: AtomicPtr<Domain> = AtomicPtr::new(ptr::null_mut());
/// A futex word on which the thread sleeps. Each reason to look adds 1.
static WORK: AtomicU32 = AtomicU32::new(0);
/// The number of times that the thread could not be started.
static FAILURES: AtomicU64 = AtomicU64::new(0);

/// The generation above one of the states below. (1)
static STATE: AtomicU32 = AtomicU32::new(0);
const STATE_BITS: u32 = 3;
const NONE: u32 = 0;
const STARTING: u32 = 1;
const AWAKE: u32 = 2;
const ASLEEP: u32 = 3;
const FAILED: u32 = 4;

/// Returns the word for a state of this process.
#[inline(always)]
fn word(state: u32) -> u32 {
    forks::generation() << STATE_BITS | state
}

/// Returns the state of this process's thread.
fn state() -> u32 {
    let state = STATE.load(Ordering::Relaxed);
    if state >> STATE_BITS == forks::generation() { state % (1 << STATE_BITS) } else { NONE }
}

/// Returns `true` if the thread will look at what is pushed: [`provide`] need not be called. Three loads.
#[inline(always)]
pub(super) fn is_awake() -> bool {
    STATE.load(Ordering::Relaxed) == word(AWAKE)
}

/// Returns `true` if this process has the thread, or is about to have it.
pub(super) fn exists() -> bool {
    matches!(state(), STARTING | AWAKE | ASLEEP)
}

/// Makes the thread go on at once.
pub(super) fn wake() {
    // Release: partner is the Acquire in `run_for_ever`.
    WORK.fetch_add(1, Ordering::Release);
    sleep::wake(&WORK, 1, Scope::Private);
}

/// Ensures that the thread looks, now if it is due. Starts it if this process has none, `again` also where it could not
/// be started. Returns `false` if there is none.
pub(super) fn provide(is_due: bool, again: bool) -> bool {
    let now = state();
    match now {
        NONE => return start(),
        FAILED => return again && start(),
        ASLEEP => {
            // One caller wakes it. The thread itself may have been faster.
            let (asleep, awake) = (word(ASLEEP), word(AWAKE));
            let _ = STATE.compare_exchange(asleep, awake, Ordering::Relaxed, Ordering::Relaxed);
        }
        _ => {}
    }
    if is_due || now == ASLEEP {
        wake();
    }
    true
}

/// Enters the domain into the list of all.
pub(super) fn list(domain: &'static Domain) {
    if domain.deferred.is_listed.load(Ordering::Relaxed) != 0
        || domain.deferred.is_listed.swap(1, Ordering::Relaxed) != 0
    {
        return;
    }
    let mut head = DOMAINS.load(Ordering::Relaxed);
    loop {
        domain.deferred.next.store(head.cast(), Ordering::Relaxed);
        let own = ptr::from_ref(domain).cast_mut();
        // Release: partner is the Acquire in `domains`.
        match DOMAINS.compare_exchange(head, own, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

/// Returns the domains whose functions the thread runs.
fn domains() -> impl Iterator<Item = &'static Domain> {
    // Acquire: partner is the Release in `list`.
    // SAFETY: null, or a static domain.
    let of = |at: *mut Domain| unsafe { at.as_ref::<'static>() };
    let next =
        move |domain: &&'static Domain| of(domain.deferred.next.load(Ordering::Acquire).cast());
    core::iter::successors(of(DOMAINS.load(Ordering::Acquire)), next)
        .filter(|domain| !domain.deferred.is_on_caller())
}

/// Starts the thread of this process. Returns `false` if it cannot be made.
fn start() -> bool {
    let before = STATE.load(Ordering::Relaxed);
    if exists() {
        return true;
    }
    // Relaxed: what the thread reads is published by itself.
    let (starting, relaxed) = (word(STARTING), Ordering::Relaxed);
    if STATE.compare_exchange(before, starting, relaxed, relaxed).is_err() {
        return exists();
    }
    let made = signals::without(|| {
        thread::Builder::new().name("corelocal-rcu".into()).spawn(run_for_ever)
    });
    let Err(error) = made else { return true };
    STATE.store(word(FAILED), Ordering::Relaxed);
    if FAILURES.fetch_add(1, Ordering::Relaxed) == 0 {
        // Refused, there is nothing more to do.
        let _ = writeln!(
            io::stderr(),
            "corelocal: the thread corelocal-rcu cannot be started ({error}): deferred functions run in calls of barrier, \
             synchronize and flush, and at the hard limit, until it can be"
        );
    }
    false
}

/// Returns how often the background thread could not be started. The first time is reported on stderr.
///
/// While there is none, deferred functions run in calls of `barrier`, `synchronize` and `flush`, and in calls that wait
/// at the hard limit. These, and calls that defer now and then, try to start it again.
pub fn thread_failures() -> u64 {
    FAILURES.load(Ordering::Relaxed)
}

fn run_for_ever() {
    STATE.store(word(AWAKE), Ordering::Relaxed);
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
            is_due |= has_run_here && domain.deferred.budget.is_due();
        }
        if has_work {
            pause = if has_run { PAUSES[0] } else { PAUSES[1].min(pause * 2) };
            let span = if has_run { COLLECT } else { pause };
            if !is_due {
                sleep::wait(&WORK, work, Some(Deadline::after(span)), Scope::Private);
            }
            continue;
        }
        STATE.store(word(ASLEEP), Ordering::Relaxed);
        // (2) Refused, a call may miss that this thread is asleep: so it looks now and then.
        let most = heavy_barrier().is_err().then(|| Deadline::after(Duration::from_millis(20)));
        if domains().all(|domain| !domain.deferred.has_work()) {
            sleep::wait(&WORK, work, most, Scope::Private);
        }
        STATE.store(word(AWAKE), Ordering::Relaxed);
    }
}
