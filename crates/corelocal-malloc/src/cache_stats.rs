//! What a process did with its caches, for who started it: a few numbers in a file of its own, written when it ends.
//!
//! `tally:PREFIX` in `CORELOCAL_MALLOC` asks for it; `corelocal run` does. It costs a process nothing before its end.
//! A process that ends by a signal or by `_exit`, or becomes another program, writes none.
//!
//! Invariants:
//! - A file is new: PREFIX.PROCESS.NUMBER, for its owner alone.
//! - A forked child tells of what it did itself.
//! - Nothing here allocates, and `errno` stays.

use core::ffi::{c_char, c_int};
use core::fmt::Write;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use corelocal::alloc;
use corelocal::sys::process_id;

use super::options;
use super::text_output::Out;

const R: Ordering = Ordering::Relaxed;

const PREFIX_BYTES: usize = 512;
/// What names begin with; a zero ends it, and none is wanted if it is empty. Written when the library is loaded.
static PREFIX: [AtomicU8; PREFIX_BYTES] = [const { AtomicU8::new(0) }; PREFIX_BYTES];

/// What is told, in this order.
const NAMES: [&str; 4] = ["allocated", "freed", "refills", "spills"];
/// What the processes had done that this one was forked from.
static BEFORE: [AtomicU64; NAMES.len()] = [const { AtomicU64::new(0) }; NAMES.len()];

/// Files of one process, of which there is one unless numbers of processes come again.
const MOST_FILES: u32 = 100;

/// Whether it is wanted.
pub(crate) fn at_load() {
    let Some(prefix) = options::words().find_map(|word| word.strip_prefix(b"tally:")) else {
        return;
    };
    // One that is too long is cut: then there is no such folder, and no file.
    for (byte, given) in PREFIX.iter().zip(prefix).take(PREFIX_BYTES - 1) {
        byte.store(*given, R);
    }
    // SAFETY: the handler may run in a child of a process with threads: it loads and stores words.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
}

unsafe extern "C" fn forked() {
    for (before, now) in BEFORE.iter().zip(counts()) {
        before.store(now, R);
    }
}

/// Since the first of all processes that led to this one began.
fn counts() -> [u64; NAMES.len()] {
    alloc::stats().classes.iter().fold([0; NAMES.len()], |sums, class| {
        let counts = [class.allocated, class.freed, class.refills, class.spills];
        core::array::from_fn(|nth| sums[nth].wrapping_add(counts[nth]))
    })
}

/// Writes the file, if one is wanted. Where it cannot be written nothing is said: who started the process misses it.
pub(crate) fn at_exit() {
    if PREFIX[0].load(R) == 0 {
        return;
    }
    // SAFETY: the thread's own `errno`.
    let errno = unsafe { *libc::__errno_location() };
    if let Some((file, path)) = (0..MOST_FILES).find_map(create) {
        let mut out = Out::to_file(file);
        let written = write_to(&mut out).and_then(|()| out.flush());
        // SAFETY: made above; a zero ends the path.
        unsafe {
            if written.is_err() {
                libc::unlink(path.bytes.as_ptr().cast());
            }
            libc::close(file);
        }
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

fn write_to(out: &mut Out) -> core::fmt::Result {
    write!(out, "{{\"process\":{}", process_id())?;
    for ((name, before), now) in NAMES.iter().zip(&BEFORE).zip(counts()) {
        write!(out, ",\"{name}\":{}", now.wrapping_sub(before.load(R)))?;
    }
    writeln!(out, "}}")
}

/// A new file.
fn create(number: u32) -> Option<(c_int, Path)> {
    let mut path = Path { bytes: [0; PREFIX_BYTES + 32], len: 0 };
    for byte in PREFIX.iter().map(|byte| byte.load(R)).take_while(|byte| *byte != 0) {
        path.push(byte);
    }
    let _ = write!(path, ".{}.{number}", process_id());
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: a zero ends the path, which is shorter than its place.
    let file = unsafe { libc::open(path.bytes.as_ptr().cast::<c_char>(), flags, 0o600) };
    (file >= 0).then_some((file, path))
}

/// The name of a file, with zeros behind.
struct Path {
    bytes: [u8; PREFIX_BYTES + 32],
    len: usize,
}

impl Path {
    /// What there is no room for is left out; the last byte stays zero.
    fn push(&mut self, byte: u8) {
        if self.len + 1 < self.bytes.len() {
            self.bytes[self.len] = byte;
            self.len += 1;
        }
    }
}

impl Write for Path {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        text.bytes().for_each(|byte| self.push(byte));
        Ok(())
    }
}
