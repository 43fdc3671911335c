//! The background thread: gives idle memory back to the kernel, and makes huge pages of densely used memory.
//!
//! It sleeps while nothing is idle. A huge page is a copy; for memory shared with a forked child it would be an
//! additional copy. So the parent makes none for a minute after a fork, and a child none in the first minute of its
//! thread.
//!
//! # Invariants
//! - The thread blocks all signals, so no handler of the program runs on it, and its stack is small.
//! - It never has a real-time policy: it may use a cpu for milliseconds, while the locks that it takes are held for
//!   tens of nanoseconds each.
//! - It has a descriptor table of its own, or opens files only when it starts.
//! - It may run on all cpus that the process could use at its start, not only where the thread that created it is
//!   pinned.

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

use crate::alloc::page_heap::huge::use_huge_pages;
use crate::alloc::page_heap::pressure::watch_pressure;
use crate::alloc::{config, release_idle, wait_for_idle};
use crate::sys::kernel_clock::nanoseconds;
use crate::sys::process_id;

const PERIOD: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 500_000_000 };
/// Periods without anything to give back after which the thread sleeps until there is something.
const PATIENCE: u32 = 4;
const STACK: usize = 256 << 10;
/// Periods between attempts to make huge pages: memory that is dense for less time is not worth a copy.
const HUGE_PERIODS: u32 = 4;
/// Seconds after a fork without huge pages. Most children have ended by then, and one that stays has written to the
/// pages that it would share.
const CHILDS_TIME: i64 = 60;

/// Starts the thread; false if libc or the kernel refuses. `errno` may change.
pub(super) fn make() -> bool {
    let mut thread = MaybeUninit::uninit();
    let mut attributes = MaybeUninit::uninit();
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: places for results, initialised in this order; the function is never unloaded.
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
    // SAFETY: a C string; affects the calling thread.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"corelocal-idle".as_ptr()) };
    leave_real_time();
    Cpus::leave_pin();
    let has_own_files = has_own_files();
    let huge_pages = config::makes_huge_pages() && look_at_forks();
    let mut quiet = 0;
    let mut not_before = if is_child() { now() + CHILDS_TIME } else { 0 };
    let (mut made, mut periods) = (false, 0u32);
    loop {
        // SAFETY: a valid time.
        unsafe { libc::nanosleep(&PERIOD, null_mut()) };
        if has_own_files {
            watch_pressure();
        }
        let released = release_idle();
        // Relaxed: a fork that is seen late is seen in the next period.
        if FORKED.swap(false, Ordering::Relaxed) {
            not_before = now() + CHILDS_TIME;
        }
        periods = periods.wrapping_add(1);
        if periods % HUGE_PERIODS == 0 {
            made = huge_pages && now() >= not_before && use_huge_pages();
        }
        let is_quiet = released == 0 && !made;
        quiet = if is_quiet { quiet + 1 } else { 0 };
        if quiet >= PATIENCE {
            // Returns at once if something is idle.
            wait_for_idle();
            quiet = 0;
        }
    }
}

/// The process that began.
static BEGAN_IN: AtomicU32 = AtomicU32::new(0);

/// Records what the thread needs to know of the process's start.
pub(super) fn at_start() {
    BEGAN_IN.store(process_id(), Ordering::Relaxed);
    Cpus::remember();
}

/// Returns `true` if this process was forked after that.
fn is_child() -> bool {
    BEGAN_IN.load(Ordering::Relaxed) != process_id()
}

/// Whether there was a fork since the thread's last check.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Registers a fork handler for the thread, which must not hold any lock that libc needs for it; false if that fails.
fn look_at_forks() -> bool {
    extern "C" fn after_fork() {
        FORKED.store(true, Ordering::Relaxed);
    }
    static LOOKS: AtomicBool = AtomicBool::new(false);
    // Relaxed: one thread at a time. A child forked in between registers twice.
    if !LOOKS.load(Ordering::Relaxed) {
        // SAFETY: an async-signal-safe function that is never unloaded.
        if unsafe { libc::pthread_atfork(None, Some(after_fork), None) } != 0 {
            return false;
        }
        LOOKS.store(true, Ordering::Relaxed);
    }
    true
}

/// Gives up a real-time policy that was inherited from the creating thread.
fn leave_real_time() {
    const RESET_ON_FORK: libc::c_int = 0x4000_0000;
    /// `struct sched_param` of the kernel.
    const PRIORITY: libc::c_int = 0;
    // The kernel's calls, as musl's functions of these names fail. SAFETY: reads the calling thread's policy and sets a
    // valid one. If the kernel refuses, it stays.
    unsafe {
        let policy = libc::syscall(libc::SYS_sched_getscheduler, 0) as libc::c_int & !RESET_ON_FORK;
        if matches!(policy, libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE) {
            libc::syscall(
                libc::SYS_sched_setscheduler,
                0,
                libc::SCHED_OTHER,
                &PRIORITY as *const libc::c_int,
            );
        }
    }
}

/// Gives the calling thread an empty descriptor table of its own; false before Linux 5.9. A program that closes
/// unknown descriptors then cannot close the thread's, nor confuse them with its own. Standard error is closed as
/// well: otherwise the thread would keep the end of a pipe open that the program has closed, and its reader would
/// wait. Reports of faults still go to the process's standard error.
fn has_own_files() -> bool {
    const CLOSE_RANGE_UNSHARE: libc::c_uint = 2;
    let (first, last) = (0 as libc::c_uint, libc::c_uint::MAX);
    // SAFETY: closes descriptors in a copy of the table that belongs to the calling thread alone.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, CLOSE_RANGE_UNSHARE) == 0 }
}

/// A cpu set in the kernel's format: that of the process's first thread at the start.
struct Cpus {
    /// Its length in bytes; 0 if it is not known.
    len: AtomicI64,
    words: [AtomicU64; CPU_WORDS],
}

/// Enough for the kernel's maximum of 8192 cpus.
const CPU_WORDS: usize = 128;
static CPUS: Cpus =
    Cpus { len: AtomicI64::new(0), words: [const { AtomicU64::new(0) }; CPU_WORDS] };

impl Cpus {
    /// Records where the process may run. No thread has pinned its first thread yet.
    fn remember() {
        let mut words = [0; CPU_WORDS];
        let len = Cpus::ask(process_id() as libc::pid_t, &mut words);
        CPUS.words.iter().zip(words).for_each(|(word, bits)| word.store(bits, Ordering::Relaxed));
        CPUS.len.store(len, Ordering::Relaxed);
    }

    /// Undoes the pinning that the calling thread inherited. Restrictions that an administrator has set since remain.
    fn leave_pin() {
        let mut mine = [0; CPU_WORDS];
        let len = CPUS.len.load(Ordering::Relaxed);
        let all: [u64; CPU_WORDS] =
            core::array::from_fn(|nth| CPUS.words[nth].load(Ordering::Relaxed));
        if len > 0 && Cpus::ask(0, &mut mine) == len && mine != all {
            // SAFETY: the kernel reads `len` bytes of the words. If it refuses, the thread stays pinned.
            unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, len, all.as_ptr()) };
        }
    }

    /// Reads the cpu set of a thread; returns its length in bytes, 0 if the kernel refuses.
    fn ask(thread: libc::pid_t, words: &mut [u64; CPU_WORDS]) -> i64 {
        let len = size_of_val(words);
        // SAFETY: the kernel writes to the words only.
        let written =
            unsafe { libc::syscall(libc::SYS_sched_getaffinity, thread, len, words.as_mut_ptr()) };
        written.max(0) as i64
    }
}

/// Returns the seconds of the monotonic clock.
pub(super) fn now() -> i64 {
    (nanoseconds(libc::CLOCK_MONOTONIC_COARSE) / 1_000_000_000) as i64
}
