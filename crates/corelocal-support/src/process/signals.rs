//! Handling of Ctrl-C and SIGTERM: they set a flag, so that the current work can be completed.
//!
//! Invariants:
//! 1. The handler changes three words, and does nothing else.
//! 2. A signal that was ignored at the start stays ignored, also for a program that is run: nohup(1) and shells
//!    without job control rely on that.

use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::Duration;

static CAME: AtomicU32 = AtomicU32::new(0);
/// The last signal that came.
static LAST: AtomicI32 = AtomicI32::new(0);
/// The number of signals that came.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// Bit: the terminal sent one to all its foreground processes.
const BY_TERMINAL: u32 = 1;
/// Bit: one came that may have been for this process alone.
const FOR_US: u32 = 2;

/// The signals that would end this process otherwise.
const NOTED: [libc::c_int; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];

/// Gives SIGCHLD its default. Where the caller has it ignored, the kernel keeps no exit status of a child: wait(2) fails.
pub fn keep_exit_statuses() {
    // SAFETY: the default disposition runs no code of this process.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Makes a write past the limit of a file's size (`ulimit -f`) an error from now on, which no longer ends this process.
/// Programs that it runs begin without this: a handler does not outlive execve(2).
pub fn survive_long_files() {
    extern "C" fn nothing(_: libc::c_int) {}
    if !is_ignored(libc::SIGXFSZ) {
        // SAFETY: the handler does nothing.
        unsafe { libc::signal(libc::SIGXFSZ, nothing as extern "C" fn(libc::c_int) as usize) };
    }
}

/// Has SIGINT, SIGQUIT, SIGTERM and SIGHUP noted from now on, and no longer end the process (2).
pub fn note() {
    for signal in NOTED.into_iter().filter(|signal| !is_ignored(*signal)) {
        // SAFETY: a zeroed sigaction is valid; the handler does what (1) says.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler();
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

/// Lets them end the process again: there is nothing left that must be brought to its end.
pub fn note_no_more() {
    for signal in NOTED.into_iter().filter(|signal| disposition(*signal) == handler()) {
        // SAFETY: a zeroed sigaction is the default.
        unsafe {
            let action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

fn handler() -> usize {
    noted as extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) as usize
}

extern "C" fn noted(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid siginfo to a handler with SA_SIGINFO.
    let by_process = unsafe { (*info).si_code } <= 0;
    let by_key = [libc::SIGINT, libc::SIGQUIT].contains(&signal) && !by_process;
    // Relaxed, with the loads: the bits are all there is.
    CAME.fetch_or(if by_key { BY_TERMINAL } else { FOR_US }, Ordering::Relaxed);
    LAST.store(signal, Ordering::Relaxed);
    COUNT.fetch_add(1, Ordering::Relaxed);
}

/// Returns the last signal that came.
pub fn last() -> Option<libc::c_int> {
    Some(LAST.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
}

/// Returns `true` if this process ignores a signal.
pub fn is_ignored(signal: libc::c_int) -> bool {
    disposition(signal) == libc::SIG_IGN
}

fn disposition(signal: libc::c_int) -> usize {
    // SAFETY: a zeroed sigaction is valid, and is written to only.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut action);
        action.sa_sigaction
    }
}

/// Returns `true` if one came.
pub fn came() -> bool {
    CAME.load(Ordering::Relaxed) != 0
}

/// Returns how many came: more than before, where one came since. The first one may have ended a look whose report is
/// to come.
pub fn count() -> u32 {
    COUNT.load(Ordering::Relaxed)
}

/// Returns `true` if one came that a program which we run may not have got: what a key of the terminal sends comes to
/// the program too, which may have its own idea of it.
pub fn came_for_us() -> bool {
    CAME.load(Ordering::Relaxed) & FOR_US != 0
}

/// SIGINT, SIGTERM and SIGHUP, blocked, for a thread that only waits for time to pass.
pub struct Kept(libc::sigset_t);

impl Kept {
    /// Lets them come, from now on, to [`wait`](Kept::wait) only, in this thread and those it starts.
    pub fn back() -> Kept {
        // SAFETY: `sigemptyset` makes a set of any bytes; the others get a valid set.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            // One that is ignored would come nevertheless if it were kept back (2).
            let signals = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
            for signal in signals.into_iter().filter(|signal| !is_ignored(*signal)) {
                libc::sigaddset(&mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            Kept(set)
        }
    }

    /// Lets `time` pass; the signal's name if one comes first.
    pub fn wait(&self, time: Duration) -> Option<&'static str> {
        let time = libc::timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        };
        // SAFETY: a valid set and a valid time; nothing is asked about the signal.
        match unsafe { libc::sigtimedwait(&self.0, std::ptr::null_mut(), &time) } {
            libc::SIGINT => Some("SIGINT"),
            libc::SIGTERM => Some("SIGTERM"),
            libc::SIGHUP => Some("SIGHUP"),
            // The time has passed, or a debugger came by.
            _ => None,
        }
    }
}
