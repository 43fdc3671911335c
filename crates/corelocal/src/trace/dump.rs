//! A copy of the recording, while events are recorded: of this process, or of another one by way of its file.
//!
//! # Invariants
//! 1. A buffer is copied whole, up to its last commit, or not at all: if it was begun again meanwhile, its ticket
//!    differs.
//! 2. What is copied is read by atomics, or by the kernel: other threads write it.
//! 3. Numbers that come from another process are checked once, after they were copied.

use core::sync::atomic::Ordering;

use super::format::{BUFFER_HEADER_LEN, BUFFER_LEN};
use super::memory::Recording;
use super::site;

/// Calls `each` with the first two words of the records of this site, without the time: for tests. Async-signal-safe.
#[doc(hidden)]
pub fn each_record(name: &str, mut each: impl FnMut([u64; 2])) {
    let number = site::all().find(|site| site.name() == name).map(|site| site.description().0);
    each_of_all(|words| {
        if Some(words[0] as u16) == number {
            each(words);
        }
    });
}

/// Returns how many records are in memory. Async-signal-safe.
pub(super) fn count() -> u64 {
    let mut count = 0;
    each_of_all(|_| count += 1);
    count
}

/// Calls `each` with the first two words of all records, without the time.
fn each_of_all(mut each: impl FnMut([u64; 2])) {
    let Some(recording) = Recording::here() else { return };
    for buffer in recording.buffers() {
        // Acquire: partners are the commits of sections, and the Release in `append`.
        let end = (buffer.used.load(Ordering::Acquire) as usize / 8).min(BUFFER_LEN / 8);
        let mut at = BUFFER_HEADER_LEN / 8;
        while at + 1 < end {
            let first = buffer.word(at + 1).load(Ordering::Relaxed);
            let second = if at + 2 < end { buffer.word(at + 2).load(Ordering::Relaxed) } else { 0 };
            each([first, second]);
            at += 1 + (first >> 16 & 0xffff).max(1) as usize;
        }
    }
}

#[cfg(feature = "std")]
mod to_files {
    use std::boxed::Box;
    use std::ffi::CString;
    use std::fs::File;
    use std::io::{self, Write};
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::FileExt as _;
    use std::path::Path;
    use std::vec::Vec;

    use core::sync::atomic::{AtomicU64, fence};

    use super::*;
    use crate::clock;
    use crate::sys::Errno;
    use crate::sys::file::shared_memory;
    use crate::sys::without_sigxfsz;
    use crate::trace::format::{DUMP, HEADER_LEN, MAGIC, MOST_SITES, SITE_LEN, buffer, header};
    use crate::trace::time;

    /// The most buffers of a recording: a TiB.
    const MOST_BUFFERS: u64 = 1 << 24;

    /// Writes the events that are kept to a file, which `corelocal trace view` shows. Returns its length in bytes.
    ///
    /// Events are recorded meanwhile. The file is written under another name, and renamed when it is complete. A
    /// recording that is there is renamed then: `.old` is appended to its name. Takes memory of the bytes that are
    /// kept.
    ///
    /// # Errors
    /// The process records nothing, the file cannot be written, or another file is there, which is no recording.
    pub fn dump(path: impl AsRef<Path>) -> io::Result<u64> {
        // Threads may dump to the same path at once: each has a name of its own.
        static DUMPS: AtomicU64 = AtomicU64::new(0);
        let number = DUMPS.fetch_add(1, Ordering::Relaxed);
        let path = path.as_ref();
        let mut name = std::ffi::OsString::from(path);
        name.push(std::format!(".{}.{number}.part", std::process::id()));
        replaceable(path)?;
        let made = without_signal(|| {
            let mut writer = io::BufWriter::new(File::create(&name)?);
            let len = dump_to(&mut writer)?;
            writer.flush()?;
            set_recording_aside(path)?;
            std::fs::rename(&name, path)?;
            Ok(len)
        });
        if made.is_err() {
            let _ = std::fs::remove_file(&name);
        }
        made
    }

    /// Checks whether a new recording may take this name.
    ///
    /// # Errors
    /// A file is there that is no recording.
    #[doc(hidden)]
    pub fn replaceable(path: &Path) -> io::Result<()> {
        let mut first = [0; 8];
        match File::open(path).and_then(|file| {
            let is_file = file.metadata()?.is_file();
            Ok(is_file && file.read_at(&mut first, 0)? == 8)
        }) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Ok(true) if first == MAGIC.to_le_bytes() => Ok(()),
            Ok(_) => Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "a file is there that is no recording; name another one",
            )),
            Err(error) => Err(error),
        }
    }

    /// Renames the recording of this name, if there is one: `.old` is appended.
    ///
    /// # Errors
    /// A file is there that is no recording, or it cannot be renamed.
    #[doc(hidden)]
    pub fn set_recording_aside(path: &Path) -> io::Result<()> {
        let name = CString::new(path.as_os_str().as_bytes())?;
        match shared_memory::set_aside(&name, MAGIC) {
            Ok(()) | Err(Errno(libc::ENOENT)) => Ok(()),
            Err(errno) => Err(io::Error::from_raw_os_error(errno.0)),
        }
    }

    /// Writes files. Past the limit of their size (`ulimit -f`) that is an error, and no signal.
    fn without_signal<T>(write: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let mut refused = None;
        let written = without_sigxfsz(|| {
            write().map_err(|error| {
                let errno = Errno(error.raw_os_error().unwrap_or(libc::EIO));
                refused = Some(error);
                errno
            })
        });
        written.map_err(|errno| refused.unwrap_or(io::Error::from_raw_os_error(errno.0)))
    }

    /// Does what [`dump`] does to a writer.
    ///
    /// # Errors
    /// The process records nothing, or the writer fails.
    pub fn dump_to(to: &mut dyn Write) -> io::Result<u64> {
        let not_recording = "this process records nothing: call corelocal::trace::start";
        let recording = Recording::here()
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotConnected, not_recording))?;
        copy_from(&recording, to)
    }

    /// Memory of a recording.
    #[doc(hidden)]
    pub trait Source {
        /// Reads words from this offset on. Returns how many there are.
        fn words(&self, at: usize, words: &mut [u64]) -> io::Result<usize>;
    }

    impl Source for Recording {
        fn words(&self, at: usize, words: &mut [u64]) -> io::Result<usize> {
            Ok(self.read(at, words))
        }
    }

    impl Source for File {
        fn words(&self, at: usize, words: &mut [u64]) -> io::Result<usize> {
            let mut bytes = std::vec![0; 8 * words.len()];
            let mut len = 0;
            while len < bytes.len() {
                match self.read_at(&mut bytes[len..], (at + len) as u64)? {
                    0 => break,
                    read => len += read,
                }
            }
            for (word, bytes) in words.iter_mut().zip(bytes[..len].chunks_exact(8)) {
                *word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
            }
            Ok(len / 8)
        }
    }

    /// Returns the bytes of words, little endian.
    pub(in crate::trace) fn bytes_of(words: &[u64]) -> Vec<u8> {
        let mut bytes = std::vec![0; 8 * words.len()];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The header of a recording, as it is in memory, with numbers that are possible.
    #[derive(Clone)]
    pub(in crate::trace) struct Header {
        pub(in crate::trace) words: [u64; HEADER_LEN / 8],
    }

    impl Header {
        /// Reads it.
        pub(in crate::trace) fn read(from: &(impl Source + ?Sized)) -> io::Result<Header> {
            let mut header = Header { words: [0; HEADER_LEN / 8] };
            let len = from.words(0, &mut header.words)?;
            let wrong = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidData, what));
            if len < header.words.len() || header.get(header::MAGIC) != MAGIC {
                return wrong("it is no recording of corelocal's tracer");
            }
            let is_possible = header.get(header::BUFFERS) <= MOST_BUFFERS
                && header.get(header::SITES) <= MOST_SITES as u64
                && header.get(header::BUFFERS_AT) <= (1 << 30)
                && header.get(header::BUFFERS_AT) % 8 == 0
                && header.get(header::PACKED) == 0;
            if !is_possible {
                return wrong(
                    "its header is damaged, or it is a file and not the memory of a process",
                );
            }
            Ok(header)
        }

        pub(in crate::trace) fn get(&self, at: usize) -> u64 {
            self.words[at / 8]
        }

        pub(in crate::trace) fn set(&mut self, at: usize, value: u64) {
            self.words[at / 8] = value;
        }

        /// Returns where a buffer is.
        pub(in crate::trace) fn buffer(&self, number: u64) -> usize {
            (self.get(header::BUFFERS_AT) + number * BUFFER_LEN as u64) as usize
        }

        /// Notes the time of now, if this process counts as the recorded one does.
        pub(in crate::trace) fn set_end(&mut self) {
            let is_counted = self.get(header::IS_COUNTED) != 0;
            if !is_counted || clock::ticks_are_counted() {
                let [ticks, monotonic] = time::both_in(is_counted);
                self.set(header::END, ticks);
                self.set(header::END + 8, monotonic);
            }
        }

        pub(in crate::trace) fn bytes(&self) -> Vec<u8> {
            bytes_of(&self.words)
        }
    }

    /// Copies the memory of a recording, packed, to a writer. Returns the number of bytes.
    ///
    /// # Errors
    /// It is none, or reading or writing fails.
    #[doc(hidden)]
    pub fn copy_from(from: &dyn Source, to: &mut dyn Write) -> io::Result<u64> {
        // The buffers first: what describes their sites is there before their records.
        let header = Header::read(from)?;
        let mut words = Box::new([0; BUFFER_LEN / 8]);
        let mut buffers: Vec<u8> = Vec::new();
        let mut count = 0_u64;
        for number in 0..header.get(header::BUFFERS) {
            if let Some(len) = copy(from, header.buffer(number), &mut words)? {
                buffers.extend(bytes_of(&words[..len]));
                count += 1;
            }
        }
        let mut header = Header::read(from)?;
        let sites = header.get(header::SITES) as usize;
        header.set(header::BUFFERS_AT, (HEADER_LEN + sites * SITE_LEN) as u64);
        header.set(header::BUFFERS, count);
        header.set(header::PACKED, DUMP);
        header.set_end();
        let mut front = header.bytes();
        let mut described = std::vec![0; sites * SITE_LEN / 8];
        from.words(HEADER_LEN, &mut described)?;
        front.extend(bytes_of(&described));
        to.write_all(&front)?;
        to.write_all(&buffers)?;
        Ok((front.len() + buffers.len()) as u64)
    }

    /// Copies a buffer. Returns the number of words; `None` if it was never begun, or was begun again meanwhile.
    pub(in crate::trace) fn copy(
        from: &(impl Source + ?Sized),
        at: usize,
        words: &mut [u64; BUFFER_LEN / 8],
    ) -> io::Result<Option<usize>> {
        let mut head = [0; 4];
        if from.words(at, &mut head)? < head.len() {
            return Ok(None);
        }
        // Partners: the Release in `Buffer::reset`, the commits of sections, and the Release in `append`.
        fence(Ordering::Acquire);
        let [used, ticket] = [buffer::USED, buffer::TICKET].map(|at| head[at / 8]);
        let used = used as usize;
        if ticket == 0 || !(BUFFER_HEADER_LEN..=BUFFER_LEN).contains(&used) || used % 8 != 0 {
            return Ok(None);
        }
        let len = used / 8;
        if from.words(at, &mut words[..len])? < len {
            return Ok(None);
        }
        // The copied header may be newer than `used`.
        words[0] = used as u64;
        // Partner: the fence in `Buffer::reset`. If a word above is of a later use, so is the ticket.
        fence(Ordering::Acquire);
        let again = from.words(at, &mut head)?;
        Ok((again == head.len() && head[buffer::TICKET / 8] == ticket).then_some(len))
    }
}

#[cfg(feature = "std")]
pub(super) use to_files::{Header, bytes_of, copy};
#[cfg(feature = "std")]
pub use to_files::{Source, copy_from, dump, dump_to, replaceable, set_recording_aside};
