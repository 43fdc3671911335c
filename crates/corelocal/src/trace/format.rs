//! The layout of a recording: in the memory that is shared, and in the file of a dump.
//!
//! ```text
//!   0            header: HEADER_LEN bytes
//!   HEADER_LEN   sites: SITE_LEN bytes each, in the order of their numbers, from 1 on
//!   buffers_at   buffers: BUFFER_LEN bytes each; in a dump one behind the other, each as long as it is used
//!
//!   a buffer     BUFFER_HEADER_LEN bytes: used, owner, ticket, state, the clocks when it was begun; then records
//!   a record     word 0: the time in ticks
//!                word 1: bits 0 to 15 the site, 16 to 31 the number of words from this one on, 32 to 63 fields
//!                further words: fields
//! ```
//! Fields are packed, little endian, without padding. A string or a blob begins with its length (16 bits), whose highest
//! bit says that it was cut.
//!
//! A reader believes none of this: it checks each number that it takes from there, once, after it has copied it.

/// The first word of a recording.
pub const MAGIC: u64 = u64::from_le_bytes(*b"corltrc1");
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
/// The number of the site whose records say which thread runs where: its id, its cpu, its name.
pub const CONTEXT: u16 = 0;
/// The most bytes of fields in a record.
pub const MOST_BYTES: usize = 8 * MOST_WORDS - 4;
/// The most words of a record, without the time.
pub const MOST_WORDS: usize = 62;

/// Where the header has its fields: their offsets in bytes. All are words of 64 bits.
pub mod header {
    /// [`MAGIC`](super::MAGIC).
    pub const MAGIC: usize = 0;
    /// The offset of the first buffer.
    pub const BUFFERS_AT: usize = 8;
    /// The number of buffers.
    pub const BUFFERS: usize = 16;
    /// The number of sites that are described.
    pub const SITES: usize = 24;
    /// The process.
    pub const PROCESS: usize = 32;
    /// 1 in a dump, whose buffers are as long as they are used.
    pub const IS_PACKED: usize = 40;
    /// Nanoseconds from CLOCK_MONOTONIC to CLOCK_REALTIME at the start.
    pub const REALTIME: usize = 48;
    /// Ticks and CLOCK_MONOTONIC in nanoseconds at the start.
    pub const START: usize = 56;
    /// The same when the dump was made; 0 in memory.
    pub const END: usize = 72;
    /// Lost events, by [`Lost`](crate::trace::Lost).
    pub const LOST: usize = 88;
}

/// Where a buffer's header has its fields. All are words of 64 bits.
pub mod buffer {
    /// Bytes in use, the header's included. The commit of each record is a store to this word.
    pub const USED: usize = 0;
    /// A number that changes with the thread and the cpu.
    pub const OWNER: usize = 8;
    /// Counts the buffers that were begun; 0 while one is made ready.
    pub const TICKET: usize = 16;
    /// In use by a core or a thread, or not.
    pub const STATE: usize = 24;
    /// Ticks and CLOCK_MONOTONIC in nanoseconds when it was begun.
    pub const BEGIN: usize = 32;
}

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
}

impl Type {
    /// All.
    pub const ALL: [Type; 13] = [
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
    ];

    /// The type with this letter.
    pub fn of_letter(letter: u8) -> Option<Type> {
        Type::ALL.into_iter().find(|of| *of as u8 == letter)
    }

    /// Its length in bytes; `None` if that differs from record to record.
    pub fn size(self) -> Option<usize> {
        match self {
            Type::U8 | Type::I8 | Type::Bool => Some(1),
            Type::U16 | Type::I16 => Some(2),
            Type::U32 | Type::I32 | Type::F32 => Some(4),
            Type::U64 | Type::I64 | Type::F64 => Some(8),
            Type::Str | Type::Bytes => None,
        }
    }
}

/// In the length of a string or blob: only its beginning was recorded.
pub const WAS_CUT: u16 = 1 << 15;

// The description of a site: 1 when it is complete, the length of the text, the text. The text is the event's name, and
// for each field a line feed, the letter of its type, and its name.
/// Where a site has the length of its text, in bytes.
pub const SITE_TEXT_LEN: usize = 4;
/// Where a site has its text.
pub const SITE_TEXT: usize = 8;
