//! Reads files of `/proc/PROCESS`, in which another user chose names, lengths and bytes.
//!
//! Invariants:
//! - At most a fixed number of bytes is read: the environment of a process may have as many as its memory.
//! - A name that is not UTF-8, of a mapped file or of the process, costs no more than that name.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use crate::process::proc_folder;

/// So much is read of a file. The kernel lets a program begin with 6 MiB of arguments and environment at most, and with
/// the usual limit of stacks with 2 MiB.
const MOST: u64 = 4 << 20;

/// So much is read of a list of maps: 65,530 areas, each with a path of 900 bytes.
const MOST_MAPS: u64 = 64 << 20;

/// The start of `/proc/PROCESS/NAME`; nothing where it cannot be read.
pub fn bytes(process: u32, name: &str) -> Vec<u8> {
    start(format!("/proc/{process}/{name}").as_ref(), MOST).unwrap_or_default()
}

/// The start of the environment with which a process began.
pub fn environment(process: u32) -> Vec<u8> {
    start(&proc_folder::of(process).join("environ"), MOST).unwrap_or_default()
}

/// The same as text.
pub fn text(process: u32, name: &str) -> String {
    lossy(bytes(process, name))
}

/// The whole lines in the start of the list of its mappings; `None` if the process has ended.
///
/// # Errors
/// The file cannot be read, although the process may run.
pub fn maps(process: u32) -> io::Result<Option<String>> {
    match start(&proc_folder::of(process).join("maps"), MOST_MAPS) {
        Ok(maps) if maps.is_empty() => Ok(None),
        Ok(maps) => Ok(Some(lossy(whole_lines(maps)))),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => Ok(None),
            _ => Err(error),
        },
    }
}

fn start(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Without a last line that has no end: a path of which the end is missing is another path.
fn whole_lines(mut text: Vec<u8>) -> Vec<u8> {
    let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    text.truncate(end);
    text
}

fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn an_endless_file_is_read_to_the_limit() {
        assert_eq!(start("/dev/zero".as_ref(), MOST).expect("a device").len() as u64, MOST);
        assert_eq!(whole_lines(b"a\nb\nc".to_vec()), b"a\nb\n");
        assert_eq!(whole_lines(b"abc".to_vec()), b"");
    }

    #[test]
    fn a_process_that_is_gone_has_ended() {
        assert!(maps(u32::MAX).expect("no process").is_none());
        assert_eq!(text(u32::MAX, "comm"), "");
    }

    #[test]
    fn a_process_without_its_first_thread_has_not_ended() {
        let process = proc_folder::tests::WithoutFirstThread::start();
        let maps = maps(process.id()).expect("readable").expect("a thread of it runs");
        assert!(maps.contains(" r-xp "), "{maps}");
        assert!(!environment(process.id()).is_empty());
    }

    #[test]
    fn a_mapped_file_may_have_any_name() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join(OsStr::from_bytes(b"caf\xe9"));
        let Ok(()) = std::fs::write(&path, "content") else {
            return eprintln!("skipped: a_mapped_file_may_have_any_name: no such names here");
        };
        let file = File::open(&path).expect("a file");
        let (read, private) = (libc::PROT_READ, libc::MAP_PRIVATE);
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let mapped =
            unsafe { libc::mmap(std::ptr::null_mut(), 7, read, private, file.as_raw_fd(), 0) };
        assert_ne!(mapped, libc::MAP_FAILED);
        let maps = maps(std::process::id());
        // SAFETY: the mapping of above, of which there is no reference.
        unsafe { libc::munmap(mapped, 7) };
        let maps = maps.expect("readable").expect("this process runs");
        assert!(maps.lines().any(|line| line.ends_with("/caf\u{fffd}")), "{maps}");
    }
}
