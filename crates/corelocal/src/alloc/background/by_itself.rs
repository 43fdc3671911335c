//! Memory that goes back by itself: by a background thread in processes that allow one and have several threads,
//! otherwise from cold paths (`by_time.rs`).
//!
//! A library must not start threads in a program that did not ask for one. So a program allows it, by
//! [`CoreLocal::with_background`](crate::alloc::CoreLocal::with_background), or its environment asks for it
//! (`background:yes`). The preloaded library allows it for all.
//!
//! An additional thread changes a process: libc's `fork` then takes a lock that an interrupting signal handler may
//! need, and `unshare(2)` refuses new user namespaces. So a single-threaded process gets none unless its environment
//! asks for it. A process that has several threads anyway gets one more (`thread.rs`), once it has used enough memory
//! to be worth it. Both libc and the kernel must say that there are several threads: libc, because its locks count;
//! the kernel, because libc keeps locking after the other threads have ended.
//!
//! The thread is created by an allocation, not by `free`, which may be called while libc holds locks that creating a
//! thread needs.
//!
//! A forked child of a process with the thread has none: it may depend on being single-threaded, and most children
//! soon execute another program. `background:children` is for workers that stay. A process that forks before it is
//! worth a thread, as a daemon does, is treated like any other.
//!
//! # Invariants
//! - At most one such thread in each process: a word that fork wipes says that it exists.
//! - `errno` does not change.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, Ordering};

use super::by_time::release_by_time;
use super::thread;
use crate::alloc::Moment;
use crate::alloc::config::{self, Background};
use crate::alloc::page_heap::pressure::watch_pressure;
use crate::sys::without_libc::syscall;
use crate::sys::{WipeOnFork, in_vfork_child};

/// Calls of the hook after which a forked child gets a thread, if allowed: most children soon execute another
/// program.
const CHILDS_CALLS: u32 = 64;
/// The longest time in seconds before a failed attempt to create the thread is repeated; the first repetition comes
/// after one second.
const LONGEST_PAUSE: i64 = 64;

/// State of the process's background thread. All bytes 0: there is none.
struct Thread {
    state: AtomicU32,
    /// Time in seconds before which creation is not attempted.
    not_before: AtomicI64,
    /// Number of failed attempts.
    refusals: AtomicU32,
    /// Calls of the hook in a forked child.
    calls: AtomicU32,
}

const NONE: u32 = 0;
/// The thread is being created, or exists.
const THERE: u32 = 1;

// SAFETY: atomics; zero is the state of a process without the thread.
static THREAD: WipeOnFork<Thread> = unsafe { WipeOnFork::new() };
/// Whether this process, or an ancestor, had the thread.
static HAD_ONE: AtomicBool = AtomicBool::new(false);
/// Whether the program allows the thread.
pub(in crate::alloc) static IS_ALLOWED: AtomicBool = AtomicBool::new(false);
/// libc's byte that is 0 while it locks for several threads; null if it has none (glibc before 2.32, musl).
static IS_SINGLE: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());

const R: Ordering = Ordering::Relaxed;

/// Allows a thread that gives idle memory back, watches memory pressure and makes huge pages. It is started by an
/// allocation once there are several threads and 32 MiB have been used.
///
/// For programs that use the functions of this module; others use [`CoreLocal::with_background`], which does the same
/// at the first allocation. To be called early, by a thread that is not pinned to some cpus: the background thread may
/// run where this one may. Further calls do nothing.
///
/// [`CoreLocal::with_background`]: crate::alloc::CoreLocal::with_background
pub fn allow_background() {
    if IS_ALLOWED.load(R) || IS_ALLOWED.swap(true, R) {
        return;
    }
    // This first call comes from a process that does not share its memory, so that later calls recognise those that
    // do.
    in_vfork_child();
    thread::at_start();
    // SAFETY: a C string.
    let byte = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
    IS_SINGLE.store(byte.cast(), R);
}

/// Does what is due at a cold path: the hook of programs that set none.
pub(in crate::alloc) fn at_cold_path(moment: Moment) {
    // If there is no memory for it, or fork cannot wipe, there is never a thread.
    let thread = THREAD.get();
    if thread.is_some_and(|thread| thread.state.load(R) == THERE) {
        return;
    }
    if let Some(thread) = thread.filter(|_| moment == Moment::Taken) {
        // SAFETY: the thread's own `errno`.
        let errno = unsafe { *libc::__errno_location() };
        let is_there = look(thread);
        // SAFETY: the thread's own `errno`.
        unsafe { *libc::__errno_location() = errno };
        if is_there {
            return;
        }
        // Single-threaded: no other thread can close the descriptors that this opens.
        if is_single() {
            watch_pressure();
        }
    }
    release_by_time();
}

/// Creates the thread if it is time and the process should have it; whether it exists.
fn look(thread: &Thread) -> bool {
    let background = config::background();
    let may = match background {
        Background::No => false,
        _ if HAD_ONE.load(R) => {
            background == Background::Children && thread.calls.fetch_add(1, R) >= CHILDS_CALLS
        }
        Background::Several => IS_ALLOWED.load(R) && !is_single(),
        Background::Yes | Background::Children => true,
    };
    if !may {
        return false;
    }
    let (now, not_before) = (thread::now(), thread.not_before.load(R));
    // Relaxed: the thread that advances the word continues. A child of vfork shares its parent's memory, and its
    // threads would end with it.
    if now < not_before
        || thread.not_before.compare_exchange(not_before, now + 1, R, R).is_err()
        || background == Background::Several && threads().is_none_or(|threads| threads == 1)
        || in_vfork_child()
        || thread.state.swap(THERE, R) == THERE
    {
        return false;
    }
    if thread::make() {
        HAD_ONE.store(true, R);
        return true;
    }
    // Limits change, and memory becomes free again.
    let refusals = thread.refusals.fetch_add(1, R).min(LONGEST_PAUSE.ilog2());
    thread.not_before.store(now + (1 << refusals), R);
    thread.state.store(NONE, R);
    false
}

/// Returns `true` if libc says that it need not lock for several threads. Kernel threads in the process (io_uring) do
/// not make it lock. False if libc does not say.
fn is_single() -> bool {
    let byte = IS_SINGLE.load(R);
    // SAFETY: libc's variable, which exists as long as the process; threads that create others write to it.
    !byte.is_null() && unsafe { byte.read_volatile() } != 0
}

/// Returns the number of threads according to the kernel; `None` without /proc.
fn threads() -> Option<usize> {
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    let path = c"/proc/self/task".as_ptr() as usize;
    let args = [libc::AT_FDCWD as usize, path, stat.as_mut_ptr() as usize, 0, 0, 0];
    // SAFETY: a C string, and room for the result.
    unsafe { syscall(libc::SYS_newfstatat, args) }.ok()?;
    // One link for each thread's directory, besides the two of every directory. SAFETY: the call succeeded and has
    // filled the structure.
    Some((unsafe { stat.assume_init() }.st_nlink as usize).saturating_sub(2))
}
