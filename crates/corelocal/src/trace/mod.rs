//! Recording events: a flight recorder in the traced process.
//!
//! An event costs a reading of the time stamp counter and about a nanosecond. It is a critical section on the core's own
//! buffer, without a system call, a lock or a shared cache line. The last events stay in memory, up to a number of bytes;
//! [`dump`](fn@dump) writes them to a file, which `corelocal trace view` shows.
//!
//! ```
//! use corelocal::trace::{self, Options};
//!
//! trace::start(Options::flight_recorder())?;
//! corelocal::event!(http::request, method = "GET", bytes = 512_u32);
//! assert!(trace::smoke_test().is_ok());
//! # Ok::<(), trace::StartError>(())
//! ```
//!
//! # Data flow
//! `event!` → the site's state: off, new, or on → `Encoder`: fields as words → `record` → one critical section,
//! `trace_push`, appends the time and the words to the core's buffer.
//!
//! ```text
//!   site.rs       call sites: registered at first use, switched on and off
//!   encode.rs     fields of events, as words
//!   recorder.rs   the hot path, and what makes a core's buffer ready
//!   memory.rs     the shared memory: header, descriptions of sites, buffers
//!   dump.rs       a copy of it, while events are recorded
//!   format.rs     the layout, for readers
//! ```
//! A buffer has 64 KiB. A core, or a thread without critical sections, has one at a time; a full one may be begun again
//! once all others were begun after it. So the memory follows the activity: a busy core has more of the last events.
//!
//! # Invariants
//! 1. An event is recorded once, or counted as lost.
//! 2. Events of a thread in one buffer are in order. A buffer's times never go back, as far as the clock does not.
//! 3. A thread that is stopped or killed at any instruction keeps no other thread from recording.
//!
//! # Where it may be used
//! Everywhere: in signal handlers, inside a malloc, before `main`, at thread exit. An event does not allocate, block or
//! panic. A child of `fork` records nothing: its sites are switched off at the first event. In a child of `vfork` an event
//! may be lost without being counted.

mod dump;
mod encode;
pub mod format;
mod memory;
mod recorder;
mod site;

use core::ffi::CStr;
use core::fmt;

#[doc(hidden)]
pub use dump::each_record;
#[doc(hidden)]
pub use encode::{Encoder, Field, type_of};
#[doc(hidden)]
pub use recorder::{record, record_as_owner};
pub use site::Site;

#[cfg(feature = "std")]
pub use dump::{dump, dump_to};

use crate::sys::Errno;
use format::{BUFFER_LEN, header};
use memory::Recording;

/// Records an event with the values of fields, if a recording was [started](start) and the site is on.
///
/// The name is a path. Fields are numbers, `bool`, `&str` and `&[u8]`, in the order in which they are written. A record has
/// up to [`MOST_BYTES`](format::MOST_BYTES) bytes of fields; a string or blob that does not fit is cut.
///
/// The values are computed only if the event is recorded. In a generic function the type of a field must not depend on the
/// function's type parameters: one description stands for all of its copies.
///
/// ```
/// # let (path, len) = ("/", 3_u64);
/// corelocal::event!(server::request, path = path, len = len);
/// corelocal::event!(server::idle);
/// ```
#[macro_export]
macro_rules! event {
    ($name:path $(, $field:ident = $value:expr)* $(,)?) => {{
        static SITE: $crate::trace::Site = $crate::trace::Site::new(stringify!($name));
        if SITE.is_wanted() {
            let mut encoder = $crate::trace::Encoder::new();
            match ($(&$value,)*) {
                ($($field,)*) => {
                    if SITE.is_new() {
                        SITE.register(&[$((stringify!($field), $crate::trace::type_of($field)),)*]);
                    }
                    $($crate::trace::Field::put($field, &mut encoder);)*
                }
            }
            $crate::trace::record(&SITE, &mut encoder);
        }
    }};
}

/// What is recorded, and how much of it is kept.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    buffers: usize,
    file: Option<&'a CStr>,
}

impl<'a> Options<'a> {
    /// The last events are kept in memory, up to 16 MiB of them.
    pub const fn flight_recorder() -> Options<'a> {
        Options { buffers: 256, file: None }
    }

    /// Keeps the events in a new file of this path, so that they outlive the process, however it ends. The file should be
    /// in memory: in /dev/shm. `corelocal trace view` shows it.
    ///
    /// A recording that is there, of a process before, is renamed first: `.old` is appended to its name. Another file
    /// stays, and the start fails.
    ///
    /// ```no_run
    /// use corelocal::trace::{self, Options};
    ///
    /// trace::start(Options::flight_recorder().file(c"/dev/shm/server.trace"))?;
    /// # Ok::<(), trace::StartError>(())
    /// ```
    #[must_use]
    pub const fn file(self, path: &'a CStr) -> Options<'a> {
        Options { file: Some(path), ..self }
    }

    /// Keeps up to so many bytes of events, at least 256 KiB. Each core that records has 64 KiB of them; with fewer than
    /// two buffers for each busy core, events are lost.
    #[must_use]
    pub const fn max_bytes(self, bytes: usize) -> Options<'a> {
        let buffers = bytes / BUFFER_LEN;
        Options { buffers: if buffers < 4 { 4 } else { buffers }, ..self }
    }
}

/// Why no recording was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartError {
    /// One was started before: there is one in a process.
    AlreadyStarted,
    /// The kernel gives no shared memory (memfd_create(2), mmap(2)), or none that a fork wipes.
    NoMemory(Errno),
    /// The file cannot be made, or its file system has no room for it (fallocate(2)).
    NoFile(Errno),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::AlreadyStarted => f.write_str("a recording was started before"),
            StartError::NoMemory(errno) => {
                write!(f, "no shared memory for a recording: {errno}; ask for fewer bytes")
            }
            StartError::NoFile(errno) => {
                write!(
                    f,
                    "the recording's file cannot be made: {errno}; name another one, or ask for fewer bytes"
                )
            }
        }
    }
}

impl core::error::Error for StartError {}

/// Why an event was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Lost {
    /// All buffers were in use by cores and threads.
    NoBuffer = 0,
}

/// Starts recording, with all sites on. There is one recording in a process, and it never ends.
///
/// Takes address space of the bytes to keep, and a page for each core. The clock is started.
///
/// # Errors
/// One was started before, there is no memory, or the file cannot be made.
pub fn start(options: Options<'_>) -> Result<(), StartError> {
    recorder::start(options)
}

/// The state of the recording in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Buffers that were begun.
    pub buffers: u64,
    /// Events that were lost as all buffers were in use.
    pub lost: u64,
}

/// Returns the state of the recording. `None` if this process records nothing: none was started, or it is a forked child.
pub fn status() -> Option<Status> {
    let recording = Recording::here()?;
    let lost = recording.word(header::LOST).load(core::sync::atomic::Ordering::Relaxed);
    Some(Status { buffers: memory::begun(), lost })
}

/// Switches all sites whose names begin so on or off. Returns their number. Sites that were not reached yet are not among
/// them, and are on when they are.
pub fn switch(prefix: &str, is_on: bool) -> usize {
    let is_here = Recording::here().is_some();
    let sites = site::all().filter(|site| site.name().starts_with(prefix));
    sites.map(|site| site.switch(is_on && is_here)).count()
}

/// Why the smoke test failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SmokeTestError {
    /// This process records nothing: [`start`] was not called, or it is a forked child.
    NotRecording,
    /// The event was not found in the recording.
    NotFound {
        /// Events that were lost so far.
        lost: u64,
    },
}

impl fmt::Display for SmokeTestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SmokeTestError::NotRecording => {
                f.write_str("not recording: call corelocal::trace::start in this process")
            }
            SmokeTestError::NotFound { lost } => {
                write!(
                    f,
                    "the event of the smoke test is not in the recording; {lost} events were lost"
                )
            }
        }
    }
}

impl core::error::Error for SmokeTestError {}

/// Records an event, and looks for it in the recording. Linear in the recorded bytes.
///
/// # Errors
/// Nothing is recorded, or the event was lost.
pub fn smoke_test() -> Result<Status, SmokeTestError> {
    static SITE: Site = Site::new("corelocal::smoke_test");
    let status = status().ok_or(SmokeTestError::NotRecording)?;
    if SITE.is_new() {
        SITE.register(&[]);
    }
    record(&SITE, &mut Encoder::new());
    let mut is_found = false;
    each_record(SITE.name(), |_| is_found = true);
    match is_found {
        true => Ok(status),
        false => Err(SmokeTestError::NotFound { lost: status.lost }),
    }
}
