//! The mutex among many threads, signals, timeouts that race with unlocks, two mappings of one object, and beside
//! pthread's, which does the same scripts.

mod forked;
mod storm;

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use corelocal::sync::{Deadline, Mutex, MutexGuard, Shared};
use proptest::prelude::*;
use storm::scaled;

/// A value whose two halves agree whenever the lock is free.
#[derive(Default)]
struct Pair(u64, u64);

impl Pair {
    fn step(&mut self) {
        assert_eq!(self.0, self.1, "somebody else was here");
        self.0 += 1;
        std::hint::black_box(&mut self.0);
        self.1 += 1;
    }
}

#[test]
fn thirty_two_threads() {
    let (mutex, each) = (Mutex::new(Pair::default()), scaled(20_000));
    thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| (0..each).for_each(|_| mutex.lock().step()));
        }
    });
    assert_eq!(mutex.into_inner().0, 32 * each);
}

/// The same with every way to lock: a thread that timed out leaves nothing behind that keeps others asleep.
#[test]
fn waiters_that_give_up() {
    let (mutex, taken) = (Mutex::new(Pair::default()), AtomicU64::new(0));
    let each = scaled(5_000);
    thread::scope(|scope| {
        for number in 0..16u32 {
            let (mutex, taken) = (&mutex, &taken);
            scope.spawn(move || {
                for round in 0..each as u32 {
                    let guard = match (number + round) % 4 {
                        0 => Some(mutex.lock()),
                        1 => mutex.try_lock(),
                        2 => mutex.try_lock_for(Duration::from_micros(u64::from(round % 100))),
                        _ => mutex.try_lock_until(Deadline::now()),
                    };
                    if let Some(mut guard) = guard {
                        guard.step();
                        taken.fetch_add(1, Ordering::Relaxed);
                        if round % 16 == 0 {
                            thread::yield_now();
                        }
                        if round % 7 == 0 {
                            MutexGuard::unlock_fairly(guard);
                        }
                    }
                }
            });
        }
    });
    assert_eq!(mutex.lock().0, taken.load(Ordering::Relaxed));
    // Nothing is left of any waiter, but that there were some.
    let [word, queue] = words(&mutex);
    assert_eq!((word, queue & !(1 << 31)), (0, 0));
}

/// The lock's two words, of a mutex that is not in use.
fn words<T>(mutex: &Mutex<T>) -> [u32; 2] {
    // SAFETY: a mutex begins with its lock, two words, which do not change now.
    unsafe { std::ptr::from_ref(mutex).cast::<[u32; 2]>().read() }
}

#[test]
fn signals_do_not_wake_for_good() {
    static MUTEX: Mutex<u64> = Mutex::new(0);
    static SIGNALS: AtomicU64 = AtomicU64::new(0);
    extern "C" fn handler(_: i32) {
        SIGNALS.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the handler is async-signal-safe.
    unsafe { libc::signal(libc::SIGUSR2, handler as *const () as libc::sighandler_t) };
    let held = MUTEX.lock();
    let (tell, told) = channel();
    let waiters: Vec<_> = (0..4)
        .map(|number| {
            let tell: Sender<_> = tell.clone();
            thread::spawn(move || {
                // SAFETY: no preconditions.
                tell.send(unsafe { libc::pthread_self() } as usize).unwrap();
                if number % 2 == 0 {
                    *MUTEX.lock() += 1;
                } else {
                    *MUTEX.try_lock_for(Duration::from_secs(60)).expect("time") += 1;
                }
            })
        })
        .collect();
    let threads: Vec<_> = (0..4).map(|_| told.recv().unwrap()).collect();
    let mut round = 0;
    while round < scaled(400) || SIGNALS.load(Ordering::Relaxed) == 0 {
        // SAFETY: the threads wait for the lock, so they are there.
        unsafe {
            libc::pthread_kill(threads[round as usize % 4] as libc::pthread_t, libc::SIGUSR2)
        };
        thread::sleep(Duration::from_micros(50));
        round += 1;
    }
    assert_eq!(*held, 0);
    drop(held);
    waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    assert_eq!(*MUTEX.lock(), 4);
}

/// The last one to unlock frees the object at once, in its own page, which is then gone: a look at it by the one
/// before would be a fault.
#[test]
fn the_object_goes_right_after_the_unlock() {
    struct Page(*mut Object);
    // SAFETY: what it points to is shared on purpose.
    unsafe impl Send for Page {}
    struct Object {
        mutex: Mutex<u32>,
    }
    let page = 4096;
    for round in 0..scaled(3_000) {
        // SAFETY: fresh memory of a page; all bytes 0 are an unlocked mutex.
        let object = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let at = libc::mmap(std::ptr::null_mut(), page, protection, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            at.cast::<Object>()
        };
        let threads = 2 + (round % 3) as u32;
        let drop_one = move |object: Page| {
            // SAFETY: it is there until all have counted; a raw mutex, for no reference may outlive it.
            let is_last = unsafe {
                let mut count = (*object.0).mutex.lock();
                *count += 1;
                *count == threads
            };
            // The guard is gone, and so may be the object, unless this was the last one.
            if is_last {
                // SAFETY: it is no longer used.
                unsafe { libc::munmap(object.0.cast(), page) };
            }
        };
        let others: Vec<_> = (1..threads)
            .map(|_| {
                let object = Page(object);
                thread::spawn(move || drop_one(object))
            })
            .collect();
        drop_one(Page(object));
        others.into_iter().for_each(|other| other.join().unwrap());
    }
}

/// A counter in shared memory.
type SharedCount = Mutex<u64, Shared>;

/// The same memory at a fresh address.
fn map(file: i32) -> &'static SharedCount {
    // SAFETY: a new mapping of a file with a page in it; all bytes 0 are an unlocked mutex.
    unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let at = libc::mmap(std::ptr::null_mut(), 4096, protection, libc::MAP_SHARED, file, 0);
        assert_ne!(at, libc::MAP_FAILED);
        &*at.cast::<SharedCount>()
    }
}

#[test]
fn two_processes_at_two_addresses() {
    let each = scaled(50_000);
    // SAFETY: a fresh file in memory.
    let file = unsafe { libc::memfd_create(c"mutex".as_ptr(), 0) };
    // SAFETY: the file is ours.
    assert_eq!(unsafe { libc::ftruncate(file, 4096) }, 0);
    let [first, second] = [map(file), map(file)];
    assert!(!std::ptr::eq(first, second));
    let child = forked::fork(|| {
        let third = map(file);
        (0..each).for_each(|_| *third.lock() += 1);
        0
    });
    thread::scope(|scope| {
        scope.spawn(|| (0..each).for_each(|_| *second.lock() += 1));
        (0..each).for_each(|_| *first.lock() += 1);
    });
    child.succeeds();
    assert_eq!(*second.lock(), 3 * each);
    // SAFETY: ours.
    unsafe { libc::close(file) };
}

/// A lock under test, ours or pthread's.
trait Oracle: Default + Sync {
    type Guard<'a>
    where
        Self: 'a;

    fn lock(&self) -> Self::Guard<'_>;
    fn try_lock(&self) -> Option<Self::Guard<'_>>;
    /// Waits a moment.
    fn timed_lock(&self) -> Option<Self::Guard<'_>>;
}

const MOMENT: Duration = Duration::from_millis(1);

impl Oracle for Mutex<()> {
    type Guard<'a> = MutexGuard<'a, ()>;

    fn lock(&self) -> Self::Guard<'_> {
        self.lock()
    }

    fn try_lock(&self) -> Option<Self::Guard<'_>> {
        self.try_lock()
    }

    fn timed_lock(&self) -> Option<Self::Guard<'_>> {
        self.try_lock_for(MOMENT)
    }
}

struct Pthread(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: it is for several threads.
unsafe impl Sync for Pthread {}

impl Default for Pthread {
    fn default() -> Self {
        Pthread(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }
}

struct PthreadGuard<'a>(&'a Pthread);

impl Drop for PthreadGuard<'_> {
    fn drop(&mut self) {
        // SAFETY: locked by this thread.
        assert_eq!(unsafe { libc::pthread_mutex_unlock(self.0.0.get()) }, 0);
    }
}

impl Oracle for Pthread {
    type Guard<'a> = PthreadGuard<'a>;

    fn lock(&self) -> PthreadGuard<'_> {
        // SAFETY: initialised, and not moved while it is used.
        assert_eq!(unsafe { libc::pthread_mutex_lock(self.0.get()) }, 0);
        PthreadGuard(self)
    }

    fn try_lock(&self) -> Option<PthreadGuard<'_>> {
        // SAFETY: the mutex is initialised, and not moved while it is used.
        let result = unsafe { libc::pthread_mutex_trylock(self.0.get()) };
        assert!(result == 0 || result == libc::EBUSY);
        (result == 0).then(|| PthreadGuard(self))
    }

    fn timed_lock(&self) -> Option<PthreadGuard<'_>> {
        let mut until = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `until` is writable.
        unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut until) };
        until.tv_nsec += MOMENT.as_nanos() as i64;
        until.tv_sec += until.tv_nsec / 1_000_000_000;
        until.tv_nsec %= 1_000_000_000;
        // SAFETY: the mutex is initialised, and not moved while it is used; `until` is readable.
        let result = unsafe { libc::pthread_mutex_timedlock(self.0.get(), &raw const until) };
        assert!(result == 0 || result == libc::ETIMEDOUT);
        (result == 0).then(|| PthreadGuard(self))
    }
}

/// What a thread of a script does. One that holds the lock unlocks it instead of locking it again.
#[derive(Clone, Copy, Debug)]
enum Step {
    Lock,
    TryLock,
    TimedLock,
    Unlock,
}

const THREADS: usize = 3;

/// The results of the steps, each for its thread: whether it has the lock. A thread that must wait is not joined
/// until the lock is free again. While it waits the others do not lock, since it is unspecified which thread would be
/// first.
fn outcomes<O: Oracle>(script: &[(usize, Step)]) -> Vec<(usize, bool)> {
    let oracle = O::default();
    let mut outcomes = Vec::new();
    let (mut holder, mut waiting) = (None, None);
    thread::scope(|scope| {
        let (tell, told) = channel();
        let threads: Vec<Sender<Step>> = (0..THREADS)
            .map(|number| {
                let (send, steps) = channel();
                let (oracle, tell) = (&oracle, tell.clone());
                scope.spawn(move || {
                    let mut guard = None;
                    for step in steps {
                        guard = match step {
                            _ if guard.is_some() => None,
                            Step::Lock => Some(oracle.lock()),
                            Step::TryLock => oracle.try_lock(),
                            Step::TimedLock => oracle.timed_lock(),
                            Step::Unlock => None,
                        };
                        tell.send((number, guard.is_some())).unwrap();
                    }
                });
                send
            })
            .collect();
        // So many threads say how they came out, in any order.
        let mut hear = |holder: &mut Option<usize>, threads: usize| {
            let mut news: Vec<(usize, bool)> = told.iter().take(threads).collect();
            news.sort();
            if news.iter().any(|(number, has)| !has && *holder == Some(*number)) {
                *holder = None;
            }
            if let Some((number, _)) = news.iter().find(|(_, has)| *has) {
                *holder = Some(*number);
            }
            outcomes.extend(news);
        };
        for &(number, step) in script {
            if waiting == Some(number) {
                continue;
            }
            let must_wait = matches!(step, Step::Lock) && holder.is_some_and(|it| it != number);
            if must_wait && waiting.is_some() {
                continue;
            }
            threads[number].send(step).unwrap();
            if must_wait {
                waiting = Some(number);
                continue;
            }
            // The holder unlocks, whatever it is told to do, and then the one that waits has it.
            let lets_go = holder == Some(number) && waiting.take().is_some();
            hear(&mut holder, 1 + usize::from(lets_go));
        }
        if waiting.is_some() {
            threads[holder.expect("somebody is waited for")].send(Step::Unlock).unwrap();
            hear(&mut holder, 2);
        }
    });
    outcomes
}

fn a_step() -> impl Strategy<Value = (usize, Step)> {
    let step = prop_oneof![
        Just(Step::Lock),
        Just(Step::TryLock),
        Just(Step::TimedLock),
        Just(Step::Unlock)
    ];
    (0..THREADS, step)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: scaled(200) as u32, ..ProptestConfig::default() })]

    #[test]
    fn as_pthread_does(script in prop::collection::vec(a_step(), 1..24)) {
        prop_assert_eq!(outcomes::<Mutex<()>>(&script), outcomes::<Pthread>(&script));
    }
}
