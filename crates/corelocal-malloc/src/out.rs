//! Text on its way to a file or a stream, some of it at a time.
//!
//! Invariant: nothing here allocates.

use core::ffi::{c_int, c_void};
use core::fmt::{self, Write};

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
            let at = rest.as_ptr().cast::<c_void>();
            let written = match self.to {
                // SAFETY: so many bytes to read.
                To::File(fd) => unsafe { libc::write(fd, at, rest.len()) },
                // SAFETY: likewise, to a stream that is open, as `to_stream` says.
                To::Stream(stream) => unsafe { libc::fwrite(at, 1, rest.len(), stream) as isize },
            };
            rest = match usize::try_from(written) {
                Ok(written) if written > 0 => rest.get(written..).unwrap_or_default(),
                _ => return Err(fmt::Error),
            };
        }
        Ok(())
    }
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
