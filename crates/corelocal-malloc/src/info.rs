//! What the malloc tells of itself.

use core::ffi::{c_int, c_void};
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicI32, Ordering};

use corelocal::alloc::{self, NodeStats, Stats};

use super::options::Options;

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

/// Bytes in a program's hands, and free ones in caches.
fn in_use_and_cached(stats: &Stats) -> (usize, usize) {
    stats.classes.iter().fold((stats.large_bytes, 0), |(in_use, cached), class| {
        let waiting = class.on_cores + class.in_depot;
        (in_use + class.in_use * class.size, cached + waiting * class.size)
    })
}

/// The nodes that memory is divided among; none, if it is one.
fn nodes_of(stats: &Stats) -> &[NodeStats] {
    stats.of_nodes.get(..stats.nodes).filter(|nodes| nodes.len() > 1).unwrap_or_default()
}

/// `mallinfo2(3)`, as far as the terms fit.
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo2() -> libc::mallinfo2 {
    let stats = alloc::stats();
    let (in_use, cached) = in_use_and_cached(&stats);
    libc::mallinfo2 {
        arena: stats.used - stats.large_bytes,
        ordblks: stats.classes.iter().map(|class| class.on_cores + class.in_depot).sum(),
        smblks: 0,
        hblks: stats.large_objects,
        hblkhd: stats.large_bytes,
        usmblks: 0,
        fsmblks: cached,
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
    let written =
        if json != 0 { write_json(&mut out, &stats) } else { write_text(&mut out, &stats) };
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
    let mut out = Out { to: To::Stream(stream), bytes: [0; 512], len: 0 };
    let written = write_xml(&mut out, &alloc::stats());
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

fn write_text(out: &mut Out, stats: &Stats) -> fmt::Result {
    let (in_use, cached) = in_use_and_cached(stats);
    writeln!(out, "corelocal malloc: bytes in use {in_use}, cached {cached}, idle {}", stats.idle)?;
    writeln!(
        out,
        "  spans and large objects {}, ever {}, released {}, in huge pages {}; large objects {}, their bytes {}",
        stats.used,
        stats.committed,
        stats.released,
        stats.huge,
        stats.large_objects,
        stats.large_bytes
    )?;
    for node in nodes_of(stats) {
        writeln!(
            out,
            "  node {}: spans and large objects {}, ever {}",
            node.number, node.used, node.committed
        )?;
    }
    if stats.displaced > 0 {
        writeln!(out, "  bytes that the kernel would not place on their node {}", stats.displaced)?;
    }
    writeln!(
        out,
        "  {:>8} {:>10} {:>8} {:>8} {:>8} {:>12} {:>12} {:>12} {:>9} {:>9}",
        "size",
        "in use",
        "cores",
        "depot",
        "spans",
        "span bytes",
        "allocated",
        "freed",
        "refills",
        "spills"
    )?;
    for class in stats.classes.iter().filter(|class| class.spans > 0) {
        writeln!(
            out,
            "  {:>8} {:>10} {:>8} {:>8} {:>8} {:>12} {:>12} {:>12} {:>9} {:>9}",
            class.size,
            class.in_use,
            class.on_cores,
            class.in_depot,
            class.spans,
            class.span_bytes,
            class.allocated,
            class.freed,
            class.refills,
            class.spills
        )?;
    }
    write!(out, "  bytes on each core:")?;
    alloc::cores().try_for_each(|bytes| write!(out, " {bytes}"))?;
    writeln!(out)
}

fn write_json(out: &mut Out, stats: &Stats) -> fmt::Result {
    let (in_use, cached) = in_use_and_cached(stats);
    write!(
        out,
        "{{\"in_use\":{in_use},\"cached\":{cached},\"idle\":{},\"released\":{},\"huge\":{},\"reserved\":{},\
         \"committed\":{},\"used\":{},\"large_objects\":{},\"large_bytes\":{},\"guarded\":{},\
         \"guarded_ever\":{},\"classes\":[",
        stats.idle,
        stats.released,
        stats.huge,
        stats.reserved,
        stats.committed,
        stats.used,
        stats.large_objects,
        stats.large_bytes,
        stats.guarded,
        stats.guarded_ever
    )?;
    let classes = stats.classes.iter().filter(|class| class.spans > 0);
    for (nth, class) in classes.enumerate() {
        write!(
            out,
            "{}{{\"size\":{},\"in_use\":{},\"on_cores\":{},\"in_depot\":{},\"spans\":{},\"span_bytes\":{},\
             \"allocated\":{},\"freed\":{},\"refills\":{},\"spills\":{}}}",
            if nth > 0 { "," } else { "" },
            class.size,
            class.in_use,
            class.on_cores,
            class.in_depot,
            class.spans,
            class.span_bytes,
            class.allocated,
            class.freed,
            class.refills,
            class.spills
        )?;
    }
    write!(out, "],\"cores\":[")?;
    for (nth, bytes) in alloc::cores().enumerate() {
        write!(out, "{}{bytes}", if nth > 0 { "," } else { "" })?;
    }
    write!(out, "]")?;
    if !nodes_of(stats).is_empty() {
        write!(out, ",\"displaced\":{},\"nodes\":[", stats.displaced)?;
        for (nth, node) in nodes_of(stats).iter().enumerate() {
            write!(
                out,
                "{}{{\"node\":{},\"used\":{},\"committed\":{}}}",
                if nth > 0 { "," } else { "" },
                node.number,
                node.used,
                node.committed
            )?;
        }
        write!(out, "]")?;
    }
    writeln!(out, "}}")
}

fn write_xml(out: &mut Out, stats: &Stats) -> fmt::Result {
    let (in_use, cached) = in_use_and_cached(stats);
    writeln!(out, "<malloc version=\"corelocal-1\">")?;
    for class in stats.classes.iter().filter(|class| class.spans > 0) {
        writeln!(
            out,
            "<size from=\"{0}\" to=\"{0}\" in_use=\"{1}\" cached=\"{2}\" spans=\"{3}\"/>",
            class.size,
            class.in_use,
            class.on_cores + class.in_depot,
            class.spans
        )?;
    }
    writeln!(out, "<total type=\"rest\" size=\"{in_use}\"/>")?;
    writeln!(out, "<total type=\"fast\" size=\"{cached}\"/>")?;
    writeln!(
        out,
        "<total type=\"mmap\" count=\"{}\" size=\"{}\"/>",
        stats.large_objects, stats.large_bytes
    )?;
    writeln!(out, "<system type=\"current\" size=\"{}\"/>", stats.used + stats.idle)?;
    writeln!(out, "<system type=\"huge\" size=\"{}\"/>", stats.huge)?;
    writeln!(out, "<system type=\"max\" size=\"{}\"/>", stats.committed)?;
    writeln!(out, "</malloc>")
}

/// Where text goes.
enum To {
    File(c_int),
    Stream(*mut libc::FILE),
}

/// Text on its way, some of it at a time.
pub(crate) struct Out {
    to: To,
    bytes: [u8; 512],
    len: usize,
}

impl Out {
    pub(crate) fn to_file(fd: c_int) -> Out {
        Out { to: To::File(fd), bytes: [0; 512], len: 0 }
    }

    pub(crate) fn flush(&mut self) -> fmt::Result {
        let mut rest = &self.bytes[..self.len];
        self.len = 0;
        while !rest.is_empty() {
            let at = rest.as_ptr().cast::<c_void>();
            let written = match self.to {
                // SAFETY: so many bytes to read.
                To::File(fd) => unsafe { libc::write(fd, at, rest.len()) },
                // SAFETY: likewise, to the caller's stream.
                To::Stream(stream) => unsafe { libc::fwrite(at, 1, rest.len(), stream) as isize },
            };
            rest = match usize::try_from(written) {
                Ok(written) if written > 0 => rest.get(written..).unwrap_or_default(),
                _ => return Err(fmt::Error),
            };
        }
        Ok(())
    }
}

impl Write for Out {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if self.len == self.bytes.len() {
                self.flush()?;
            }
            self.bytes[self.len] = byte;
            self.len += 1;
        }
        Ok(())
    }
}
