//! The file format of heap profiles, and its writer.
//!
//! ```text
//!   "CLHEAP1\n", then pieces: kind and length, 4 bytes each, and that many bytes
//!     INFO    numbers of 8 bytes: rate, process, nanoseconds since 1970 and of the monotonic clock, samples, bytes
//!             allocated, in use, peak, time of the peak, missed, maximum bytes of a stack, libraries unloaded so far
//!     MAP     a line of /proc/self/maps, of an executable mapping
//!     SAMPLE  numbers of 8 bytes: size, time, thread, flags (1 in use, 2 at the peak), 2 of the thread's name,
//!             8 registers, the stack
//!     END     empty: the file is complete
//! ```
//! Numbers are little-endian. Readers skip kinds, and trailing numbers, that they do not know.
//!
//! Invariants:
//! - Only raw system calls, and memory of its own: this may run in a signal handler.
//! - A file whose name is generated here is new.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, Ordering};

use super::area::STACK_BYTES;
use super::sample::Sample;
use super::{for_each, is_on, summary};
use crate::alloc::config::{self, PREFIX_BYTES};
use crate::sys::file::lines::Lines;
use crate::sys::file::{File, OWN_MAPS, PathBuf, decimal};
use crate::sys::memory::pages;
use crate::sys::{Errno, kernel_clock, process_id};

const R: Ordering = Ordering::Relaxed;

const MAGIC: &[u8] = b"CLHEAP1\n";
const INFO: u32 = 1;
const MAP: u32 = 2;
const SAMPLE: u32 = 3;
const END: u32 = 4;

/// The most files with generated names for one process number.
const MOST_FILES: u32 = 10_000;
const BUFFER: usize = 32 << 10;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Writes the profile to a file, and overwrites an existing one.
///
/// A new file is accessible to its owner only, and is removed if it cannot be written completely. An existing file is
/// truncated.
///
/// # Errors
/// `EINVAL` if there is no profile; `EFBIG` beyond the file size limit (`ulimit -f`), without SIGXFSZ; errors of the
/// file system; `ENOMEM`.
pub fn dump(path: &CStr) -> Result<(), Errno> {
    if !is_on() {
        return Err(Errno::EINVAL);
    }
    match File::create(path, true) {
        Err(Errno::EEXIST) => write(&File::create(path, false)?),
        created => write_new(&created?, path),
    }
}

/// Writes the profile to a new file, `PREFIX.PROCESS.NUMBER.heap`.
///
/// # Errors
/// As [`dump`].
pub fn dump_next() -> Result<(), Errno> {
    if !is_on() {
        return Err(Errno::EINVAL);
    }
    loop {
        let number = NEXT.fetch_add(1, R);
        let path = path(number)?;
        match File::create(path.as_c_str(), true) {
            // The file of an earlier program or process with this number.
            Err(Errno::EEXIST) if number < MOST_FILES => {}
            created => return write_new(&created?, path.as_c_str()),
        }
    }
}

/// Writes a file that was just created, and removes it on failure.
fn write_new(file: &File, path: &CStr) -> Result<(), Errno> {
    write(file).inspect_err(|_| File::remove(path))
}

fn path(number: u32) -> Result<PathBuf, Errno> {
    let mut prefix = [0; PREFIX_BYTES];
    let len = config::profile_prefix(&mut prefix);
    let prefix = if len == 0 { b"corelocal" } else { &prefix[..len] };
    let (mut process, mut digits) = ([0; 20], [0; 20]);
    let process = decimal(process_id().into(), &mut process);
    PathBuf::join(&[prefix, b".", process, b".", decimal(number.into(), &mut digits), b".heap"])
}

/// Working memory of a dump, in pages of its own: stacks of signal handlers are short.
#[repr(C)]
struct Room {
    sample: Sample,
    len: usize,
    buffer: [u8; BUFFER],
}

fn write(file: &File) -> Result<(), Errno> {
    let at = pages::map(size_of::<Room>()).ok_or(Errno::ENOMEM)?;
    // SAFETY: pages just mapped, zeroed, which is a valid value; not published.
    let written = write_with(file, unsafe { &mut *at.cast::<Room>() });
    // SAFETY: mapped above; all references to it are gone.
    unsafe { pages::unmap(at, size_of::<Room>()) };
    written
}

fn write_with(file: &File, room: &mut Room) -> Result<(), Errno> {
    let Room { sample, len, buffer } = room;
    let mut out = Out { file, len, buffer, failed: None };
    out.bytes(MAGIC);
    out.info();
    let maps = File::open_of_kernel(OWN_MAPS);
    if let Ok(maps) = maps {
        let mut lines = Lines::new(maps);
        while let Some(line) = lines.next() {
            if is_code(line) {
                out.piece(MAP, line.len());
                out.bytes(line);
            }
        }
    }
    for_each(sample, &mut |sample| out.sample(sample));
    out.piece(END, 0);
    out.flush();
    out.failed.map_or(Ok(()), Err)
}

/// Returns `true` if a line of /proc/PROCESS/maps is of an executable mapping: "START-END r-xp …".
fn is_code(line: &[u8]) -> bool {
    let access = line.split(|byte| *byte == b' ').nth(1);
    access.is_some_and(|access| access.get(2) == Some(&b'x'))
}

/// Returns the number of libraries unloaded since the program started. Return addresses into an unloaded library point
/// to nothing, or into another library by now. 0 in a forked child, where another thread may have left the loader's
/// lock held.
fn unloaded() -> u64 {
    let is_child = config::is_forked_child();
    if is_child || !cfg!(target_env = "gnu") || cfg!(miri) {
        return 0;
    }
    let mut count = 0_u64;
    // SAFETY: the function is called only during the call, with the count. The loader's lock is recursive, and this
    // thread holds no lock that the function takes.
    unsafe { libc::dl_iterate_phdr(Some(first_of_them), (&raw mut count).cast()) };
    count
}

/// Called for the first library only: `dlpi_subs` is the loader's total (`dl_iterate_phdr(3)`).
unsafe extern "C" fn first_of_them(
    info: *mut libc::dl_phdr_info,
    size: usize,
    count: *mut core::ffi::c_void,
) -> core::ffi::c_int {
    if size >= size_of::<libc::dl_phdr_info>() {
        // SAFETY: `info` has `size` bytes, and `count` points to the variable in `unloaded`.
        unsafe { *count.cast::<u64>() = (*info).dlpi_subs };
    }
    1
}

struct Out<'a> {
    file: &'a File,
    len: &'a mut usize,
    buffer: &'a mut [u8; BUFFER],
    failed: Option<Errno>,
}

impl Out<'_> {
    fn info(&mut self) {
        let summary = summary();
        let since_1970 = kernel_clock::nanoseconds(libc::CLOCK_REALTIME);
        let process = u64::from(process_id());
        let numbers = [
            summary.rate,
            process,
            since_1970,
            super::now(),
            summary.samples,
            summary.bytes,
            summary.in_use,
            summary.peak,
            summary.peak_time,
            summary.missed,
            STACK_BYTES as u64,
            unloaded(),
        ];
        self.piece(INFO, size_of_val(&numbers));
        self.numbers(&numbers);
    }

    fn sample(&mut self, sample: &Sample) {
        let flags = u64::from(sample.is_in_use()) | u64::from(sample.was_at_peak()) << 1;
        let [first, second] = [0, 8].map(|at| {
            u64::from_ne_bytes(sample.name[at..at + 8].try_into().unwrap_or_default()).to_le()
        });
        let head = [sample.size, sample.taken, sample.thread.into(), flags, first, second];
        let (registers, words) = (sample.registers(), sample.words());
        self.piece(SAMPLE, size_of_val(&head) + size_of_val(registers) + size_of_val(words));
        for numbers in [&head[..], registers, words] {
            self.numbers(numbers);
        }
    }

    fn piece(&mut self, kind: u32, len: usize) {
        self.bytes(&kind.to_le_bytes());
        self.bytes(&(len as u32).to_le_bytes());
    }

    fn numbers(&mut self, numbers: &[u64]) {
        numbers.iter().for_each(|number| self.bytes(&number.to_le_bytes()));
    }

    fn bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if *self.len >= BUFFER {
                self.flush();
            }
            let room = &mut self.buffer[*self.len..];
            let (now, later) = bytes.split_at(bytes.len().min(room.len()));
            room[..now.len()].copy_from_slice(now);
            *self.len += now.len();
            bytes = later;
        }
    }

    fn flush(&mut self) {
        if self.failed.is_none() {
            self.failed = self.file.write_all(&self.buffer[..*self.len]).err();
        }
        *self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_lines() {
        let path = path(17).unwrap();
        let expected = std::format!("corelocal.{}.17.heap", std::process::id());
        assert_eq!(path.as_bytes(), expected.as_bytes());
        assert!(is_code(b"5-6 r-xp 00001000 fe:00 12    /usr/bin/a b"));
        assert!(!is_code(b"5-6 r--p 00001000 fe:00 12    /usr/bin/a") && !is_code(b""));
    }

    #[test]
    fn without_a_profile_there_is_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("heap");
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        assert_eq!(dump(&name), Err(Errno::EINVAL));
        assert_eq!(dump_next(), Err(Errno::EINVAL));
        assert!(!path.exists());
    }
}
