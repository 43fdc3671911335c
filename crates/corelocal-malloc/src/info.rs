//! C's functions that inspect or configure the malloc.

use core::ffi::c_int;

use corelocal::alloc;
#[cfg(target_env = "gnu")]
use corelocal::alloc::ClassStats;
use corelocal::alloc::reports::{self, Out};

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
#[cfg(target_env = "gnu")]
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo2() -> libc::mallinfo2 {
    let stats = alloc::stats();
    // Numbers are read one after the other, while other threads allocate.
    let in_use = reports::in_use(&stats).saturating_sub(stats.large_bytes);
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
        fsmblks: reports::cached(&stats),
        uordblks: in_use,
        fordblks: arena.saturating_sub(in_use),
        keepcost: stats.idle,
    }
}

/// Calls `mallinfo(3)`: [`mallinfo2`] in fewer bits.
#[cfg(target_env = "gnu")]
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
    if reports::write_stats_to(fd, json != 0) { 0 } else { -1 }
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
    let written = reports::write_xml(&mut out, &alloc::stats());
    if written.is_ok() && out.flush().is_ok() { 0 } else { -1 }
}
