//! Threads that count, or do something else, while they are signalled and thrown from cpu to cpu.

#[allow(dead_code, reason = "the tests of containers of items use it")]
pub mod tokens;

#[path = "../../src/scaled.rs"]
mod scaled;

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Barrier, OnceLock};
use std::thread;

use corelocal::percpu::Counter;
#[allow(unused_imports, reason = "each test binary uses some of them")]
pub use scaled::scaled;

/// What `rage` counts with, the signal handler too.
pub static COUNTER: Counter = Counter::new();
/// What threads and signal handlers do: one thing in a test binary.
static ACT: OnceLock<fn()> = OnceLock::new();
/// How often the signal handlers have done it.
static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn handler(_: i32) {
    if let Some(act) = ACT.get() {
        act();
        HANDLED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Tells the others to end when this one does, by a panic too: a scope that panics waits for its threads.
#[allow(dead_code, reason = "each test binary uses some of them")]
pub struct Tell<'a>(pub &'a AtomicBool);

impl Drop for Tell<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Lets `threads` threads add 1 `each` times, under random signals and changes of affinity.
/// Returns what was added: the value of `COUNTER`, if nothing was lost.
#[allow(dead_code, reason = "each test binary uses some of them")]
pub fn rage(threads: usize, each: u64) -> i64 {
    rage_doing(threads, each, || COUNTER.add(1)) as i64
}

/// Lets `threads` threads do `act` `each` times, and signal handlers too, under changes of affinity.
/// Returns how often it was done. `act` is async-signal-safe, and the same in all of a test binary.
pub fn rage_doing(threads: usize, each: u64, act: fn()) -> u64 {
    ACT.get_or_init(|| {
        // SAFETY: the handler makes no call but `act` and atomic operations, all async-signal-safe.
        let old =
            unsafe { libc::signal(libc::SIGUSR1, handler as *const () as libc::sighandler_t) };
        assert_ne!(old, libc::SIG_ERR);
        act
    });
    let before = HANDLED.load(Ordering::Relaxed);
    let start = Barrier::new(threads + 1);
    let done = AtomicBool::new(false);
    let ids: Vec<AtomicI32> = (0..threads).map(|_| AtomicI32::new(0)).collect();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|i| {
                let (start, id) = (&start, &ids[i]);
                scope.spawn(move || {
                    // SAFETY: no arguments.
                    id.store(unsafe { libc::gettid() }, Ordering::Relaxed);
                    start.wait();
                    (0..each).for_each(|_| act());
                })
            })
            .collect();
        start.wait();
        let done = &done;
        let ids = &ids;
        let tormentor = scope.spawn(move || torment(ids, done));
        while !workers.iter().all(|worker| worker.is_finished()) {
            thread::sleep(std::time::Duration::from_millis(1));
        }
        done.store(true, Ordering::Relaxed);
        tormentor.join().unwrap();
        // The scope waits for closures only. A last signal may reach a thread that is still ending.
        for worker in workers {
            worker.join().unwrap();
        }
    });
    threads as u64 * each + HANDLED.load(Ordering::Relaxed) - before
}

/// Signals and moves random threads until told to stop.
fn torment(ids: &[AtomicI32], done: &AtomicBool) {
    let all = allowed();
    let cpus: Vec<usize> = (0..libc::CPU_SETSIZE as usize)
        // SAFETY: the index is below the size of the set.
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &all) })
        .collect();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random as usize
    };
    while !done.load(Ordering::Relaxed) {
        let victim = ids[next() % ids.len()].load(Ordering::Relaxed);
        if next() % 2 == 0 {
            // SAFETY: no addresses; a thread that has ended is ESRCH, and a number that was given
            // to another thread of this process means another victim.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), victim, libc::SIGUSR1) };
        } else {
            let set = match next() % 3 {
                0 => all,
                _ => only(cpus[next() % cpus.len()]),
            };
            // SAFETY: a valid set; a thread that has ended is ESRCH.
            unsafe { libc::sched_setaffinity(victim, size_of_val(&set), &set) };
        }
    }
}

fn allowed() -> libc::cpu_set_t {
    // SAFETY: all-zero bytes are the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: a valid place for the set.
    unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) };
    set
}

fn only(cpu: usize) -> libc::cpu_set_t {
    // SAFETY: all-zero bytes are the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the cpu comes from a set of this size.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    set
}
