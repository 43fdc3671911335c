//! Something of the whole machine is changed for a moment, and put back whatever becomes of the test.
//!
//! A guard alone puts back after a panic, not after a kill. So a child process, which does nothing else,
//! waits until the test is done or gone, and puts back then. It is in a session of its own: what ends the
//! test from the terminal does not end it.
//!
//! Invariant: the child comes from a process with threads, so it makes system calls only: no lock, no heap.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Puts back when dropped, and when the process ends without that.
pub struct Restorer {
    child: libc::pid_t,
    done: OwnedFd,
}

impl Restorer {
    /// Starts the restorer; the change comes after it. `put_back` makes system calls only.
    pub fn new(put_back: impl Fn()) -> io::Result<Restorer> {
        let mut ends = [-1; 2];
        // SAFETY: a place for two descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: both were just opened, and are owned by nothing else.
        let [waits, done] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
        // SAFETY: the child makes system calls only (the head's invariant).
        let child = unsafe { libc::fork() };
        if child < 0 {
            return Err(io::Error::last_os_error());
        }
        if child == 0 {
            // SAFETY: system calls on descriptors that the child has, and its end.
            unsafe {
                libc::setsid();
                libc::close(done.as_raw_fd());
                wait_for_the_end(waits.as_raw_fd());
                put_back();
                libc::_exit(0);
            }
        }
        Ok(Restorer { child, done })
    }
}

/// Returns when a byte comes, when all senders are gone, or when the parent has changed.
fn wait_for_the_end(waits: i32) {
    // SAFETY: no arguments.
    let parent = unsafe { libc::getppid() };
    let mut poll = libc::pollfd { fd: waits, events: libc::POLLIN, revents: 0 };
    // Each second, since another child of the test may still hold the other end. A signal ends a wait early.
    // SAFETY: one valid entry; and no arguments.
    while unsafe { libc::poll(&mut poll, 1, 1000) <= 0 && libc::getppid() == parent } {}
}

impl Drop for Restorer {
    fn drop(&mut self) {
        // SAFETY: one byte into the pipe, which is ours; then the child is waited for, which is ours too.
        unsafe {
            libc::write(self.done.as_raw_fd(), [0_u8].as_ptr().cast(), 1);
            libc::waitpid(self.child, std::ptr::null_mut(), 0);
        }
    }
}
