//! A recording to disk in several files: the newest has its name, the others `.1`, `.2` and so on behind it.
//!
//! # Invariants
//! 1. A file keeps the place that was reserved for its buffers, so none is longer than asked for.
//! 2. A record is in one file. A buffer of which an earlier file has the beginning goes on in the next one, behind a record of
//!    the thread, cpu and span at that place.
//! 3. The next file is made before others are renamed. What is replaced is a recording.

use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::FromRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::dump::{Source, replaceable};
use super::format::{
    BUFFER_HEADER_LEN, CONTEXT, CURRENT, HEADER_LEN, Kind, MAGIC, SITE_KIND, SITE_LEN, SPAN_END,
};
use crate::sys::file::shared_memory;

/// The number of words in a context record, with the time.
pub(super) const CONTEXT_WORDS: usize = 6;
/// The index of the span's word in such a record.
const SPAN: usize = 5;

/// The maximum length of files, and the number that is kept.
#[derive(Clone, Debug)]
pub(super) struct Rotation {
    pub(super) path: PathBuf,
    pub(super) most_bytes: u64,
    pub(super) files: u32,
}

impl Rotation {
    fn place(&self, nth: u32) -> PathBuf {
        behind(&self.path, &std::format!("{nth}"))
    }

    /// Looks whether the names may be taken.
    ///
    /// # Errors
    /// A file has one of the names that is no recording.
    pub(super) fn check(&self) -> io::Result<()> {
        let is_used = self.most_bytes < u64::MAX;
        let is_free = |nth| {
            replaceable(&self.place(nth)).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => io::Error::from_raw_os_error(libc::EEXIST),
                _ => error,
            })
        };
        (1..self.files).filter(|_| is_used).try_for_each(is_free)
    }

    /// Makes the next file, and renames the others.
    ///
    /// # Errors
    /// The file cannot be made, the others cannot be renamed, or the oldest one's name has another file meanwhile.
    pub(super) fn next(&self) -> io::Result<File> {
        let part = behind(&self.path, "part");
        let place = |nth| self.place(nth);
        let oldest = self.files - 1;
        replaceable(&place(oldest))?;
        let name = CString::new(part.as_os_str().as_bytes())?;
        let made = shared_memory::create_anew(&name, MAGIC, 0o666);
        let descriptor = made.map_err(|errno| io::Error::from_raw_os_error(errno.0))?;
        // SAFETY: a new descriptor, which nothing else owns.
        let made = unsafe { File::from_raw_fd(descriptor as i32) };
        let all = (1..oldest).rev().map(|nth| (place(nth), place(nth + 1)));
        for (from, to) in all.chain([(self.path.clone(), place(1))]) {
            match fs::rename(from, to) {
                // Another process may have moved or removed one: the recording goes on.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(&part, &self.path)?;
        Ok(made)
    }
}

fn behind(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".");
    name.push(ending);
    name.into()
}

/// Makes the record of the thread, cpu and span in front of this word of a buffer. (2)
pub(super) fn context(
    memory: &(impl Source + ?Sized),
    words: &[u64],
    end: usize,
) -> Option<[u64; CONTEXT_WORDS]> {
    let mut context: Option<[u64; CONTEXT_WORDS]> = None;
    let mut at = BUFFER_HEADER_LEN / 8;
    while at + 1 < end {
        let first = words[at + 1];
        let what = first as u16;
        // Fields begin in the upper half of a word.
        let field = |nth: usize| {
            let (low, high) = (words.get(at + 1 + nth)?, words.get(at + 2 + nth)?);
            Some(low >> 32 | high << 32)
        };
        let span = match what {
            CONTEXT => {
                context = words.get(at..at + CONTEXT_WORDS)?.try_into().ok();
                None
            }
            CURRENT => field(0),
            _ if kind(memory, what & !SPAN_END) != Some(Kind::Span) => None,
            _ if what & SPAN_END == 0 => field(0),
            _ => field(1),
        };
        if let (Some(context), Some(span)) = (&mut context, span) {
            context[SPAN] = span;
        }
        at += 1 + (first >> 16 & 0xffff).max(1) as usize;
    }
    context
}

fn kind(memory: &(impl Source + ?Sized), site: u16) -> Option<Kind> {
    let mut word = [0];
    let at = HEADER_LEN + usize::from(site).checked_sub(1)? * SITE_LEN;
    memory.words(at, &mut word).ok()?;
    Kind::of_number(word[0].to_le_bytes()[SITE_KIND])
}
