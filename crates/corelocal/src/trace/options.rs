//! What is recorded, how much of it is kept, and why a start fails.

use core::ffi::CStr;
use core::fmt;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use core::time::Duration;

use super::format::BUFFER_LEN;
use crate::sys::file::{PathBuf, decimal};
use crate::sys::memory::lazy_mapping;
use crate::sys::{self, Errno};

/// Tells what is recorded, and how much of it is kept.
///
/// Paths are those of [`dump`](fn@super::dump): text. In them `%p` stands for the process id, `%n` for the number of
/// the dump, and `%%` for `%`.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    pub(super) buffers: usize,
    pub(super) file: Option<&'a str>,
    /// The least age of events that are kept, in nanoseconds.
    pub(super) min_age: u64,
    pub(super) is_for_children: bool,
    pub(super) is_coarse: bool,
    pub(super) is_drained: bool,
    #[cfg(feature = "std")]
    pub(super) background: Background<'a>,
}

/// The tasks of the background thread.
#[cfg(feature = "std")]
#[derive(Clone, Copy, Debug)]
pub(super) struct Background<'a> {
    pub(super) is_wanted: bool,
    pub(super) disk: Option<&'a str>,
    /// The time after which buffers that are not full are written.
    pub(super) flush_interval: Duration,
    /// The maximum length of a file, and below it the number of files that are kept.
    pub(super) max_file_bytes: u64,
    pub(super) files: u32,
    pub(super) dumps: Option<&'a str>,
    /// The least time between two dumps by a trigger.
    pub(super) pause: Duration,
    pub(super) signal: i32,
    pub(super) is_dumped_on_panic: bool,
    pub(super) is_dumped_at_exit: bool,
}

impl<'a> Options<'a> {
    /// The last events are kept in memory, up to 16 MiB of them.
    pub const fn flight_recorder() -> Options<'a> {
        Options {
            buffers: 256,
            file: None,
            min_age: 0,
            is_for_children: false,
            is_coarse: false,
            is_drained: false,
            #[cfg(feature = "std")]
            background: Background {
                is_wanted: true,
                disk: None,
                flush_interval: Duration::from_secs(1),
                max_file_bytes: u64::MAX,
                files: 4,
                dumps: None,
                pause: Duration::from_secs(60),
                signal: 0,
                is_dumped_on_panic: false,
                is_dumped_at_exit: false,
            },
        }
    }

    /// All events are written to a new file of this path. A background thread copies full buffers to it at once, the
    /// others once a [second](Options::flush_interval), and all of them at a fork, when the process exits, and on
    /// SIGTERM, unless the program handles that itself. [`flush`](super::flush) does so at any time: call it before
    /// `execve(2)` and `_exit(2)`.
    ///
    /// A recording that is there is renamed first: `.old` is appended to its name. Another file stays, and the start
    /// fails. While the file cannot be written, as on a full file system, buffers wait; events that find none are lost,
    /// and counted. The file says what it lacks.
    ///
    /// ```no_run
    /// use corelocal::trace::{self, Options};
    ///
    /// trace::start(Options::to_disk("/var/tmp/server.%p.trace"))?;
    /// # Ok::<(), trace::StartError>(())
    /// ```
    #[cfg(feature = "std")]
    pub const fn to_disk(path: &'a str) -> Options<'a> {
        Options::flight_recorder().disk(path)
    }

    #[cfg(feature = "std")]
    pub(super) const fn disk(self, path: &'a str) -> Options<'a> {
        let background = Background { disk: Some(path), ..self.background };
        Options { background, is_drained: true, ..self }
    }

    /// Keeps the events in a new file of this path, so that they outlive the process, however it ends. The file should
    /// be in memory: in /dev/shm. `corelocal trace view` shows it.
    ///
    /// A recording that is there, of a process before, is renamed first: `.old` is appended to its name. Another file
    /// stays, and the start fails.
    ///
    /// ```no_run
    /// use corelocal::trace::{self, Options};
    ///
    /// trace::start(Options::flight_recorder().file("/dev/shm/server.trace"))?;
    /// # Ok::<(), trace::StartError>(())
    /// ```
    #[must_use]
    pub const fn file(self, path: &'a str) -> Options<'a> {
        Options { file: Some(path), ..self }
    }

    /// Keeps up to so many bytes of events, at least 256 KiB. Each core that records has 64 KiB of them; with fewer
    /// than two buffers for each busy core, events are lost.
    #[must_use]
    pub const fn max_bytes(self, bytes: usize) -> Options<'a> {
        let buffers = bytes / BUFFER_LEN;
        Options { buffers: if buffers < 4 { 4 } else { buffers }, ..self }
    }

    /// Uses only as much memory as the events of so long a time need, and no more than
    /// [`max_bytes`](Options::max_bytes): events that are younger are kept unless that many bytes are full.
    #[must_use]
    pub const fn min_age(self, age: Duration) -> Options<'a> {
        let nanos = age.as_nanos();
        Options { min_age: if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 }, ..self }
    }

    /// Lets a forked child record, too: its first event starts a recording of its own, with the same options, but
    /// without a background thread. A file needs `%p` in its path then. Otherwise children record nothing.
    #[must_use]
    pub const fn children(self) -> Options<'a> {
        Options { is_for_children: true, ..self }
    }

    /// Times are those of the last timer tick ([`clock::coarse`](crate::clock::coarse)), up to 10 milliseconds before:
    /// for events that are recorded so often that reading the time stamp counter is too slow. It is the larger part of
    /// an event otherwise. The events of a core keep their order, and so do those of a thread. Among the events of
    /// several threads within a tick the order is not known, and spans within a tick last no time. Exact times stay
    /// where there are no critical sections for the architecture: the order of a thread's events needs them there.
    ///
    /// ```
    /// use corelocal::trace::{self, Options};
    ///
    /// trace::start(Options::flight_recorder().coarse_times())?;
    /// # Ok::<(), trace::StartError>(())
    /// ```
    #[must_use]
    pub const fn coarse_times(self) -> Options<'a> {
        Options { is_coarse: true, ..self }
    }

    /// Full buffers wait until another process has copied them to a file: see [`Drain`](super::Drain).
    #[doc(hidden)]
    #[must_use]
    pub const fn drained(self) -> Options<'a> {
        Options { is_drained: true, ..self }
    }
}

#[cfg(feature = "std")]
impl<'a> Options<'a> {
    const fn with(self, background: Background<'a>) -> Options<'a> {
        Options { background, ..self }
    }

    /// Starts no background thread. Then only [`dump`](fn@super::dump) writes files, and `corelocal trace enable` and
    /// `disable` do not reach the process.
    #[must_use]
    pub const fn no_thread(self) -> Options<'a> {
        self.with(Background { is_wanted: false, ..self.background })
    }

    /// Sets how often the buffers of a recording [to disk](Options::to_disk) that are not full are written: once a
    /// second unless told otherwise. So much of the last events is missing after SIGKILL or a crash.
    #[must_use]
    pub const fn flush_interval(self, interval: Duration) -> Options<'a> {
        self.with(Background { flush_interval: interval, ..self.background })
    }

    /// Sets the maximum length of a file of a recording [to disk](Options::to_disk), at least 2 MiB: a longer recording goes
    /// on in a new file of that name. The files before are renamed: `.1` is appended to the name of the last one, `.2`
    /// to the one before it, and so on. Each can be read by itself; a span may begin in one and end in the next. No
    /// limit unless told otherwise.
    ///
    /// ```no_run
    /// use corelocal::trace::{self, Options};
    ///
    /// let options = Options::to_disk("/var/tmp/server.trace").max_file_bytes(256 << 20).files(8);
    /// trace::start(options)?; // the last two GiB
    /// # Ok::<(), trace::StartError>(())
    /// ```
    #[must_use]
    pub const fn max_file_bytes(self, bytes: u64) -> Options<'a> {
        self.with(Background { max_file_bytes: bytes, ..self.background })
    }

    /// Sets how many files are kept with [`max_file_bytes`](Options::max_file_bytes), the newest included: 4 unless
    /// told otherwise, and at least 2. The oldest one is replaced.
    #[must_use]
    pub const fn files(self, files: u32) -> Options<'a> {
        self.with(Background { files, ..self.background })
    }

    /// Sets where dumps go that are made on a signal, on a panic, at exit, or by
    /// [`dump_if_slow`](super::dump_if_slow).
    ///
    /// ```no_run
    /// use corelocal::trace::{self, Options};
    ///
    /// trace::start(Options::flight_recorder().dump_to("/var/tmp/server.%p.%n.trace").dump_on_panic())?;
    /// # Ok::<(), trace::StartError>(())
    /// ```
    #[must_use]
    pub const fn dump_to(self, path: &'a str) -> Options<'a> {
        self.with(Background { dumps: Some(path), ..self.background })
    }

    /// Sets the least time between two dumps that [`dump_if_slow`](super::dump_if_slow) makes: a minute unless told
    /// otherwise.
    #[must_use]
    pub const fn dump_pause(self, pause: Duration) -> Options<'a> {
        self.with(Background { pause, ..self.background })
    }

    /// Dumps when this signal arrives, by the background thread. The program must not handle it itself.
    #[must_use]
    pub const fn dump_on_signal(self, signal: i32) -> Options<'a> {
        self.with(Background { signal, ..self.background })
    }

    /// Dumps when a thread panics, before the panic hook that is there.
    #[must_use]
    pub const fn dump_on_panic(self) -> Options<'a> {
        self.with(Background { is_dumped_on_panic: true, ..self.background })
    }

    /// Dumps when the process exits, by `exit` or the return from `main`.
    #[must_use]
    pub const fn dump_at_exit(self) -> Options<'a> {
        self.with(Background { is_dumped_at_exit: true, ..self.background })
    }
}

/// The reason why no recording was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartError {
    /// A recording was started before: a process has one.
    AlreadyStarted,
    /// The kernel gives no shared memory (memfd_create(2), mmap(2)), or none that a fork wipes.
    NoMemory(Errno),
    /// The file cannot be made, or its file system has no room for it (fallocate(2)).
    NoFile(Errno),
    /// Dumps on a signal, on a panic or at exit need a path, by [`dump_to`](Options::dump_to).
    NoPath,
    /// Programs cannot handle the signal, or this one handles it already.
    NoSignal,
    /// The background thread cannot be started, or has no pipe.
    NoThread(Errno),
    /// Recordings are little endian, and this processor is not.
    BigEndian,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::AlreadyStarted => f.write_str("a recording was started before"),
            StartError::NoMemory(errno) if errno.0 == libc::EFBIG => f.write_str(
                "no shared memory for a recording: files may not be so long; raise `ulimit -f`, or ask for fewer bytes",
            ),
            StartError::NoMemory(errno) => {
                write!(f, "no shared memory for a recording: {errno}; ask for fewer bytes")
            }
            StartError::NoFile(errno) => {
                write!(
                    f,
                    "the recording's file cannot be made: {errno}; name another one, or ask for fewer bytes"
                )
            }
            StartError::NoPath => f.write_str("dumps need a path: name one by dump_to"),
            StartError::NoSignal => f.write_str(
                "the program cannot handle this signal, or does so already; name another one",
            ),
            StartError::BigEndian => {
                f.write_str("recordings are little endian, which this processor is not")
            }
            StartError::NoThread(errno) => {
                write!(
                    f,
                    "the tracer's background thread cannot be started: {errno}; see no_thread"
                )
            }
        }
    }
}

impl core::error::Error for StartError {}

/// A copy of the file's path, for children.
static CHILD_FILE: AtomicPtr<u8> = AtomicPtr::new(null_mut());
static CHILD_BUFFERS: AtomicU64 = AtomicU64::new(0);
static CHILD_MIN_AGE: AtomicU64 = AtomicU64::new(0);
static CHILD_IS_DRAINED: AtomicU64 = AtomicU64::new(0);

/// Keeps what children need of the options.
pub(super) fn keep_for_children(options: Options<'_>) -> Result<(), Errno> {
    if !options.is_for_children {
        return Ok(());
    }
    if let Some(path) = options.file {
        // Of zeros: one ends the path.
        let copy = lazy_mapping::map(path.len() + 1).ok_or(Errno(libc::ENOMEM))?;
        // SAFETY: a new mapping of more bytes.
        unsafe { copy.copy_from_nonoverlapping(path.as_ptr(), path.len()) };
        CHILD_FILE.store(copy, Ordering::Relaxed);
    }
    #[cfg(feature = "std")]
    let is_drained = options.is_drained && options.background.disk.is_none();
    #[cfg(not(feature = "std"))]
    let is_drained = options.is_drained;
    CHILD_IS_DRAINED.store(is_drained.into(), Ordering::Relaxed);
    CHILD_MIN_AGE.store(options.min_age, Ordering::Relaxed);
    // Relaxed, all of them: a child has what the thread that forked has seen.
    CHILD_BUFFERS.store(options.buffers as u64, Ordering::Relaxed);
    Ok(())
}

/// In a child whose recording cannot be made: it and its children record nothing.
pub(super) fn have_none_for_children() {
    CHILD_BUFFERS.store(0, Ordering::Relaxed);
}

/// Returns `true` if children have a recording of their own.
pub(super) fn are_for_children() -> bool {
    CHILD_BUFFERS.load(Ordering::Relaxed) != 0
}

/// Returns the options of a child's recording. `None` if children record nothing. Async-signal-safe.
pub(super) fn for_children() -> Option<Options<'static>> {
    let buffers = CHILD_BUFFERS.load(Ordering::Relaxed) as usize;
    if buffers == 0 {
        return None;
    }
    let file = CHILD_FILE.load(Ordering::Relaxed);
    // SAFETY: a string that ends in a zero byte, in a mapping that stays.
    let file = (!file.is_null()).then(|| unsafe { CStr::from_ptr(file.cast()) });
    let file = file.and_then(|file| file.to_str().ok());
    let min_age = CHILD_MIN_AGE.load(Ordering::Relaxed);
    let is_drained = CHILD_IS_DRAINED.load(Ordering::Relaxed) != 0;
    Some(Options { buffers, file, min_age, is_drained, ..Options::flight_recorder() })
}

/// Returns a path with the process id and this number in place of `%p` and `%n`. Async-signal-safe.
pub(super) fn expand(path: &str, number: u64) -> Result<PathBuf, Errno> {
    if path.contains('\0') {
        return Err(Errno(libc::EINVAL));
    }
    let mut expanded = PathBuf::join(&[])?;
    let mut digits = [0; 20];
    let mut rest = path.as_bytes();
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        expanded.push(&rest[..at])?;
        let (part, len) = match rest.get(at + 1) {
            Some(b'p') => (decimal(sys::process_id().into(), &mut digits), 2),
            Some(b'n') => (decimal(number, &mut digits), 2),
            Some(b'%') => (&b"%"[..], 2),
            _ => (&b"%"[..], 1),
        };
        expanded.push(part)?;
        rest = &rest[at + len..];
    }
    expanded.push(rest)?;
    Ok(expanded)
}
