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

/// `write(fd, text, len)`, see write(2).
#[doc(alias = "write")]
fn write_to(descriptor: usize, text: &[u8]) -> Result<usize, Errno> {
    let args = [descriptor, text.as_ptr() as usize, text.len(), 0, 0, 0];
    // SAFETY: the kernel reads the text.
    without_sigxfsz(|| unsafe { syscall(libc::SYS_write, args) })
}

/// `fcntl(2, F_GETFD)`, see fcntl(2).
///
/// Whether the calling thread has a standard error.
#[doc(alias = "fcntl")]
fn is_open() -> bool {
    let args = [libc::STDERR_FILENO as usize, libc::F_GETFD as usize, 0, 0, 0, 0];
    // SAFETY: numbers.
    let flags = unsafe { syscall(libc::SYS_fcntl, args) };
    flags != Err(Errno::EBADF)
}

/// `pidfd_getfd(pidfd_open(pid, 0), 2, 0)`, see pidfd_getfd(2).
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

/// The file behind the descriptor of another process, or of this one's first thread.
///
/// Not inlined: a handler of SIGSEGV writes on a stack of 8 KiB, and a path takes one of them.
#[cold]
#[inline(never)]
fn opened(process: usize) -> Result<File, Errno> {
    let link = PathBuf::join(&[b"/proc/", decimal(process as u64, &mut [0; 20]), b"/fd/2"])?;
    File::append_to(link.as_c_str())
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Read as _;
    use std::os::fd::{AsRawFd as _, FromRawFd as _};

    /// In a child process whose standard error is a file to read from.
    #[test]
    fn no_right_to_write_is_gained() {
        let kept = tempfile::NamedTempFile::new().unwrap();
        fs::write(kept.path(), "kept").unwrap();
        let read = fs::File::open(kept.path()).unwrap();
        extern "C" fn say(_: *mut libc::c_void) -> *mut libc::c_void {
            // SAFETY: no preconditions.
            let process = unsafe { libc::getpid() } as usize;
            write(TEXT);
            core::ptr::without_provenance_mut(usize::from(opened(process).is_ok()))
        }
        // SAFETY: the child makes a thread, waits for it, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: valid arguments; the child makes one thread, waits for it, and exits.
            unsafe {
                libc::dup2(read.as_raw_fd(), libc::STDERR_FILENO);
                let (mut thread, mut is_opened) = (core::mem::zeroed(), core::ptr::null_mut());
                let none = core::ptr::null_mut();
                if libc::pthread_create(&mut thread, core::ptr::null(), say, none) == 0 {
                    libc::pthread_join(thread, &mut is_opened);
                    libc::_exit(i32::from(!is_opened.is_null()));
                }
                libc::_exit(2);
            }
        }
        let mut status = 0;
        // SAFETY: a child of ours.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!((status, fs::read(kept.path()).unwrap()), (0, b"kept".to_vec()));
    }

    const TEXT: &[u8] = b"a line\n";

    #[test]
    fn terminals_get_no_orders() {
        let mut line = Line { bytes: [0; 384], len: 0 };
        writeln!(line, "thread \x1b[31mred\u{9b}0m\u{7f} é\t¿").unwrap();
        assert_eq!(&line.bytes[..line.len], "thread ?[31mred¿0m? é\t¿\n".as_bytes());
    }

    /// In a child process whose standard error is the end of a pipe: a thread that has closed it in a table of its own.
    #[test]
    fn a_thread_without_descriptors_is_heard() {
        extern "C" fn say(way: *mut libc::c_void) -> *mut libc::c_void {
            const UNSHARE: usize = 2;
            // SAFETY: closes descriptors of a copy of the table, which is the calling thread's alone.
            let done =
                unsafe { syscall(libc::SYS_close_range, [0, u32::MAX as usize, UNSHARE, 0, 0, 0]) };
            // SAFETY: no preconditions.
            let process = unsafe { libc::getpid() } as usize;
            match (done, way as usize) {
                // Refused before Linux 5.9: then there is nothing to be lost.
                (Err(_), _) | (_, 0) => write(TEXT),
                (_, 1) => _ = copied(process).map(|copy| write_to(copy.descriptor(), TEXT)),
                _ => _ = opened(process).map(|copy| write_to(copy.descriptor(), TEXT)),
            }
            core::ptr::null_mut()
        }
        for way in 0..3usize {
            let mut ends = [0; 2];
            // SAFETY: two descriptors, which the file and this function own.
            let (mut from, child) = unsafe {
                assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
                (std::fs::File::from_raw_fd(ends[0]), libc::fork())
            };
            if child == 0 {
                // SAFETY: the child makes a thread, waits for it, and ends.
                unsafe {
                    libc::dup2(ends[1], libc::STDERR_FILENO);
                    let mut thread = core::mem::zeroed();
                    let way = core::ptr::without_provenance_mut(way);
                    if libc::pthread_create(&mut thread, core::ptr::null(), say, way) == 0 {
                        libc::pthread_join(thread, core::ptr::null_mut());
                    }
                    libc::_exit(0);
                }
            }
            let mut heard = std::vec::Vec::new();
            // SAFETY: our end, and a child of ours.
            unsafe { libc::close(ends[1]) };
            assert!(from.as_raw_fd() >= 0 && from.read_to_end(&mut heard).is_ok());
            // SAFETY: the child is this process's own.
            unsafe { libc::waitpid(child, &mut 0, 0) };
            // A filter may refuse the copy; the file can be opened then.
            assert!(heard == TEXT || way == 1 && heard.is_empty(), "{way}: {heard:?}");
        }
    }
}
