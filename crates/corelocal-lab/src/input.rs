//! Reads a file that a command names and another user may own.
//!
//! Invariant: no FIFO or device is opened (`content.rs`), and an endless file of another user does not fill this
//! process's memory.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::content::{self, MOST_COPIED, is_trusted};

/// Reads a whole file. A pipe without a name, of this process's user or of root, is read to its end.
///
/// # Errors
/// The file cannot be opened or read; it is neither regular nor such a pipe; or another user may write to it, and it has
/// 1 GiB or more.
///
/// # Examples
/// ```
/// let bytes = corelocal_lab::input::read("/proc/self/exe".as_ref())?;
/// assert!(bytes.starts_with(b"\x7fELF"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = open_to_read(path)?;
    let meta = file.metadata()?;
    let most = if is_trusted(&meta) { u64::MAX } else { MOST_COPIED };
    // The length of a pipe is 0.
    if meta.len() < most {
        (&file).take(most).read_to_end(&mut bytes)?;
    }
    if meta.len().max(bytes.len() as u64) >= most {
        let size = MOST_COPIED >> 20;
        return Err(io::Error::other(format!(
            "other users may write to it, and it is not smaller than {size} MiB"
        )));
    }
    Ok(bytes)
}

/// Reads the first `most` bytes of a regular file, or all where it has fewer.
///
/// # Errors
/// The file cannot be opened or read, or is no regular file. Nothing is taken out of a pipe.
pub fn read_start(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = content::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn open_to_read(path: &Path) -> io::Result<File> {
    let file = content::open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !kind.is_file() {
        wait_for_content(&file)?;
    }
    Ok(file)
}

fn is_of_trusted_user(file: &File) -> io::Result<bool> {
    let owner = file.metadata()?.uid();
    // SAFETY: no preconditions.
    Ok(owner == 0 || owner == unsafe { libc::geteuid() })
}

/// Lets reads of a file that is no regular one wait, where it is of this process's user or root.
pub(crate) fn wait_for_content(file: &File) -> io::Result<()> {
    if !is_of_trusted_user(file)? {
        return Err(io::Error::other("it is no file, and another user's"));
    }
    // SAFETY: an open descriptor and numbers. It is of this process alone; no other flag of it can be changed.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_and_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "content").unwrap();
        assert_eq!(read(&path).unwrap(), b"content");
        assert_eq!(read_start(&path, 3).unwrap(), b"con");
        assert_eq!(read_start(&path, 30).unwrap(), b"content");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read(dir.path()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        // A FIFO is not opened: its writer would go on.
        make_fifo(&path, 0o600);
        assert!(read(&path).unwrap_err().to_string().contains("neither a regular file"));
        assert!(read_start(&path, 8).is_err());
        // A pipe without a name is waited for.
        let mut command = std::process::Command::new("sh");
        command
            .args(["-c", "sleep 0.1; printf 'from a pipe'"])
            .stdout(std::process::Stdio::piped());
        let mut shell = command.spawn().unwrap();
        let path = format!("/proc/self/fd/{}", shell.stdout.as_ref().unwrap().as_raw_fd());
        assert!(read_start(path.as_ref(), 8).is_err());
        assert_eq!(read(path.as_ref()).unwrap(), b"from a pipe");
        assert!(shell.wait().unwrap().success());
    }

    fn make_fifo(path: &Path, mode: libc::mode_t) {
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a path that ends with NUL.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), mode) }, 0);
    }

    #[test]
    fn what_another_user_owns_has_a_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let file = File::create(&path).unwrap();
        file.set_len(MOST_COPIED + 1).unwrap();
        if std::os::unix::fs::chown(&path, Some(65534), None).is_err() {
            eprintln!("skipped: what_another_user_owns_has_a_limit: needs root");
            return;
        }
        assert!(read(&path).unwrap_err().to_string().contains("not smaller than 1024 MiB"));
    }
}
