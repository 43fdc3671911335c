//! Asks a program that was started here to end, and says how it ended.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use crate::output::complain;

/// How long a program has to end that was asked to, before it is killed or the user is told.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// How a program is asked to end: by the signal that was sent to this process, else by SIGTERM; once. A program that does not end in time is killed if `--for` ends it. If
/// another process has sent SIGTERM to this one, that process decides how long the program may take. A program of another
/// user, as sudo starts one, gets no signals of ours: it is waited for, and the user is told.
pub(crate) struct Ending {
    asked: Instant,
    is_ours: bool,
    is_told: bool,
}

impl Ending {
    pub(crate) fn ask(child: &Child, is_ours: bool) -> Ending {
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

    /// Done now and then until the program has ended.
    pub(crate) fn insist(&mut self, child: &Child) {
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
pub(crate) fn signal(child: &Child, signal: libc::c_int) -> io::Result<()> {
    // SAFETY: a child of ours that was not waited for, so the number is still its own.
    match unsafe { libc::kill(child.id() as libc::pid_t, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// With a value for the handler (sigqueue(3)).
///
/// # Errors
/// The program runs as another user, or has ended.
pub(crate) fn signal_with(child: &Child, signal: libc::c_int, value: usize) -> io::Result<()> {
    let value = libc::sigval { sival_ptr: std::ptr::without_provenance_mut(value) };
    // SAFETY: a child of ours that was not waited for, so the number is still its own.
    match unsafe { libc::sigqueue(child.id() as libc::pid_t, signal, value) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// As a shell has it.
pub(crate) fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::thread;

    #[test]
    fn a_program_is_killed_only_if_the_time_is_ours() {
        for is_ours in [false, true] {
            let sleeps = Command::new("sh").args(["-c", "trap '' TERM; exec sleep 60"]).spawn();
            let mut child = sleeps.expect("a shell");
            let long_ago = Instant::now().checked_sub(PATIENCE * 2).expect("it runs that long");
            let mut ending = Ending { asked: long_ago, is_ours, is_told: false };
            ending.insist(&child);
            assert_eq!(ending.is_told, !is_ours);
            if !is_ours {
                assert_eq!(child.try_wait().ok(), Some(None));
                signal(&child, libc::SIGKILL).expect("a child");
            }
            let status = child.wait().expect("a child");
            assert_eq!(status.signal(), Some(libc::SIGKILL));
        }
    }

    #[test]
    fn a_program_of_another_user_is_waited_for() {
        // SAFETY: no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            return eprintln!(
                "skipped: a_program_of_another_user_is_waited_for: only root becomes another user"
            );
        }
        let mut child = Command::new("sleep").arg("60").spawn().expect("a process");
        let is_told = thread::scope(|scope| {
            let ask = scope.spawn(|| {
                const OTHER: libc::uid_t = 65_534;
                // SAFETY: numbers only. Unlike the C library's function, the call changes this thread alone, which ends
                // soon.
                let changed = unsafe { libc::syscall(libc::SYS_setresuid, OTHER, OTHER, OTHER) };
                assert_eq!(changed, 0);
                let mut ending = Ending::ask(&child, true);
                let is_told = ending.is_told;
                ending.asked = Instant::now().checked_sub(PATIENCE * 2).expect("it runs that long");
                ending.is_told = false;
                ending.insist(&child);
                [is_told, ending.is_told]
            });
            ask.join().expect("no panic")
        });
        let status = child.try_wait();
        child.kill().expect("a child");
        child.wait().expect("a child");
        assert_eq!(is_told, [true, true]);
        assert_eq!(status.ok(), Some(None));
    }

    #[test]
    fn codes_are_the_programs() {
        let status = |raw| code(ExitStatus::from_raw(raw));
        assert_eq!(status(0), ExitCode::SUCCESS);
        assert_eq!(status(7 << 8), ExitCode::from(7));
        assert_eq!(status(libc::SIGKILL), ExitCode::from(137));
    }
}
