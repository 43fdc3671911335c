//! Guards and grace periods: no version is freed that a reader still has, in threads, signal handlers and forked
//! children, with and without critical sections.

mod forked;
mod sandbox;
mod storm;

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use corelocal::rcu::{Domain, Error, Guard};
use sandbox::When;

const SOON: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(20);

#[test]
fn guards_nest_and_end_in_any_order() {
    static DOMAIN: Domain = Domain::new();
    let (first, second) = (DOMAIN.read(), DOMAIN.read());
    let ticket = DOMAIN.start_poll();
    drop(first);
    assert_eq!(ticket.is_complete(), Ok(false));
    // One that begins later does not matter.
    let third = DOMAIN.read();
    drop(second);
    assert_eq!(ticket.is_complete(), Ok(true));
    assert_eq!(ticket.wait(), Ok(()));
    assert_eq!(DOMAIN.synchronize_timeout(SOON), Err(Error::TimedOut));
    drop(third);
    assert_eq!(DOMAIN.synchronize(), Ok(()));
}

#[test]
fn domains_are_independent() {
    static ONE: Domain = Domain::new();
    static OTHER: Domain = Domain::new();
    let guard = ONE.read();
    assert!(std::ptr::eq(guard.domain(), &ONE));
    assert_eq!(OTHER.synchronize(), Ok(()));
    assert_eq!(ONE.synchronize_timeout(SOON), Err(Error::TimedOut));
}

#[test]
fn a_writer_waits_for_a_reader() {
    static DOMAIN: Domain = Domain::new();
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let (begun, has_begun) = mpsc::channel();
    let reader = thread::spawn(move || {
        let guard = DOMAIN.read();
        begun.send(()).unwrap();
        thread::sleep(SOON);
        IS_OVER.store(true, Ordering::Relaxed);
        drop(guard);
    });
    has_begun.recv().unwrap();
    DOMAIN.synchronize().unwrap();
    assert!(IS_OVER.load(Ordering::Relaxed));
    reader.join().unwrap();
}

/// Readers that overlap, so that there is always one.
#[test]
fn a_stream_of_readers_delays_nothing() {
    static DOMAIN: Domain = Domain::new();
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let reader = || {
        let mut guard = DOMAIN.read();
        while !IS_OVER.load(Ordering::Relaxed) {
            let next = DOMAIN.read();
            drop(std::mem::replace(&mut guard, next));
        }
        drop(guard);
    };
    thread::scope(|scope| {
        (0..3).for_each(|_| drop(scope.spawn(reader)));
        let begin = Instant::now();
        for _ in 0..storm::scaled(200) {
            DOMAIN.synchronize_timeout(LONG).unwrap();
        }
        IS_OVER.store(true, Ordering::Relaxed);
        assert!(begin.elapsed() < LONG);
    });
}

/// Objects, of which one is published. One that is free is poisoned, and stays so until all others were used.
struct Objects {
    all: Vec<AtomicU64>,
    published: AtomicUsize,
}

const POISON: u64 = u64::MAX;
const VALID: u64 = 7;

impl Objects {
    fn new() -> Objects {
        let all = (0..1 << 18).map(|_| AtomicU64::new(VALID)).collect();
        Objects { all, published: AtomicUsize::new(0) }
    }

    /// Reads under a guard, for a while. Returns whether the object was free.
    fn read(&self, domain: &'static Domain, long: u64) -> bool {
        let _guard: Guard = domain.read();
        let object = &self.all[self.published.load(Ordering::Acquire)];
        let is_free = (0..=long).any(|_| black_box(object).load(Ordering::Relaxed) == POISON);
        is_free || object.load(Ordering::Relaxed) == POISON
    }

    fn replace(&self, wait: &dyn Fn()) {
        let old = self.published.load(Ordering::Relaxed);
        let new = (old + 1) % self.all.len();
        self.all[new].store(VALID, Ordering::Relaxed);
        self.published.store(new, Ordering::Release);
        wait();
        self.all[old].store(POISON, Ordering::Relaxed);
    }
}

/// Readers beside a writer that waits in this way; how often a reader found a free object.
fn poisoned(domain: &'static Domain, reads: u64, wait: &(dyn Fn() + Sync)) -> u64 {
    let objects = Objects::new();
    let (found, left) = (AtomicU64::new(0), AtomicUsize::new(2));
    thread::scope(|scope| {
        for nth in 0..2 {
            let (objects, found, left) = (&objects, &found, &left);
            scope.spawn(move || {
                for read in 0..reads {
                    let long = if (read + nth) % 64 == 0 { 500 } else { 0 };
                    if objects.read(domain, long) {
                        found.fetch_add(1, Ordering::Relaxed);
                    }
                }
                left.fetch_sub(1, Ordering::Relaxed);
            });
        }
        while left.load(Ordering::Relaxed) > 0 {
            objects.replace(wait);
        }
    });
    found.into_inner()
}

#[test]
fn no_free_object_is_read() {
    static DOMAIN: Domain = Domain::new();
    let wait = || DOMAIN.synchronize().unwrap();
    assert_eq!(poisoned(&DOMAIN, storm::scaled(5_000_000), &wait), 0);
}

/// Beside threads that take slots from ids and give memory back.
#[test]
fn no_free_object_is_read_beside_trims() {
    static DOMAIN: Domain = Domain::new();
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let trims = thread::spawn(|| {
        while !IS_OVER.load(Ordering::Relaxed) {
            let _ = corelocal::percpu::trim();
            if let Ok(frozen) = corelocal::cid::freeze(0) {
                drop(frozen);
            }
        }
    });
    let wait = || DOMAIN.synchronize_timeout(LONG).unwrap();
    assert_eq!(poisoned(&DOMAIN, storm::scaled(200_000), &wait), 0);
    IS_OVER.store(true, Ordering::Relaxed);
    trims.join().unwrap();
    assert_eq!(DOMAIN.synchronize_timeout(LONG), Ok(()));
}

/// Without a grace period the same readers find free objects: the test above could fail.
#[test]
fn without_a_grace_period_free_objects_are_read() {
    static DOMAIN: Domain = Domain::new();
    let test = "without_a_grace_period_free_objects_are_read";
    if thread::available_parallelism().map_or(1, |cpus| cpus.get()) < 2 {
        return sandbox::skip(test, "there is one cpu");
    }
    // Its length is always the same, which is too long where storms are far shorter.
    if storm::scaled(1000) < 100 {
        return sandbox::skip(test, "tests are much shortened, and this one needs its length");
    }
    let ways: [&(dyn Fn() + Sync); 2] = [&|| (), &|| fence(Ordering::SeqCst)];
    for wait in ways {
        let mut found = 0;
        for _ in 0..50 {
            found += poisoned(&DOMAIN, 100_000, wait);
            if found > 0 {
                break;
            }
        }
        assert!(found > 0);
    }
}

static STORM: Domain = Domain::new();
static STORM_OBJECTS: [AtomicU64; 2] = [const { AtomicU64::new(VALID) }; 2];
static STORM_PUBLISHED: AtomicUsize = AtomicUsize::new(0);
static STORM_FOUND: AtomicU64 = AtomicU64::new(0);

/// In threads and in their signal handlers, thrown from cpu to cpu.
#[test]
fn readers_under_signals_and_migrations() {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let writer = thread::spawn(|| {
        // At least one, however late this thread starts.
        loop {
            let old = STORM_PUBLISHED.load(Ordering::Relaxed);
            STORM_OBJECTS[old ^ 1].store(VALID, Ordering::Relaxed);
            STORM_PUBLISHED.store(old ^ 1, Ordering::Release);
            STORM.synchronize_timeout(LONG).expect("a grace period");
            STORM_OBJECTS[old].store(POISON, Ordering::Relaxed);
            if IS_OVER.load(Ordering::Relaxed) {
                break;
            }
        }
    });
    let done = storm::rage_doing(4, storm::scaled(300_000), || {
        let _guard = STORM.read();
        let object = &STORM_OBJECTS[STORM_PUBLISHED.load(Ordering::Acquire)];
        if (0..20).any(|_| black_box(object).load(Ordering::Relaxed) == POISON) {
            STORM_FOUND.fetch_add(1, Ordering::Relaxed);
        }
    });
    IS_OVER.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    assert!(done > 0);
    assert_eq!(STORM_FOUND.load(Ordering::Relaxed), 0);
    assert_eq!(STORM.synchronize_timeout(LONG), Ok(()));
}

/// Threads that end right after a guard, or begin with one.
#[test]
fn threads_that_come_and_go() {
    static DOMAIN: Domain = Domain::new();
    for _ in 0..storm::scaled(2_000) {
        let threads: Vec<_> = (0..4).map(|_| thread::spawn(|| drop(DOMAIN.read()))).collect();
        DOMAIN.synchronize_timeout(LONG).unwrap();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

#[test]
fn callers_at_the_same_time_share_grace_periods() {
    static DOMAIN: Domain = Domain::new();
    let guard = DOMAIN.read();
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..100)
            .map(|_| {
                scope.spawn(|| {
                    let ticket = DOMAIN.start_poll();
                    (format!("{ticket:?}"), DOMAIN.synchronize())
                })
            })
            .collect();
        thread::sleep(SOON);
        drop(guard);
        assert!(waiting.into_iter().all(|thread| thread.join().unwrap().1 == Ok(())));
    });
}

/// Guards of threads that the child does not have.
#[test]
fn a_child_forgets_the_guards_of_other_threads() {
    static DOMAIN: Domain = Domain::new();
    let (begun, has_begun) = mpsc::channel();
    let (end, is_end) = mpsc::channel::<()>();
    let reader = thread::spawn(move || {
        let guard = DOMAIN.read();
        begun.send(()).unwrap();
        let _ = is_end.recv();
        drop(guard);
    });
    has_begun.recv().unwrap();
    forked::judge(|| {
        DOMAIN.synchronize_timeout(LONG) == Ok(()) && {
            let _guard = DOMAIN.read();
            DOMAIN.synchronize_timeout(SOON) == Err(Error::TimedOut)
        }
    })
    .succeeds();
    assert_eq!(DOMAIN.synchronize_timeout(SOON), Err(Error::TimedOut));
    drop(end);
    reader.join().unwrap();
    assert_eq!(DOMAIN.synchronize_timeout(LONG), Ok(()));
}

/// Runs `body` in another thread of a forked child, and returns what it did.
fn in_a_thread(body: fn() -> bool) -> bool {
    extern "C" fn run(body: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: the function that is passed below.
        let body = unsafe { std::mem::transmute::<*mut libc::c_void, fn() -> bool>(body) };
        usize::from(body()) as *mut libc::c_void
    }
    let mut result = std::ptr::null_mut();
    // SAFETY: a thread that is joined; places for results.
    unsafe {
        let mut thread = std::mem::zeroed();
        let body = body as *mut libc::c_void;
        assert_eq!(libc::pthread_create(&mut thread, std::ptr::null(), run, body), 0);
        libc::pthread_join(thread, &mut result);
    }
    !result.is_null()
}

#[test]
fn the_guards_of_the_forking_thread_protect_in_the_child() {
    static DOMAIN: Domain = Domain::new();
    static OTHER: Domain = Domain::new();
    drop(OTHER.read());
    let (first, second) = (DOMAIN.read(), DOMAIN.read());
    let child = forked::fork(|| {
        let waits = || DOMAIN.synchronize_timeout(SOON) == Err(Error::TimedOut);
        if !in_a_thread(waits) {
            return 1;
        }
        // A guard of the child's, too, in between.
        let third = DOMAIN.read();
        drop(first);
        if !in_a_thread(waits) {
            return 2;
        }
        drop(second);
        if !in_a_thread(waits) {
            return 3;
        }
        drop(third);
        let ends = || DOMAIN.synchronize_timeout(LONG) == Ok(());
        if !in_a_thread(ends) || !ends() || OTHER.synchronize_timeout(LONG) != Ok(()) {
            return 4;
        }
        0
    });
    assert_eq!(child.wait(), forked::End::Code(0));
    assert_eq!(DOMAIN.synchronize_timeout(LONG), Ok(()), "the child's copies end nothing here");
}

/// A ticket from before the fork.
#[test]
fn a_ticket_in_a_child() {
    static DOMAIN: Domain = Domain::new();
    let guard = DOMAIN.read();
    let ticket = DOMAIN.start_poll();
    assert_eq!(ticket.is_complete(), Ok(false));
    drop(guard);
    forked::judge(|| {
        let guard = DOMAIN.read();
        let waits = ticket.is_complete() == Ok(false);
        drop(guard);
        waits && ticket.wait() == Ok(()) && ticket.is_complete() == Ok(true)
    })
    .succeeds();
    assert_eq!(ticket.is_complete(), Ok(true));
}

#[test]
fn forks_beside_readers() {
    static DOMAIN: Domain = Domain::new();
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !IS_OVER.load(Ordering::Relaxed) {
                    let (_one, _two) = (DOMAIN.read(), DOMAIN.read());
                }
            });
        }
        for _ in 0..storm::scaled(100) {
            forked::judge(|| (0..20).all(|_| DOMAIN.synchronize_timeout(LONG) == Ok(())))
                .succeeds();
            DOMAIN.synchronize_timeout(LONG).unwrap();
        }
        IS_OVER.store(true, Ordering::Relaxed);
    });
}

#[test]
fn without_rseq() {
    let test = "without_rseq";
    sandbox::run_born_refusing(test, libc::SYS_rseq, When::Always, libc::ENOSYS, || {
        static DOMAIN: Domain = Domain::new();
        let wait = || DOMAIN.synchronize().unwrap();
        assert_eq!(poisoned(&DOMAIN, storm::scaled(300_000), &wait), 0);
        let _guard = DOMAIN.read();
        assert_eq!(DOMAIN.synchronize_timeout(SOON), Err(Error::TimedOut));
    });
}

#[test]
fn without_membarrier() {
    let test = "without_membarrier";
    sandbox::run_refusing(test, libc::SYS_membarrier, When::Always, libc::EPERM, || {
        static DOMAIN: Domain = Domain::new();
        let wait = || DOMAIN.synchronize().unwrap();
        assert_eq!(poisoned(&DOMAIN, storm::scaled(300_000), &wait), 0);
        let _guard = DOMAIN.read();
        assert_eq!(DOMAIN.synchronize_timeout(SOON), Err(Error::TimedOut));
    });
}

#[test]
fn membarrier_refused_later() {
    sandbox::run_in_child(
        "membarrier_refused_later",
        |_| (),
        || {
            static DOMAIN: Domain = Domain::new();
            drop(DOMAIN.read());
            sandbox::refuse(libc::SYS_membarrier, When::Always, libc::EPERM);
            let refused = DOMAIN.synchronize().unwrap_err();
            assert!(matches!(refused, Error::Refused(_)), "{refused}");
            assert!(refused.to_string().contains("seccomp"));
        },
    );
}
