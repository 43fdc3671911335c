//! The thread that gives back to the kernel what is idle, and makes huge pages of what is dense.
//!
//! It begins when a program has used so much memory that it is worth a thread, from an allocation: `free` may
//! be called where libc holds locks that making a thread takes. It sleeps while nothing is idle.
//!
//! A child of a process that had the thread has none: it may want to be of one thread, and most go on to another
//! program. `background:children` is for workers that stay. What a parent forks before it is worth a thread, as a
//! daemon does, is a process like others.
//!
//! A huge page is a copy: of memory that a forked child shares it would be a second one. So for a minute after a
//! fork none are made.
//!
//! Invariants:
//! - One thread at a time, in each process: a word that fork wipes counts up to it once.
//! - It blocks all signals, so no handler of the program runs on it, and has a small stack.

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use corelocal::alloc;
use corelocal::sys::{WipedByFork, in_vfork_child};

use super::options::Options;

/// Bytes in use that are worth a thread.
const WORTH: usize = 32 << 20;
const PERIOD: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 500_000_000 };
/// Periods without anything to give after which it sleeps until there is something.
const PATIENCE: u32 = 4;
const STACK: usize = 256 << 10;
/// Periods from one time that huge pages are made to the next: what is dense for less is not worth the copy.
const HUGE_PERIODS: u32 = 4;
/// Seconds after a fork in which no huge pages are made: most children are gone by then.
const CHILDS_TIME: libc::time_t = 60;
/// Calls of the hook after which a forked child has a thread, if it may: most only go on to another program.
const CHILDS_CALLS: u32 = 64;

/// Asks to be told when the program has grown.
pub(crate) fn at_load() {
    if Options::get().background() {
        // Asked first by a process that is nobody's guest, it knows those that are.
        in_vfork_child();
        alloc::set_growth_hook(WORTH, begin);
    }
}

/// Makes the thread, if there is none. `errno` stays.
fn begin() {
    /// Whether this process, or one that it is a child of, had the thread.
    static HAD_ONE: AtomicBool = AtomicBool::new(false);
    /// How often the hook was called in this process.
    // SAFETY: 0 is a count.
    static CALLS: WipedByFork<AtomicU32> = unsafe { WipedByFork::new() };
    // SAFETY: the thread's own `errno`.
    let errno = unsafe { *libc::__errno_location() };
    match CALLS.get() {
        Some(calls) => {
            let is_child = HAD_ONE.load(Ordering::Relaxed);
            let wanted = if is_child { CHILDS_CALLS } else { 1 };
            let may = !is_child || Options::get().background_in_children();
            // Relaxed: a count, and who comes to the one number makes the thread.
            let known = calls.load(Ordering::Relaxed);
            // A child of vfork has its parent's memory, and takes its threads along when it goes.
            if may
                && known <= CHILDS_CALLS
                && !in_vfork_child()
                && calls.fetch_add(1, Ordering::Relaxed) + 1 == wanted
            {
                HAD_ONE.store(true, Ordering::Relaxed);
                calls.store(CHILDS_CALLS + 1, Ordering::Relaxed);
                make();
            }
        }
        // No memory, or fork wipes nothing: never again.
        None => alloc::set_growth_hook(usize::MAX, begin),
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// What fails here leaves the program without the thread.
fn make() {
    let mut thread = MaybeUninit::uninit();
    let mut attributes = MaybeUninit::uninit();
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: places for what is told, initialised in this order; the function lives as long as the program.
    unsafe {
        if libc::pthread_attr_init(attributes.as_mut_ptr()) != 0 {
            return;
        }
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK);
        libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), run, null_mut());
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), null_mut());
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
    }
}

extern "C" fn run(_: *mut c_void) -> *mut c_void {
    // SAFETY: a C string, for the calling thread.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"corelocal-idle".as_ptr()) };
    let huge_pages = Options::get().huge_pages() && look_at_forks();
    let (mut quiet, mut not_before) = (0, 0);
    let (mut made, mut periods) = (false, 0u32);
    loop {
        // SAFETY: a time to sleep.
        unsafe { libc::nanosleep(&PERIOD, null_mut()) };
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

/// Seconds of a clock that nobody sets.
fn now() -> libc::time_t {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to the one struct.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut time) };
    time.tv_sec
}
