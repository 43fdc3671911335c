//! What a process writes of its malloc because `CORELOCAL_MALLOC` asks for it: statistics and profiles, at its end and at
//! signals.
//!
//! The preloaded library begins and ends this when it is loaded and unloaded. A program with
//! [`CoreLocal`](struct@super::CoreLocal) begins it at its first allocation, and ends it by `atexit`.
//!
//! Invariants:
//! - A process of which nothing is asked opens no descriptor, installs no handler and writes nothing.
//! - Nothing here allocates, and `errno` changes only on failure.

mod format;
mod signals;
mod standard_error;
mod text_output;

pub use format::{cached, in_use, write_json, write_text, write_xml};
pub use text_output::Out;

use core::fmt::Write as _;

use super::background::allow_background;
use super::config::Background;
use super::core_cache::slots;
use super::{config, profile, stats, verify};

/// Begins what the environment asks for. Does nothing if there is no environment yet.
pub fn begin() {
    if config::modes().is_some() {
        standard_error::at_load();
        signals::at_load();
    }
}

/// Writes at the program's end what the environment asks for.
pub extern "C" fn end() {
    if config::reports().is_stats() {
        standard_error::write_stats();
    }
    verify();
    if config::is_profile_asked() {
        write_profile();
    }
}

/// Begins what the environment asks for, once, in a program that has this malloc inside: to be called in each cold path.
#[inline]
pub(super) fn begin_in_program() {
    if !slots::are_freed_by_size() && config::modes().is_some() {
        begin_once();
    }
}

/// Marks a program that may have this malloc inside, for `corelocal heap`: a section of this name.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".corelocal.malloc"))]
static MARK: [u8; 16] = *b"corelocal malloc";

#[cold]
fn begin_once() {
    core::hint::black_box(&MARK);
    let is_asked = config::reports().is_any() || profile::is_on() || config::is_checked();
    let is_first = slots::free_by_size();
    if is_first && matches!(config::background(), Background::Yes | Background::Children) {
        // The thread comes without the program's leave: what it has to know of the start is noted all the same.
        allow_background();
    }
    if is_first && is_asked {
        begin();
        // SAFETY: a function that may run at any time, and stays as long as the program, or the library that has it. If
        // libc has no memory for it, nothing is written at the end.
        unsafe { libc::atexit(end) };
    }
}

/// Writes statistics to a file descriptor, as text or as JSON. Returns whether it was written whole.
pub fn write_stats_to(fd: core::ffi::c_int, json: bool) -> bool {
    let mut out = Out::to_file(fd);
    let write = if json { write_json } else { write_text };
    write(&mut out, &stats()).is_ok() && out.flush().is_ok()
}

/// Writes the next file of the profile, if there is one, and reports a failure on the stderr that the program started
/// with, never in a file of the program's. `errno` changes only if writing fails.
fn write_profile() {
    if !profile::is_on() {
        return;
    }
    if let (Err(why), Some(fd)) = (profile::dump_next(), standard_error::standard_error()) {
        let mut out = Out::to_file(fd);
        let why = why.name().unwrap_or("an error");
        // If standard error fails as well, nothing more can be done.
        let _ = writeln!(out, "corelocal malloc: cannot write a profile: {why}");
        let _ = out.flush();
    }
}
