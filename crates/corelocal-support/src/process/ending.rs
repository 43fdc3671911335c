//! Asks a program that was started here to end, and says how it ended.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use crate::output::complain;

/// The time that a program has to end when it was asked to, before it is killed or the user is told.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// How a program is asked to end: by the signal that was sent to this process, else by SIGTERM; once. A program that does not end in time is killed if `--for` ends it. If
/// another process has sent SIGTERM to this one, that process decides how long the program may take. A program of another
/// user, as sudo starts one, gets no signals of ours: it is waited for, and the user is told.
pub struct Ending {
    asked: Instant,
    is_ours: bool,
    is_told: bool,
}

impl Ending {
    /// Asks the program to end.
    pub fn ask(child: &Child, is_ours: bool) -> Ending {
        let mut ending = Ending { asked: Instant::now(), is_ours, is_told: false };
        // One that was sent to us is passed on.
        let passed = super::signals::last().filter(|_| !is_ours);
        ending.send(child, passed.unwrap_or(libc::SIGTERM));
        ending
    }

    fn send(&mut self, child: &Child, number: libc::c_int) {
        let Err(error) = signal(child, number) else { return };
        let process = child.id();
        complain(format_args!(
            "the program could not be ended (signal {number} to process {process}: {error}); waiting for it. If \
             it runs as another user, end it as that user: sudo kill {process}"
        ));
        self.is_told = true;
    }

    /// Insists, now and then, until the program has ended.
    pub fn insist(&mut self, child: &Child) {
        if self.is_told || self.asked.elapsed() <= PATIENCE {
            return;
        }
        if self.is_ours {
            self.send(child, libc::SIGKILL);
        } else {
            let (seconds, process) = (PATIENCE.as_secs(), child.id());
            complain(format_args!(
                "the program has not ended within {seconds} s after its signal; waiting for it. To end it at once: \
                 kill -KILL {process}"
            ));
            self.is_told = true;
        }
    }
}

/// # Errors
/// The program runs as another user.
pub fn signal(child: &Child, signal: libc::c_int) -> io::Result<()> {
    // SAFETY: a child of ours that was not waited for, so the number is still its own.
    match unsafe { libc::kill(child.id() as libc::pid_t, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sends a value for the handler (sigqueue(3)).
///
/// # Errors
/// The program runs as another user, or has ended.
pub fn signal_with(child: &Child, signal: libc::c_int, value: usize) -> io::Result<()> {
    let value = libc::sigval { sival_ptr: std::ptr::without_provenance_mut(value) };
    // SAFETY: a child of ours that was not waited for, so the number is still its own.
    match unsafe { libc::sigqueue(child.id() as libc::pid_t, signal, value) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the exit code that a shell gives this status.
pub fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

#[cfg(test)]
mod tests;
