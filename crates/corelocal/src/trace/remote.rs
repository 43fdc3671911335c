//! Requests to the background thread of another process, by way of the header of its recording.
//!
//! # Invariants
//! 1. One process at a time makes a request: it has the lock of the file. The lock of a process that dies is released.
//! 2. The answer is believed only as a number.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use std::format;
use std::io::{self, Error, ErrorKind};

use super::format::{HEADER_LEN, MAGIC, RULE_LEN, header};
use crate::sys::file::shared_file::{Mapping, SharedFile};
use crate::sys::file::trust::{self, Owners, Rule};
use crate::sys::futex::{Deadline, Scope};
use crate::sys::{Errno, sleep};

/// The time for which a request waits for its answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The recording of another process.
#[doc(hidden)]
pub struct Remote {
    file: SharedFile,
    header: Mapping,
}

impl Remote {
    /// Opens the memory of a recording: `/proc/PROCESS/fd/N`, or its file.
    ///
    /// # Errors
    /// It cannot be opened for writing, other users may write to it, or it is no recording.
    pub fn open(path: &CStr) -> io::Result<Remote> {
        let file = SharedFile::open_linked(path).map_err(error)?;
        let status = file.status().map_err(error)?;
        // A sealed file cannot be cut, which would be a SIGBUS here.
        let (owners, refused_mode) = match file.is_sealed() {
            true => (Owners::Any, 0),
            false => (Owners::OwnOrRoot, trust::OTHERS_WRITE),
        };
        let rule = Rule { owners, refused_mode, may_be_device: false };
        let untrusted = "another user may change it: run this as the user of the process";
        rule.judge(&status).map_err(|_| Error::new(ErrorKind::PermissionDenied, untrusted))?;
        let none =
            || Error::new(ErrorKind::InvalidData, "it is no recording of corelocal's tracer");
        if status.len < HEADER_LEN as u64 {
            return Err(none());
        }
        let remote = Remote { header: file.map(HEADER_LEN, true).map_err(error)?, file };
        match remote.word(header::MAGIC).load(Ordering::Acquire) {
            MAGIC => Ok(remote),
            _ => Err(none()),
        }
    }

    /// Switches the sites of the process whose names match a pattern: they record none of their events (0), all (1), or
    /// one of so many. Returns how many of those that were reached match.
    ///
    /// # Errors
    /// The process has no background thread, it does not answer, or it refuses.
    pub fn switch(&self, pattern: &str, every: u32) -> io::Result<u64> {
        if self.word(header::HAS_THREAD).load(Ordering::Relaxed) == 0 {
            let none = "its recording has no background thread, which would do this (no_thread, or a forked child)";
            return Err(Error::new(ErrorKind::Unsupported, none));
        }
        let text = match every {
            0 => format!("-{pattern}"),
            1 => format!("+{pattern}"),
            _ => format!("%{every} {pattern}"),
        };
        if pattern.is_empty() || text.len() > RULE_LEN - 1 || pattern.contains('\0') {
            let most = RULE_LEN - 1 - (text.len() - pattern.len());
            let wrong = format!("a pattern has 1 to {most} bytes, and no zero byte");
            return Err(Error::new(ErrorKind::InvalidInput, wrong));
        }
        if !self.file.lock().map_err(error)? {
            return Err(Error::new(
                ErrorKind::WouldBlock,
                "another process makes a request; try again",
            ));
        }
        let answer = self.ask(text.as_bytes());
        self.file.unlock();
        answer
    }

    fn ask(&self, text: &[u8]) -> io::Result<u64> {
        for (nth, byte) in text.iter().chain(&[0]).enumerate() {
            self.byte(header::REQUEST + nth).store(*byte, Ordering::Relaxed);
        }
        // Release: partner is the Acquire in `answer` of background.rs.
        let own = self.word(header::REQUESTED).fetch_add(1, Ordering::Release).wrapping_add(1);
        let work = self.futex_word(header::WORK);
        work.fetch_add(1, Ordering::Release);
        sleep::wake(work, u32::MAX, Scope::Shared);
        let answered = self.futex_word(header::ANSWERED);
        let deadline = Deadline::after(PATIENCE);
        loop {
            // Acquire: partner is the Release in `answer`.
            let now = answered.load(Ordering::Acquire);
            if now == own as u32 {
                break;
            }
            if deadline.remaining().is_zero() {
                let late = "it does not answer within five seconds: it may be stopped";
                return Err(Error::new(ErrorKind::TimedOut, late));
            }
            sleep::wait(answered, now, Some(deadline), Scope::Shared);
        }
        match self.word(header::ANSWER).load(Ordering::Relaxed) {
            u64::MAX => {
                let refused = "it refuses: it has 24 patterns, which `*` would replace, or is a forked child; or the level \
                               behind `@` is not error, warn, info, debug or trace";
                Err(Error::new(ErrorKind::InvalidInput, refused))
            }
            sites => Ok(sites),
        }
    }

    fn byte(&self, at: usize) -> &AtomicU8 {
        debug_assert!(at < HEADER_LEN);
        // SAFETY: within the mapping; all accesses are atomic.
        unsafe { &*self.header.at().add(at).cast::<AtomicU8>() }
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: an aligned word of the mapping, as `at` is one of `header`; all accesses are atomic.
        unsafe { &*core::ptr::from_ref(self.byte(at)).cast::<AtomicU64>() }
    }

    fn futex_word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: the lower half of a word of the mapping.
        unsafe { &*core::ptr::from_ref(self.word(at)).cast::<AtomicU32>() }
    }
}

fn error(errno: Errno) -> Error {
    Error::from_raw_os_error(errno.0)
}
