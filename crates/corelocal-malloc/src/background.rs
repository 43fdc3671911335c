//! The thread that gives idle memory back to the kernel, and makes huge pages of what is densely used.
//!
//! It sleeps while nothing is idle. A huge page is a copy: of memory that a forked child shares it would be a second
//! one. So for a minute after a fork none are made by the parent, nor by a child in the minute after its thread began.
//!
//! # Invariants
//! - It blocks all signals, so no handler of the program runs on it, and has a small stack.
//! - It is no real-time thread, whatever made it: it may use a cpu for milliseconds, and the locks that it holds are
//!   held for tens of nanoseconds each.
//! - It has a table of descriptors of its own, or opens nothing but at its beginning.
//! - It runs where the process was let run when the library was loaded, not where the thread that made it is pinned.

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

use corelocal::alloc;
use corelocal::sys::without_libc;

use super::options::Options;

const PERIOD: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 500_000_000 };
/// Periods without anything to give after which it sleeps until there is something.
const PATIENCE: u32 = 4;
const STACK: usize = 256 << 10;
/// Periods from one time that huge pages are made to the next: what is dense for less is not worth the copy.
const HUGE_PERIODS: u32 = 4;
/// Seconds after a fork in which no huge pages are made: most children are gone by then. A child that stays has written
/// by then to what it would otherwise share.
const CHILDS_TIME: libc::time_t = 60;

/// Makes the thread; false if libc or the kernel refuses. `errno` may change.
pub(crate) fn make() -> bool {
    let mut thread = MaybeUninit::uninit();
    let mut attributes = MaybeUninit::uninit();
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: places for results, initialised in this order; the function lives as long as the program.
    unsafe {
        if libc::pthread_attr_init(attributes.as_mut_ptr()) != 0 {
            return false;
        }
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK);
        libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let refused =
            libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), run, null_mut());
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), null_mut());
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        refused == 0
    }
}

extern "C" fn run(_: *mut c_void) -> *mut c_void {
    // SAFETY: a C string, for the calling thread.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"corelocal-idle".as_ptr()) };
    leave_real_time();
    Cpus::leave_pin();
    let has_own_files = has_own_files();
    let huge_pages = Options::get().huge_pages() && look_at_forks();
    let mut quiet = 0;
    let mut not_before = if is_child() { now() + CHILDS_TIME } else { 0 };
    let (mut made, mut periods) = (false, 0u32);
    loop {
        // SAFETY: a time to sleep.
        unsafe { libc::nanosleep(&PERIOD, null_mut()) };
        if has_own_files {
            alloc::watch_pressure();
        }
        let released = alloc::release_idle();
        // Relaxed: a fork that is seen late is seen in the next period.
        if FORKED.swap(false, Ordering::Relaxed) {
            not_before = now() + CHILDS_TIME;
        }
        periods = periods.wrapping_add(1);
        if periods % HUGE_PERIODS == 0 {
            made = huge_pages && now() >= not_before && alloc::use_huge_pages();
        }
        let is_quiet = released == 0 && !made;
        quiet = if is_quiet { quiet + 1 } else { 0 };
        if quiet >= PATIENCE {
            // Not at all, if there is something.
            alloc::wait_for_idle();
            quiet = 0;
        }
    }
}

/// The process that loaded the library.
static LOADED_BY: AtomicU32 = AtomicU32::new(0);

/// Remembers the process that loads the library.
pub(crate) fn at_load() {
    LOADED_BY.store(without_libc::process_id(), Ordering::Relaxed);
    Cpus::remember();
}

/// Whether this process was forked after the library was loaded.
fn is_child() -> bool {
    LOADED_BY.load(Ordering::Relaxed) != without_libc::process_id()
}

/// There was a fork since the thread looked.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Makes forks known to the thread, which holds nothing that libc might need for it; false if that cannot be.
fn look_at_forks() -> bool {
    extern "C" fn after_fork() {
        FORKED.store(true, Ordering::Relaxed);
    }
    static LOOKS: AtomicBool = AtomicBool::new(false);
    // Relaxed: one thread at a time. A child that is forked in between looks twice.
    if !LOOKS.load(Ordering::Relaxed) {
        // SAFETY: a function that may be called anywhere, and stays as long as the library.
        if unsafe { libc::pthread_atfork(None, Some(after_fork), None) } != 0 {
            return false;
        }
        LOOKS.store(true, Ordering::Relaxed);
    }
    true
}

/// Gives up a real-time policy that it has from the thread that made it.
fn leave_real_time() {
    const RESET_ON_FORK: libc::c_int = 0x4000_0000;
    // SAFETY: asks for the calling thread's policy, and sets a valid one. Refused, it stays as it is.
    unsafe {
        let policy = libc::sched_getscheduler(0) & !RESET_ON_FORK;
        if matches!(policy, libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE) {
            libc::sched_setscheduler(
                0,
                libc::SCHED_OTHER,
                &libc::sched_param { sched_priority: 0 },
            );
        }
    }
}

/// Gives the calling thread a table of descriptors of its own, an empty one; false before Linux 5.9. What it opens
/// cannot be closed then by a program that closes what it does not know, nor be taken for one of the program's. Not even
/// standard error stays: the thread would keep the end of a pipe open that the program has closed, whose reader waits. A
/// fault that it finds goes to that of the process all the same.
fn has_own_files() -> bool {
    const CLOSE_RANGE_UNSHARE: libc::c_uint = 2;
    let (first, last) = (0 as libc::c_uint, libc::c_uint::MAX);
    // SAFETY: closes descriptors in a copy of the table, which is the calling thread's alone.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, CLOSE_RANGE_UNSHARE) == 0 }
}

/// A set of cpus as the kernel has it: that of the process's first thread when the library was loaded.
struct Cpus {
    /// Bytes of it; 0 if it is not known.
    len: AtomicI64,
    words: [AtomicU64; CPU_WORDS],
}

/// As many as the kernel may have: 8192 cpus.
const CPU_WORDS: usize = 128;
static CPUS: Cpus =
    Cpus { len: AtomicI64::new(0), words: [const { AtomicU64::new(0) }; CPU_WORDS] };

impl Cpus {
    /// Remembers where the process may run: asked of its first thread, which no other has pinned by then.
    fn remember() {
        let mut words = [0; CPU_WORDS];
        let len = Cpus::ask(without_libc::process_id() as libc::pid_t, &mut words);
        CPUS.words.iter().zip(words).for_each(|(word, bits)| word.store(bits, Ordering::Relaxed));
        CPUS.len.store(len, Ordering::Relaxed);
    }

    /// Lets the calling thread run there, if it may run elsewhere only. What the administrator has forbidden since
    /// stays forbidden.
    fn leave_pin() {
        let mut mine = [0; CPU_WORDS];
        let len = CPUS.len.load(Ordering::Relaxed);
        let all: [u64; CPU_WORDS] =
            core::array::from_fn(|nth| CPUS.words[nth].load(Ordering::Relaxed));
        if len > 0 && Cpus::ask(0, &mut mine) == len && mine != all {
            // SAFETY: the kernel reads so many bytes of the words. Refused, the thread stays where it is.
            unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, len, all.as_ptr()) };
        }
    }

    /// The cpus of a thread; how many bytes, 0 where the kernel does not say.
    fn ask(thread: libc::pid_t, words: &mut [u64; CPU_WORDS]) -> i64 {
        let len = size_of_val(words);
        // SAFETY: the kernel writes to the words alone.
        let written =
            unsafe { libc::syscall(libc::SYS_sched_getaffinity, thread, len, words.as_mut_ptr()) };
        written.max(0) as i64
    }
}

/// Seconds of a clock that nobody sets.
pub(crate) fn now() -> libc::time_t {
    (without_libc::nanoseconds(libc::CLOCK_MONOTONIC_COARSE) / 1_000_000_000) as libc::time_t
}
