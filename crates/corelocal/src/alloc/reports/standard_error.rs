//! Stderr as it was at the program's start: many programs close theirs before they end, or open a file with its number.
//!
//! Invariant: nothing is written to a file of the program's.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use super::write_stats_to;
use crate::alloc::{config, profile};

/// A copy of stderr as it was at the start: many programs close theirs before they end. Stderr itself
/// if it could not be copied; -1 if nothing will be written, or there was no stderr.
static COPY: AtomicI32 = AtomicI32::new(-1);
/// The device and inode of that file.
static COPY_OF: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// The lowest number for the copy: programs do not expect descriptors of their own there.
const LEAST_COPY: c_int = 900;

/// Returns the device and inode of an open file.
fn identity(fd: c_int) -> Option<[u64; 2]> {
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: `stat` is writable, and valid when zeroed.
    let stat = unsafe { (libc::fstat(fd, stat.as_mut_ptr()) == 0).then(|| stat.assume_init()) };
    stat.map(|stat| [stat.st_dev, stat.st_ino])
}

/// Copies stderr for [`standard_error`], if something may be written there later.
pub(super) fn at_load() {
    if !config::reports().is_any() && !profile::is_on() {
        return;
    }
    let Some(copy_of) = identity(libc::STDERR_FILENO) else { return };
    // SAFETY: copies a descriptor.
    let fd = unsafe { libc::fcntl(libc::STDERR_FILENO, libc::F_DUPFD_CLOEXEC, LEAST_COPY) };
    COPY_OF.iter().zip(copy_of).for_each(|(word, it)| word.store(it, Ordering::Relaxed));
    COPY.store(if fd < 0 { libc::STDERR_FILENO } else { fd }, Ordering::Relaxed);
}

/// Writes statistics to [`standard_error`]. Async-signal-safe.
pub(super) fn write_stats() {
    if let Some(fd) = standard_error() {
        write_stats_to(fd, config::reports().is_json());
    }
}

/// Returns a descriptor of the file that was stderr at the start. The program may have closed the copy
/// and stderr, and opened files of its own with the same numbers; those are not written to. Async-signal-safe.
pub(super) fn standard_error() -> Option<c_int> {
    let fd = COPY.load(Ordering::Relaxed);
    if fd < 0 {
        return None;
    }
    let copy_of = COPY_OF.each_ref().map(|word| word.load(Ordering::Relaxed));
    let is_there = |fd: &c_int| identity(*fd) == Some(copy_of);
    [fd, libc::STDERR_FILENO].into_iter().find(is_there)
}
