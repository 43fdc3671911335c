//! Children by fork, and what becomes of them.
//!
//! Invariant: a child's body makes system calls and uses what is in shared memory or its own stack; it takes no
//! lock of the harness's, allocates nothing and leaves by `_exit`.

use std::time::{Duration, Instant};

/// A child process; killed when dropped.
pub struct Child {
    id: libc::pid_t,
    reaped: bool,
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "each test binary uses some of them")]
pub enum End {
    Code(i32),
    Signal(i32),
}

/// Starts a child that runs `body` and exits with its code.
pub fn fork(body: impl FnOnce() -> i32) -> Child {
    // SAFETY: the child keeps to the invariant.
    match unsafe { libc::fork() } {
        0 => {
            let code = body();
            // SAFETY: ends the child.
            unsafe { libc::_exit(code) }
        }
        id => {
            assert!(id > 0, "fork: {}", std::io::Error::last_os_error());
            Child { id, reaped: false }
        }
    }
}

/// Starts a child that exits with 0 if `body` returns true.
#[allow(dead_code, reason = "each test binary uses some of them")]
pub fn judge(body: impl FnOnce() -> bool) -> Child {
    fork(|| i32::from(!body()))
}

#[allow(dead_code, reason = "each test binary uses some of them")]
impl Child {
    /// Waits for its end, which must be an exit with code 0.
    pub fn succeeds(self) {
        assert_eq!(self.wait(), End::Code(0));
    }

    pub fn kill(&self) {
        // SAFETY: a child of ours that was not waited for.
        unsafe { libc::kill(self.id, libc::SIGKILL) };
    }

    /// Waits for its end; panics if there is none within a minute.
    pub fn wait(mut self) -> End {
        let begin = Instant::now();
        loop {
            let mut status = 0;
            // SAFETY: a child of ours, `status` writable.
            let reaped = unsafe { libc::waitpid(self.id, &mut status, libc::WNOHANG) };
            if reaped == self.id {
                self.reaped = true;
                return match libc::WIFEXITED(status) {
                    true => End::Code(libc::WEXITSTATUS(status)),
                    false => End::Signal(libc::WTERMSIG(status)),
                };
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "a child hangs");
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill();
            // SAFETY: a child of ours.
            unsafe { libc::waitpid(self.id, std::ptr::null_mut(), 0) };
        }
    }
}

/// A pseudo-random number, from the last one.
#[allow(dead_code, reason = "each test binary uses some of them")]
pub fn next(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random
}
