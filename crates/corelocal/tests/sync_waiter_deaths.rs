//! Processes that are killed while they wait for a lock that others share: these go on, within a second or two.

mod asleep;
mod mapped;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use corelocal::sync::{Barrier, Condvar, Deadline, Mutex, RwLock, Shared};

/// Longer than anybody sleeps without a look, and long enough for a machine that does other things.
const SOON: Duration = Duration::from_secs(20);

/// A process that does this, sleeps, and is killed.
fn killed_while_it_waits(wait: impl FnOnce()) {
    let child = process(wait);
    asleep::until_asleep(child);
    assert_eq!(libc::WTERMSIG(killed(child)), libc::SIGKILL, "it did not wait");
}

/// A process that does this, and ends soon in any case.
fn process(does: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the child waits for locks, and ends.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "no process");
    if child == 0 {
        // SAFETY: the default action of the signal ends it.
        unsafe { libc::alarm(120) };
        does();
        // SAFETY: ends the child.
        unsafe { libc::_exit(1) };
    }
    child
}

/// How this child has ended, now at the latest.
fn killed(child: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: a child of this process that was not waited for yet; writes one number.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, &raw mut status, 0);
    }
    status
}

#[test]
fn a_dead_writer_keeps_no_reader_out() {
    let [lock, theirs] = mapped::twice::<RwLock<u64, Shared>>();
    let reader = lock.read();
    killed_while_it_waits(|| drop(theirs.write()));
    // It closed the lock to readers that come.
    assert!(lock.try_read().is_none());
    drop(reader);
    let began = Instant::now();
    assert!(lock.try_read_for(SOON).is_some());
    assert!(began.elapsed() < SOON);
    // And nothing is left of it.
    assert!(lock.try_read().is_some());
    assert!(lock.try_write().is_some());
}

#[test]
fn a_dead_reader_keeps_no_writer_out() {
    let [lock, theirs] = mapped::twice::<RwLock<u64, Shared>>();
    let writer = lock.write();
    killed_while_it_waits(|| drop(theirs.read()));
    drop(writer);
    *lock.try_write_for(SOON).expect("the lock") += 1;
    assert_eq!(*lock.try_read_for(SOON).expect("the lock"), 1);
}

/// Writers that are overtaken insist; of those that do, any may be killed.
#[test]
fn dead_ones_that_insist_stop_nobody() {
    let [lock, theirs] = mapped::twice::<RwLock<u64, Shared>>();
    for round in 0..20 {
        let guard = lock.write();
        let kinds: [fn(&RwLock<u64, Shared>); 2] =
            [|lock| drop(lock.write()), |lock| drop(lock.read())];
        let child = process(|| {
            loop {
                kinds[round % 2](theirs);
            }
        });
        // It sleeps, is woken, and overtaken.
        let began = Instant::now();
        let mut guard = Some(guard);
        while began.elapsed() < Duration::from_millis(10) {
            drop(guard.take());
            guard = lock.try_write_for(SOON);
            thread::sleep(Duration::from_micros(300));
        }
        // In the midst of it, while it cannot hold the lock.
        killed(child);
        drop(guard.expect("the lock"));
        assert!(lock.try_write_for(SOON).is_some(), "round {round}");
        assert!(lock.try_read_for(SOON).is_some(), "round {round}");
    }
}

/// What a process leaves in the mutex's first word that was woken, and killed before it did anything with that: no unlock
/// wakes another one.
const WAKING: u32 = 1 << 29;

#[test]
fn a_dead_waiter_takes_no_wake_up_of_a_mutex_along() {
    let [mutex, theirs] = mapped::twice::<Mutex<u64, Shared>>();
    // SAFETY: the lock's words come first, and are atomic.
    let words = unsafe { &*std::ptr::from_ref(theirs).cast::<[AtomicU32; 2]>() };
    let held = mutex.lock();
    thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let other = scope.spawn(move || {
            // SAFETY: no preconditions.
            tell.send(unsafe { libc::gettid() }).unwrap();
            mutex.try_lock_for(SOON).map(|mut number| *number += 1)
        });
        let number = told.recv().unwrap();
        // Until it looks as seldom as it ever does.
        thread::sleep(Duration::from_millis(1200));
        asleep::until_asleep(number);
        words[0].fetch_or(WAKING, Ordering::Relaxed);
        drop(held);
        let began = Instant::now();
        assert!(other.join().unwrap().is_some());
        // Not at its deadline only.
        assert!(began.elapsed() < SOON / 2);
    });
    assert_eq!(*mutex.lock(), 1);
}

#[test]
fn all_are_woken_though_the_first_one_died() {
    let [pair, theirs] = mapped::twice::<(Mutex<bool, Shared>, Condvar<Shared>)>();
    let others = thread::scope(|scope| {
        killed_while_it_waits(|| theirs.1.wait_while(&mut theirs.0.lock(), |ready| !**ready));
        let others: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut ready = pair.0.lock();
                    pair.1.wait_while_until(&mut ready, Deadline::after(SOON), |ready| !**ready)
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(20));
        *pair.0.lock() = true;
        pair.1.notify_all();
        others.into_iter().map(|other| other.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(others.iter().all(|result| !result.timed_out()), "{others:?}");
}

/// What the last one to come at a barrier leaves that is killed between its two changes: the first word is in the next
/// round, and the second one does not say so.
fn killed_as_it_leads(barrier: &Barrier<Shared>, waiters: u64) -> bool {
    // SAFETY: the barrier's first word, which is atomic.
    let state = unsafe { &*std::ptr::from_ref(barrier).cast::<AtomicU64>() };
    let rounds = state.load(Ordering::Relaxed) >> 32;
    let (all_but_one, next) = ((rounds << 32) + waiters, (rounds + 1) << 32);
    state.compare_exchange(all_but_one, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

#[test]
fn a_dead_leader_stops_nobody_at_a_barrier() {
    // Threads may wait there for good, if this fails.
    static BARRIER: Barrier<Shared> = Barrier::with_scope(3);
    let barrier = &BARRIER;
    for round in 0..2 {
        // All of them wait for longer than a second, one of them as long as it takes.
        let (tell, told) = std::sync::mpsc::channel();
        let began = Instant::now();
        for span in [None, Some(SOON)] {
            let tell = tell.clone();
            thread::spawn(move || {
                let result = match span {
                    None => Some(barrier.wait()),
                    Some(span) => barrier.wait_for(span),
                };
                tell.send(result.map(|result| result.is_leader())).unwrap();
            });
        }
        while !killed_as_it_leads(barrier, 2) {
            assert!(began.elapsed() < SOON, "they do not come");
            thread::yield_now();
        }
        for _ in 0..2 {
            assert_eq!(told.recv_timeout(SOON / 2), Ok(Some(false)), "round {round}");
        }
        meets(barrier, 3);
    }
}

/// At its deadline a waiter sees that its round is over, and does not wait for the thread that should have said so.
#[test]
fn a_dead_leader_delays_nobody_beyond_the_deadline() {
    static BARRIER: Barrier<Shared> = Barrier::with_scope(2);
    let barrier = &BARRIER;
    // On a machine that does other things it may give up too early.
    let gone_on = (0..100).any(|_| {
        let (tell, told) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let result = barrier.wait_for(Duration::from_millis(100));
            tell.send(result.map(|result| result.is_leader())).unwrap();
        });
        loop {
            if killed_as_it_leads(barrier, 1) {
                assert_eq!(told.recv_timeout(SOON), Ok(Some(false)));
                return true;
            }
            match told.try_recv() {
                Ok(result) => {
                    assert_eq!(result, None);
                    return false;
                }
                Err(_) => thread::yield_now(),
            }
        }
    });
    assert!(gone_on, "it always gave up");
    meets(barrier, 2);
}

/// So many threads meet there, and again, with one leader each time.
fn meets(barrier: &Barrier<Shared>, threads: usize) {
    for _ in 0..2 {
        let leaders = thread::scope(|scope| {
            let all: Vec<_> = (0..threads)
                .map(|_| scope.spawn(|| barrier.wait_for(SOON).expect("they meet").is_leader()))
                .collect();
            all.into_iter().map(|one| usize::from(one.join().unwrap())).sum::<usize>()
        });
        assert_eq!(leaders, 1);
    }
}
