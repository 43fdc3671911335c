//! Standard error, from any thread: also from one that has a table of descriptors of its own, without this one.

use core::fmt::{self, Write};

use super::size::without_sigxfsz;
use super::{File, PathBuf, decimal};
use crate::sys::errno::Errno;
use crate::sys::syscall::syscall;

/// Writes a text, or as much of it as the kernel takes at once. Async-signal-safe.
///
/// A thread with a table of its own (`CLOSE_RANGE_UNSHARE`) has no standard error in it, and cannot keep one: while it
/// did, the reader of a pipe would wait for the end after all of the process had closed it. So the descriptor is
/// copied from the process's first thread, for this one write; before Linux 5.6, or where a filter refuses that, its
/// file is opened once more, which is refused for sockets.
pub(crate) fn write(text: &[u8]) {
    // One that is open, but not to write to, is refused with the same error: then there is nothing to write to.
    if write_to(libc::STDERR_FILENO as usize, text) != Err(Errno::EBADF) || is_open() {
        return;
    }
    // SAFETY: no preconditions.
    let process = unsafe { libc::getpid() } as usize;
    // SAFETY: takes nothing.
    let is_first = unsafe { syscall(libc::SYS_gettid, [0; 6]) } == Ok(process);
    if !is_first {
        if let Ok(copy) = copied(process).or_else(|_| opened(process)) {
            let _ = write_to(copy.descriptor(), text);
        }
    }
}

/// A line of text on its way to stderr.
pub(crate) struct Line {
    pub(crate) bytes: [u8; 384],
    pub(crate) len: usize,
}

impl Line {
    /// Prints what fits into a line.
    pub(crate) fn print(text: fmt::Arguments<'_>) {
        let mut line = Line { bytes: [0; 384], len: 0 };
        // What does not fit is missing.
        if line.write_fmt(text).is_err() {
            line.len = line.len.min(line.bytes.len() - 1);
            let _ = line.write_str("\n");
        }
        write(&line.bytes[..line.len]);
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.len..self.len + text.len()).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        without_orders(room);
        self.len += text.len();
        Ok(())
    }
}

/// Replaces what gives orders to a terminal, such as the colours in a thread's name, by question marks.
fn without_orders(text: &mut [u8]) {
    let mut before = 0;
    for byte in text {
        let is_c1 = before == 0xc2 && (0x80..0xa0).contains(byte);
        before = *byte;
        if byte.is_ascii_control() && !matches!(*byte, b'\n' | b'\t') {
            *byte = b'?';
        } else if is_c1 {
            *byte = 0xbf; // With the byte before, an inverted question mark.
        }
    }
}

/// Calls `write(fd, text, len)`, see write(2).
#[doc(alias = "write")]
fn write_to(descriptor: usize, text: &[u8]) -> Result<usize, Errno> {
    let args = [descriptor, text.as_ptr() as usize, text.len(), 0, 0, 0];
    // SAFETY: the kernel reads the text.
    without_sigxfsz(|| unsafe { syscall(libc::SYS_write, args) })
}

/// Calls `fcntl(2, F_GETFD)`, see fcntl(2).
///
/// Whether the calling thread has a standard error.
#[doc(alias = "fcntl")]
fn is_open() -> bool {
    let args = [libc::STDERR_FILENO as usize, libc::F_GETFD as usize, 0, 0, 0, 0];
    // SAFETY: numbers.
    let flags = unsafe { syscall(libc::SYS_fcntl, args) };
    flags != Err(Errno::EBADF)
}

/// Calls `pidfd_getfd(pidfd_open(pid, 0), 2, 0)`, see pidfd_getfd(2).
///
/// A copy of the descriptor of another process, or of this one's first thread.
#[doc(alias = "pidfd_getfd")]
#[cold]
#[inline(never)]
fn copied(process: usize) -> Result<File, Errno> {
    // SAFETY: takes numbers.
    let first = unsafe { syscall(libc::SYS_pidfd_open, [process, 0, 0, 0, 0, 0]) }?;
    // SAFETY: just opened, and owned by this function.
    let first = unsafe { File::of_descriptor(first) };
    let args = [first.descriptor(), libc::STDERR_FILENO as usize, 0, 0, 0, 0];
    // SAFETY: takes numbers; the new descriptor is owned by this function.
    unsafe { syscall(libc::SYS_pidfd_getfd, args).map(|copy| File::of_descriptor(copy)) }
}

/// Returns the file behind the descriptor of another process, or of this one's first thread.
///
/// Not inlined: a handler of SIGSEGV writes on a stack of 8 KiB, and a path takes one of them.
#[cold]
#[inline(never)]
fn opened(process: usize) -> Result<File, Errno> {
    let link = PathBuf::join(&[b"/proc/", decimal(process as u64, &mut [0; 20]), b"/fd/2"])?;
    File::append_to(link.as_c_str())
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests;
