//! Processes of one thread and of several, and what gives their idle memory back: a thread of the malloc's, or calls of
//! the program itself.

use std::ffi::CString;
use std::fs;
use std::mem::MaybeUninit;
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::object::Random;

const MIB: usize = 1 << 20;
/// A machine may do other things for long.
const SOON: Duration = Duration::from_secs(60);
/// Seconds until a process that waits for itself is ended.
const PATIENCE: u32 = 280;

/// Large objects of a mebibyte, written to.
fn take(mib: u64) -> Vec<Vec<u8>> {
    (0..mib).map(|_| vec![1; MIB + 1]).collect()
}

/// The malloc's own thread has this name.
const NAME: &str = "corelocal-idle";

/// Returns the ids of the process's threads, and the malloc's own among them.
fn threads() -> Result<(Vec<libc::pid_t>, Option<libc::pid_t>), String> {
    let tasks = fs::read_dir("/proc/self/task").map_err(|why| why.to_string())?;
    let names = tasks.flatten().map(|task| task.file_name().to_string_lossy().into_owned());
    let threads: Vec<libc::pid_t> = names.filter_map(|name| name.parse().ok()).collect();
    let is_own = |thread: &&libc::pid_t| {
        let name = fs::read_to_string(format!("/proc/self/task/{thread}/comm"));
        name.is_ok_and(|name| name.trim_end() == NAME)
    };
    let own = threads.iter().find(is_own).copied();
    Ok((threads, own))
}

/// Says how many threads a process of so many has when it has used so much memory.
pub fn count(threads_before: u64, mib: u64) -> Outcome {
    for _ in 1..threads_before {
        thread::spawn(|| thread::sleep(SOON));
    }
    drop(take(mib));
    // A large one or two more, each a chance for another thread.
    drop(take(2));
    Ok(format!("{} threads", threads()?.0.len()))
}

/// Handlers that fork, interrupting `fork`, in a process of one thread that has used so much memory.
pub fn forks_in_handlers(forks: u64, mib: u64) -> Outcome {
    extern "C" fn handle(_: libc::c_int) {
        // SAFETY: the thread's own `errno`.
        let errno = unsafe { *libc::__errno_location() };
        fork_and_wait();
        // SAFETY: the thread's own `errno`.
        unsafe { *libc::__errno_location() = errno };
    }
    drop(take(mib));
    // SAFETY: a handler that makes calls that are safe in it; one timer, which signals this process.
    let timer = unsafe {
        libc::alarm(PATIENCE);
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = handle as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGUSR1, &action, ptr::null_mut());
        let mut event: libc::sigevent = MaybeUninit::zeroed().assume_init();
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = libc::SIGUSR1;
        let mut timer = ptr::null_mut();
        if libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) != 0 {
            return Err("no timer".to_owned());
        }
        timer
    };
    let mut random = Random::new(3);
    for _ in 0..forks {
        // Once, at some moment of a fork, or soon after it.
        let nanoseconds = 1 + random.below(500_000) as libc::c_long;
        let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let at = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
        let when = libc::itimerspec { it_interval: never, it_value: at };
        // SAFETY: the timer made above.
        unsafe { libc::timer_settime(timer, 0, &when, ptr::null_mut()) };
        fork_and_wait();
    }
    Ok(format!("{forks} forks"))
}

fn fork_and_wait() {
    // SAFETY: the child ends at once, the parent waits for it.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::_exit(0);
        }
        let mut status = 0;
        while child > 0 && libc::waitpid(child, &mut status, 0) < 0 {}
    }
}

/// Takes so much memory in small pieces, gives it back, and goes on with a little: until that much is not resident any
/// more.
pub fn little_work(mib: u64) -> Outcome {
    let pieces = |bytes: usize| {
        let mut random = Random::new(7);
        let (mut pieces, mut taken) = (Vec::new(), 0);
        while taken < bytes {
            let size = 64 + random.below(960) as usize;
            pieces.push(vec![1_u8; size]);
            taken += size;
        }
        pieces
    };
    let before = resident()?;
    drop(pieces(mib as usize * MIB));
    let began = Instant::now();
    while resident()? > before + mib as usize * MIB / 8 {
        if began.elapsed() > SOON {
            return Err(format!("{} MiB are resident", resident()? / MIB));
        }
        drop(pieces(MIB));
        thread::sleep(Duration::from_millis(5));
    }
    Ok(format!("{} threads", threads()?.0.len()))
}

/// Takes so much memory in pieces of `size` bytes, frees two of three, and goes on with pairs of `malloc` and `free` of
/// one piece, which the caches serve: until half of the memory is not resident any more.
pub fn holes(mib: u64, size: u64) -> Outcome {
    let size = size as usize;
    // Opaque, or the compiler leaves pairs out.
    let piece = || std::hint::black_box(vec![1_u8; size]);
    let before = resident()?;
    let pieces: Vec<_> = (0..mib as usize * MIB / size).map(|_| piece()).collect();
    let peak = resident()?;
    let kept: Vec<_> = pieces.into_iter().step_by(3).collect();
    let began = Instant::now();
    while resident()? > before + (peak - before) / 2 {
        if began.elapsed() > SOON {
            return Err(format!("{} of {} MiB are resident", resident()? / MIB, peak / MIB));
        }
        (0..50).for_each(|_| drop(piece()));
        thread::sleep(Duration::from_millis(20));
    }
    Ok(format!("{} pieces stay", kept.len()))
}

/// Frees an object twice, with another one in between, and goes on: until the malloc's own thread notices.
pub fn freed_twice() -> Outcome {
    thread::spawn(|| thread::sleep(2 * SOON));
    let kept = take(64);
    let began = Instant::now();
    while threads()?.1.is_none() {
        if began.elapsed() > SOON {
            return Ok("skipped: the malloc has no thread of its own".to_owned());
        }
        drop(take(2));
        thread::sleep(Duration::from_millis(20));
    }
    // SAFETY: a mistake of which the malloc tells, and after which the process ends.
    unsafe {
        // Opaque, or the compiler leaves them out.
        let [first, second] = [5000, 5000].map(|size| std::hint::black_box(libc::malloc(size)));
        libc::free(first);
        libc::free(second);
        libc::free(first);
    }
    // It has something to do, and comes by.
    drop(kept);
    thread::sleep(SOON);
    Err("nothing was noticed".to_owned())
}

fn resident() -> Result<usize, String> {
    let statm = fs::read_to_string("/proc/self/statm").map_err(|why| why.to_string())?;
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.map(|pages| pages * 4096).ok_or_else(|| format!("statm: {statm}"))
}

/// Returns the cpus that a thread may run on, the first 1024.
fn cpus(thread: libc::pid_t) -> libc::cpu_set_t {
    // SAFETY: a set without cpus, which the kernel fills.
    unsafe {
        let mut set: libc::cpu_set_t = MaybeUninit::zeroed().assume_init();
        libc::sched_getaffinity(thread, size_of_val(&set), &mut set);
        set
    }
}

/// The malloc's thread is made by a real-time thread that is pinned to a cpu, in a process of two threads.
pub fn real_time() -> Outcome {
    let all = cpus(0);
    thread::spawn(|| thread::sleep(2 * SOON));
    // SAFETY: sets of cpus, and a policy, for the calling thread.
    let is_real_time = unsafe {
        let first = (0..1024).find(|cpu| libc::CPU_ISSET(*cpu, &all)).ok_or("no cpu")?;
        let mut one: libc::cpu_set_t = MaybeUninit::zeroed().assume_init();
        libc::CPU_SET(first, &mut one);
        libc::sched_setaffinity(0, size_of_val(&one), &one);
        libc::sched_setscheduler(0, libc::SCHED_FIFO, &libc::sched_param { sched_priority: 1 }) == 0
    };
    if !is_real_time {
        return Ok("skipped: real-time policies are refused (needs root)".to_owned());
    }
    drop(take(64));
    // SAFETY: compares two sets.
    let is_free = |own| unsafe { libc::CPU_EQUAL(&cpus(own), &all) };
    let began = Instant::now();
    loop {
        let own = threads()?.1;
        let policy = own.map(|own| {
            // SAFETY: asks for a number.
            unsafe { libc::sched_getscheduler(own) }
        });
        if own.is_some_and(is_free) && policy == Some(libc::SCHED_OTHER) {
            return Ok("of its own".to_owned());
        }
        if began.elapsed() > SOON {
            return Err(format!("thread {own:?} has the policy {policy:?}, or is pinned"));
        }
        // It has to run for it.
        thread::sleep(Duration::from_millis(20));
    }
}

/// No thread can be made when the malloc first wants one, and later one can.
pub fn refused_thread() -> Outcome {
    // Waits without a call of malloc.
    thread::spawn(|| thread::sleep(2 * SOON));
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the process gives up being root, whom the limit does not bind; it may still look at itself.
    let is_limited = unsafe {
        if libc::getuid() == 0 {
            libc::setuid(65534);
            libc::prctl(libc::PR_SET_DUMPABLE, 1);
        }
        libc::getrlimit(libc::RLIMIT_NPROC, &mut before);
        let none = libc::rlimit { rlim_cur: 0, ..before };
        libc::getuid() != 0 && libc::setrlimit(libc::RLIMIT_NPROC, &none) == 0
    };
    if !is_limited || thread::Builder::new().spawn(|| ()).is_ok() {
        return Ok("skipped: the number of threads cannot be limited".to_owned());
    }
    drop(take(64));
    let at_first = threads()?.1;
    // SAFETY: the limit from before.
    unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &before) };
    let began = Instant::now();
    while threads()?.1.is_none() {
        if began.elapsed() > SOON {
            return Err("it is never tried again".to_owned());
        }
        drop(take(2));
        thread::sleep(Duration::from_millis(20));
    }
    if at_first.is_some() { Err("it was not refused".to_owned()) } else { Ok("later".to_owned()) }
}

/// Uses memory in a process of one thread whose root is a folder in which /proc and /sys are made up.
pub fn in_a_cage(folder: &[String]) -> Outcome {
    let folder = folder.first().ok_or("a folder is missing")?;
    let path = CString::new(folder.as_str()).map_err(|why| why.to_string())?;
    // SAFETY: numbers, and a path that ends with NUL. A process that waits for ever is ended.
    let is_caged = unsafe {
        libc::alarm(PATIENCE);
        let is_caged = || libc::chroot(path.as_ptr()) == 0 && libc::chdir(c"/".as_ptr()) == 0;
        is_caged() || libc::unshare(libc::CLONE_NEWUSER) == 0 && is_caged()
    };
    if !is_caged {
        return Ok("skipped: the root cannot be changed (needs root or user namespaces)".to_owned());
    }
    for _ in 0..20 {
        drop(take(64));
        thread::sleep(Duration::from_millis(5));
    }
    Ok("out again".to_owned())
}

/// Takes so much memory near the limit of a control group, gives it back, and goes on: until it is not resident any more,
/// though a target would keep it.
pub fn near_limit(mib: u64) -> Outcome {
    let before = resident()?;
    drop(take(mib));
    let began = Instant::now();
    while resident()? > before + mib as usize * MIB / 4 {
        if began.elapsed() > SOON {
            return Err(format!("{} MiB are resident", resident()? / MIB));
        }
        drop(take(2));
        thread::sleep(Duration::from_millis(10));
    }
    Ok("gone".to_owned())
}
