//! C's functions that inspect or configure the malloc, and the statistics at the program's end.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use corelocal::alloc::{self, ClassStats};

use super::options::{self, Options};
use super::stats_format;
use super::text_output::Out;

/// Calls `malloc_trim(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_trim(pad: usize) -> c_int {
    c_int::from(alloc::trim(pad))
}

/// Calls `mallopt(3)`: accepts glibc's parameters, and ignores them.
#[unsafe(no_mangle)]
pub extern "C" fn mallopt(parameter: c_int, _value: c_int) -> c_int {
    c_int::from((-8..=1).contains(&parameter) && parameter != 0)
}

/// Calls `mallinfo2(3)`. The arena is the memory of small objects and what is idle, the blocks of `hblks` are large
/// objects, and fast bins are the caches of cores and depots. The arena is what is in use of it and what is free.
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo2() -> libc::mallinfo2 {
    let stats = alloc::stats();
    // Numbers are read one after the other, while other threads allocate.
    let in_use = stats_format::in_use(&stats).saturating_sub(stats.large_bytes);
    let arena = stats.used.saturating_sub(stats.large_bytes) + stats.idle;
    let sum = |of: fn(&ClassStats) -> usize| stats.classes.iter().map(of).sum();
    libc::mallinfo2 {
        arena,
        ordblks: sum(|class| {
            let taken = class.in_use + class.on_cores + class.in_depot;
            (class.span_bytes / class.size.max(1)).saturating_sub(taken)
        }),
        smblks: sum(|class| class.on_cores + class.in_depot),
        hblks: stats.large_objects,
        hblkhd: stats.large_bytes,
        usmblks: 0,
        fsmblks: stats_format::cached(&stats),
        uordblks: in_use,
        fordblks: arena.saturating_sub(in_use),
        keepcost: stats.idle,
    }
}

/// Calls `mallinfo(3)`: [`mallinfo2`] in fewer bits.
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo() -> libc::mallinfo {
    let info = mallinfo2();
    let least = |n: usize| c_int::try_from(n).unwrap_or(c_int::MAX);
    libc::mallinfo {
        arena: least(info.arena),
        ordblks: least(info.ordblks),
        smblks: least(info.smblks),
        hblks: least(info.hblks),
        hblkhd: least(info.hblkhd),
        usmblks: 0,
        fsmblks: least(info.fsmblks),
        uordblks: least(info.uordblks),
        fordblks: least(info.fordblks),
        keepcost: least(info.keepcost),
    }
}

/// Calls `malloc_stats(3)`: to stderr.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_stats() {
    corelocal_malloc_stats(libc::STDERR_FILENO, 0);
}

/// Writes statistics to a file descriptor: as text, or as JSON if `json` is not 0. Returns 0, or -1 on failure.
/// Allocates nothing.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_malloc_stats(fd: c_int, json: c_int) -> c_int {
    let mut out = Out::to_file(fd);
    let stats = alloc::stats();
    let write = if json != 0 { stats_format::write_json } else { stats_format::write_text };
    let written = write(&mut out, &stats);
    if written.is_ok() && out.flush().is_ok() { 0 } else { -1 }
}

/// Calls `malloc_info(3)`: XML in glibc's shape, with elements of our own.
///
/// # Safety
/// - `stream` is an open stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_info(options: c_int, stream: *mut libc::FILE) -> c_int {
    if options != 0 {
        return libc::EINVAL;
    }
    // SAFETY: open until this function returns.
    let mut out = unsafe { Out::to_stream(stream) };
    let written = stats_format::write_xml(&mut out, &alloc::stats());
    if written.is_ok() && out.flush().is_ok() { 0 } else { -1 }
}

/// A copy of stderr as it was when the library was loaded: many programs close theirs before they end. Stderr itself
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
pub(crate) fn at_load() {
    let options = Options::get();
    let is_profiled = || options::words().any(|word| word.starts_with(b"profile"));
    if !options.stats() && options.stats_signal().is_none() && !is_profiled() {
        return;
    }
    let Some(copy_of) = identity(libc::STDERR_FILENO) else { return };
    // SAFETY: copies a descriptor.
    let fd = unsafe { libc::fcntl(libc::STDERR_FILENO, libc::F_DUPFD_CLOEXEC, LEAST_COPY) };
    COPY_OF.iter().zip(copy_of).for_each(|(word, it)| word.store(it, Ordering::Relaxed));
    COPY.store(if fd < 0 { libc::STDERR_FILENO } else { fd }, Ordering::Relaxed);
}

/// Writes at the program's end what `CORELOCAL_MALLOC` asks for.
pub(crate) fn at_exit() {
    if Options::get().stats() {
        to_standard_error();
    }
}

/// Writes statistics to [`standard_error`]. Async-signal-safe.
pub(crate) fn to_standard_error() {
    if let Some(fd) = standard_error() {
        corelocal_malloc_stats(fd, c_int::from(Options::get().json()));
    }
}

/// Returns a descriptor of the file that was stderr when the library was loaded. The program may have closed the copy
/// and stderr, and opened files of its own with the same numbers; those are not written to. Async-signal-safe.
pub(crate) fn standard_error() -> Option<c_int> {
    let fd = COPY.load(Ordering::Relaxed);
    if fd < 0 {
        return None;
    }
    let copy_of = COPY_OF.each_ref().map(|word| word.load(Ordering::Relaxed));
    let is_there = |fd: &c_int| identity(*fd) == Some(copy_of);
    [fd, libc::STDERR_FILENO].into_iter().find(is_there)
}
