//! A copy of the recording, while events are recorded.
//!
//! # Invariants
//! 1. A buffer is copied whole, up to its last commit, or not at all: if it was begun again meanwhile, its ticket differs.
//! 2. What is copied is read by atomics: other threads write it.

use core::sync::atomic::Ordering;

use super::format::{BUFFER_HEADER_LEN, BUFFER_LEN};
use super::memory::Recording;
use super::site;

/// Calls `each` with the first two words of the records of this site, without the time: for tests. Async-signal-safe.
#[doc(hidden)]
pub fn each_record(name: &str, mut each: impl FnMut([u64; 2])) {
    let Some(recording) = Recording::here() else { return };
    let number = site::all().find(|site| site.name() == name).map(|site| site.description().0);
    for buffer in recording.buffers() {
        // Acquire: partners are the commits of sections, and the Release in `append`.
        let end = (buffer.used.load(Ordering::Acquire) as usize / 8).min(BUFFER_LEN / 8);
        let mut at = BUFFER_HEADER_LEN / 8;
        while at + 1 < end {
            let first = buffer.word(at + 1).load(Ordering::Relaxed);
            let second = if at + 2 < end { buffer.word(at + 2).load(Ordering::Relaxed) } else { 0 };
            if Some(first as u16) == number {
                each([first, second]);
            }
            at += 1 + (first >> 16 & 0xffff).max(1) as usize;
        }
    }
}

#[cfg(feature = "std")]
mod to_files {
    use std::boxed::Box;
    use std::io::{self, Write};
    use std::path::Path;
    use std::vec::Vec;

    use core::sync::atomic::{Ordering, fence};

    use crate::trace::format::{BUFFER_HEADER_LEN, BUFFER_LEN, HEADER_LEN, SITE_LEN, header};
    use crate::trace::memory::{self, Buffer, Recording};

    /// Writes the events that are kept to a file, which `corelocal trace view` shows. Returns its length in bytes.
    ///
    /// Events are recorded meanwhile. The file is written under another name, and renamed when it is complete.
    ///
    /// # Errors
    /// The process records nothing, or the file cannot be written.
    pub fn dump(path: impl AsRef<Path>) -> io::Result<u64> {
        let path = path.as_ref();
        let mut name = std::ffi::OsString::from(path);
        name.push(std::format!(".{}.part", std::process::id()));
        let made = std::fs::File::create(&name).and_then(|file| {
            let mut writer = io::BufWriter::new(file);
            let len = dump_to(&mut writer)?;
            writer.flush()?;
            std::fs::rename(&name, path)?;
            Ok(len)
        });
        if made.is_err() {
            let _ = std::fs::remove_file(&name);
        }
        made
    }

    /// [`dump`] to a writer.
    ///
    /// # Errors
    /// The process records nothing, or the writer fails.
    pub fn dump_to(to: &mut dyn Write) -> io::Result<u64> {
        let not_recording = "this process records nothing: call corelocal::trace::start";
        let recording = Recording::here()
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotConnected, not_recording))?;
        // The buffers first: what describes their sites is there before their records.
        let mut words = Box::new([0; BUFFER_LEN / 8]);
        let mut buffers: Vec<u8> = Vec::new();
        let mut count = 0_u64;
        for buffer in recording.buffers() {
            if let Some(len) = copy(buffer, &mut words) {
                buffers.extend(words[..len].iter().flat_map(|word| word.to_le_bytes()));
                count += 1;
            }
        }
        let [ticks, monotonic] = memory::now();
        let sites = recording.word(header::SITES).load(Ordering::Acquire) as usize;
        let buffers_at = HEADER_LEN + sites * SITE_LEN;
        let header = (0..HEADER_LEN).step_by(8).map(|at| match at {
            header::BUFFERS_AT => buffers_at as u64,
            header::BUFFERS => count,
            header::SITES => sites as u64,
            header::IS_PACKED => 1,
            header::END => ticks,
            at if at == header::END + 8 => monotonic,
            at => recording.word(at).load(Ordering::Relaxed),
        });
        let sites = (0..sites * SITE_LEN).step_by(8).map(|at| recording.site_word(at));
        let front: Vec<u8> = header.chain(sites).flat_map(u64::to_le_bytes).collect();
        to.write_all(&front)?;
        to.write_all(&buffers)?;
        Ok((front.len() + buffers.len()) as u64)
    }

    /// Copies a buffer. Returns the number of words; `None` if it was never begun, or was begun again meanwhile.
    fn copy(buffer: &Buffer, words: &mut [u64; BUFFER_LEN / 8]) -> Option<usize> {
        // Acquire: partner is the Release in `begin`.
        let ticket = buffer.ticket.load(Ordering::Acquire);
        // Acquire: partners are the commits of sections, and the Release in `append`.
        let used = buffer.used.load(Ordering::Acquire) as usize;
        if ticket == 0 || !(BUFFER_HEADER_LEN..=BUFFER_LEN).contains(&used) {
            return None;
        }
        let len = used / 8;
        for (nth, word) in words[..len].iter_mut().enumerate() {
            *word = buffer.word(nth).load(Ordering::Relaxed);
        }
        // The copied header may be newer than `used`.
        words[0] = used as u64;
        // Partner: the fence in `begin`. If a word above is of a later use, so is the ticket.
        fence(Ordering::Acquire);
        (buffer.ticket.load(Ordering::Relaxed) == ticket).then_some(len)
    }
}

#[cfg(feature = "std")]
pub use to_files::{dump, dump_to};
