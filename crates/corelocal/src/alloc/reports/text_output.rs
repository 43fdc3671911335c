//! Buffered text output to a file or a stream, without allocation.
//!
//! A non-blocking descriptor that is full is waited for: half of a JSON object is useless.
//!
//! Invariant: nothing here allocates, and `errno` changes only on failure.

use core::ffi::{c_int, c_void};
use core::fmt::{self, Write};

use crate::sys::{Errno, without_libc, without_sigxfsz};

/// The time to wait for a non-blocking descriptor that takes nothing, in milliseconds.
const WAIT_MS: i64 = 1000;

/// The destination.
enum To {
    File(c_int),
    Stream(*mut libc::FILE),
}

/// A buffered writer. What is not [flushed](Out::flush) is lost.
pub struct Out {
    to: To,
    bytes: [u8; 512],
    len: usize,
}

impl Out {
    /// Returns a writer to a descriptor.
    pub fn to_file(fd: c_int) -> Out {
        Out::new(To::File(fd))
    }

    /// Returns a writer to a stream.
    ///
    /// # Safety
    /// - The stream stays open as long as this is used.
    pub unsafe fn to_stream(stream: *mut libc::FILE) -> Out {
        Out::new(To::Stream(stream))
    }

    fn new(to: To) -> Out {
        Out { to, bytes: [0; 512], len: 0 }
    }

    /// Writes what is buffered.
    ///
    /// # Errors
    /// When it cannot be written whole.
    pub fn flush(&mut self) -> fmt::Result {
        let mut rest = &self.bytes[..self.len];
        self.len = 0;
        while !rest.is_empty() {
            let written = match self.to {
                To::File(fd) => write(fd, rest),
                // SAFETY: `rest.len()` bytes to read, and a stream that is open by the contract of `to_stream`.
                To::Stream(stream) => unsafe {
                    libc::fwrite(rest.as_ptr().cast(), 1, rest.len(), stream) as isize
                },
            };
            rest = match usize::try_from(written) {
                Ok(written) if written > 0 => rest.get(written..).unwrap_or_default(),
                _ => return Err(fmt::Error),
            };
        }
        Ok(())
    }
}

/// Calls `write(2)`, repeated after a signal, and when a full non-blocking descriptor has room again.
fn write(fd: c_int, bytes: &[u8]) -> isize {
    // SAFETY: the thread's own `errno`.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the thread's own `errno`.
    let before = unsafe { *errno };
    let mut end = None;
    loop {
        // A write beyond the file size limit would raise SIGXFSZ and end the program.
        let written = without_sigxfsz(|| {
            // SAFETY: `bytes.len()` bytes to read.
            let written = unsafe { libc::write(fd, bytes.as_ptr().cast::<c_void>(), bytes.len()) };
            // SAFETY: the thread's own `errno`.
            if written < 0 { Err(Errno(unsafe { *errno })) } else { Ok(written) }
        });
        match written {
            Ok(written) => {
                // SAFETY: the thread's own `errno`.
                unsafe { *errno = before };
                return written;
            }
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => {
                let now = now_ms();
                let left = *end.get_or_insert(now + WAIT_MS) - now;
                if left <= 0 {
                    return -1;
                }
                let mut wanted = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
                // SAFETY: one descriptor. A signal ends the wait early; the next wait takes the rest of the time.
                unsafe { libc::poll(&mut wanted, 1, c_int::try_from(left).unwrap_or(c_int::MAX)) };
            }
            _ => return -1,
        }
    }
}

/// Returns the milliseconds of a monotonic clock.
fn now_ms() -> i64 {
    (without_libc::nanoseconds(libc::CLOCK_MONOTONIC) / 1_000_000) as i64
}

impl Write for Out {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if self.len == self.bytes.len() {
                self.flush()?;
            }
            self.bytes[self.len] = byte;
            self.len += 1;
        }
        Ok(())
    }
}
