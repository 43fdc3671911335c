//! The layout of a recording: in the memory that is shared, and in files.
//!
//! ```text
//!   0            header: HEADER_LEN bytes
//!   HEADER_LEN   sites: SITE_LEN bytes each, in the order of their numbers, from 1 on; all 0 if a number is unused
//!   buffers_at   buffers: BUFFER_LEN bytes each; in a packed file one behind the other, each as long as it is used
//!
//!   a buffer     BUFFER_HEADER_LEN bytes: used, owner, ticket, state, the clocks when it was begun; then records
//!   a record     word 0: the time in ticks
//!                word 1: bits 0 to 15 the site and what happened, 16 to 31 the number of words from this one on,
//!                        32 to 63 fields
//!                further words: fields
//! ```
//! Bits 0 to 15 of a record's second word:
//!
//! | value | the record | its fields |
//! |---|---|---|
//! | [`CONTEXT`] | which thread records on which cpu | cpu (32 bits); thread id, 16 bytes of its name, its span |
//! | [`CURRENT`] | the thread goes on in another span | id of the span, or 0 |
//! | site | an event | those of the event |
//! | site of a span | a span begins | ids of the span and its parent, those of the span |
//! | site + [`SPAN_END`] | it ends | ids of the span, and of the one in which the thread goes on |
//!
//! Fields are packed, little endian, without padding. A string, blob or array begins with its length in bytes (16
//! bits), whose highest bit says that it was cut.
//!
//! A buffer that was not full when it was written to a packed file has room for all of it, and is written again there.
//! Of two buffers with the same ticket, as older files have them, the later one has all that the earlier one has.
//!
//! A reader believes none of this: it checks each number that it takes from there, once, after it has copied it.

/// The first word of a recording.
pub const MAGIC: u64 = u64::from_le_bytes(*b"corltrc2");
/// The length of the header.
pub const HEADER_LEN: usize = 4096;
/// The length of the description of a site.
pub const SITE_LEN: usize = 256;
/// The maximum number of sites.
pub const MOST_SITES: usize = 4095;
/// The length of a buffer.
pub const BUFFER_LEN: usize = 64 << 10;
/// The length of a buffer's header.
pub const BUFFER_HEADER_LEN: usize = 128;
/// The value in place of a site's number that marks a context record: which thread runs on which cpu.
pub const CONTEXT: u16 = 0;
/// The value in place of a site's number that marks a change of the thread's current span.
pub const CURRENT: u16 = 1 << 14;
/// The bit in a site's number that marks the end of a span.
pub const SPAN_END: u16 = 1 << 15;
/// The most bytes of fields in a record.
pub const MOST_BYTES: usize = 8 * MOST_WORDS - 4;
/// The most words of a record, without the time.
pub const MOST_WORDS: usize = 62;

/// The offsets of the header's fields in bytes. All are words of 64 bits.
pub mod header {
    /// The word [`MAGIC`](super::MAGIC).
    pub const MAGIC: usize = 0;
    /// The offset of the first buffer.
    pub const BUFFERS_AT: usize = 8;
    /// The number of buffers.
    pub const BUFFERS: usize = 16;
    /// The number of sites that are described.
    pub const SITES: usize = 24;
    /// The process id.
    pub const PROCESS: usize = 32;
    /// Not 0 in a packed file, whose buffers are as long as they are used: [`DUMP`](super::DUMP) or
    /// [`STREAM`](super::STREAM).
    pub const PACKED: usize = 40;
    /// Nanoseconds from CLOCK_MONOTONIC to CLOCK_REALTIME at the start.
    pub const REALTIME: usize = 48;
    /// Ticks and CLOCK_MONOTONIC in nanoseconds at the start.
    pub const START: usize = 56;
    /// Ticks and CLOCK_MONOTONIC when the file was written; 0 in memory.
    pub const END: usize = 72;
    /// The numbers of lost events, by [`Lost`](crate::trace::Lost).
    pub const LOST: usize = 88;
    /// The number of times that buffers were begun.
    pub const TICKETS: usize = 96;
    /// The number of buffers in use, which are the first ones.
    pub const IN_USE: usize = 104;
    /// 1 if full buffers wait for a reader, that copies them to a file.
    pub const IS_DRAINED: usize = 112;
    /// The number of times that buffers were handed over to that reader.
    pub const HANDED_OVER: usize = 120;
    /// A futex word (32 bits): the background thread sleeps on it, and each request adds 1.
    pub const WORK: usize = 128;
    /// The least age of events that are kept, in nanoseconds.
    pub const MIN_AGE: usize = 136;
    /// The number of rules that switch sites: see [`RULE_LEN`](super::RULE_LEN).
    pub const RULES: usize = 144;
    /// 1 if ticks are those of the time stamp counter, 0 if they are nanoseconds.
    pub const IS_COUNTED: usize = 152;
    /// The number of requests of other processes.
    pub const REQUESTED: usize = 160;
    /// The number of the request that was answered last (32 bits, a futex word).
    pub const ANSWERED: usize = 168;
    /// The answer: the number of sites that match, or all ones.
    pub const ANSWER: usize = 176;
    /// 1 if there is a background thread, which answers.
    pub const HAS_THREAD: usize = 184;
    /// The error number of the last attempt to write the file of a recording to disk; 0 if it was written.
    pub const DISK_ERROR: usize = 192;
    /// A random number that makes ids of spans those of this process: see `TraceParent`.
    pub const SPAN_KEY: usize = 200;
    /// The number of times that owners, or the reader that copies buffers to a file, gave a buffer back.
    pub const GIVEN_BACK: usize = 208;
    /// The number of lost events that records of [`LOST`](super::LOST_NAME) have reported.
    pub const TOLD: usize = 216;
    /// CLOCK_MONOTONIC in nanoseconds of the first unreported loss; 0 if there is none.
    pub const LOST_SINCE: usize = 224;
    /// The number of buffers that a flight recorder has overwritten, and below it the bytes of records in them.
    pub const OVERWRITTEN: usize = 232;
    /// See [`OVERWRITTEN`].
    pub const OVERWRITTEN_BYTES: usize = 240;
    /// CLOCK_MONOTONIC in nanoseconds when the last of them was full: later events are kept.
    pub const OVERWRITTEN_UNTIL: usize = 248;
    /// Sites that have no number, since there are [`MOST_SITES`](super::MOST_SITES): their events are not recorded.
    pub const SITES_LEFT_OUT: usize = 256;
    /// The length in bytes of a file whose buffers follow to its end; 0 if it is not known.
    pub const LEN: usize = 264;
    /// The end of such a file: [`OPEN_END`](super::OPEN_END) or [`FLUSHED`](super::FLUSHED); 0 if it is unknown.
    pub const ENDING: usize = 272;
    /// Records that were in memory, and could not be written to such a file so far.
    pub const UNWRITTEN: usize = 280;
    /// The number of the site of [`LOST_NAME`](super::LOST_NAME).
    pub const LOST_SITE: usize = 288;
    /// The text of a request: `+` or `-`, or `%`, a number and a space; a pattern; a zero byte.
    pub const REQUEST: usize = 512;
    /// The name of the machine, which a zero byte ends: 64 bytes.
    pub const HOST: usize = 768;
    /// The name of the program's file, which a zero byte ends: 64 bytes.
    pub const PROGRAM: usize = 832;
    /// The program's arguments, with zero bytes between them, as many as fit into 128 bytes.
    pub const ARGUMENTS: usize = 896;
    /// The length of the program's build id in a byte, and the id: 33 bytes.
    pub const BUILD_ID: usize = 296;
    /// The rules.
    pub const FIRST_RULE: usize = 1024;
}

/// In [`header::PACKED`]: the header has the number of buffers.
pub const DUMP: u64 = 1;
/// In [`header::PACKED`]: buffers follow to the end of the file.
pub const STREAM: u64 = 2;

/// In [`header::ENDING`]: the file is written to, or the process has ended without a flush.
pub const OPEN_END: u64 = 1;
/// In [`header::ENDING`]: all events were written when the process ended.
pub const FLUSHED: u64 = 2;

/// The name of events that tell how many events were lost before them.
pub const LOST_NAME: &str = "corelocal::lost";
/// The name of an event that tells what a flight recorder has overwritten.
pub const OVERWRITTEN_NAME: &str = "corelocal::overwritten";

/// The length of a rule: a byte that is 1 for on, 2 for off and 3 for a part, and a pattern of names, which a zero byte
/// ends. With 3 the last 4 bytes have how many events there are for each that is recorded.
pub const RULE_LEN: usize = 128;
/// The maximum number of rules.
pub const MOST_RULES: usize = (HEADER_LEN - header::FIRST_RULE) / RULE_LEN;

/// The offsets of the fields of a buffer's header. All are words of 64 bits.
pub mod buffer {
    /// Bytes in use, the header's included. The commit of each record is a store to this word.
    pub const USED: usize = 0;
    /// The number of the last [`CONTEXT`](super::CONTEXT), and the cpu.
    pub const OWNER: usize = 8;
    /// The number of the buffer among all that were begun; 0 while it is made ready.
    pub const TICKET: usize = 16;
    /// [`FREE`](super::FREE), [`OPEN`](super::OPEN) or [`FULL`](super::FULL).
    pub const STATE: usize = 24;
    /// Ticks and CLOCK_MONOTONIC in nanoseconds when it was begun.
    pub const BEGIN: usize = 32;
    /// CLOCK_MONOTONIC in nanoseconds when a core or thread gave it back; 0 if that never happened.
    pub const ENDED: usize = 48;
    /// In a packed file: the bytes from this buffer to the next one; 0: as many as are used.
    pub const ROOM: usize = 56;
    /// On aarch64: the owner holds once `USED` has come so far (`rseq/arch/aarch64/trace.rs`).
    pub const SINCE: usize = 64;
}

/// State of a buffer: no core or thread has it.
pub const FREE: u64 = 0;
/// State of a buffer: a core or a thread has it.
pub const OPEN: u64 = 1;
/// State of a buffer: it waits for the reader that copies it to a file.
pub const FULL: u64 = 2;

/// The type of a field, by the letter that a site's description has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Type {
    /// `u8`.
    U8 = b'B',
    /// `u16`.
    U16 = b'H',
    /// `u32`.
    U32 = b'I',
    /// `u64`, `usize`.
    U64 = b'Q',
    /// `i8`.
    I8 = b'b',
    /// `i16`.
    I16 = b'h',
    /// `i32`.
    I32 = b'i',
    /// `i64`, `isize`.
    I64 = b'q',
    /// `f32`.
    F32 = b'f',
    /// `f64`.
    F64 = b'd',
    /// `bool`: a byte.
    Bool = b'?',
    /// `&str`.
    Str = b's',
    /// `&[u8]`.
    Bytes = b'y',
    /// The letter of another type and a value of it; or 0 and no value.
    Any = b'a',
    /// `Duration`: nanoseconds, as `u64`.
    Duration = b'D',
}

impl Type {
    /// All values, in order.
    pub const ALL: [Type; 15] = [
        Type::U8,
        Type::U16,
        Type::U32,
        Type::U64,
        Type::I8,
        Type::I16,
        Type::I32,
        Type::I64,
        Type::F32,
        Type::F64,
        Type::Bool,
        Type::Str,
        Type::Bytes,
        Type::Any,
        Type::Duration,
    ];

    /// Returns the type with this letter.
    pub fn of_letter(letter: u8) -> Option<Type> {
        Type::ALL.into_iter().find(|of| *of as u8 == letter)
    }

    /// Returns its length in bytes; `None` if that differs from record to record.
    pub const fn size(self) -> Option<usize> {
        match self {
            Type::U8 | Type::I8 | Type::Bool => Some(1),
            Type::U16 | Type::I16 => Some(2),
            Type::U32 | Type::I32 | Type::F32 => Some(4),
            Type::U64 | Type::I64 | Type::F64 | Type::Duration => Some(8),
            Type::Str | Type::Bytes | Type::Any => None,
        }
    }
}

/// The type of a field: a value, or an array of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldType {
    /// The type, or that of an element.
    pub of: Type,
    /// Whether it is an array.
    pub is_array: bool,
}

impl From<Type> for FieldType {
    fn from(of: Type) -> FieldType {
        FieldType { of, is_array: false }
    }
}

impl FieldType {
    /// Returns its length in bytes; `None` if that differs from record to record.
    pub const fn size(self) -> Option<usize> {
        if self.is_array { None } else { self.of.size() }
    }

    /// Returns the type and the name of a field, from a line of a site's text.
    pub fn of_line(line: &str) -> Option<(FieldType, &str)> {
        let (is_array, line) =
            line.strip_prefix(ARRAY as char).map_or((false, line), |line| (true, line));
        let of = Type::of_letter(*line.as_bytes().first()?)?;
        // An array of strings has no meaning.
        let is_possible = !is_array || of.size().is_some();
        is_possible.then_some((FieldType { of, is_array }, line.get(1..)?))
    }
}

/// The character before a type's letter that makes it an array.
pub const ARRAY: u8 = b'[';
/// The bit in the length of a string, blob or array that says that only its beginning was recorded.
pub const WAS_CUT: u16 = 1 << 15;

/// The offset of a site's kind. The site's first byte is 1 when the description is complete.
pub const SITE_KIND: usize = 1;
/// The offset of the byte that is 1 while the site is on.
pub const SITE_IS_ON: usize = 2;
/// The offset of a site's [`Level`], or 0.
pub const SITE_LEVEL: usize = 3;
/// The offset of the length of a site's text, in bytes: 32 bits.
pub const SITE_TEXT_LEN: usize = 4;
/// The offset of the number of a site's lost events: 64 bits.
pub const SITE_LOST: usize = 8;
/// The offset of a site's sampling interval: one of so many events is recorded. 32 bits; 0 is the same as 1.
pub const SITE_EVERY: usize = 16;
/// The place of a site's text: the event's name, and for each field a line feed, [`ARRAY`] if it is one, the letter of
/// its type, and its name.
pub const SITE_TEXT: usize = 32;

/// The kind of records that a site makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Events.
    Event = 0,
    /// Spans of one thread: they begin and end there, the inner one first.
    Span = 1,
    /// Spans of tasks: they may end on another thread, and overlap.
    TaskSpan = 2,
}

impl Kind {
    /// Returns the kind with this number.
    pub fn of_number(number: u8) -> Option<Kind> {
        [Kind::Event, Kind::Span, Kind::TaskSpan].into_iter().find(|kind| *kind as u8 == number)
    }
}

/// The severity of an event, or the detail of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// Errors.
    Error = 1,
    /// Warnings.
    Warn = 2,
    /// Information.
    Info = 3,
    /// Details for debugging.
    Debug = 4,
    /// The most detailed level.
    Trace = 5,
}

impl Level {
    /// All values, in order.
    pub const ALL: [Level; 5] =
        [Level::Error, Level::Warn, Level::Info, Level::Debug, Level::Trace];

    /// Returns the level with this number.
    pub fn of_number(number: u8) -> Option<Level> {
        Level::ALL.into_iter().find(|level| *level as u8 == number)
    }

    /// Returns its name: `INFO`.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Error => "ERROR",
            Level::Warn => "WARN",
            Level::Info => "INFO",
            Level::Debug => "DEBUG",
            Level::Trace => "TRACE",
        }
    }
}

/// The bytes that a site's static begins with, in the data of a program's file.
pub const LINKED_MARKER: [u8; 16] = *b"corelocal\0site\x012";
/// The offset of the text in such a static.
#[cfg(target_pointer_width = "64")]
pub const LINKED_TEXT: usize = 72;
#[cfg(target_pointer_width = "32")]
pub const LINKED_TEXT: usize = 64;

/// A site in the data of a program's file, which is there before it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkedSite<'a> {
    /// The event's name, as much of it as a description has room for.
    pub name: &'a [u8],
    /// The kind of record that it makes.
    pub kind: Kind,
}

impl<'a> LinkedSite<'a> {
    /// Returns the site whose static begins these bytes.
    pub fn read(bytes: &'a [u8]) -> Option<LinkedSite<'a>> {
        let rest = bytes.strip_prefix(&LINKED_MARKER)?;
        let kind = Kind::of_number(*rest.first()?)?;
        let len = u32::from_le_bytes(rest.get(4..8)?.try_into().ok()?);
        let text = bytes.get(LINKED_TEXT..LINKED_TEXT + SITE_LEN - SITE_TEXT)?;
        Some(LinkedSite { name: text.get(..len as usize)?, kind })
    }
}
