//! The background thread of a recording: it dumps when it is asked to, switches sites for other processes, and writes a
//! recording to disk.
//!
//! It sleeps on a futex word in the recording's header. Signal handlers, spans and other processes note what they want, add
//! 1 to the word, and wake it.
//!
//! # Invariants
//! 1. It handles none of the program's signals. It sleeps until there is something to do; with a recording to disk it
//!    looks for full buffers 10 to 100 times a second, more often if there are few.
//! 2. It has a table of descriptors of its own (`close_range(2)`, Linux 5.9): a program may close all of its, and the thread
//!    keeps none of them open. Where that is refused it uses the program's.
//! 3. A forked child has no such thread: its recording's header says so.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use core::time::Duration;
use std::borrow::ToOwned as _;
use std::boxed::Box;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::mpsc;
use std::thread;
use std::vec::Vec;

use super::drain::Drain;
use super::format::{RULE_LEN, header};
use super::memory::Recording;
use super::options::{Options, StartError, expand};
use super::triggers;
use crate::sys::futex::{Deadline, Scope};
use crate::sys::stderr::Line;
use crate::sys::{Errno, signals, sleep};

/// How long it sleeps between looks for full buffers: with 16 MiB of memory or more, else less.
const MOST_PAUSE: Duration = Duration::from_millis(100);
/// How long a flush waits.
const PATIENCE: Duration = Duration::from_secs(10);

static DUMP_IS_WANTED: AtomicBool = AtomicBool::new(false);
/// Whether the thread has a file.
static IS_TO_DISK: AtomicBool = AtomicBool::new(false);
/// Flushes that were asked for, and that are done; the error number of the last one.
static FLUSHES: AtomicU32 = AtomicU32::new(0);
static FLUSHED: AtomicU32 = AtomicU32::new(0);
static FLUSH_ERROR: AtomicI32 = AtomicI32::new(0);

/// Checks the options, before a recording is made.
pub(super) fn check(options: &Options<'_>) -> Result<(), StartError> {
    triggers::check(&options.background)?;
    let Some(path) = options.background.disk else { return Ok(()) };
    // It is emptied when the recording has started.
    let file = expand(path, 0).and_then(|path| {
        let path = OsStr::from_bytes(path.as_bytes());
        File::options().create(true).truncate(false).write(true).open(path).map_err(errno)
    });
    file.map(drop).map_err(StartError::NoFile)
}

/// Starts what the options ask for.
pub(super) fn start(recording: Recording, options: Options<'_>) -> Result<(), StartError> {
    let background = options.background;
    let disk = background.disk.map(|path| expand(path, 0)).transpose();
    let disk = disk.map_err(StartError::NoFile)?;
    let is_needed = disk.is_some() || background.signal != 0;
    if background.is_wanted || is_needed {
        let path = disk.map(|path| OsStr::from_bytes(path.as_bytes()).to_owned());
        let started = start_thread(recording, path);
        if is_needed && started.is_err() {
            // Else buffers would wait for a reader for ever.
            recording.word(header::IS_DRAINED).store(0, Ordering::Relaxed);
            return started;
        }
    }
    triggers::start(&background)
}

fn errno(error: io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(libc::EIO))
}

/// Starts the thread, and waits until it has its file.
fn start_thread(recording: Recording, disk: Option<OsString>) -> Result<(), StartError> {
    let (to, opened) = mpsc::channel();
    let body = move || {
        have_own_descriptors();
        let drain = disk.map(|path| {
            let file = File::options().write(true).open(path)?;
            Drain::new(Box::new(recording), file)
        });
        match drain.transpose() {
            // The other end waits for it.
            Err(error) => drop(to.send(Err(StartError::NoFile(errno(error))))),
            Ok(drain) => {
                IS_TO_DISK.store(drain.is_some(), Ordering::Relaxed);
                recording.word(header::HAS_THREAD).store(1, Ordering::Relaxed);
                let _ = to.send(Ok(()));
                run(&recording, drain)
            }
        }
    };
    let name = "corelocal-trace".into();
    signals::without(|| thread::Builder::new().name(name).spawn(body))
        .map_err(|error| StartError::NoThread(errno(error)))?;
    opened.recv().unwrap_or(Err(StartError::NoThread(Errno(libc::EIO))))
}

/// `close_range(0, ~0, CLOSE_RANGE_UNSHARE)`, see close_range(2). (2)
fn have_own_descriptors() {
    const CLOSE_RANGE_UNSHARE: libc::c_uint = 2;
    // SAFETY: the descriptors of the new table are the only ones that are closed, and this thread has used none.
    unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, CLOSE_RANGE_UNSHARE) };
}

/// The thread.
fn run(recording: &Recording, mut disk: Option<Drain>) {
    let work = recording.futex_word(header::WORK);
    let buffers = recording.word(header::BUFFERS).load(Ordering::Relaxed).min(256) as u32;
    let most = MOST_PAUSE * buffers / 256;
    let mut pause = most / 10;
    loop {
        // Acquire: partner is the Release in `wake`.
        let before = work.load(Ordering::Acquire);
        if DUMP_IS_WANTED.swap(false, Ordering::Relaxed) {
            triggers::dump_now();
        }
        answer(recording);
        let deadline = disk.as_mut().map(|drain| {
            pause = match write(recording, drain) {
                Ok(1..) => most / 10,
                Ok(0) => most.min(2 * pause),
                Err(_) => MOST_PAUSE,
            };
            Deadline::after(pause)
        });
        sleep::wait(work, before, deadline, Scope::Shared);
    }
}

/// Copies full buffers to the file, and all of them if a flush was asked for.
fn write(recording: &Recording, drain: &mut Drain) -> io::Result<u64> {
    // Acquire: partner is the Release in `flush`. The caller's events are written.
    let flushes = FLUSHES.load(Ordering::Acquire);
    let is_flush = FLUSHED.load(Ordering::Relaxed) != flushes;
    let copied = drain.copy(is_flush);
    let error =
        copied.as_ref().map_or_else(|error| error.raw_os_error().unwrap_or(libc::EIO), |_| 0);
    let before = recording.word(header::DISK_ERROR).swap(error as u64, Ordering::Relaxed);
    if let (Err(error), 0) = (&copied, before) {
        Line::print(format_args!(
            "corelocal: the recording cannot be written: {error}; events are lost when all buffers are full\n"
        ));
    }
    if is_flush {
        FLUSH_ERROR.store(error, Ordering::Relaxed);
        // Release: partner is the Acquire in `flush`.
        FLUSHED.store(flushes, Ordering::Release);
        sleep::wake(&FLUSHED, u32::MAX, Scope::Private);
    }
    copied
}

/// Answers a request of another process.
fn answer(recording: &Recording) {
    let requested = recording.word(header::REQUESTED).load(Ordering::Acquire) as u32;
    let answered = recording.futex_word(header::ANSWERED);
    if answered.load(Ordering::Relaxed) == requested {
        return;
    }
    let text = (0..RULE_LEN).map(|at| recording.byte(header::REQUEST + at).load(Ordering::Relaxed));
    let text: Vec<u8> = text.take_while(|byte| *byte != 0).collect();
    let switched = match text.split_first() {
        Some((kind @ (b'+' | b'-'), pattern)) => core::str::from_utf8(pattern)
            .ok()
            .and_then(|pattern| super::switch(pattern, *kind == b'+').ok()),
        _ => None,
    };
    let answer = switched.map_or(u64::MAX, |sites| sites as u64);
    recording.word(header::ANSWER).store(answer, Ordering::Relaxed);
    // Release: partner is the Acquire in `Remote::switch`.
    answered.store(requested, Ordering::Release);
    sleep::wake(answered, u32::MAX, Scope::Shared);
}

/// Wakes the thread, if this process has one. Async-signal-safe.
fn wake() -> bool {
    let Some(recording) = Recording::here() else { return false };
    // Else this is a forked child, or the options ask for no thread. (3)
    if recording.word(header::HAS_THREAD).load(Ordering::Relaxed) == 0 {
        return false;
    }
    let work = recording.futex_word(header::WORK);
    // Release: partner is the Acquire in `run`.
    work.fetch_add(1, Ordering::Release);
    sleep::wake(work, 1, Scope::Shared);
    true
}

/// Asks the background thread to dump to the path of [`Options::dump_to`]. False: there is no such thread.
/// Async-signal-safe.
pub fn request_dump() -> bool {
    DUMP_IS_WANTED.store(true, Ordering::Relaxed);
    wake()
}

/// Writes the events so far to the file of a recording [to disk](Options::to_disk). Does nothing without one.
///
/// # Errors
/// The file cannot be written, or not within ten seconds.
pub fn flush() -> io::Result<()> {
    if !IS_TO_DISK.load(Ordering::Relaxed) {
        return Ok(());
    }
    // Release: partner is the Acquire in `write`.
    let own = FLUSHES.fetch_add(1, Ordering::Release).wrapping_add(1);
    if !wake() {
        return Ok(());
    }
    let deadline = Deadline::after(PATIENCE);
    loop {
        // Acquire: partner is the Release in `write`.
        let flushed = FLUSHED.load(Ordering::Acquire);
        if flushed.wrapping_sub(own) as i32 >= 0 {
            return match FLUSH_ERROR.load(Ordering::Relaxed) {
                0 => Ok(()),
                error => Err(io::Error::from_raw_os_error(error)),
            };
        }
        if deadline.remaining().is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        sleep::wait(&FLUSHED, flushed, Some(deadline), Scope::Private);
    }
}
