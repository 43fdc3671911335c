//! What is done about idle memory: a thread gives it back where the process has several, else cold paths do.
//!
//! A thread changes the process that it is in: libc's `fork` takes a lock that a signal handler may have interrupted,
//! `unshare(2)` refuses new user namespaces. So a process of one thread gets no other unless its environment asks for
//! it (`background:yes`): there memory goes back by steps, from `malloc` and `free` themselves
//! (`alloc::release_by_time`). A process that has several threads anyway gets one more (`background.rs`), as soon as it
//! has used so much memory that it is worth it. Two must agree that there are several: libc, whose locks count, and
//! the kernel, since libc goes on to lock when the others have ended.
//!
//! The thread is made by an allocation: `free` may be called where libc holds locks that making a thread takes.
//!
//! A child of a process that had the thread has none: it may want to be of one thread, and most go on to another
//! program. `background:children` is for workers that stay. What a parent forks before it is worth a thread, as a
//! daemon does, is a process like others.
//!
//! # Invariants
//! - One such thread at a time, in each process: a word that fork wipes says that it is there.
//! - `errno` stays.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, Ordering};

use corelocal::alloc::{self, Moment};
use corelocal::sys::{WipeOnFork, in_vfork_child, without_libc};

use super::background;
use super::options::{Background, Options};

/// Bytes in use that are worth being given back.
const WORTH: usize = 32 << 20;
/// Calls of the hook after which a forked child has a thread, if it may: most only go on to another program.
const CHILDS_CALLS: u32 = 64;
/// Seconds until a thread that could not be made is tried again, at most; at first it is one.
const LONGEST_PAUSE: i64 = 64;

/// What a process knows of its thread. All bytes 0: none.
struct Thread {
    state: AtomicU32,
    /// Seconds of the clock before which it is not tried.
    not_before: AtomicI64,
    /// How often it was refused.
    refusals: AtomicU32,
    /// Calls of the hook in a forked child.
    calls: AtomicU32,
}

const NONE: u32 = 0;
/// It is being made, or is there.
const THERE: u32 = 1;

// SAFETY: numbers; 0 of each is what a process without the thread has.
static THREAD: WipeOnFork<Thread> = unsafe { WipeOnFork::new() };
/// Whether this process, or one that it is a child of, had the thread.
static HAD_ONE: AtomicBool = AtomicBool::new(false);
/// libc's byte that is 0 when it locks as for several threads; null where it has none (glibc before 2.32, musl).
static IS_SINGLE: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());

const R: Ordering = Ordering::Relaxed;

/// Asks to be called from cold paths when the program has grown.
pub(crate) fn at_load() {
    // Asked first by a process that shares no other's memory, it recognises those that do.
    in_vfork_child();
    background::at_load();
    // SAFETY: a C string.
    let byte = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
    IS_SINGLE.store(byte.cast(), R);
    alloc::set_cold_hook(WORTH, at_cold_path);
}

fn at_cold_path(moment: Moment) {
    // No memory for it, or fork wipes nothing: then there is never a thread.
    let thread = THREAD.get();
    if thread.is_some_and(|thread| thread.state.load(R) == THERE) {
        return;
    }
    if let Some(thread) = thread.filter(|_| moment == Moment::Taken) {
        // SAFETY: the thread's own `errno`.
        let errno = unsafe { *libc::__errno_location() };
        let is_there = look(thread);
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
        if is_there {
            return;
        }
        // Where nobody else is there to close what a look opens.
        if is_single() {
            alloc::watch_pressure();
        }
    }
    alloc::release_by_time();
}

/// Makes the thread, if it is time and the process is to have it; whether it is there.
fn look(thread: &Thread) -> bool {
    let background = Options::get().background();
    let may = match background {
        Background::No => false,
        _ if HAD_ONE.load(R) => {
            background == Background::Children && thread.calls.fetch_add(1, R) >= CHILDS_CALLS
        }
        Background::Several => !is_single(),
        Background::Yes | Background::Children => true,
    };
    if !may {
        return false;
    }
    let (now, not_before) = (background::now(), thread.not_before.load(R));
    // Relaxed: the one that moves the word on looks. A child of vfork has its parent's memory, and takes its threads
    // along when it goes.
    if now < not_before
        || thread.not_before.compare_exchange(not_before, now + 1, R, R).is_err()
        || background == Background::Several && threads().is_none_or(|threads| threads == 1)
        || in_vfork_child()
        || thread.state.swap(THERE, R) == THERE
    {
        return false;
    }
    if background::make() {
        HAD_ONE.store(true, R);
        return true;
    }
    // Limits change, and memory comes back.
    let refusals = thread.refusals.fetch_add(1, R).min(LONGEST_PAUSE.ilog2());
    thread.not_before.store(now + (1 << refusals), R);
    thread.state.store(NONE, R);
    false
}

/// Whether libc says that it need not lock as for several threads. Threads of the kernel in the process (io_uring)
/// are no reason for it to. False where libc does not say.
fn is_single() -> bool {
    let byte = IS_SINGLE.load(R);
    // SAFETY: libc's, for as long as the process lives; threads that start others write to it.
    !byte.is_null() && unsafe { byte.read_volatile() } != 0
}

/// How many threads the kernel counts; `None` without /proc.
fn threads() -> Option<usize> {
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    let path = c"/proc/self/task".as_ptr() as usize;
    let args = [libc::AT_FDCWD as usize, path, stat.as_mut_ptr() as usize, 0, 0, 0];
    // SAFETY: a C string, and a place for the result.
    unsafe { without_libc::syscall(libc::SYS_newfstatat, args) }.ok()?;
    // A link for each thread's folder, besides the two that every folder has.
    // SAFETY: all bytes 0 is a `stat`, and the call has filled it.
    Some((unsafe { stat.assume_init() }.st_nlink as usize).saturating_sub(2))
}
