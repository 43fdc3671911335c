//! C's functions that tell of the malloc, or tell it something; and what is told at the end.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, Ordering};

use corelocal::alloc;

use super::options::Options;
use super::out::Out;
use super::told;

/// `malloc_trim(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_trim(pad: usize) -> c_int {
    c_int::from(alloc::trim(pad))
}

/// `mallopt(3)`: knows glibc's parameters, and does as well without them.
#[unsafe(no_mangle)]
pub extern "C" fn mallopt(parameter: c_int, _value: c_int) -> c_int {
    c_int::from((-8..=1).contains(&parameter) && parameter != 0)
}

/// `mallinfo2(3)`, as far as the terms fit.
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo2() -> libc::mallinfo2 {
    let stats = alloc::stats();
    let in_use = told::in_use(&stats);
    libc::mallinfo2 {
        arena: stats.used - stats.large_bytes,
        ordblks: stats.classes.iter().map(|class| class.on_cores + class.in_depot).sum(),
        smblks: 0,
        hblks: stats.large_objects,
        hblkhd: stats.large_bytes,
        usmblks: 0,
        fsmblks: told::cached(&stats),
        uordblks: in_use,
        fordblks: stats.used.saturating_sub(in_use),
        keepcost: stats.idle,
    }
}

/// `mallinfo(3)`: [`mallinfo2`] in fewer bits.
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo() -> libc::mallinfo {
    let info = mallinfo2();
    let least = |n: usize| c_int::try_from(n).unwrap_or(c_int::MAX);
    libc::mallinfo {
        arena: least(info.arena),
        ordblks: least(info.ordblks),
        smblks: 0,
        hblks: least(info.hblks),
        hblkhd: least(info.hblkhd),
        usmblks: 0,
        fsmblks: least(info.fsmblks),
        uordblks: least(info.uordblks),
        fordblks: least(info.fordblks),
        keepcost: least(info.keepcost),
    }
}

/// `malloc_stats(3)`: to stderr.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_stats() {
    corelocal_malloc_stats(libc::STDERR_FILENO, 0);
}

/// Writes what there is to a file descriptor: as text, or as JSON if `json` is not 0. 0, or -1 if that fails.
/// Allocates nothing.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_malloc_stats(fd: c_int, json: c_int) -> c_int {
    let mut out = Out::to_file(fd);
    let stats = alloc::stats();
    let write = if json != 0 { told::write_json } else { told::write_text };
    let written = write(&mut out, &stats);
    if written.is_ok() && out.flush().is_ok() { 0 } else { -1 }
}

/// `malloc_info(3)`: XML of glibc's shape, with our own elements.
///
/// # Safety
/// `stream` is an open stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_info(options: c_int, stream: *mut libc::FILE) -> c_int {
    if options != 0 {
        return libc::EINVAL;
    }
    // SAFETY: open, as the caller says, until we are done.
    let mut out = unsafe { Out::to_stream(stream) };
    let written = told::write_xml(&mut out, &alloc::stats());
    if written.is_ok() && out.flush().is_ok() { 0 } else { -1 }
}

/// stderr, as it was when the library was loaded: many programs close theirs before they end.
static AT_EXIT_FD: AtomicI32 = AtomicI32::new(-1);

/// Keeps what [`at_exit`] writes to.
pub(crate) fn at_load() {
    if Options::get().stats() {
        // Where no program expects its own, or where there is room.
        let copy = [900, 3].into_iter().find_map(|least| {
            // SAFETY: copies a descriptor.
            let fd = unsafe { libc::fcntl(libc::STDERR_FILENO, libc::F_DUPFD_CLOEXEC, least) };
            (fd >= 0).then_some(fd)
        });
        AT_EXIT_FD.store(copy.unwrap_or(-1), Ordering::Relaxed);
    }
}

/// What `CORELOCAL_MALLOC` asks for at the end of the program.
pub(crate) fn at_exit() {
    let fd = AT_EXIT_FD.load(Ordering::Relaxed);
    if fd >= 0 {
        corelocal_malloc_stats(fd, c_int::from(Options::get().json()));
    }
}
