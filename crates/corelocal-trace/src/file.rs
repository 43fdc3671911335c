//! A recording as a file: its header, its sites, and where its buffers are.

mod find;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use corelocal::trace::format::{
    BUFFER_HEADER_LEN, BUFFER_LEN, FieldType, HEADER_LEN, Kind, Level, MAGIC, MOST_SITES, OPEN_END,
    SITE_EVERY, SITE_IS_ON, SITE_KIND, SITE_LEN, SITE_LEVEL, SITE_LOST, SITE_TEXT, SITE_TEXT_LEN,
    STREAM, Type, buffer, header,
};
use serde::Serialize;

use crate::clock::Clock;
use crate::names::{exactly, unique};
use crate::{OpenError, ParseError, Problem};

/// The most buffers of a recording: a TiB.
const MOST_BUFFERS: u64 = 1 << 24;

/// A recording.
#[derive(Debug)]
pub struct Recording {
    bytes: Bytes,
    header: Box<[u8; HEADER_LEN]>,
    sites: Vec<Option<Site>>,
    buffers: Vec<Buffer>,
    clock: Clock,
    problems: Vec<Problem>,
}

/// The place of a recording's bytes.
#[derive(Debug)]
enum Bytes {
    Memory(Vec<u8>),
    File(File),
}

/// A buffer's records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer {
    /// The offset of the records, and below it their length in bytes.
    pub(crate) at: u64,
    pub(crate) len: usize,
    /// Ticks when the buffer was begun.
    pub(crate) begin: u64,
}

/// The events that a flight recorder has overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overwritten {
    /// Buffers that were begun again.
    pub buffers: u64,
    /// The bytes of records that they had.
    pub bytes: u64,
    /// Nanoseconds since 1970: events after this time are kept.
    pub until: u64,
}

/// A place in the program that records an event or a span.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Site {
    /// The event's name.
    pub name: String,
    /// The kind of the site's records.
    #[serde(skip)]
    pub kind: Kind,
    /// The level of the site's events.
    #[serde(skip)]
    pub level: Option<Level>,
    /// Whether it was on at the end.
    pub is_on: bool,
    /// The sampling interval at the end: one of so many events was recorded; 1 unless a part was.
    pub every: u32,
    /// The number of the site's lost events.
    pub lost: u64,
    /// Names and types of its fields.
    #[serde(skip)]
    pub fields: Vec<(String, FieldType)>,
}

impl Bytes {
    /// Reads from this place on, as much as there is and has room.
    fn read(&self, at: u64, mut to: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        match self {
            Bytes::Memory(bytes) => {
                let from = usize::try_from(at).ok().and_then(|at| bytes.get(at..));
                let from = from.unwrap_or_default();
                done = from.len().min(to.len());
                to[..done].copy_from_slice(&from[..done]);
            }
            Bytes::File(file) => {
                while !to.is_empty() {
                    match file.read_at(to, at.saturating_add(done as u64)) {
                        Ok(0) => break,
                        Ok(read) => {
                            done += read;
                            to = &mut to[read..];
                        }
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(done)
    }
}

impl Recording {
    /// Opens a file: a dump, a recording to disk, or the memory of a process. Its buffers are read when their events are.
    ///
    /// Linear in the number of buffers and sites.
    ///
    /// # Errors
    /// It cannot be read, or is no recording. Other damage is in [`problems`](Recording::problems).
    pub fn open(path: impl AsRef<Path>) -> Result<Recording, OpenError> {
        let file = File::open(path).map_err(OpenError::Io)?;
        Recording::read(Bytes::File(file))
    }

    /// Reads a recording from the bytes of a file.
    ///
    /// # Errors
    /// As of [`open`](Recording::open).
    pub fn parse(bytes: Vec<u8>) -> Result<Recording, ParseError> {
        Recording::read(Bytes::Memory(bytes)).map_err(|error| match error {
            OpenError::Parse(error) => error,
            // Memory can be read.
            OpenError::Io(_) => ParseError::NotARecording,
        })
    }

    fn read(bytes: Bytes) -> Result<Recording, OpenError> {
        let mut header = Box::new([0; HEADER_LEN]);
        let len = bytes.read(0, &mut *header).map_err(OpenError::Io)?;
        if len < 8 || header[..8] != MAGIC.to_le_bytes() {
            return Err(OpenError::Parse(ParseError::NotARecording));
        }
        if len < HEADER_LEN {
            return Err(OpenError::Parse(ParseError::TooShort { len }));
        }
        let mut recording = Recording {
            bytes,
            header,
            sites: Vec::new(),
            buffers: Vec::new(),
            clock: Clock::default(),
            problems: Vec::new(),
        };
        recording.find_sites()?;
        let readings = recording.find_buffers()?;
        recording.clock = Clock::new(readings);
        Ok(recording)
    }

    /// Returns the sites that are described.
    pub fn sites(&self) -> impl Iterator<Item = &Site> {
        self.sites.iter().flatten()
    }

    /// Returns the same, with their numbers.
    pub(crate) fn numbered_sites(&self) -> impl Iterator<Item = (&Site, u16)> {
        let numbered = self.sites.iter().zip(1..);
        numbered.filter_map(|(site, number)| site.as_ref().map(|site| (site, number)))
    }

    /// Returns the site with this number.
    pub(crate) fn site(&self, number: u16) -> Option<&Site> {
        self.sites.get(usize::from(number).checked_sub(1)?)?.as_ref()
    }

    /// Returns the parts of the file that were left out when it was opened. Damaged records are in
    /// [`Events::problems`](crate::Events::problems).
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Returns the process that was recorded.
    pub fn process(&self) -> u64 {
        self.word(header::PROCESS)
    }

    /// Returns the name of the machine.
    pub fn host(&self) -> String {
        let name = &self.header[header::HOST..header::HOST + 64];
        String::from_utf8_lossy(name.split(|byte| *byte == 0).next().unwrap_or_default())
            .into_owned()
    }

    /// Returns the name of the program's file; empty if it is not known.
    pub fn program(&self) -> String {
        let name = &self.header[header::PROGRAM..header::PROGRAM + 64];
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }

    /// Returns the program's arguments with its own name, as far as they fit into the header.
    pub fn arguments(&self) -> Vec<String> {
        let text = &self.header[header::ARGUMENTS..header::ARGUMENTS + 128];
        let end = text.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let arguments = text[..end].split(|byte| *byte == 0);
        arguments.map(|text| String::from_utf8_lossy(text).into_owned()).collect()
    }

    /// Returns the program's build id, in hexadecimal digits; empty if it has none.
    pub fn build_id(&self) -> String {
        let len = usize::from(self.header[header::BUILD_ID]).min(32);
        crate::hex(&self.header[header::BUILD_ID + 1..][..len])
    }

    /// Returns the number that makes ids of spans those of this process.
    pub(crate) fn span_key(&self) -> u64 {
        self.word(header::SPAN_KEY)
    }

    /// Returns a number that differs from recording to recording, and from dump to dump of one process.
    #[cfg(feature = "export")]
    pub(crate) fn number(&self) -> u64 {
        self.span_key() ^ self.word(header::END).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Returns the events that are not in the recording: all buffers were in use, or the file could not be written.
    pub fn lost(&self) -> u64 {
        self.word(header::LOST).saturating_add(self.unwritten())
    }

    /// Returns how many of the [lost](Recording::lost) events, those that were in memory when the file could not be
    /// written last.
    pub fn unwritten(&self) -> u64 {
        self.word(header::UNWRITTEN)
    }

    /// Returns what a flight recorder has overwritten. `None` if nothing was.
    pub fn overwritten(&self) -> Option<Overwritten> {
        let until = self.word(header::OVERWRITTEN_UNTIL);
        let [buffers, bytes] =
            [header::OVERWRITTEN, header::OVERWRITTEN_BYTES].map(|at| self.word(at));
        let until = until.wrapping_add(self.realtime());
        (buffers > 0).then_some(Overwritten { buffers, bytes, until })
    }

    /// Returns the number of call sites of the process that are not recorded, since it has too many.
    pub fn sites_left_out(&self) -> u64 {
        self.word(header::SITES_LEFT_OUT)
    }

    /// Returns `true` if the file of a recording to disk was not completed: the process goes on, or it has ended
    /// without a flush, by a signal or `_exit`. Up to a flush interval of its last events is missing then.
    pub fn is_open_ended(&self) -> bool {
        self.word(header::PACKED) == STREAM && self.word(header::ENDING) == OPEN_END
    }

    /// Returns the lines for people: what the recording lacks.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        let (lost, unwritten) = (self.word(header::LOST), self.unwritten());
        if lost > 0 {
            remarks.push(format!(
                "{lost} events were lost: all buffers were in use; start with more bytes"
            ));
        }
        if unwritten > 0 {
            remarks.push(format!(
                "{unwritten} events were lost: the file could not be written when the process ended"
            ));
        }
        if let Some(Overwritten { bytes, until, .. }) = self.overwritten() {
            let until = time_in_utc(until);
            remarks.push(format!(
                "older events were overwritten: {bytes} bytes of records, up to {until}; start with more bytes to keep more"
            ));
        }
        if self.is_open_ended() {
            remarks.push(
                "the file was not completed: the process goes on, or it ended without a flush (a signal, _exit, exec), and its \
                 last events are missing"
                    .to_owned(),
            );
        }
        let left_out = self.sites_left_out();
        if left_out > 0 {
            remarks.push(format!(
                "{left_out} call sites are not recorded: a process has up to {MOST_SITES} others"
            ));
        }
        remarks
    }

    /// Returns how often buffers were begun.
    pub fn begun(&self) -> u64 {
        self.word(header::TICKETS)
    }

    /// Returns the bytes of events that the memory has room for.
    pub fn room(&self) -> u64 {
        self.word(header::BUFFERS).saturating_mul(BUFFER_LEN as u64)
    }

    /// Returns the error number of the last attempt to write the file of a recording to disk.
    pub fn disk_error(&self) -> Option<i32> {
        let error = self.word(header::DISK_ERROR) as i32;
        (error != 0).then_some(error)
    }

    /// Returns `true` if it is a file that was written, and not the memory of a process.
    pub fn is_file(&self) -> bool {
        self.word(header::PACKED) != 0
    }

    /// Writes a recording of all that is whole: sites that are described, and of each buffer the whole records.
    ///
    /// # Errors
    /// Reading or writing fails.
    pub fn write_whole(&self, to: &mut dyn io::Write) -> io::Result<()> {
        let mut header = *self.header;
        let mut set =
            |at: usize, word: u64| header[at..at + 8].copy_from_slice(&word.to_le_bytes());
        set(header::BUFFERS_AT, (HEADER_LEN + self.sites.len() * SITE_LEN) as u64);
        set(header::SITES, self.sites.len() as u64);
        set(header::PACKED, STREAM);
        // The buffers follow as they are found.
        set(header::LEN, 0);
        to.write_all(&header)?;
        let mut described = vec![0; self.sites.len() * SITE_LEN];
        self.bytes.read(HEADER_LEN as u64, &mut described)?;
        to.write_all(&described)?;
        for place in &self.buffers {
            let mut head = [0; BUFFER_HEADER_LEN];
            self.bytes.read(place.at - BUFFER_HEADER_LEN as u64, &mut head)?;
            let records = self.records(place)?;
            let len = whole(&records);
            let used = (BUFFER_HEADER_LEN + len) as u64;
            head[buffer::USED..buffer::USED + 8].copy_from_slice(&used.to_le_bytes());
            head[buffer::ROOM..buffer::ROOM + 8].fill(0);
            to.write_all(&head)?;
            to.write_all(&records[..len])?;
        }
        Ok(())
    }

    /// Returns a lower bound of the time of all events, and an upper one for files that are complete: nanoseconds since
    /// 1970.
    pub fn time_of_start(&self) -> u64 {
        self.clock.time(self.word(header::START)).wrapping_add(self.realtime())
    }

    pub(crate) fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the nanoseconds from CLOCK_MONOTONIC to CLOCK_REALTIME.
    pub(crate) fn realtime(&self) -> u64 {
        self.word(header::REALTIME)
    }

    /// Returns the records of a buffer: as much of them as there is.
    pub(crate) fn records(&self, of: &Buffer) -> io::Result<Vec<u8>> {
        let mut records = vec![0; of.len];
        let len = self.bytes.read(of.at, &mut records)?;
        records.truncate(len);
        Ok(records)
    }

    /// Returns a word of the header.
    fn word(&self, at: usize) -> u64 {
        word(&*self.header, at)
    }

    fn problem(&mut self, at: u64, what: &'static str) {
        self.problems.push(Problem { at, what });
    }
}

/// Returns a time since 1970 for people.
fn time_in_utc(nanos: u64) -> String {
    let (seconds, nanos) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = crate::date(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        of_day / 3600,
        of_day / 60 % 60,
        of_day % 60,
        nanos / 1_000_000
    )
}

/// Returns how many bytes the whole records at the beginning have.
fn whole(records: &[u8]) -> usize {
    let mut at = 0;
    loop {
        let len = 8 + 8 * (word(records, at + 8) >> 16 & 0xffff) as usize;
        if len == 8 || len > records.len() - at {
            return at;
        }
        at += len;
    }
}

/// Returns the word at this place; 0 behind the end.
pub(crate) fn word(bytes: &[u8], at: usize) -> u64 {
    let word = at.checked_add(8).and_then(|end| bytes.get(at..end));
    word.and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// Returns the site that these bytes describe.
fn site(bytes: &[u8]) -> Option<Site> {
    let len = word(bytes, 0) >> (8 * SITE_TEXT_LEN);
    let text = bytes.get(SITE_TEXT..)?.get(..len as usize)?;
    if bytes[0] != 1 {
        return None;
    }
    let text = String::from_utf8_lossy(text);
    let mut lines = text.split('\n');
    let name = lines.next()?.to_owned();
    let level = Level::of_number(bytes[SITE_LEVEL]);
    // Records have no value of it.
    let of_site = level.map(|_| (Type::Str.into(), "level"));
    let of_records = lines.map(FieldType::of_line);
    let fields: Vec<_> = of_site.map(Some).into_iter().chain(of_records).collect::<Option<_>>()?;
    let names = unique(fields.iter().map(|(_, name)| *name), &[], exactly);
    let fields = names.into_iter().zip(fields.iter().map(|(of, _)| *of)).collect();
    Some(Site {
        name,
        kind: Kind::of_number(bytes[SITE_KIND])?,
        level,
        is_on: bytes[SITE_IS_ON] == 1,
        every: (word(bytes, SITE_EVERY) as u32).max(1),
        lost: word(bytes, SITE_LOST),
        fields,
    })
}
