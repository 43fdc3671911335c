//! Judges and opens a program's files in a child process.
//!
//! To find out what a path leads to may take for ever: the server of a network mount may be gone, and that of a FUSE
//! mount be another user's, which does not answer. No timeout ends that, and a signal does not always. So this process
//! touches no path. It gets descriptors of files that are trusted.
//!
//! Invariants:
//! - A file that the child is not done with in time is not touched again, by any child.
//! - All files together have [`PATIENCE`].
//! - A file of a FUSE mount, or of an overlay of another mount namespace, is not trusted, whichever owner is reported:
//!   to read it may take for ever, too.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, FromRawFd as _, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::OnDisk;
use super::aside::Child;
use crate::content::{is_trusted, may_keep_waiting};

/// How long the child may take for one file.
pub(super) const PATIENCE_FOR_ONE: Duration = Duration::from_secs(5);
/// And for all of them.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

const JUDGE: u64 = 1;
const OPEN: u64 = 2;

/// What is known of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is none, or it cannot be opened.
    Missing = 0,
    /// Only this process's user and root may write to it.
    Trusted = 1,
    /// Others may, too.
    Untrusted = 2,
    /// It was not known in time, or no child could be started.
    Unreachable = 3,
}

/// A child that opens files, and what it said of them.
#[derive(Default)]
pub struct Opener(RefCell<State>);

#[derive(Default)]
struct State {
    child: Option<Child>,
    /// Of all files, or of none yet.
    verdicts: Vec<Verdict>,
    /// How long the answers took so far.
    taken: Duration,
}

impl Opener {
    /// What is known of each of the files, which are always the same ones. The first call asks the child.
    pub fn verdicts(&self, files: &[OnDisk]) -> Vec<Verdict> {
        let state = &mut *self.0.borrow_mut();
        state.judge(files);
        state.verdicts.clone()
    }

    /// Whether a child did not come back from this file.
    pub fn is_unreachable(&self, file: usize) -> bool {
        self.0.borrow().verdicts.get(file) == Some(&Verdict::Unreachable)
    }

    /// A file, if it is trusted.
    pub fn open(&self, files: &[OnDisk], file: usize) -> Option<File> {
        let state = &mut *self.0.borrow_mut();
        state.judge(files);
        if *state.verdicts.get(file)? != Verdict::Trusted {
            return None;
        }
        let opened = state.ask(files, |child| {
            child.send(&words([OPEN, file as u64]))?;
            receive(child).map(|(_, file)| file)
        });
        if opened.is_err() {
            state.verdicts[file] = Verdict::Unreachable;
        }
        opened.ok().flatten()
    }
}

impl State {
    fn judge(&mut self, files: &[OnDisk]) {
        let mut is_asked = false;
        while self.verdicts.len() < files.len() {
            let next = self.verdicts.len() as u64;
            let verdict = self.ask(files, |child| {
                if !is_asked {
                    child.send(&words([JUDGE, next]))?;
                }
                let mut word = [0; 8];
                child.receive(&mut word)?;
                match u64::from_le_bytes(word) {
                    0 => Ok(Verdict::Missing),
                    1 => Ok(Verdict::Trusted),
                    2 => Ok(Verdict::Untrusted),
                    _ => Err(io::ErrorKind::InvalidData.into()),
                }
            });
            // After an error another child goes on with the next file.
            is_asked = verdict.is_ok();
            self.verdicts.push(verdict.unwrap_or(Verdict::Unreachable));
        }
    }

    /// Asks the child, which ends with an error.
    fn ask<T>(
        &mut self,
        files: &[OnDisk],
        ask: impl FnOnce(&mut Child) -> io::Result<T>,
    ) -> io::Result<T> {
        let began = Instant::now();
        let answer = self.child(files).and_then(ask);
        self.taken = self.taken.saturating_add(began.elapsed());
        if answer.is_err() {
            self.child = None;
        }
        answer
    }

    fn child(&mut self, files: &[OnDisk]) -> io::Result<&mut Child> {
        let left = PATIENCE.saturating_sub(self.taken);
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let child = match self.child.take() {
            Some(child) => child,
            None => Child::start(left, |socket| serve(files, socket))
                .inspect_err(|_| self.taken = PATIENCE)?,
        };
        let child = self.child.insert(child);
        child.until = Instant::now() + left.min(PATIENCE_FOR_ONE);
        Ok(child)
    }
}

fn words(words: [u64; 2]) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// In the child: answers until the parent has no more questions.
fn serve(files: &[OnDisk], mut socket: UnixStream) -> io::Result<()> {
    loop {
        let [kind, file] = [(); 2].map(|()| {
            let mut word = [0; 8];
            socket.read_exact(&mut word).map(|()| u64::from_le_bytes(word))
        });
        let (kind, file) = (kind?, usize::try_from(file?).unwrap_or(usize::MAX));
        match kind {
            JUDGE => {
                for file in files.get(file..).unwrap_or_default() {
                    let (verdict, _) = judge(file);
                    socket.write_all(&(verdict as u64).to_le_bytes())?;
                }
            }
            OPEN => {
                let judged = files.get(file).map(judge);
                let trusted = judged.filter(|(verdict, _)| *verdict == Verdict::Trusted);
                send(&socket, 0, trusted.and_then(|(_, opened)| opened))?;
            }
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

fn judge(file: &OnDisk) -> (Verdict, Option<File>) {
    let Some(opened) = file.open() else { return (Verdict::Missing, None) };
    let verdict = match opened.metadata() {
        Ok(meta) if !meta.is_file() => Verdict::Missing,
        Ok(meta) if is_trusted(&meta) && !may_keep_waiting(&opened) => Verdict::Trusted,
        Ok(_) => Verdict::Untrusted,
        Err(_) => Verdict::Missing,
    };
    (verdict, Some(opened))
}

/// Room for the head of a control message and a descriptor.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// A message of this byte, with room for a descriptor.
fn message(byte: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: integers and pointers, for which 0 is valid: no address, no bytes and no control message.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = byte;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    message
}

/// In the child: a byte, and the file if there is one.
pub(super) fn send(socket: &UnixStream, byte: u8, file: Option<File>) -> io::Result<()> {
    let mut byte = [byte];
    let mut bytes = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let mut control = Control([0; 64]);
    let mut message = message(&mut bytes, &mut control);
    match &file {
        Some(file) => {
            let size = size_of::<RawFd>() as libc::c_uint;
            // SAFETY: `control` is aligned for the head and longer than it and a descriptor, so that the head is there
            // and what is written lies within.
            unsafe {
                message.msg_controllen = libc::CMSG_SPACE(size) as _;
                let head = libc::CMSG_FIRSTHDR(&message);
                (*head).cmsg_level = libc::SOL_SOCKET;
                (*head).cmsg_type = libc::SCM_RIGHTS;
                (*head).cmsg_len = libc::CMSG_LEN(size) as _;
                libc::CMSG_DATA(head).cast::<RawFd>().write_unaligned(file.as_raw_fd());
            }
        }
        None => message.msg_controllen = 0,
    }
    // SAFETY: the message, its byte and its control message live until the call is over.
    match unsafe { libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_NOSIGNAL) } {
        1 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What [`send`] sends.
pub(super) fn receive(child: &mut Child) -> io::Result<(u8, Option<File>)> {
    let mut byte = [0_u8];
    let mut bytes = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let mut control = Control([0; 64]);
    let mut message = message(&mut bytes, &mut control);
    loop {
        let socket = child.socket_for_reading()?;
        // SAFETY: the message, its byte and its control message live until the call is over, and may be written to.
        match unsafe { libc::recvmsg(socket, &mut message, libc::MSG_CMSG_CLOEXEC) } {
            1 => break,
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
    // SAFETY: the kernel wrote the control message; its head, if there is one, lies within `control`. A message of
    // descriptors has at least one, which is new and which nothing else owns.
    unsafe {
        let head = libc::CMSG_FIRSTHDR(&message);
        if head.is_null()
            || (*head).cmsg_level != libc::SOL_SOCKET
            || (*head).cmsg_type != libc::SCM_RIGHTS
        {
            return Ok((byte[0], None));
        }
        let file = File::from_raw_fd(libc::CMSG_DATA(head).cast::<RawFd>().read_unaligned());
        Ok((byte[0], Some(file)))
    }
}
