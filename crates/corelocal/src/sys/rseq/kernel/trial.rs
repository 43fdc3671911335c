//! A trial: whether the kernel aborts a section whose thread was preempted and goes on on the same cpu.
//!
//! Two child processes on one cpu: one spins in a section, in which it reads a word again and again; the other one
//! changes the word now and then. The first one can see a change only if it was preempted in between, so a kernel that
//! lets it go on in the section is broken, and one that aborts it is sound.
//!
//! ```text
//!   parent ── clone ──► spinner: one cpu, a section that reads the word   ──► exits with what it found
//!                          └── clone ──► writer: sleeps, adds 1, sleeps …  ──► is killed
//! ```
//!
//! # Invariants
//! 1. Processes and not threads: each has its own memory but for the word, so this process keeps its cpus, its
//!    handlers and its registration. They run nothing of the program's: no handler, since all signals are blocked, and
//!    nothing that libc does at a fork or at an exit. Their end raises no SIGCHLD, and only a `wait` for such children
//!    finds them.
//! 2. It ends: after [`LONGEST`], as undecided, if neither happened.
//! 3. A thread on one cpu has the same ids all the time, and no signals: it is aborted after a preemption, or not at
//!    all.

use core::ptr::{null_mut, with_exposed_provenance_mut};

use crate::primitive::global::{AtomicU64, Ordering};
use crate::sys::arch;
use crate::sys::kernel_clock;
use crate::sys::memory::page_size::page_size;
use crate::sys::syscall::syscall;

/// The sections that must be aborted.
const ENOUGH: u32 = 3;
/// The longest time of a trial, in nanoseconds: several timer ticks of the slowest kernels.
const LONGEST: u64 = 100_000_000;
/// The time that the writer sleeps, in nanoseconds.
const PAUSE: i64 = 200_000;
/// The times that the spinner reads the word in one section: a millisecond or less.
const ROUNDS: u64 = 1 << 16;
/// The bytes of a set of cpus.
const CPUS: usize = 1024;

/// What the spinner exits with.
const SOUND: usize = 20;
const BROKEN: usize = 21;
const UNDECIDED: usize = 22;

/// Returns whether preempted sections are aborted; `None` if it was not possible to find out. `area` is the offset of
/// a thread's registered area from the thread pointer, once `register` has returned `true`; `armed` is that of the one
/// in which sections are announced, for tests another one.
///
/// Some milliseconds. Async-signal-safe.
pub(super) fn aborts(area: isize, armed: isize, register: impl Fn() -> bool) -> Option<bool> {
    let args = [
        0,
        page_size(),
        (libc::PROT_READ | libc::PROT_WRITE) as usize,
        (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as usize,
        usize::MAX,
        0,
    ];
    // SAFETY: a new mapping, where the kernel likes.
    let page = unsafe { syscall(libc::SYS_mmap, args) }.ok()?;
    // SAFETY: the beginning of that page, which stays until all is over; zero is a value.
    let word = unsafe { &*with_exposed_provenance_mut::<AtomicU64>(page) };
    let before = with_signals_blocked(|| {
        let spinner = child(|| spin(area, armed, word, &register));
        spinner.and_then(wait)
    });
    // SAFETY: nothing of this process's refers to the page any more.
    let _ = unsafe { syscall(libc::SYS_munmap, [page, page_size(), 0, 0, 0, 0]) };
    match before? {
        SOUND => Some(true),
        BROKEN => Some(false),
        _ => None,
    }
}

/// Does the spinner's work.
fn spin(area: isize, armed: isize, word: &AtomicU64, register: &impl Fn() -> bool) -> usize {
    if !register() || !stay_on_a_cpu(area) {
        return UNDECIDED;
    }
    let Some(writer) = child(|| write(word)) else { return UNDECIDED };
    let end = now().saturating_add(LONGEST);
    let (mut aborted, mut found) = (0, UNDECIDED);
    while now() < end {
        // SAFETY: the area of this thread, or one like it; a word.
        match unsafe { arch::spin_in_section(armed, word.as_ptr(), ROUNDS) } {
            arch::Spun::Saw => found = BROKEN,
            arch::Spun::Aborted => aborted += 1,
            arch::Spun::Over => {}
        }
        if aborted == ENOUGH {
            found = SOUND;
        }
        if found != UNDECIDED {
            break;
        }
    }
    // SAFETY: a child of this process's, which has not been waited for.
    let _ = unsafe { syscall(libc::SYS_kill, [writer, libc::SIGKILL as usize, 0, 0, 0, 0]) };
    let _ = wait(writer);
    found
}

/// Does the writer's work, for at most twice as long as the spinner's.
fn write(word: &AtomicU64) -> usize {
    let pause = libc::timespec { tv_sec: 0, tv_nsec: PAUSE };
    let end = now().saturating_add(2 * LONGEST);
    while now() < end {
        let args = [&raw const pause as usize, 0, 0, 0, 0, 0];
        // SAFETY: a time, and no place for what is left of it.
        let _ = unsafe { syscall(libc::SYS_nanosleep, args) };
        word.fetch_add(1, Ordering::Relaxed);
    }
    0
}

fn now() -> u64 {
    kernel_clock::nanoseconds(libc::CLOCK_MONOTONIC)
}

/// Calls `sched_setaffinity(0, len, set)` with the cpu that the thread is on, see sched_setaffinity(2).
#[doc(alias = "sched_setaffinity")]
fn stay_on_a_cpu(area: isize) -> bool {
    // SAFETY: a field of the registered area.
    let cpu = unsafe { arch::read_field(area + super::super::field::CPU_ID) } as usize;
    let mut set = [0_u8; CPUS];
    let Some(byte) = set.get_mut(cpu / 8) else { return false };
    *byte = 1 << (cpu % 8);
    // SAFETY: a set of that length; 0 is this thread.
    unsafe { syscall(libc::SYS_sched_setaffinity, [0, CPUS, set.as_ptr() as usize, 0, 0, 0]) }
        .is_ok()
}

/// Calls `clone(0, NULL)`, see clone(2): returns the child's number; the child ends with what `work` returns.
#[doc(alias = "clone")]
fn child(work: impl FnOnce() -> usize) -> Option<usize> {
    // SAFETY: a copy of this process, without a signal at its end, on a copy of this stack. It leaves by the exit
    // below.
    match unsafe { syscall(libc::SYS_clone, [0; 6]) }.ok()? {
        0 => {
            let code = work();
            loop {
                // SAFETY: ends this child.
                let _ = unsafe { syscall(libc::SYS_exit_group, [code, 0, 0, 0, 0, 0]) };
            }
        }
        child => Some(child),
    }
}

/// Calls `wait4(child, &status, __WALL, NULL)`, see wait4(2): returns what the child exited with.
#[doc(alias = "wait4")]
fn wait(child: usize) -> Option<usize> {
    let mut status = 0_i32;
    let args = [child, &raw mut status as usize, libc::__WALL as usize, 0, 0, 0];
    // SAFETY: a place for the status.
    while let Err(errno) = unsafe { syscall(libc::SYS_wait4, args) } {
        if errno.0 != libc::EINTR {
            return None;
        }
    }
    libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status) as usize)
}

/// Calls `rt_sigprocmask` around `work`, see sigprocmask(2).
#[doc(alias = "rt_sigprocmask")]
fn with_signals_blocked<T>(work: impl FnOnce() -> T) -> T {
    let (all, mut before) = (u64::MAX, 0_u64);
    let set = |mask: *const u64, before: *mut u64| {
        let args = [libc::SIG_SETMASK as usize, mask as usize, before as usize, 8, 0, 0];
        // SAFETY: the kernel reads one mask, and writes the other one if there is one.
        let _ = unsafe { syscall(libc::SYS_rt_sigprocmask, args) };
    };
    set(&all, &mut before);
    let done = work();
    set(&before, null_mut());
    done
}

#[cfg(all(test, not(corelocal_model)))]
mod tests {
    use super::*;
    use crate::sys::rseq;

    /// The cpus and the blocked signals of the calling thread.
    fn cpus_and_signals() -> ([u8; CPUS], u64) {
        let (mut cpus, mut signals) = ([0_u8; CPUS], 0_u64);
        let get = [0, CPUS, cpus.as_mut_ptr() as usize, 0, 0, 0];
        let ask = [libc::SIG_BLOCK as usize, 0, &raw mut signals as usize, 8, 0, 0];
        // SAFETY: places for the answers.
        unsafe {
            syscall(libc::SYS_sched_getaffinity, get).expect("the thread's cpus");
            syscall(libc::SYS_rt_sigprocmask, ask).expect("the thread's signals");
        }
        (cpus, signals)
    }

    #[test]
    fn this_kernel_aborts_and_one_that_would_not_is_found_out() {
        if rseq::register_this_thread().is_err() {
            std::eprintln!("skipped: trial: this thread is not registered");
            return;
        }
        let area = rseq::area();
        let before = cpus_and_signals();
        assert_eq!(aborts(area, area, || true), Some(true));
        // Sections that are announced where the kernel does not look.
        let elsewhere = [0_u64; 8];
        let at = (elsewhere.as_ptr() as isize).wrapping_sub(arch::thread_pointer() as isize);
        assert_eq!(aborts(area, at, || true), Some(false));
        assert_eq!(aborts(area, area, || false), None);
        // (1)
        assert!(
            before == cpus_and_signals(),
            "the thread has other cpus, or other signals blocked"
        );
    }
}
