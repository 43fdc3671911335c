//! Reads a file that a command names and another user may own.
//!
//! Invariant: a FIFO, a device and an endless file of another user neither hold this process up nor fill its memory.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::content::{self, MOST_COPIED, is_trusted};

/// Reads a whole file. A pipe of this process's user or of root is read to its end.
///
/// # Errors
/// The file cannot be opened or read; it belongs to another user and is no regular file; or another user may write to
/// it, and it has 1 GiB or more.
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
    if !file.metadata()?.is_file() {
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
        // A FIFO without a writer has no content.
        let fifo = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a path that ends with NUL.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        assert_eq!(read(&path).unwrap(), b"");
        assert!(read_start(&path, 8).is_err());
        // One with a writer is waited for.
        let opener = std::thread::spawn({
            let path = path.clone();
            move || {
                // The reader's end first: without one, this open would wait.
                let both = File::options().read(true).write(true).open(&path).unwrap();
                let mut writer = File::options().write(true).open(&path).unwrap();
                io::Write::write_all(&mut writer, b"from a pipe").unwrap();
                (both, writer)
            }
        });
        let both = opener.join().unwrap();
        let reader = std::thread::spawn({
            let path = path.clone();
            move || read(&path).unwrap()
        });
        // The reader may hold the FIFO open or not yet: the bytes wait in it for as long as `both` does.
        while !reader.is_finished() && !is_empty(&both.0) {
            std::thread::yield_now();
        }
        drop(both);
        assert_eq!(reader.join().unwrap(), b"from a pipe");
    }

    /// Whether nothing is left in the pipe.
    fn is_empty(pipe: &File) -> bool {
        let mut bytes: libc::c_int = 0;
        // SAFETY: FIONREAD writes an int.
        assert_eq!(unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &mut bytes) }, 0);
        bytes == 0
    }

    #[test]
    fn what_another_user_owns_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fifo");
        let fifo = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a path that ends with NUL.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o666) }, 0);
        if std::os::unix::fs::chown(&path, Some(65534), None).is_err() {
            eprintln!("skipped: what_another_user_owns_is_not_waited_for: needs root");
            return;
        }
        let _writer = File::options().read(true).write(true).open(&path).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("another user"));
        std::fs::remove_file(&path).unwrap();
        let file = File::create(&path).unwrap();
        file.set_len(MOST_COPIED + 1).unwrap();
        std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("not smaller than 1024 MiB"));
    }
}
