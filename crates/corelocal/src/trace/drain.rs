//! A recording to disk: full buffers are copied from the memory of a process to a file, one after the other.
//!
//! The background thread does it, or another process, which opens the memory in /proc, or by its name.
//!
//! The file has a header, room for all sites, and then buffers up to its end, each as long as it is used.
//!
//! # Invariants
//! 1. A full buffer is given back after all of it was written. If writing fails, the file is cut to what was whole, and the
//!    buffer waits.
//! 2. A buffer that was not full, at the end or at a flush, may be written again when it has more; the later copy has all
//!    of the earlier one.
//! 3. Nothing in the memory is believed: numbers are checked once, after they were copied.

use std::boxed::Box;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::vec::Vec;

use core::sync::atomic::Ordering;

use super::dump::{Header, Source, bytes_of, copy};
use super::format::{
    BUFFER_HEADER_LEN, BUFFER_LEN, FREE, FULL, HEADER_LEN, MOST_SITES, SITE_LEN, STREAM, buffer,
    header,
};
use super::memory::Recording;

/// Memory of a recording, whose full buffers can be given back.
#[doc(hidden)]
pub trait Memory: Source + Send {
    /// Gives back the buffer at this offset, which is full: so many have been.
    fn give_back(&self, at: usize, count: u64) -> io::Result<()>;
}

impl Memory for Recording {
    fn give_back(&self, at: usize, count: u64) -> io::Result<()> {
        // Release: partner is the Acquire in `Buffer::take`. The copy was made before.
        if let Some(state) = self.any_word(at + buffer::STATE) {
            state.store(FREE, Ordering::Release);
        }
        // Release: partner is the Acquire in `Recording::begin`.
        self.word(header::GIVEN_BACK).store(count, Ordering::Release);
        Ok(())
    }
}

impl Memory for File {
    fn give_back(&self, at: usize, count: u64) -> io::Result<()> {
        self.write_all_at(&FREE.to_le_bytes(), (at + buffer::STATE) as u64)?;
        self.write_all_at(&count.to_le_bytes(), header::GIVEN_BACK as u64)
    }
}

/// Copies full buffers of a recording to a file.
pub struct Drain {
    memory: Box<dyn Memory>,
    to: File,
    /// Where the file ends.
    at: u64,
    /// How many buffers were handed over at the last look, and where that has ended.
    handed_over: u64,
    next: usize,
    given_back: u64,
    /// Events that were lost, as the file's descriptions of sites have them.
    lost: u64,
    /// Sites that are described in the file.
    sites: usize,
    /// Of each buffer: the ticket and the length that were written last.
    written: Vec<(u64, usize)>,
    words: Box<[u64; BUFFER_LEN / 8]>,
}

/// Where buffers begin in the file.
const BUFFERS_AT: u64 = (HEADER_LEN + MOST_SITES * SITE_LEN) as u64;

impl Drain {
    /// Copies from this memory to this file, which is emptied.
    ///
    /// # Errors
    /// The memory is that of no recording; reading or writing fails.
    pub fn new(memory: Box<dyn Memory>, to: File) -> io::Result<Drain> {
        let header = Header::read(&*memory)?;
        to.set_len(0)?;
        let written = std::vec![(0, 0); header.get(header::BUFFERS) as usize];
        let words = Box::new([0; BUFFER_LEN / 8]);
        let mut drain = Drain {
            memory,
            to,
            at: BUFFERS_AT,
            handed_over: 0,
            next: 0,
            given_back: header.get(header::GIVEN_BACK),
            lost: 0,
            sites: 0,
            written,
            words,
        };
        drain.describe(header)?;
        Ok(drain)
    }

    /// Copies the full buffers, and with `all` the others too. Returns the number of bytes.
    ///
    /// # Errors
    /// Reading or writing fails. Then nothing is lost: the next call goes on.
    pub fn copy(&mut self, all: bool) -> io::Result<u64> {
        let header = Header::read(&*self.memory)?;
        let handed_over = header.get(header::HANDED_OVER);
        if handed_over == self.handed_over && !all {
            return Ok(0);
        }
        let began = self.at;
        let buffers = self.written.len();
        let mut left = if all { u64::MAX } else { handed_over.wrapping_sub(self.handed_over) };
        for _ in 0..buffers {
            if left == 0 {
                break;
            }
            let number = self.next % buffers;
            match self.copy_buffer(header.buffer(number as u64), number, all) {
                Ok(is_full) => left -= u64::from(is_full),
                Err(error) => {
                    // It ends with whole buffers again. (1)
                    let _ = self.to.set_len(self.at);
                    return Err(error);
                }
            }
            self.next = number + 1;
        }
        // The sites of the buffers above are described by now.
        self.describe(Header::read(&*self.memory)?)?;
        self.handed_over = handed_over;
        Ok(self.at - began)
    }

    /// Copies a buffer that is full, or, with `all`, any. Whether it was full.
    fn copy_buffer(&mut self, place: usize, number: usize, all: bool) -> io::Result<bool> {
        let mut head = [0; BUFFER_HEADER_LEN / 8];
        if self.memory.words(place, &mut head)? < head.len() {
            return Ok(false);
        }
        let is_full = head[buffer::STATE / 8] == FULL;
        if !is_full && !all {
            return Ok(false);
        }
        if let Some(len) = copy(&*self.memory, place, &mut self.words)? {
            let ticket = self.words[buffer::TICKET / 8];
            let is_new = self.written[number] != (ticket, len) && 8 * len > BUFFER_HEADER_LEN;
            if is_new {
                let bytes = bytes_of(&self.words[..len]);
                self.to.write_all_at(&bytes, self.at)?;
                self.at += bytes.len() as u64;
                self.written[number] = (ticket, len);
            }
        }
        if is_full {
            self.given_back += 1;
            self.memory.give_back(place, self.given_back)?;
        }
        Ok(is_full)
    }

    /// Writes the header, and describes sites that are new, or all of them if events were lost.
    fn describe(&mut self, mut header: Header) -> io::Result<()> {
        let lost = header.get(header::LOST);
        if lost != self.lost {
            (self.lost, self.sites) = (lost, 0);
        }
        let sites = header.get(header::SITES) as usize;
        header.set(header::BUFFERS_AT, BUFFERS_AT);
        header.set(header::PACKED, STREAM);
        header.set_end();
        if self.sites < sites {
            let first = HEADER_LEN + self.sites * SITE_LEN;
            let mut words = std::vec![0; (sites - self.sites) * SITE_LEN / 8];
            self.memory.words(first, &mut words)?;
            let bytes = bytes_of(&words);
            self.to.write_all_at(&bytes, first as u64)?;
            // The last ones may be incomplete still: a number is drawn before the description is written. From one on that
            // is never used (see `Site::register`) all are written each time.
            let is_described = |site: &[u64]| site[0] as u8 == 1;
            let whole =
                words.chunks_exact(SITE_LEN / 8).take_while(|site| is_described(site)).count();
            self.sites += whole;
        }
        self.to.write_all_at(&header.bytes(), 0)
    }
}
