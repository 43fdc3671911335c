//! Cache statistics of a process, written to a file of its own when it ends, for the program that started it.
//!
//! `tally:PREFIX` in `CORELOCAL_MALLOC` asks for them, as `corelocal run` does. They cost nothing before the process
//! ends. A process that ends by a signal or by `_exit`, or executes another program, writes none.
//!
//! Invariants:
//! - A file is new, accessible to its owner only, and called PREFIX.PROCESS.NUMBER.
//! - A forked child reports only its own numbers.
//! - Nothing here allocates, and `errno` does not change.

use core::ffi::{c_char, c_int};
use core::fmt::Write;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use corelocal::alloc;
use corelocal::alloc::reports::Out;
use corelocal::sys::without_libc::{is_foreign, process_id, variable};

const R: Ordering = Ordering::Relaxed;

const PREFIX_BYTES: usize = 512;
/// The start of file names, ended by a zero; empty if no file is wanted. Written when the library is loaded.
static PREFIX: [AtomicU8; PREFIX_BYTES] = [const { AtomicU8::new(0) }; PREFIX_BYTES];

/// The numbers, in this order.
const NAMES: [&str; 4] = ["allocated", "freed", "refills", "spills"];
/// The numbers at the fork from which this process comes.
static BEFORE: [AtomicU64; NAMES.len()] = [const { AtomicU64::new(0) }; NAMES.len()];

/// The most files for one process number, which is reused rarely.
const MOST_FILES: u32 = 100;

/// Reads whether a file is wanted.
pub(crate) fn at_load() {
    // SAFETY: used before anything can change the environment.
    let value = unsafe { variable(c"CORELOCAL_MALLOC") };
    let words = value.filter(|_| !is_foreign()).unwrap_or_default().to_bytes();
    let mut words = words.split(|byte| *byte == b',');
    let Some(prefix) = words.find_map(|word| word.strip_prefix(b"tally:")) else { return };
    // A prefix that is too long is cut; its folder then usually does not exist, and no file is written.
    for (byte, given) in PREFIX.iter().zip(prefix).take(PREFIX_BYTES - 1) {
        byte.store(*given, R);
    }
    // SAFETY: the handler may run in a child of a multi-threaded process: it only loads and stores words.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
}

unsafe extern "C" fn forked() {
    for (before, now) in BEFORE.iter().zip(counts()) {
        before.store(now, R);
    }
}

/// Returns the numbers since the first ancestor process started.
fn counts() -> [u64; NAMES.len()] {
    alloc::stats().classes.iter().fold([0; NAMES.len()], |sums, class| {
        let counts = [class.allocated, class.freed, class.refills, class.spills];
        core::array::from_fn(|nth| sums[nth].wrapping_add(counts[nth]))
    })
}

/// Writes the file, if one is wanted. A failure is not reported: the program that started the process notices it.
pub(crate) fn at_exit() {
    if PREFIX[0].load(R) == 0 {
        return;
    }
    // SAFETY: the thread's own `errno`.
    let errno = unsafe { *libc::__errno_location() };
    if let Some((file, path)) = (0..MOST_FILES).find_map(create) {
        let mut out = Out::to_file(file);
        let written = write_to(&mut out).and_then(|()| out.flush());
        // SAFETY: a descriptor opened above; the path ends with a zero.
        unsafe {
            if written.is_err() {
                libc::unlink(path.bytes.as_ptr().cast());
            }
            libc::close(file);
        }
    }
    // SAFETY: the thread's own `errno`.
    unsafe { *libc::__errno_location() = errno };
}

fn write_to(out: &mut Out) -> core::fmt::Result {
    write!(out, "{{\"process\":{}", process_id())?;
    for ((name, before), now) in NAMES.iter().zip(&BEFORE).zip(counts()) {
        write!(out, ",\"{name}\":{}", now.wrapping_sub(before.load(R)))?;
    }
    writeln!(out, "}}")
}

/// Creates a new file.
fn create(number: u32) -> Option<(c_int, Path)> {
    let mut path = Path { bytes: [0; PREFIX_BYTES + 32], len: 0 };
    for byte in PREFIX.iter().map(|byte| byte.load(R)).take_while(|byte| *byte != 0) {
        path.push(byte);
    }
    let _ = write!(path, ".{}.{number}", process_id());
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: the path ends with a zero, since its last byte is never written.
    let file = unsafe { libc::open(path.bytes.as_ptr().cast::<c_char>(), flags, 0o600) };
    (file >= 0).then_some((file, path))
}

/// A file name, padded with zeros.
struct Path {
    bytes: [u8; PREFIX_BYTES + 32],
    len: usize,
}

impl Path {
    /// Appends a byte if there is room; the last byte stays zero.
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
