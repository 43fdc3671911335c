//! Reading of files that a user names, or that a program has mapped.
//!
//! Invariants:
//! - Opening a file never blocks: a FIFO without a writer is read to its end at once.
//! - At most a fixed number of bytes of a file are read: [`MOST`], unless the caller sets a smaller limit.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

/// The maximum number of bytes that are read of a file.
pub const MOST: u64 = 4 << 30;

/// Reads a whole regular file of at most `most` bytes, or a pipe such as a shell's `<(…)` to its end.
///
/// # Errors
/// - The file cannot be opened or read.
/// - It is neither a regular file nor a pipe.
/// - It has more than `most` bytes ([`ErrorKind::FileTooLarge`]).
///
/// # Examples
/// ```
/// use corelocal_symbols::input;
///
/// let bytes = input::read("/proc/self/exe".as_ref(), input::MOST)?;
/// assert!(bytes.starts_with(b"\x7fELF"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    if kind.is_fifo() {
        // The pipe's writer may be slow, so reads must block. SAFETY: an open descriptor and numbers.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
    } else if !kind.is_file() {
        return Err(io::Error::other("it is neither a regular file nor a pipe"));
    }
    at_most(&file, most)
}

/// The maximum number of bytes of a text that people write: a scenario, a plan.
const MOST_TEXT: u64 = 1 << 20;

/// Reads a text that people write, as [`read`] does; it has at most a MiB.
///
/// # Errors
/// As [`read`]; or it is not UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    let bytes = read(path, MOST_TEXT)?;
    String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not UTF-8"))
}

/// Reads the first `most` bytes of a regular file, or all of a shorter one. Nothing is taken out of a pipe.
///
/// # Errors
/// The file cannot be opened or read, or is not a regular file.
pub fn read_start(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a whole regular file of at most `most` bytes.
pub(crate) fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    at_most(&open_regular(path)?, most)
}

fn at_most(file: &File, most: u64) -> io::Result<Vec<u8>> {
    let too_large = || {
        let why = format!("it has more than {} MiB", most >> 20);
        io::Error::new(ErrorKind::FileTooLarge, why)
    };
    if file.metadata()?.len() > most {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(too_large()) } else { Ok(bytes) }
}

fn open_regular(path: &Path) -> io::Result<File> {
    let file = open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is not a regular file"))
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_and_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "content").unwrap();
        assert_eq!(read(&path, MOST).unwrap(), b"content");
        assert_eq!(read_start(&path, 3).unwrap(), b"con");
        assert_eq!(read_start(&path, 30).unwrap(), b"content");
        assert_eq!(read_regular(&path, 7).unwrap(), b"content");
        assert_eq!(read_regular(&path, 6).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(read(dir.path(), MOST).unwrap_err().kind(), ErrorKind::IsADirectory);
        assert!(
            read("/dev/zero".as_ref(), MOST).unwrap_err().to_string().contains("neither a regular")
        );
        assert!(read_start("/dev/zero".as_ref(), 3).is_err());
        assert_eq!(read_text(&path).unwrap(), "content");
        assert!(read_text("/dev/zero".as_ref()).is_err());
        let long = dir.path().join("long");
        std::fs::File::create(&long).unwrap().set_len(MOST_TEXT + 1).unwrap();
        assert_eq!(read_text(&long).unwrap_err().kind(), ErrorKind::FileTooLarge);
        std::fs::write(&long, [0xff]).unwrap();
        assert_eq!(read_text(&long).unwrap_err().kind(), ErrorKind::InvalidData);
        // A FIFO without a writer is empty.
        std::fs::remove_file(&path).unwrap();
        let fifo = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a path that ends with NUL.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        assert_eq!(read(&path, MOST).unwrap(), b"");
        assert!(read_start(&path, 8).is_err());
        // A slow writer is waited for.
        let mut command = std::process::Command::new("sh");
        command
            .args(["-c", "sleep 0.1; printf 'from a pipe'"])
            .stdout(std::process::Stdio::piped());
        let mut shell = command.spawn().unwrap();
        let path = format!("/proc/self/fd/{}", shell.stdout.as_ref().unwrap().as_raw_fd());
        assert!(read_start(path.as_ref(), 8).is_err());
        assert_eq!(read(path.as_ref(), MOST).unwrap(), b"from a pipe");
        assert!(shell.wait().unwrap().success());
    }
}
