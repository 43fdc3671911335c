//! Tests of `stderr.rs`.

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
