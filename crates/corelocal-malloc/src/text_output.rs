//! Text on its way to a file or a stream, some of it at a time.
//!
//! A descriptor that takes nothing just now is waited for: half of an object in JSON is of no use to anybody.
//!
//! Invariant: nothing here allocates, and `errno` stays where nothing fails.

use core::ffi::{c_int, c_void};
use core::fmt::{self, Write};

use corelocal::sys::{Errno, without_libc, without_sigxfsz};

/// How long a descriptor that does not wait takes nothing at all from us until we give up.
const WAIT_MS: i64 = 1000;

/// Where text goes.
enum To {
    File(c_int),
    Stream(*mut libc::FILE),
}

/// Text on its way. What is not [flushed](Out::flush) is lost.
pub(crate) struct Out {
    to: To,
    bytes: [u8; 512],
    len: usize,
}

impl Out {
    pub(crate) fn to_file(fd: c_int) -> Out {
        Out::new(To::File(fd))
    }

    /// # Safety
    /// The stream is open as long as this is used.
    pub(crate) unsafe fn to_stream(stream: *mut libc::FILE) -> Out {
        Out::new(To::Stream(stream))
    }

    fn new(to: To) -> Out {
        Out { to, bytes: [0; 512], len: 0 }
    }

    pub(crate) fn flush(&mut self) -> fmt::Result {
        let mut rest = &self.bytes[..self.len];
        self.len = 0;
        while !rest.is_empty() {
            let written = match self.to {
                To::File(fd) => write(fd, rest),
                // SAFETY: so many bytes to read, and a stream that is open, as `to_stream` says.
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

/// `write(2)`, again when a signal came between, and when a descriptor that does not wait has room again.
fn write(fd: c_int, bytes: &[u8]) -> isize {
    // SAFETY: the thread's own `errno`.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let mut end = None;
    loop {
        // Past the limit of a file's size, too, which would end the program.
        let written = without_sigxfsz(|| {
            // SAFETY: so many bytes to read.
            let written = unsafe { libc::write(fd, bytes.as_ptr().cast::<c_void>(), bytes.len()) };
            // SAFETY: as above.
            if written < 0 { Err(Errno(unsafe { *errno })) } else { Ok(written) }
        });
        match written {
            Ok(written) => {
                // SAFETY: as above.
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
                // SAFETY: one descriptor. A signal ends the wait early; the next one is as long as is left.
                unsafe { libc::poll(&mut wanted, 1, c_int::try_from(left).unwrap_or(c_int::MAX)) };
            }
            _ => return -1,
        }
    }
}

/// The time, from when on does not matter.
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
