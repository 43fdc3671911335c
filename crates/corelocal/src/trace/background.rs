//! The background thread of a recording: it dumps when it is asked to, switches sites for other processes, and writes a
//! recording to disk.
//!
//! It sleeps on a futex word in the recording's header. Signal handlers, spans and other processes note what they want,
//! add 1 to the word, and wake it.
//!
//! # Invariants
//! 1. It handles none of the program's signals. It sleeps until there is something to do; with a recording to disk it
//!    looks for full buffers 10 to 100 times a second, more often if there are few, and writes the others at an interval.
//! 2. It has a table of descriptors of its own (`close_range(2)`, Linux 5.9): a program may close all of its, and the thread
//!    keeps none of them open. Where that is refused it uses the program's.
//! 3. A forked child has no such thread: its recording's header says so.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use core::time::Duration;
use std::boxed::Box;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::FromRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::thread;
use std::time::Instant;
use std::vec::Vec;

use super::drain::Drain;
use super::format::{MAGIC, RULE_LEN, header};
use super::memory::Recording;
use super::options::{Options, StartError, expand};
use super::rotation::Rotation;
use super::triggers;
use crate::sys::file::PathBuf;
use crate::sys::file::shared_memory;
use crate::sys::file::stderr::Line;
use crate::sys::futex::{Deadline, Scope};
use crate::sys::thread::signals;
use crate::sys::{Errno, sleep};

/// The thread's longest sleep between looks for full buffers; with less than 16 MiB of memory it is shorter.
const MOST_PAUSE: Duration = Duration::from_millis(100);
/// The shortest interval between two flushes.
const LEAST_PAUSE: Duration = Duration::from_millis(1);
/// The least length that a file's limit may be set to.
const LEAST_FILE: u64 = 2 << 20;
/// The time for which a flush waits.
const PATIENCE: Duration = Duration::from_secs(10);

static DUMP_IS_WANTED: AtomicBool = AtomicBool::new(false);
/// Whether the thread has a file.
static IS_TO_DISK: AtomicBool = AtomicBool::new(false);
/// The number of flushes that were requested; below it those that are done, and the last one's error.
static FLUSHES: AtomicU32 = AtomicU32::new(0);
static FLUSHED: AtomicU32 = AtomicU32::new(0);
static FLUSH_ERROR: AtomicI32 = AtomicI32::new(0);

/// Checks the options, before a recording is made, and makes the file of a recording to disk.
pub(super) fn check(options: &Options<'_>) -> Result<(), StartError> {
    triggers::check(&options.background)?;
    let Some(path) = options.background.disk else { return Ok(()) };
    let made = expand(path, 0).and_then(|path| {
        // As the umask has it.
        let descriptor = shared_memory::create_anew(path.as_c_str(), MAGIC, 0o666)?;
        // SAFETY: a new descriptor, which nothing else owns.
        drop(unsafe { File::from_raw_fd(descriptor as i32) });
        Ok(())
    });
    made.map_err(StartError::NoFile)
}

/// Starts what the options ask for. Waits for no thread: a constructor of a library may be the caller, and the dynamic
/// loader, whose lock that has, keeps new threads from running.
pub(super) fn start(recording: Recording, options: Options<'_>) -> Result<(), StartError> {
    let background = options.background;
    let disk = background.disk.map(|path| expand(path, 0)).transpose();
    let disk = disk.map_err(StartError::NoFile)?;
    let is_needed = disk.is_some() || background.signal != 0;
    if background.is_wanted || is_needed {
        // The program may have another current folder when the thread begins.
        let absolute = |path: PathBuf| std::path::absolute(OsStr::from_bytes(path.as_bytes()));
        let path =
            disk.map(absolute).transpose().map_err(|error| StartError::NoFile(errno(error)))?;
        let rotation = path.map(|path| Rotation {
            path,
            // It holds the header, the sites and some buffers.
            most_bytes: background.max_file_bytes.max(LEAST_FILE),
            files: background.files.max(2),
        });
        IS_TO_DISK.store(rotation.is_some(), Ordering::Relaxed);
        // However soon the process ends, its file is a recording.
        let begun = rotation.as_ref().map(|rotation| {
            rotation.check()?;
            drain(recording, &rotation.path)
        });
        if let Some(Err(error)) = begun {
            stay_in_memory(&recording);
            return Err(StartError::NoFile(errno(error)));
        }
        recording.word(header::HAS_THREAD).store(1, Ordering::Relaxed);
        let started = start_thread(recording, rotation, background.flush_interval);
        if started.is_err() {
            recording.word(header::HAS_THREAD).store(0, Ordering::Relaxed);
            stay_in_memory(&recording);
            if is_needed {
                return started;
            }
        }
    }
    triggers::start(&background)
}

/// Lets a recording to disk without a file go on as a flight recorder, else no buffer would be emptied.
fn stay_in_memory(recording: &Recording) {
    if IS_TO_DISK.swap(false, Ordering::Relaxed) {
        recording.word(header::IS_DRAINED).store(0, Ordering::Relaxed);
    }
}

fn errno(error: io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(libc::EIO))
}

/// Copies from the memory to a file that `check` has made.
fn drain(recording: Recording, path: &Path) -> io::Result<Drain> {
    Drain::new(Box::new(recording), File::options().write(true).open(path)?)
}

fn start_thread(
    recording: Recording,
    disk: Option<Rotation>,
    interval: Duration,
) -> Result<(), StartError> {
    let body = move || {
        have_own_descriptors();
        let drain = disk.map(|rotation| {
            let mut drain = drain(recording, &rotation.path)?;
            drain.rotate_by(rotation);
            Ok(drain)
        });
        match drain.transpose() {
            Err::<_, io::Error>(error) => {
                stay_in_memory(&recording);
                Line::print(format_args!(
                    "corelocal: the file of the recording cannot be opened: {error}; only the last events are kept, in \
                     memory\n"
                ));
                run(&recording, None, interval);
            }
            Ok(drain) => run(&recording, drain, interval),
        }
    };
    let name = "corelocal-trace".into();
    let started = signals::without(|| thread::Builder::new().name(name).spawn(body));
    started.map(drop).map_err(|error| StartError::NoThread(errno(error)))
}

/// Calls `close_range(0, ~0, CLOSE_RANGE_UNSHARE)`, see close_range(2). (2)
fn have_own_descriptors() {
    const CLOSE_RANGE_UNSHARE: libc::c_uint = 2;
    // SAFETY: the descriptors of the new table are the only ones that are closed, and this thread has used none.
    unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, CLOSE_RANGE_UNSHARE) };
}

/// Runs the thread.
fn run(recording: &Recording, mut disk: Option<Drain>, interval: Duration) {
    let work = recording.futex_word(header::WORK);
    let buffers = recording.word(header::BUFFERS).load(Ordering::Relaxed).min(256) as u32;
    let most = (MOST_PAUSE * buffers / 256).min(interval.max(LEAST_PAUSE));
    let mut pause = most / 10;
    let mut flushed = Instant::now();
    loop {
        // Acquire: partner is the Release in `wake`.
        let before = work.load(Ordering::Acquire);
        if DUMP_IS_WANTED.swap(false, Ordering::Relaxed) {
            triggers::dump_now();
        }
        answer(recording);
        let (is_ending, is_terminated) = triggers::is_ending();
        let deadline = disk.as_mut().map(|drain| {
            let is_due = flushed.elapsed() >= interval;
            pause = match write(recording, drain, is_due, is_ending) {
                Ok(1..) => most / 10,
                Ok(0) => most.min(2 * pause),
                Err(_) => MOST_PAUSE,
            };
            if is_due {
                flushed = Instant::now();
            }
            Deadline::after(pause)
        });
        // By the reading from before the write: a signal that came later is for the next turn.
        if is_terminated {
            triggers::end();
        }
        sleep::wait(work, before, deadline, Scope::Shared);
    }
}

/// Copies full buffers to the file, and all of them if that is due, or if a flush was asked for.
fn write(
    recording: &Recording,
    drain: &mut Drain,
    is_due: bool,
    is_ending: bool,
) -> io::Result<u64> {
    // Acquire: partner is the Release in `flush`. The caller's events are written.
    let flushes = FLUSHES.load(Ordering::Acquire);
    let is_flush = FLUSHED.load(Ordering::Relaxed) != flushes;
    let copied = if is_ending { drain.finish() } else { drain.copy(is_flush || is_due) };
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
        Some((kind, rest)) => core::str::from_utf8(rest).ok().and_then(|rest| {
            let (every, pattern) = match kind {
                b'+' => (1, rest),
                b'-' => (0, rest),
                b'%' => {
                    let (every, pattern) = rest.split_once(' ')?;
                    (every.parse().ok()?, pattern)
                }
                _ => return None,
            };
            super::sample(pattern, every).ok()
        }),
        None => None,
    };
    let answer = switched.map_or(u64::MAX, |sites| sites as u64);
    recording.word(header::ANSWER).store(answer, Ordering::Relaxed);
    // Release: partner is the Acquire in `Remote::switch`.
    answered.store(requested, Ordering::Release);
    sleep::wake(answered, u32::MAX, Scope::Shared);
}

/// Wakes the thread, if this process has one. Async-signal-safe.
pub(super) fn wake() -> bool {
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

/// Writes the events so far to the file of a recording [to disk](Options::to_disk). Does nothing without one. Call it
/// before `execve(2)` and `_exit(2)`, which this library cannot see.
///
/// # Errors
/// The file cannot be written, or not within ten seconds.
pub fn flush() -> io::Result<()> {
    flush_within(PATIENCE)
}

/// Does what [`flush`] does, but for so long at most. Async-signal-safe, and does not allocate.
pub(super) fn flush_within(patience: Duration) -> io::Result<()> {
    if !IS_TO_DISK.load(Ordering::Relaxed) {
        return Ok(());
    }
    // Release: partner is the Acquire in `write`.
    let own = FLUSHES.fetch_add(1, Ordering::Release).wrapping_add(1);
    if !wake() {
        return Ok(());
    }
    let deadline = Deadline::after(patience);
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
