//! Standard input for a program that is run several times: each run is to read the same.
//!
//! A file is read again from where it stood. What comes through a pipe is kept in memory. A terminal has
//! nothing to give twice: such a program gets no input.
//!
//! Invariant: a program that is run once has our own standard input.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd as _, FromRawFd as _};
use std::os::unix::fs::FileTypeExt as _;
use std::process::Stdio;

use anyhow::Context as _;

/// The standard input of a program's runs: see the module's text.
pub enum Input {
    /// Our own standard input, unchanged.
    Ours,
    /// Our own standard input, a file, from this offset on.
    From(u64),
    /// The bytes that were read from our own standard input.
    Kept(File),
    /// No input.
    Nothing,
}

impl Input {
    /// Creates one for one run, or for several.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn new(again: bool) -> anyhow::Result<Self> {
        if !again {
            return Ok(Input::Ours);
        }
        // SAFETY: `ManuallyDrop` leaves the descriptor open, which is only borrowed.
        let ours = ManuallyDrop::new(unsafe { File::from_raw_fd(libc::STDIN_FILENO) });
        let Ok(meta) = ours.metadata() else { return Ok(Input::Nothing) };
        if meta.is_file() {
            return Ok(Input::From((&*ours).stream_position().unwrap_or(0)));
        }
        let kind = meta.file_type();
        if !kind.is_fifo() && !kind.is_socket() {
            // A terminal, or a device as /dev/null.
            return Ok(Input::Nothing);
        }
        let mut kept = in_memory().context("no space to store standard input")?;
        io::copy(&mut &*ours, &mut kept).context("standard input cannot be read")?;
        Ok(Input::Kept(kept))
    }

    /// Returns the standard input of the next run.
    ///
    /// # Errors
    /// When it cannot be read again.
    pub fn next(&mut self) -> anyhow::Result<Stdio> {
        match self {
            Input::Ours => Ok(Stdio::inherit()),
            Input::Nothing => Ok(Stdio::null()),
            Input::From(at) => {
                // SAFETY: as in `new`.
                let ours = ManuallyDrop::new(unsafe { File::from_raw_fd(libc::STDIN_FILENO) });
                (&*ours)
                    .seek(SeekFrom::Start(*at))
                    .context("standard input cannot be read again")?;
                Ok(Stdio::inherit())
            }
            Input::Kept(file) => {
                file.rewind().context("standard input cannot be read again")?;
                Ok(file.as_fd().try_clone_to_owned().context("no descriptor is left")?.into())
            }
        }
    }
}

fn in_memory() -> io::Result<File> {
    // SAFETY: the name ends with a zero byte.
    let fd = unsafe { libc::memfd_create(c"corelocal-stdin".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor, which is owned by nothing else.
    Ok(unsafe { File::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn what_was_kept_is_read_by_each() {
        let mut file = in_memory().unwrap();
        file.write_all(b"text").unwrap();
        let mut input = Input::Kept(file);
        for _ in 0..3 {
            let output = Command::new("cat").stdin(input.next().unwrap()).output().unwrap();
            assert_eq!(output.stdout, b"text");
        }
    }
}
