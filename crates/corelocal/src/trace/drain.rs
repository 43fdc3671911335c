//! A recording to disk: full buffers are copied from the memory of a process to a file, one after the other.
//!
//! The background thread does it, or another process, which opens the memory in /proc, or by its name.
//!
//! The file has a header, room for all sites, and then buffers up to its end, each as long as it is used. A long
//! recording may be in several files: see `rotation.rs`.
//!
//! # Invariants
//! 1. A full buffer is given back after all of it was written. If writing fails, the file is cut to what was whole, and the
//!    buffer waits.
//! 2. A buffer that is not full at a flush gets room for all of it, and is written there again when it has more. Its new
//!    length is written last, so the file has whole records at every moment.
//! 3. Nothing in the memory is believed: numbers are checked once, after they were copied.
//! 4. A site is described in the file before records of it are: the recorder describes it in memory before the first one,
//!    and the descriptions are read after the records.
//! 5. Each attempt writes the header, also one that fails: with what was lost, the records in memory that the file lacks,
//!    and its length. The header's page is allocated first, so a full disk does not refuse that.

use std::boxed::Box;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::vec::Vec;

use core::sync::atomic::Ordering;

use super::dump::{Header, Source, bytes_of, copy};
use super::format::{
    BUFFER_HEADER_LEN, BUFFER_LEN, CONTEXT, CURRENT, FLUSHED, FREE, FULL, HEADER_LEN, MOST_SITES,
    OPEN_END, SITE_LEN, STREAM, buffer, header,
};
use super::memory::Recording;
use super::rotation::{self, CONTEXT_WORDS, Rotation};

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
    rotation: Option<Rotation>,
    /// The place of the next buffer, where the data ends.
    at: u64,
    end: u64,
    /// Bytes of records that were written to all files.
    copied: u64,
    /// The number of buffers that were handed over at the last look, and the place where that has ended.
    handed_over: u64,
    next: usize,
    given_back: u64,
    /// Events that were lost, as the file's descriptions of sites have them.
    lost: u64,
    /// The number of these before this file.
    lost_before: u64,
    /// Sites that are described in the file, and how many of the first ones are without a gap.
    sites: usize,
    whole_sites: usize,
    /// The part of each buffer that the file has.
    written: Vec<Written>,
    ending: u64,
    /// Records in memory that the file lacked at the last attempt.
    unwritten: u64,
    words: Box<[u64; BUFFER_LEN / 8]>,
}

/// The part of a buffer that is written: up to so many words of this ticket.
#[derive(Clone, Copy, Default)]
struct Written {
    ticket: u64,
    len: usize,
    /// The place in the file; none in a file that was begun later.
    at: Option<u64>,
    /// Words that an earlier file has.
    skipped: usize,
    unwritten: Unwritten,
}

/// The number of records of a buffer that the file lacks, if the buffer has this ticket and so many words.
#[derive(Clone, Copy, Default)]
struct Unwritten {
    ticket: u64,
    len: usize,
    records: u64,
}

/// The place in the file where buffers begin.
const BUFFERS_AT: u64 = (HEADER_LEN + MOST_SITES * SITE_LEN) as u64;

impl Drain {
    /// Copies from this memory to this file, which is empty, or has what this function wrote.
    ///
    /// # Errors
    /// The memory is that of no recording; reading or writing fails.
    pub fn new(memory: Box<dyn Memory>, to: File) -> io::Result<Drain> {
        let header = Header::read(&*memory)?;
        let written = std::vec![Written::default(); header.get(header::BUFFERS) as usize];
        let words = Box::new([0; BUFFER_LEN / 8]);
        let mut drain = Drain {
            memory,
            to,
            rotation: None,
            at: BUFFERS_AT,
            end: BUFFERS_AT,
            copied: 0,
            handed_over: 0,
            next: 0,
            given_back: header.get(header::GIVEN_BACK),
            lost: 0,
            lost_before: 0,
            sites: 0,
            whole_sites: 0,
            written,
            ending: OPEN_END,
            unwritten: 0,
            words,
        };
        drain.begin_file(&header)?;
        Ok(drain)
    }

    /// Goes on in another file when one would become too long.
    pub(super) fn rotate_by(&mut self, rotation: Rotation) {
        self.rotation = Some(rotation);
    }

    /// Writes what a file begins with.
    fn begin_file(&mut self, header: &Header) -> io::Result<()> {
        // The header first: a file that is cut off at any moment is a recording.
        self.write_header(header)?;
        self.to.set_len(BUFFERS_AT)?;
        self.describe(header)
    }

    /// Goes on in the next file, if this one has no room for so many bytes.
    fn rotate_if_full(&mut self, len: usize) -> io::Result<()> {
        let Some(rotation) = &self.rotation else { return Ok(()) };
        if self.at == BUFFERS_AT || self.at + len as u64 <= rotation.most_bytes {
            return Ok(());
        }
        let header = Header::read(&*self.memory)?;
        let mut last = header.clone();
        self.finish_header(&mut last, FLUSHED);
        // What could not be written so far goes to the next file.
        last.set(header::UNWRITTEN, 0);
        self.to.write_all_at(&last.bytes(), 0)?;
        self.to = rotation.next()?;
        (self.at, self.end) = (BUFFERS_AT, BUFFERS_AT);
        (self.sites, self.whole_sites) = (0, 0);
        self.lost_before = header.get(header::LOST);
        self.written.iter_mut().for_each(|written| written.at = None);
        self.begin_file(&header)
    }

    /// Copies the full buffers, and with `all` the others too. Returns the number of bytes.
    ///
    /// # Errors
    /// Reading or writing fails. Then nothing is lost: the next call goes on. The header of the file has what it lacks.
    pub fn copy(&mut self, all: bool) -> io::Result<u64> {
        let header = Header::read(&*self.memory)?;
        let handed_over = header.get(header::HANDED_OVER);
        // What could not be written is tried again each time: else the failure would seem to be over.
        let all = all || self.unwritten > 0;
        if handed_over == self.handed_over && !all {
            return Ok(0);
        }
        let began = self.copied;
        let copied = self.copy_buffers(&header, handed_over, all);
        if copied.is_ok() {
            self.handed_over = handed_over;
        }
        // On each path: what was lost, and what is not in the file. (5)
        match copied {
            Ok(()) => self.unwritten = 0,
            Err(_) => self.unwritten = self.count_unwritten(&header)?,
        }
        let header = Header::read(&*self.memory)?;
        let described = self.describe(&header);
        self.write_header(&header)?;
        copied.and(described)?;
        Ok(self.copied - began)
    }

    /// Copies all buffers, at the end of the process: the file says that it is complete.
    ///
    /// # Errors
    /// As of [`copy`](Drain::copy).
    pub fn finish(&mut self) -> io::Result<u64> {
        self.ending = FLUSHED;
        self.copy(true).inspect_err(|_| self.ending = OPEN_END)
    }

    fn copy_buffers(&mut self, header: &Header, handed_over: u64, all: bool) -> io::Result<()> {
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
                    let _ = self.to.set_len(self.end);
                    return Err(error);
                }
            }
            self.next = number + 1;
        }
        Ok(())
    }

    /// Copies a buffer that is full, or, with `all`, any. Whether it was full.
    fn copy_buffer(&mut self, place: usize, number: usize, all: bool) -> io::Result<bool> {
        let Some(is_full) = self.is_full(place)? else { return Ok(false) };
        if !is_full && !all {
            return Ok(false);
        }
        if let Some(len) = copy(&*self.memory, place, &mut self.words)? {
            let ticket = self.words[buffer::TICKET / 8];
            let before = Some(self.written[number]).filter(|before| before.ticket == ticket);
            let has_more = before.map_or(BUFFER_HEADER_LEN / 8, |before| before.len) < len;
            if has_more {
                // The sites of its records are described by now. (4)
                let header = Header::read(&*self.memory)?;
                if header.get(header::SITES) > self.whole_sites as u64 {
                    self.describe(&header)?;
                }
                self.write_buffer(number, before, ticket, len, is_full)?;
            }
        }
        if is_full {
            self.given_back += 1;
            self.memory.give_back(place, self.given_back)?;
        }
        Ok(is_full)
    }

    /// Returns whether a buffer is full. `None` behind the end of the memory.
    fn is_full(&self, place: usize) -> io::Result<Option<bool>> {
        let mut head = [0; BUFFER_HEADER_LEN / 8];
        let is_there = self.memory.words(place, &mut head)? == head.len();
        Ok(is_there.then_some(head[buffer::STATE / 8] == FULL))
    }

    /// Writes the copied buffer: behind the others, or where a part of it is.
    fn write_buffer(
        &mut self,
        number: usize,
        before: Option<Written>,
        ticket: u64,
        len: usize,
        is_full: bool,
    ) -> io::Result<()> {
        const HEAD: usize = BUFFER_HEADER_LEN / 8;
        // From where on it is written. An earlier file may have the beginning.
        let mut from = before.map_or(HEAD, |before| before.len);
        let mut place = before.and_then(|before| Some((before.at?, before.skipped)));
        let is_new = place.is_none();
        if is_new {
            let context = match before {
                Some(_) => rotation::context(&*self.memory, &self.words[..], from),
                None => None,
            };
            if let Some(context) = context {
                self.words[from - CONTEXT_WORDS..from].copy_from_slice(&context);
                from -= CONTEXT_WORDS;
            }
            self.rotate_if_full(BUFFER_LEN)?;
            place = Some((self.at, from - HEAD));
        }
        let (at, skipped) = place.unwrap_or_default();
        let used = 8 * (len - skipped);
        let room = if is_full && is_new { used } else { BUFFER_LEN };
        self.words[buffer::USED / 8] = used as u64;
        self.words[buffer::ROOM / 8] = room as u64;
        let mut head = bytes_of(&self.words[..HEAD]);
        let rest = bytes_of(&self.words[from..len]);
        if is_new {
            head.extend(rest);
            self.to.write_all_at(&head, at)?;
            self.at = at + room as u64;
        } else {
            self.to.write_all_at(&rest, at + 8 * (from - skipped) as u64)?;
            // Last: until then the file has the earlier part. (2)
            self.to.write_all_at(&head, at)?;
        }
        self.end = self.end.max(at + used as u64);
        self.copied += 8 * (len - from) as u64;
        let unwritten = Unwritten::default();
        self.written[number] = Written { ticket, len, at: Some(at), skipped, unwritten };
        Ok(())
    }

    /// Counts the records in memory that the file does not have. A buffer is read again if it has more.
    fn count_unwritten(&mut self, header: &Header) -> io::Result<u64> {
        let mut count = 0;
        for number in 0..self.written.len() {
            let place = header.buffer(number as u64);
            let mut head = [0; BUFFER_HEADER_LEN / 8];
            if self.memory.words(place, &mut head)? < head.len() {
                break;
            }
            let [used, ticket, state] =
                [buffer::USED, buffer::TICKET, buffer::STATE].map(|at| head[at / 8]);
            let written = self.written[number];
            let from = match written.ticket == ticket {
                true => written.len,
                // A buffer that was given back keeps its records until it is begun again.
                false if state == FREE => continue,
                false => BUFFER_HEADER_LEN / 8,
            };
            let known = written.unwritten;
            if (known.ticket, 8 * known.len as u64) != (ticket, used) {
                let Some(len) = copy(&*self.memory, place, &mut self.words)? else { continue };
                let lost_site = header.get(header::LOST_SITE) as u16;
                let records = records(&self.words[from.min(len)..len], lost_site);
                self.written[number].unwritten = Unwritten { ticket, len, records };
            }
            count += self.written[number].unwritten.records;
        }
        Ok(count)
    }

    /// Writes the header.
    fn write_header(&mut self, header: &Header) -> io::Result<()> {
        let mut header = header.clone();
        let is_whole = self.unwritten == 0;
        self.finish_header(&mut header, if is_whole { self.ending } else { OPEN_END });
        self.to.write_all_at(&header.bytes(), 0)
    }

    /// Makes the header of memory that of the file.
    fn finish_header(&self, header: &mut Header, ending: u64) {
        header.set(header::BUFFERS_AT, BUFFERS_AT);
        header.set(header::PACKED, STREAM);
        header.set(header::LEN, self.end);
        // Those before are in the file before.
        header.set(header::LOST, header.get(header::LOST).saturating_sub(self.lost_before));
        header.set(header::ENDING, ending);
        header.set(header::UNWRITTEN, self.unwritten);
        // No more than the file has: the last ones are described next.
        header.set(header::SITES, header.get(header::SITES).min(self.sites as u64));
        header.set_end();
    }

    /// Describes sites that are new, or all of them if events were lost.
    fn describe(&mut self, header: &Header) -> io::Result<()> {
        let lost = header.get(header::LOST);
        let first = if lost == self.lost { self.whole_sites } else { 0 };
        let sites = header.get(header::SITES) as usize;
        if first < sites {
            let at = HEADER_LEN + first * SITE_LEN;
            let mut words = std::vec![0; (sites - first) * SITE_LEN / 8];
            self.memory.words(at, &mut words)?;
            self.to.write_all_at(&bytes_of(&words), at as u64)?;
            // A number is drawn before the description is written, and some numbers are never used (see
            // `Site::register`). From the first gap on all are written each time.
            let is_described = |site: &&[u64]| site[0] as u8 == 1;
            let whole = words.chunks_exact(SITE_LEN / 8).take_while(is_described).count();
            self.whole_sites = first + whole;
            self.sites = sites;
            self.lost = lost;
            // The header counts them: before their records.
            let mut count = [0; 8];
            count.copy_from_slice(&(sites as u64).to_le_bytes());
            self.to.write_all_at(&count, header::SITES as u64)?;
        }
        Ok(())
    }
}

/// Returns how many of these records are events of the program, or begins or ends of spans.
fn records(words: &[u64], lost_site: u16) -> u64 {
    let (mut at, mut count) = (0, 0);
    while let Some(&first) = words.get(at + 1) {
        count += u64::from(![CONTEXT, CURRENT, lost_site].contains(&(first as u16)));
        at += 1 + (first >> 16 & 0xffff).max(1) as usize;
    }
    count
}
