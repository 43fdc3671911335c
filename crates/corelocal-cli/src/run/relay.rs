//! Signals that are sent to us are for the program that runs.
//!
//! What a terminal sends comes to the whole group of processes, the program among them; what a process
//! sends comes to us alone and is passed on. We end when the program has ended, by the same signal if one
//! ended it.
//!
//! Invariants:
//! 1. [`PROGRAM`] is the number of a child that was not waited for, or 0: so the number is still its own.
//! 2. The handler loads and stores words and calls kill(2), and leaves `errno` as it was.
//! 3. A signal that was ignored when we began stays ignored, for the program, too.

use std::sync::atomic::{AtomicI32, Ordering};

/// The program that runs (1).
static PROGRAM: AtomicI32 = AtomicI32::new(0);
/// The last signal that asked for an end.
static CAME: AtomicI32 = AtomicI32::new(0);

const PASSED_ON: [libc::c_int; 6] =
    [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

/// Begins from now on.
pub fn begin() {
    for signal in PASSED_ON {
        // SAFETY: zeroed sigactions are valid; the handler does what (2) says.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut before);
            if before.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = pass_on
                as extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void)
                as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

extern "C" fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid siginfo to a handler with SA_SIGINFO.
    let by_process = unsafe { (*info).si_code } <= 0;
    if ![libc::SIGUSR1, libc::SIGUSR2].contains(&signal) {
        // Relaxed, as all here: the words carry no other data.
        CAME.store(signal, Ordering::Relaxed);
    }
    let program = PROGRAM.load(Ordering::Relaxed);
    if program > 0 && by_process {
        // SAFETY: `errno` is this thread's; the number is the program's (1).
        unsafe {
            let errno = libc::__errno_location();
            let before = *errno;
            libc::kill(program, signal);
            *errno = before;
        }
    }
}

/// The program is there; it gets what came before it was.
pub fn program_began(process: u32) {
    let process = process as i32;
    PROGRAM.store(process, Ordering::Relaxed);
    let came = CAME.load(Ordering::Relaxed);
    if came != 0 {
        // SAFETY: our child, which was not waited for (1).
        unsafe { libc::kill(process, came) };
    }
}

/// The program has ended, and is about to be waited for.
pub fn program_ended() {
    PROGRAM.store(0, Ordering::Relaxed);
}

/// Returns the last signal that asked us to end, if one came.
pub fn came() -> Option<i32> {
    Some(CAME.load(Ordering::Relaxed)).filter(|&signal| signal != 0)
}

/// Ends this process by the signal that ended the program, without a second core file. Returns only if the signal
/// does not end a process.
pub fn end_by(signal: libc::c_int) {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a valid limit, a valid disposition, a valid set, and our own number.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::signal(signal, libc::SIG_DFL);
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        libc::kill(libc::getpid(), signal);
    }
}
