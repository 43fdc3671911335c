//! Opens a single file in a child process, with a time limit.
//!
//! It is for paths such as `/proc/PROCESS/fd/N`, for which another user chose what they lead to: a file of a FUSE mount
//! whose server does not answer would hold up the process that opens it, or only asks for its status.
//!
//! Invariants:
//! - This process touches no path that another user chose. It gets a descriptor of a regular file, for which no process
//!   of another user answers.
//! - The child has [`PATIENCE_FOR_ONE`] for a file, and [`PATIENCE`] for all files of a [`SingleOpener`].

use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use super::aside::Child;
use super::opener::{PATIENCE, PATIENCE_FOR_ONE, receive, send};
use crate::content::{is_in_overlay_of, may_keep_waiting, open};

/// In place of an error number, which is smaller.
const NO_NUMBER: u8 = 253;
const NOT_REGULAR: u8 = 254;
const KEEPS_WAITING: u8 = 255;

/// Opens files in child processes; knows how long that took so far.
#[derive(Debug, Default)]
pub struct SingleOpener {
    taken: Duration,
    /// The folder in /proc of a process in whose overlays files may lie.
    process: Option<File>,
}

impl SingleOpener {
    /// For files of a process, or of a thread, whose folder in /proc this is: those may lie in overlays of its mount
    /// namespace, if that belongs to the user namespace of this process, as a container's of the machine's root does.
    ///
    /// # Errors
    /// The process has ended, or /proc is not mounted.
    pub fn of_process(folder: &Path) -> io::Result<SingleOpener> {
        Ok(SingleOpener { taken: Duration::ZERO, process: Some(File::open(folder)?) })
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// The file cannot be opened, is no regular file that a file system stores, or lies in a FUSE mount or in another
    /// overlay than those of this mount namespace and of [`of_process`](Self::of_process)
    /// ([`Unsupported`](io::ErrorKind::Unsupported)); or to find that out took too long.
    ///
    /// # Examples
    /// ```
    /// let file = corelocal_lab::callers::SingleOpener::default().open("/proc/self/exe".as_ref())?;
    /// assert!(file.metadata()?.is_file());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn open(&mut self, path: &Path) -> io::Result<File> {
        let left = PATIENCE.saturating_sub(self.taken).min(PATIENCE_FOR_ONE);
        let began = Instant::now();
        let answer = match left.is_zero() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Child::start(left, |socket| answer(path, self.process.as_ref(), &socket))
                .and_then(|mut child| receive(&mut child)),
        };
        self.taken = self.taken.saturating_add(began.elapsed());
        match answer {
            Ok((_, Some(file))) => Ok(file),
            Ok((KEEPS_WAITING, None)) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "it lies in a FUSE mount, or in an overlay of another user namespace, for which a process of another \
                 user may answer",
            )),
            Ok((NOT_REGULAR, None)) => {
                Err(io::Error::other("it is no regular file that a file system stores"))
            }
            Ok((NO_NUMBER, None)) => Err(io::Error::other("it cannot be opened")),
            Ok((number, None)) => Err(io::Error::from_raw_os_error(number.into())),
            Err(error) => Err(match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => io::Error::new(
                    io::ErrorKind::TimedOut,
                    "to open it took too long, as it does where the server of a network or FUSE mount does not answer",
                ),
                _ => error,
            }),
        }
    }
}

/// In the child.
fn answer(path: &Path, process: Option<&File>, socket: &UnixStream) -> io::Result<()> {
    #[cfg(test)]
    super::tests::before_opening(path);
    let judged = open(path).and_then(|file| Ok((file.metadata()?.is_file(), file)));
    let is_theirs = |file| process.is_some_and(|process| is_in_overlay_of(process, file));
    match judged {
        Ok((true, file)) if !may_keep_waiting(&file) || is_theirs(&file) => {
            send(socket, 0, Some(file))
        }
        Ok((true, _)) => send(socket, KEEPS_WAITING, None),
        Ok((false, _)) => send(socket, NOT_REGULAR, None),
        Err(error) => {
            let number = error.raw_os_error().and_then(|number| u8::try_from(number).ok());
            let number = number.filter(|number| *number < NO_NUMBER);
            let unknown = if error.get_ref().is_some() { NOT_REGULAR } else { NO_NUMBER };
            send(socket, number.unwrap_or(unknown), None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_opened_and_others_refused() {
        let mut opener = SingleOpener::default();
        assert!(opener.open(Path::new("/proc/self/exe")).unwrap().metadata().unwrap().is_file());
        let why = |path: &str| SingleOpener::default().open(Path::new(path)).unwrap_err();
        assert_eq!(why("/no/such/file").kind(), io::ErrorKind::NotFound);
        for path in ["/", "/dev/null", "/proc/self/status"] {
            assert!(why(path).to_string().contains("no regular file"), "{path}");
        }
        let hangs = opener.open(Path::new(super::super::tests::HANGS)).unwrap_err();
        assert_eq!(hangs.kind(), io::ErrorKind::TimedOut);
        assert!(opener.taken >= PATIENCE_FOR_ONE);
        // Without time, no child is asked.
        opener.taken = PATIENCE;
        let why = opener.open(Path::new("/proc/self/exe")).unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::TimedOut);
    }
}
