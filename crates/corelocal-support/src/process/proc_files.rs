//! Reads files of `/proc/PROCESS`.
//!
//! Invariant: bytes that are not UTF-8, in the name of a mapped file or of the process, cost no more than that name.

use std::{fs, io};

/// Returns the content of `/proc/PROCESS/NAME`; empty if it cannot be read.
pub fn bytes(process: u32, name: &str) -> Vec<u8> {
    fs::read(format!("/proc/{process}/{name}")).unwrap_or_default()
}

/// Returns the environment with which a process began.
pub fn environment(process: u32) -> Vec<u8> {
    bytes(process, "environ")
}

/// Returns the same as text.
pub fn text(process: u32, name: &str) -> String {
    lossy(bytes(process, name))
}

/// Returns the list of its mappings; `None` if the process has ended.
///
/// # Errors
/// The file cannot be read, although the process may run.
pub fn maps(process: u32) -> io::Result<Option<String>> {
    match fs::read(format!("/proc/{process}/maps")) {
        Ok(maps) if maps.is_empty() => Ok(None),
        Ok(maps) => Ok(Some(lossy(maps))),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => Ok(None),
            _ => Err(error),
        },
    }
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
    fn a_process_that_is_gone_has_ended() {
        assert!(maps(u32::MAX).expect("no process").is_none());
        assert_eq!(text(u32::MAX, "comm"), "");
    }

    #[test]
    fn a_mapped_file_may_have_any_name() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join(OsStr::from_bytes(b"caf\xe9"));
        let Ok(()) = fs::write(&path, "content") else {
            return eprintln!("skipped: a_mapped_file_may_have_any_name: no such names here");
        };
        let file = fs::File::open(&path).expect("a file");
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
