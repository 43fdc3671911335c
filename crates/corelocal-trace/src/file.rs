//! A recording as a file: its header, its sites, and where its buffers are.

use corelocal::trace::format::{
    BUFFER_HEADER_LEN, BUFFER_LEN, HEADER_LEN, MAGIC, MOST_SITES, SITE_LEN, SITE_TEXT,
    SITE_TEXT_LEN, Type, buffer, header,
};
use serde::Serialize;

use crate::clock::Clock;
use crate::events::Events;
use crate::{ParseError, Problem};

/// The most buffers of a recording: a TiB.
const MOST_BUFFERS: u64 = 1 << 24;

/// A recording.
#[derive(Clone, Debug)]
pub struct Recording {
    bytes: Vec<u8>,
    sites: Vec<Option<Site>>,
    /// Where each buffer's records are: from the first byte to behind the last one.
    buffers: Vec<(usize, usize)>,
    clock: Clock,
    problems: Vec<Problem>,
}

/// A place in the program that records an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Site {
    /// The event's name.
    pub name: String,
    /// Names and types of its fields.
    #[serde(skip)]
    pub fields: Vec<(String, Type)>,
}

impl Recording {
    /// Reads a recording from the bytes of a file.
    ///
    /// Linear in the number of buffers and sites.
    ///
    /// # Errors
    /// It is no recording, or ends within the header. Other damage is in [`problems`](Recording::problems).
    pub fn parse(bytes: Vec<u8>) -> Result<Recording, ParseError> {
        if bytes.get(..8).is_none_or(|first| first != MAGIC.to_le_bytes()) {
            return Err(ParseError::NotARecording);
        }
        if bytes.len() < HEADER_LEN {
            return Err(ParseError::TooShort { len: bytes.len() });
        }
        let mut recording = Recording {
            bytes,
            sites: Vec::new(),
            buffers: Vec::new(),
            clock: Clock::default(),
            problems: Vec::new(),
        };
        recording.find_sites();
        let readings = recording.find_buffers();
        recording.clock = Clock::new(readings);
        Ok(recording)
    }

    /// The events, in the order of time; of the same time, in that of buffers.
    ///
    /// Logarithmic in the number of buffers for each event.
    pub fn events(&self) -> Events<'_> {
        Events::new(self)
    }

    /// The sites that are described.
    pub fn sites(&self) -> impl Iterator<Item = &Site> {
        self.sites.iter().flatten()
    }

    /// The site with this number.
    pub(crate) fn site(&self, number: u16) -> Option<&Site> {
        self.sites.get(usize::from(number).checked_sub(1)?)?.as_ref()
    }

    /// The parts of the file that were left out when it was opened. Damaged records are in
    /// [`Events::problems`](crate::Events::problems).
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The process that was recorded.
    pub fn process(&self) -> u64 {
        self.word(header::PROCESS).unwrap_or_default()
    }

    /// Events that were lost as all buffers were in use.
    pub fn lost(&self) -> u64 {
        self.word(header::LOST).unwrap_or_default()
    }

    pub(crate) fn buffers(&self) -> &[(usize, usize)] {
        &self.buffers
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Nanoseconds from CLOCK_MONOTONIC to CLOCK_REALTIME.
    pub(crate) fn realtime(&self) -> u64 {
        self.word(header::REALTIME).unwrap_or_default()
    }

    /// Bytes of the file; `None` if it ends before.
    pub(crate) fn bytes(&self, at: usize, len: usize) -> Option<&[u8]> {
        self.bytes.get(at..at.checked_add(len)?)
    }

    /// A word of the file.
    pub(crate) fn word(&self, at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(at, 8)?.try_into().ok()?))
    }

    fn problem(&mut self, at: usize, what: &'static str) {
        self.problems.push(Problem { at, what });
    }

    fn find_sites(&mut self) {
        let count = self.word(header::SITES).unwrap_or_default();
        if count > MOST_SITES as u64 {
            self.problem(header::SITES, "more sites than a recording has");
        }
        for number in 0..count.min(MOST_SITES as u64) as usize {
            let at = HEADER_LEN + number * SITE_LEN;
            let bytes = self.bytes(at, SITE_LEN);
            // One that was just being registered has no description yet, and not all numbers have a site.
            let is_new = bytes.is_some_and(|bytes| bytes[0] == 0);
            let site = bytes.and_then(site);
            if site.is_none() && !is_new {
                self.problem(at, "the description of a site is not complete");
            }
            self.sites.push(site);
        }
    }

    /// Finds the buffers that have records. Returns the readings of clocks.
    fn find_buffers(&mut self) -> Vec<(u64, u64)> {
        let word = |of: &Recording, at: usize| of.word(at).unwrap_or_default();
        let reading = |of: &Recording, at: usize| (word(of, at), word(of, at + 8));
        let mut readings = vec![reading(self, header::START), reading(self, header::END)];
        let count = word(self, header::BUFFERS);
        if count > MOST_BUFFERS {
            self.problem(header::BUFFERS, "more buffers than a recording has");
            return readings;
        }
        let is_packed = word(self, header::IS_PACKED) != 0;
        let mut at = usize::try_from(word(self, header::BUFFERS_AT)).unwrap_or(usize::MAX);
        for _ in 0..count {
            let Some(used) = self.word(at.saturating_add(buffer::USED)) else {
                self.problem(at, "the file ends before its last buffer");
                break;
            };
            let is_valid =
                (BUFFER_HEADER_LEN as u64..=BUFFER_LEN as u64).contains(&used) && used % 8 == 0;
            let is_empty = used == 0 || self.word(at + buffer::TICKET) == Some(0);
            if is_packed && !is_valid {
                self.problem(at, "a buffer without a length: the ones behind it are not found");
                break;
            }
            if is_valid && !is_empty {
                let end = at + used as usize;
                if end > self.bytes.len() {
                    self.problem(at, "the file ends within a buffer");
                }
                self.buffers.push((at + BUFFER_HEADER_LEN, end.min(self.bytes.len())));
                readings.push(reading(self, at + buffer::BEGIN));
            } else if !is_empty {
                self.problem(at, "a buffer with a wrong length");
            }
            at = at.saturating_add(if is_packed { used as usize } else { BUFFER_LEN });
        }
        readings
    }
}

/// The site that these bytes describe.
fn site(bytes: &[u8]) -> Option<Site> {
    let len = u32::from_le_bytes(bytes.get(SITE_TEXT_LEN..SITE_TEXT_LEN + 4)?.try_into().ok()?);
    let text = bytes.get(SITE_TEXT..)?.get(..len as usize)?;
    if bytes[0] != 1 {
        return None;
    }
    let text = String::from_utf8_lossy(text);
    let mut lines = text.split('\n');
    let name = lines.next()?.to_owned();
    let field = |line: &str| {
        let of = Type::of_letter(*line.as_bytes().first()?)?;
        Some((line.get(1..)?.to_owned(), of))
    };
    Some(Site { name, fields: lines.map(field).collect::<Option<_>>()? })
}
