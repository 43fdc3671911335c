//! What makes a dump: a signal, a panic, the exit, and spans that last too long.
//!
//! # Invariants
//! 1. A forked child of the process that has started the recording makes no dump of it, and none at its exit.
//! 2. A signal handler only wakes the background thread.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use std::boxed::Box;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::string::String;
use std::sync::OnceLock;

use super::background::{flush, flush_within, request_dump, wake};
use super::dump::dump;
use super::options::{Background, StartError, expand};
use crate::clock::{self, Instant};
use crate::sys;
use crate::sys::file::stderr::Line;
use crate::sys::thread::signals;

/// The path of dumps.
static DUMPS: OnceLock<String> = OnceLock::new();
static DUMPS_MADE: AtomicU64 = AtomicU64::new(0);
/// The least nanoseconds between two dumps of slow spans.
static PAUSE: AtomicU64 = AtomicU64::new(0);
/// The time of the last dump of a slow span, by CLOCK_MONOTONIC.
static LAST_SLOW: AtomicU64 = AtomicU64::new(0);
/// The process that has started the recording.
static PROCESS: AtomicU64 = AtomicU64::new(0);

/// Checks the options, before a recording is made.
pub(super) fn check(background: &Background<'_>) -> Result<(), StartError> {
    let Background { dumps, signal, is_dumped_on_panic, is_dumped_at_exit, .. } = *background;
    if dumps.is_none() && (signal != 0 || is_dumped_on_panic || is_dumped_at_exit) {
        return Err(StartError::NoPath);
    }
    if signal != 0 && !signals::is_default(signal) {
        return Err(StartError::NoSignal);
    }
    Ok(())
}

/// Starts what the options ask for.
pub(super) fn start(background: &Background<'_>) -> Result<(), StartError> {
    PROCESS.store(sys::process_id().into(), Ordering::Relaxed);
    if let Some(path) = background.dumps {
        // It is empty: there is one recording in a process.
        let _ = DUMPS.set(path.into());
    }
    PAUSE.store(background.pause.as_nanos().min(u64::MAX.into()) as u64, Ordering::Relaxed);
    if background.signal != 0 && !signals::handle(background.signal, on_signal) {
        return Err(StartError::NoSignal);
    }
    if background.is_dumped_on_panic {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if is_own_process() {
                dump_now();
            }
            before(info);
        }));
    }
    // SAFETY: functions that stay: the library is never unloaded.
    unsafe {
        if background.is_dumped_at_exit {
            libc::atexit(dump_at_exit);
        }
        if background.disk.is_some() {
            libc::atexit(flush_at_exit);
            libc::pthread_atfork(Some(flush_before_fork), None, None);
        }
    }
    if background.disk.is_some() && signals::is_default(libc::SIGTERM) {
        // Refused, the process ends without a flush.
        let _ = signals::handle(libc::SIGTERM, on_term);
    }
    Ok(())
}

/// The bit that requests a flush before the process ends.
const FLUSH: u32 = 1;
const TERM: u32 = 2;
static ENDING: AtomicU32 = AtomicU32::new(0);

/// Returns whether the process is about to end, and whether SIGTERM has asked for it.
pub(super) fn is_ending() -> (bool, bool) {
    // Acquire: partners are the Releases below. Events of the thread that asks are written.
    let ending = ENDING.load(Ordering::Acquire);
    (ending != 0, ending & TERM != 0)
}

/// SIGTERM: the background thread writes all events, and then ends the process by this signal. A second one ends it at
/// once, as does one in a child, which has no such thread.
extern "C" fn on_term(_: c_int) {
    // SAFETY: the calling thread's own.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as it was when the thread was interrupted.
    let before = unsafe { errno.read() };
    // A child of `vfork` has the same memory: it must not end its parent. Release: partner is the Acquire in
    // `is_ending`.
    let is_asked = is_own_process() && ENDING.fetch_or(TERM, Ordering::Release) & TERM == 0;
    if !is_asked || !wake() {
        end();
    }
    // SAFETY: the calling thread's own.
    unsafe { errno.write(before) };
}

/// Ends the process by SIGTERM.
pub(super) fn end() {
    // SAFETY: the default disposition runs no code of this process, and the signal is its own. Another thread handles
    // it, or this one as soon as its handler returns.
    unsafe {
        libc::signal(libc::SIGTERM, libc::SIG_DFL);
        libc::kill(libc::getpid(), libc::SIGTERM);
    }
}

/// A parent that becomes a daemon ends by `_exit(2)` after its fork.
extern "C" fn flush_before_fork() {
    const PATIENCE: Duration = Duration::from_secs(1);
    if is_own_process() {
        // What is wrong was said by the background thread.
        let _ = flush_within(PATIENCE);
    }
}

extern "C" fn on_signal(_: c_int) {
    // SAFETY: the calling thread's own.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as it was when the thread was interrupted.
    let before = unsafe { errno.read() };
    request_dump();
    // SAFETY: the calling thread's own.
    unsafe { errno.write(before) };
}

extern "C" fn dump_at_exit() {
    if is_own_process() {
        dump_now();
    }
}

extern "C" fn flush_at_exit() {
    if is_own_process() {
        // Release: partner is the Acquire in `is_ending`.
        ENDING.fetch_or(FLUSH, Ordering::Release);
        // What is wrong was said by the background thread.
        let _ = flush();
    }
}

fn is_own_process() -> bool {
    PROCESS.load(Ordering::Relaxed) == u64::from(sys::process_id())
}

/// Dumps to the path of the options. Says on standard error if that fails.
pub(super) fn dump_now() {
    let Some(path) = DUMPS.get() else { return };
    let number = DUMPS_MADE.fetch_add(1, Ordering::Relaxed) + 1;
    let made = expand(path, number).map_err(|errno| io::Error::from_raw_os_error(errno.0));
    let made = made.and_then(|path| dump(OsStr::from_bytes(path.as_bytes())));
    if let Err(error) = made {
        let path = path.escape_default();
        Line::print(format_args!("corelocal: the recording cannot be dumped to {path}: {error}\n"));
    }
}

/// A span, or any other value, whose lifetime is measured: see [`dump_if_slow`].
#[derive(Debug)]
#[must_use = "the span ends when this is dropped: bind it to a name"]
pub struct DumpIfSlow<S> {
    span: Option<S>,
    began: Instant,
    limit: Duration,
}

/// Asks for a dump if the span lasts longer than the limit: the background thread makes it, at the path of
/// [`Options::dump_to`](super::Options::dump_to). There is at least a minute between two such dumps, or
/// [`Options::dump_pause`](super::Options::dump_pause).
///
/// ```
/// use core::time::Duration;
/// use corelocal::{span, trace};
///
/// let _span = trace::dump_if_slow(span!(server::request), Duration::from_millis(100));
/// ```
#[must_use = "the span ends when this is dropped: bind it to a name"]
pub fn dump_if_slow<S>(span: S, limit: Duration) -> DumpIfSlow<S> {
    DumpIfSlow { span: Some(span), began: Instant::now(), limit }
}

impl<S> Drop for DumpIfSlow<S> {
    fn drop(&mut self) {
        // First: the dump has the end of the span.
        drop(self.span.take());
        if self.began.elapsed() <= self.limit || DUMPS.get().is_none() {
            return;
        }
        let now = clock::monotonic();
        let last = LAST_SLOW.load(Ordering::Relaxed);
        let is_due = last == 0 || now.saturating_sub(last) >= PAUSE.load(Ordering::Relaxed);
        // Of several threads one asks.
        if is_due
            && LAST_SLOW.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            request_dump();
        }
    }
}
