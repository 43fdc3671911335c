//! Recording events: a flight recorder in the traced process.
//!
//! An event costs a reading of the time stamp counter and about a nanosecond. It is a critical section on the core's
//! own buffer, without a system call, a lock or a shared cache line. The last events stay in memory, up to a number of
//! bytes; [`dump`](fn@dump) writes them to a file, which `corelocal trace view` shows.
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
//!   site.rs, register.rs  call sites: registered at first use, switched on and off;  own_sites.rs  the tracer's own
//!   rules.rs        which of them are on, by patterns of their names
//!   encode.rs       fields of events, as words
//!   context.rs      the calling thread's context, its span, and its open guards
//!   span.rs         spans: two records each, with ids
//!   trace_parent.rs the header of W3C's trace context, which joins spans of several processes
//!   start.rs, current.rs  the start of a recording, also in a forked child
//!   recorder.rs     the hot path;  ready.rs  what makes a core's buffer ready;  append.rs  what has a buffer to itself
//!   losses.rs       what was lost, as events
//!   memory.rs       the shared memory: described.rs has header and sites, buffer.rs a buffer, time.rs its times
//!   options.rs      what is recorded, and how much of it is kept
//!   environment.rs  the same, from CORELOCAL_TRACE
//!   background.rs   the background thread: dumps, requests of other processes, the file of a recording to disk
//!   triggers.rs     what makes a dump: a signal, a panic, the exit, slow spans
//!   dump.rs         a copy of the memory, while events are recorded
//!   drain.rs        a file with all buffers, one after the other
//!   remote.rs       requests to the background thread of another process
//!   format.rs       the layout, for readers
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
//! panic. A child of `fork` records into memory of its own, if [`Options::children`] says so; else its sites are
//! switched off at the first event. In a child of `vfork` an event may be lost without being counted.

mod append;
#[cfg(feature = "std")]
mod background;
mod buffer;
mod context;
mod current;
mod described;
#[cfg(feature = "std")]
mod drain;
mod dump;
mod encode;
#[cfg(feature = "std")]
mod environment;
pub mod format;
mod losses;
mod memory;
mod options;
mod own_sites;
mod random;
mod ready;
mod recorder;
mod register;
#[cfg(feature = "std")]
mod remote;
#[cfg(feature = "std")]
mod rotation;
mod rules;
mod site;
mod span;
mod span_id;
mod start;
mod time;
mod trace_parent;
#[cfg(feature = "std")]
mod triggers;

use core::fmt;

#[cfg(feature = "std")]
pub use background::{flush, request_dump};
#[cfg(feature = "std")]
#[doc(hidden)]
pub use drain::{Drain, Memory};
#[doc(hidden)]
pub use dump::each_record;
#[cfg(feature = "std")]
#[doc(hidden)]
pub use dump::{Source, copy_from, replaceable, set_recording_aside};
#[cfg(feature = "std")]
pub use dump::{dump, dump_to};
#[doc(hidden)]
pub use encode::{DebugText, DisplayText, Encoder, Field, Fields, type_of};
pub use format::Level;
pub use options::{Options, StartError};
#[doc(hidden)]
pub use recorder::{record, record_as_owner, record_encoded, record_timed};
#[cfg(feature = "std")]
#[doc(hidden)]
pub use remote::Remote;
pub use rules::SwitchError;
#[doc(hidden)]
pub use rules::matches;
pub use site::{Site, Wanted};
#[doc(hidden)]
pub use span::{__begin, Begun, Place};
pub use span::{Around, Entered, Span, TaskSpan, current as current_span};
pub use span_id::SpanId;
pub use trace_parent::{ParseTraceParentError, TraceParent};
#[doc(hidden)]
pub use trace_parent::{combine, parse as parse_trace_parent};
#[cfg(feature = "std")]
pub use triggers::{DumpIfSlow, dump_if_slow};

use format::{Kind, header};
use memory::By;

/// Records an event with the values of fields, if a recording was [started](fn@start) and the site is on.
///
/// The name is a path. Fields are numbers, `bool`, `char`, `&str`, `String`, `Duration`, `&[u8]`, an `Option` of these,
/// and slices and arrays of numbers, in the order in which they are written. `?value` is recorded as its `Debug` text,
/// `%value` as its `Display` text, and a name alone stands for the variable of that name. A record has up to
/// [`MOST_BYTES`](format::MOST_BYTES) bytes of fields; a string, blob or array that does not fit is cut.
///
/// The values are computed only if the event is recorded. In a generic function the type of a field must not depend on
/// the function's type parameters: one description stands for all of its copies.
///
/// ```
/// # let (path, len, error) = ("/", 3_u64, std::io::Error::other("x"));
/// # let peer: std::net::IpAddr = "::1".parse().unwrap();
/// corelocal::event!(server::request, path = path, len, from = %peer);
/// corelocal::event!(server::failed, ?error, %peer);
/// corelocal::event!(server::idle);
/// corelocal::event!(level: Warn; server::slow, path, ms = 5_u32);
/// ```
///
/// The [`Level`] belongs to the place in the program: it is not in the record, and costs nothing.
/// [`switch`](fn@switch) switches levels on and off, and readers of the recording show it as a field `level`.
#[macro_export]
macro_rules! event {
    (level: $level:ident; $name:path $(, $($fields:tt)*)?) => {
        $crate::trace::__event!([.with_level($crate::trace::Level::$level)] $name $(, $($fields)*)?)
    };
    ($name:path $(, $($fields:tt)*)?) => {
        $crate::trace::__event!([] $name $(, $($fields)*)?)
    };
}

/// The part of `event!` that accepts a level or none.
#[doc(hidden)]
#[macro_export]
macro_rules! __event {
    ([$($level:tt)*] $name:path $(, $($fields:tt)*)?) => {{
        static SITE: $crate::trace::Site =
            $crate::trace::Site::new($crate::trace::format::Kind::Event, stringify!($name)) $($level)*;
        if let Some(wanted) = SITE.wanted() {
            $crate::trace::__with_fields!(
                (SITE, wanted, fields, { $crate::trace::record(&SITE, wanted, fields) }) [] $($($fields)*)?,
            );
        }
    }};
}

/// The part of `event!` and `span!` that collects the fields, registers a new site and runs code with the fields.
#[doc(hidden)]
#[macro_export]
macro_rules! __with_fields {
    (($site:ident, $wanted:ident, $fields:ident, $use:block) [$(($field:ident $value:expr))*] $(,)?) => {
        match ($(&$value,)*) {
            ($($field,)*) => {
                let $wanted = $wanted.registered(&$site, || {
                    [$((stringify!($field), $crate::trace::type_of($field)),)*]
                });
                let $fields = $crate::trace::__fields!($($field)*);
                $use
            }
        }
    };
    ($then:tt [$($done:tt)*] , $($rest:tt)+) => {
        $crate::trace::__with_fields!($then [$($done)*] $($rest)+)
    };
    ($then:tt [$($done:tt)*] $field:ident = ? $value:expr, $($rest:tt)*) => {
        $crate::trace::__with_fields!($then [$($done)* ($field $crate::trace::DebugText(&$value))] $($rest)*)
    };
    ($then:tt [$($done:tt)*] $field:ident = % $value:expr, $($rest:tt)*) => {
        $crate::trace::__with_fields!($then [$($done)* ($field $crate::trace::DisplayText(&$value))] $($rest)*)
    };
    ($then:tt [$($done:tt)*] $field:ident = $value:expr, $($rest:tt)*) => {
        $crate::trace::__with_fields!($then [$($done)* ($field $value)] $($rest)*)
    };
    ($then:tt [$($done:tt)*] ? $field:ident, $($rest:tt)*) => {
        $crate::trace::__with_fields!($then [$($done)* ($field $crate::trace::DebugText(&$field))] $($rest)*)
    };
    ($then:tt [$($done:tt)*] % $field:ident, $($rest:tt)*) => {
        $crate::trace::__with_fields!($then [$($done)* ($field $crate::trace::DisplayText(&$field))] $($rest)*)
    };
    ($then:tt [$($done:tt)*] $field:ident, $($rest:tt)*) => {
        $crate::trace::__with_fields!($then [$($done)* ($field $field)] $($rest)*)
    };
}

#[doc(hidden)]
pub use __event;
#[doc(hidden)]
pub use __with_fields;

/// The part of `event!` and `span!` that makes nested pairs of the fields.
#[doc(hidden)]
#[macro_export]
macro_rules! __fields {
    () => { () };
    ($first:ident $($rest:ident)*) => { ($first, $crate::trace::__fields!($($rest)*)) };
}

#[doc(hidden)]
pub use __fields;

/// The reason why an event was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Lost {
    /// All buffers were in use by cores and threads.
    NoBuffer = 0,
}

/// Starts recording, with all sites on. There is one recording in a process, and it never ends.
///
/// Takes address space of the bytes to keep, and a page for each core. The clock is started. With the feature `std` a
/// background thread is started, too, unless the options say otherwise: it sleeps until it has something to do.
///
/// If the environment has `CORELOCAL_TRACE`, that has started a recording before `main`, whose options hold.
///
/// # Errors
/// One was started before, there is no memory, the file cannot be made, or the processor is big endian.
pub fn start(options: Options<'_>) -> Result<(), StartError> {
    start_by(options, By::Program)
}

/// Does what [`start`](fn@start) does, with options as `CORELOCAL_TRACE` has them.
#[cfg(feature = "std")]
pub(crate) fn start_as(options: &str) -> Result<(), std::string::String> {
    environment::start_as(options, By::Program)
}

fn start_by(options: Options<'_>, by: By) -> Result<(), StartError> {
    if cfg!(target_endian = "big") {
        return Err(StartError::BigEndian);
    }
    #[cfg(feature = "std")]
    if memory::Recording::here().is_none() {
        background::check(&options)?;
    }
    let made = start::start(options, by)?;
    #[cfg(feature = "std")]
    if let Some(recording) = made {
        background::start(recording, options)?;
    }
    let _ = made;
    Ok(())
}

/// The state of the recording in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The number of times that buffers were begun.
    pub buffers: u64,
    /// Events that were lost as all buffers were in use.
    pub lost: u64,
    /// Bytes of records that a flight recorder has overwritten.
    pub overwritten_bytes: u64,
    /// Call sites that are not recorded: a process has up to [`MOST_SITES`](format::MOST_SITES) others.
    pub sites_left_out: u64,
}

/// Returns the state of the recording. `None` if this process records nothing: none was started, or it is a forked
/// child.
pub fn status() -> Option<Status> {
    let recording = memory::Recording::here()?;
    let word = |at: usize| recording.word(at).load(core::sync::atomic::Ordering::Relaxed);
    Some(Status {
        buffers: word(header::TICKETS),
        lost: word(header::LOST),
        overwritten_bytes: word(header::OVERWRITTEN_BYTES),
        sites_left_out: word(header::SITES_LEFT_OUT),
    })
}

/// Switches all sites whose names match a pattern on or off, also those that are reached later. `*` stands for any part
/// of a name. Returns how many sites match so far.
///
/// A pattern `@info` is a [`Level`]: off, it switches that level and finer ones; on, that level and more severe ones.
/// Sites without a level are left as they are.
///
/// The last pattern that matches a name decides. Not async-signal-safe.
///
/// ```
/// use corelocal::trace::{self, Options};
///
/// trace::start(Options::flight_recorder())?;
/// trace::switch("*", false)?;
/// trace::switch("http::*", true)?; // these alone
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Nothing is recorded; the pattern is too long; there are 24 patterns, which `*` would replace; another thread does
/// the same and is not ready.
pub fn switch(pattern: &str, is_on: bool) -> Result<usize, SwitchError> {
    rules::add(pattern, is_on.into())
}

/// Does what [`switch`] does, but one event of `every` is recorded, or one span, by chance: no core has to know what
/// others recorded. Readers of the recording are told. 0 is off, 1 is all.
///
/// An event that is not recorded costs a reading of the time stamp counter.
///
/// ```
/// use corelocal::trace::{self, Options};
///
/// trace::start(Options::flight_recorder())?;
/// trace::sample("cache::*", 100)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Those of [`switch`].
pub fn sample(pattern: &str, every: u32) -> Result<usize, SwitchError> {
    rules::add(pattern, every)
}

/// The result of a smoke test. Prints as "recording, 17 records in memory, 0 events lost".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SmokeTest {
    /// Records in memory: events, begins and ends of spans, and changes of threads.
    pub records: u64,
    /// Events that were lost so far.
    pub lost: u64,
}

impl fmt::Display for SmokeTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SmokeTest { records, lost } = self;
        write!(f, "recording, {records} records in memory, {lost} events lost")
    }
}

/// The reason why the smoke test failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SmokeTestError {
    /// This process records nothing: [`start`](fn@start) was not called, or it is a forked child.
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
pub fn smoke_test() -> Result<SmokeTest, SmokeTestError> {
    static SITE: Site = Site::new(Kind::Event, "corelocal::smoke_test");
    if current::here().is_none() {
        return Err(SmokeTestError::NotRecording);
    }
    let status = status().ok_or(SmokeTestError::NotRecording)?;
    if SITE.is_new() {
        SITE.register(&[]);
    }
    let Some(number) = SITE.any_number() else {
        return Err(SmokeTestError::NotFound { lost: status.lost });
    };
    // Also if sites are off.
    recorder::record_as(&SITE, number, ());
    let mut is_found = false;
    each_record(SITE.name(), |_| is_found = true);
    match is_found {
        true => Ok(SmokeTest { records: dump::count(), lost: status.lost }),
        false => Err(SmokeTestError::NotFound { lost: status.lost }),
    }
}
