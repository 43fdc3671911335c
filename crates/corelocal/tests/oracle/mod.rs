//! The same random scripts on a mutex of libc's and on one of ours: the same error codes.
//!
//! A few threads do one step at a time, each on both mutexes, and compare. A thread may end with both in its
//! hands; another takes its place.
//!
//! Invariant: a step does not wait for ever, since others take theirs only after it: it tries, or waits for a
//! moment.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::forked::next;
use crate::leaked::forever;

const THREADS: usize = 3;
const A_MOMENT: Duration = Duration::from_millis(1);

/// What a thread can do.
#[derive(Clone, Copy, Debug)]
enum Step {
    TryLock,
    LockForAMoment,
    Unlock,
    MakeConsistent,
    /// Locks again what it owns.
    Relock,
    Die,
}

/// Ours, as the script sees it. Codes are those of POSIX, 0 if the lock was acquired.
pub trait Ours: Sync + 'static {
    /// The lock as the thread has it.
    type Held;

    fn try_lock(&'static self) -> (i32, Option<Self::Held>);
    fn lock(&'static self) -> (i32, Option<Self::Held>);
    fn lock_for(&'static self, span: Duration) -> (i32, Option<Self::Held>);
    fn make_consistent(held: Self::Held) -> Self::Held;
}

/// What kind of mutex.
#[derive(Clone, Copy)]
pub struct Kind {
    pub robust: bool,
    pub inherits: bool,
}

/// A mutex of libc's that checks for errors.
struct Theirs(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a mutex is for threads.
unsafe impl Sync for Theirs {}

impl Theirs {
    /// `None` where libc or the kernel has none such.
    fn leaked(kind: Kind) -> Option<&'static Theirs> {
        let mut attributes = MaybeUninit::uninit();
        let theirs = forever(Theirs(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER)));
        // SAFETY: initialised by the first call, used by the others; the mutex is leaked.
        let made = unsafe {
            let attributes = {
                libc::pthread_mutexattr_init(attributes.as_mut_ptr());
                attributes.as_mut_ptr()
            };
            libc::pthread_mutexattr_settype(attributes, libc::PTHREAD_MUTEX_ERRORCHECK);
            if kind.robust {
                libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST);
            }
            if kind.inherits {
                libc::pthread_mutexattr_setprotocol(attributes, libc::PTHREAD_PRIO_INHERIT);
            }
            libc::pthread_mutex_init(theirs.0.get(), attributes)
        };
        (made == 0).then_some(theirs)
    }

    fn lock_for(&self, span: Duration) -> i32 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a writable place, a mutex that stays.
        unsafe {
            libc::clock_gettime(libc::CLOCK_REALTIME, &mut time);
            let nanos = time.tv_nsec + libc::c_long::from(span.subsec_nanos() as i32);
            time.tv_sec += nanos / 1_000_000_000;
            time.tv_nsec = nanos % 1_000_000_000;
            libc::pthread_mutex_timedlock(self.0.get(), &time)
        }
    }
}

unsafe extern "C" {
    fn pthread_mutex_consistent(mutex: *mut libc::pthread_mutex_t) -> libc::c_int;
}

struct Worker {
    steps: Sender<Step>,
    done: Receiver<(i32, i32)>,
    thread: JoinHandle<()>,
}

impl Worker {
    fn start<O: Ours>(ours: &'static O, theirs: &'static Theirs) -> Worker {
        let (steps, orders) = channel();
        let (report, done) = channel();
        let thread = thread::spawn(move || work(ours, theirs, &orders, &report));
        Worker { steps, done, thread }
    }

    /// The codes of both, theirs first.
    fn take(&self, step: Step) -> (i32, i32) {
        self.steps.send(step).unwrap();
        self.done.recv_timeout(Duration::from_secs(30)).expect("a step that does not end")
    }
}

fn work<O: Ours>(
    ours: &'static O,
    theirs: &'static Theirs,
    orders: &Receiver<Step>,
    report: &Sender<(i32, i32)>,
) {
    let mutex = theirs.0.get();
    let mut held: Option<O::Held> = None;
    for step in orders {
        let codes = match step {
            Step::TryLock | Step::LockForAMoment | Step::Relock => {
                // SAFETY: a valid mutex that is leaked.
                let theirs = unsafe {
                    match step {
                        Step::TryLock => libc::pthread_mutex_trylock(mutex),
                        Step::Relock => libc::pthread_mutex_lock(mutex),
                        _ => theirs.lock_for(A_MOMENT),
                    }
                };
                let (code, new) = match step {
                    Step::TryLock => ours.try_lock(),
                    Step::Relock => ours.lock(),
                    _ => ours.lock_for(A_MOMENT),
                };
                assert!(held.is_none() || new.is_none(), "owned twice");
                held = held.or(new);
                (theirs, code)
            }
            Step::Unlock => {
                held = None;
                // SAFETY: a valid mutex that is leaked; this thread owns it.
                (unsafe { libc::pthread_mutex_unlock(mutex) }, 0)
            }
            Step::MakeConsistent => {
                held = held.map(O::make_consistent);
                // SAFETY: a valid mutex that is leaked; this thread owns it, and its last owner died.
                (unsafe { pthread_mutex_consistent(mutex) }, 0)
            }
            Step::Die => {
                std::mem::forget(held);
                report.send((0, 0)).unwrap();
                return;
            }
        };
        report.send(codes).unwrap();
    }
}

/// The owners of both mutexes, and whether they are to be made consistent.
#[derive(Clone, Copy)]
struct Owner {
    thread: usize,
    dead_before: bool,
}

/// Runs a script of so many steps at most, made from `seed`; it ends when the mutexes are lost for ever.
/// False where libc has no such mutex.
pub fn agree<O: Ours>(ours: &'static O, kind: Kind, steps: u64, seed: u64) -> bool {
    let Some(theirs) = Theirs::leaked(kind) else { return false };
    let mut random = seed | 1;
    let mut workers: Vec<Worker> = (0..THREADS).map(|_| Worker::start(ours, theirs)).collect();
    let mut owner: Option<Owner> = None;
    let mut lost = 0;
    for number in 0..steps {
        let thread = next(&mut random) as usize % THREADS;
        let chance = next(&mut random) % 100;
        let step = match owner.filter(|owner| owner.thread == thread) {
            Some(_) if kind.robust && chance < 15 => Step::Die,
            Some(owner) if owner.dead_before && chance < 75 => Step::MakeConsistent,
            Some(_) if chance < 70 => Step::Unlock,
            Some(_) if chance < 80 => Step::Relock,
            _ if chance < 90 => Step::TryLock,
            _ => Step::LockForAMoment,
        };
        let (theirs_said, ours_said) = workers[thread].take(step);
        let theirs_said = match (step, theirs_said) {
            // Trying what the caller owns: in glibc that depends on the kind of mutex.
            (Step::TryLock, libc::EDEADLK) => libc::EBUSY,
            (_, code) => code,
        };
        assert_eq!(
            theirs_said, ours_said,
            "step {number}, {step:?} of a script from {seed}: theirs, ours"
        );
        owner = match (step, ours_said) {
            (Step::Die, _) => {
                let fresh = Worker::start(ours, theirs);
                let dead = std::mem::replace(&mut workers[thread], fresh);
                dead.thread.join().unwrap();
                None
            }
            (Step::Unlock, _) => None,
            (Step::MakeConsistent, _) => Some(Owner { thread, dead_before: false }),
            (_, 0) => Some(Owner { thread, dead_before: false }),
            (_, libc::EOWNERDEAD) => Some(Owner { thread, dead_before: true }),
            _ => owner,
        };
        lost += u64::from(ours_said == libc::ENOTRECOVERABLE);
        if lost == 10 {
            break;
        }
    }
    for Worker { steps, thread, .. } in workers {
        drop(steps);
        thread.join().unwrap();
    }
    true
}
