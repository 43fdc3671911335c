//! The Common Trace Format, versions 1.8 and 2: a folder with `metadata` and a stream of packets, for babeltrace2 and Trace
//! Compass.
//!
//! ```text
//!   packet header    magic, id of the stream class
//!   packet context   times of the first and the last event, sizes in bits, number, events that were lost so far
//!   events           id, time; context: thread, cpu, thread's name, span; fields
//! ```
//! All is little endian, and aligned to bytes. An event's class is its site; the begin of a span has a class of its own, and
//! so has the end. A value of any type is a string; an array, a blob has its length before it; a string ends with a zero byte.
//! A field that a record may lack has a byte before it that says whether it is there. An event whose fields may be cut has
//! the names of those that were, with commas between them.
//!
//! # Invariants
//! 1. Both versions have the same stream, so one encoder serves both; only the metadata differ.
//! 2. A packet is in memory until it is full: the memory in use does not grow with the number of events.
//! 3. Times never go back.
//!
//! Sources: CTF 1.8.3 and CTF2-SPEC-2.0, diamon.org/ctf.

mod version_1;
mod version_2;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use corelocal::trace::format::{FieldType, Kind, MOST_BYTES, SPAN_END, Type};

use crate::names::{exactly, identifier, unique};
use crate::{Event, Recording, Site, Value, What};

/// A version of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// 1.8: babeltrace2 and Trace Compass.
    V1_8,
    /// 2: babeltrace2 from 2.1 on.
    V2,
}

const MAGIC: u32 = 0xc1fc_1fc1;
/// The size of a packet at which the next one begins.
const PACKET: usize = 256 << 10;
/// The offsets of a packet's context and of its events.
const CONTEXT: usize = 8;
const EVENTS: usize = CONTEXT + 6 * 8;

/// Writes the events to files of this folder, which is made.
///
/// Linear in the number of events.
///
/// # Errors
/// The folder exists and is not empty, or a file cannot be written.
pub fn write<'r>(
    recording: &'r Recording,
    events: &mut dyn Iterator<Item = Event<'r>>,
    folder: &Path,
    version: Version,
) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    if fs::read_dir(folder)?.next().is_some() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the folder is not empty"));
    }
    let metadata = match version {
        Version::V1_8 => version_1::metadata(recording),
        Version::V2 => version_2::metadata(recording),
    };
    fs::write(folder.join("metadata"), metadata)?;
    let mut stream = Stream {
        to: BufWriter::new(File::create(folder.join("stream"))?),
        packet: Vec::new(),
        times: None,
        number: 0,
    };
    stream.begin();
    for event in events {
        stream.event(&event);
        if stream.packet.len() >= PACKET {
            stream.finish(0)?;
            stream.begin();
        }
    }
    stream.finish(recording.lost())?;
    stream.to.flush()
}

/// The class of an event.
struct Class<'r> {
    id: u16,
    name: String,
    /// Names of members, as written, and their types.
    members: Vec<(String, Member)>,
    site: &'r Site,
}

/// A member of an event's fields.
#[derive(Clone, Debug)]
enum Member {
    /// A value.
    One(Type),
    /// Elements, whose number the member of this name has.
    Many(Type, String),
    /// A value, if the member of this name is 1.
    Optional(String, Box<Member>),
}

/// Returns all classes of a recording.
fn classes(recording: &Recording) -> Vec<Class<'_>> {
    let mut classes = Vec::new();
    for (site, number) in recording.numbered_sites() {
        let of = |what: &str, id: u16, members| Class {
            id,
            name: format!("{}{what}", site.name),
            members,
            site,
        };
        let ids = ["span_id", "parent_id"];
        if site.kind == Kind::Event {
            classes.push(of("", number, members(site, &[])));
        } else {
            classes.push(of(":begin", number, members(site, &ids)));
            let end = vec![(ids[0].to_owned(), Member::One(Type::U64))];
            classes.push(of(":end", number | SPAN_END, end));
        }
    }
    classes
}

/// Returns `true` if a value of the type may be cut.
fn may_be_cut(of: FieldType) -> bool {
    of.is_array || matches!(of.of, Type::Str | Type::Bytes | Type::Any)
}

/// Tells of each field whether a record may lack it: there may be no room left for it, or it has no value.
fn optional(site: &Site) -> impl Iterator<Item = bool> + '_ {
    let ids = if site.kind == Kind::Event { 0 } else { 16 };
    site.fields.iter().scan(Some(ids), |len, (_, of)| {
        *len = len.zip(of.size()).map(|(len, size)| len + size);
        Some(of.of == Type::Any || len.is_none_or(|len| len > MOST_BYTES))
    })
}

/// Returns the members of a site's fields, behind ids of these names.
fn members(site: &Site, ids: &[&str]) -> Vec<(String, Member)> {
    let names: Vec<String> = site.fields.iter().map(|(name, _)| identifier(name)).collect();
    let names = unique(names.iter().map(String::as_str), ids, exactly);
    let mut taken: Vec<String> =
        names.iter().cloned().chain(ids.iter().map(|id| (*id).into())).collect();
    // A name of ours that no field has.
    let mut own = |name: String| {
        let others: Vec<&str> = taken.iter().map(String::as_str).collect();
        let name = unique([name.as_str()], &others, exactly).remove(0);
        taken.push(name.clone());
        name
    };
    let mut members: Vec<(String, Member)> =
        ids.iter().map(|id| ((*id).to_owned(), Member::One(Type::U64))).collect();
    for ((name, (_, of)), is_optional) in names.iter().zip(&site.fields).zip(optional(site)) {
        let member = match *of {
            FieldType { of: Type::Bytes, .. } => {
                Member::Many(Type::U8, own(format!("len_of_{name}")))
            }
            FieldType { of, is_array: true } => Member::Many(of, own(format!("len_of_{name}"))),
            FieldType { of, .. } => Member::One(of),
        };
        let is_there = is_optional.then(|| own(format!("has_{name}")));
        if let Some(is_there) = &is_there {
            members.push((is_there.clone(), Member::One(Type::Bool)));
        }
        let member = match (member, is_there) {
            // Without elements, if it is not there: babeltrace2 2.1.1 crashes at an optional array.
            (Member::Many(of, len), _) => {
                members.push((len.clone(), Member::One(Type::U16)));
                Member::Many(of, len)
            }
            (member, Some(is_there)) => Member::Optional(is_there, Box::new(member)),
            (member, None) => member,
        };
        members.push((name.clone(), member));
    }
    if site.fields.iter().any(|(_, of)| may_be_cut(*of)) {
        members.push((own("cut".to_owned()), Member::One(Type::Str)));
    }
    members
}

struct Stream {
    to: BufWriter<File>,
    packet: Vec<u8>,
    /// The times of the first and the last event of the packet.
    times: Option<[u64; 2]>,
    number: u64,
}

impl Stream {
    fn begin(&mut self) {
        self.packet.clear();
        self.packet.resize(EVENTS, 0);
        self.packet[..4].copy_from_slice(&MAGIC.to_le_bytes());
        let last = self.times.map_or(0, |times| times[1]);
        self.times = Some([0, last]);
    }

    /// Writes the packet. So many events were lost.
    fn finish(&mut self, lost: u64) -> io::Result<()> {
        let [first, last] = self.times.unwrap_or_default();
        let first = if first == 0 { last } else { first };
        let bits = 8 * self.packet.len() as u64;
        let context = [first, last, bits, bits, self.number, lost];
        for (nth, word) in context.into_iter().enumerate() {
            let at = CONTEXT + 8 * nth;
            self.packet[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        self.number += 1;
        self.to.write_all(&self.packet)
    }

    fn event(&mut self, event: &Event<'_>) {
        let [first, last] = self.times.unwrap_or_default();
        let time = event.time.max(last);
        self.times = Some([if first == 0 { time } else { first }, time]);
        let id = match event.what {
            What::End => event.site_number | SPAN_END,
            What::Event | What::Begin => event.site_number,
        };
        let packet = &mut self.packet;
        packet.extend(id.to_le_bytes());
        packet.extend(time.to_le_bytes());
        packet.extend(event.thread.to_le_bytes());
        packet.extend(event.cpu.to_le_bytes());
        string(packet, &event.thread_name);
        packet.extend(event.span.to_le_bytes());
        match event.what {
            What::Event => {}
            What::Begin => {
                packet.extend(event.span.to_le_bytes());
                packet.extend(event.parent.to_le_bytes());
            }
            What::End => return packet.extend(event.span.to_le_bytes()),
        }
        for (nth, ((_, of), is_optional)) in
            event.site.fields.iter().zip(optional(event.site)).enumerate()
        {
            let value = event.fields.get(nth).map(|(_, value)| value);
            let value = value.filter(|value| **value != Value::Missing);
            if is_optional {
                packet.push(value.is_some().into());
            }
            match value {
                Some(value) => field(packet, *of, value),
                // No elements.
                None if of.is_array || of.of == Type::Bytes => packet.extend([0; 2]),
                None => {}
            }
        }
        if event.site.fields.iter().any(|(_, of)| may_be_cut(*of)) {
            string(packet, &event.cut_fields().collect::<Vec<_>>().join(","));
        }
    }
}

/// Reads a string, without the zero bytes in it.
fn string(to: &mut Vec<u8>, text: &str) {
    to.extend(text.bytes().filter(|byte| *byte != 0));
    to.push(0);
}

/// Reads the value of a field.
fn field(to: &mut Vec<u8>, of: FieldType, value: &Value) {
    match value {
        Value::Str(text, _) => string(to, text),
        value if of.of == Type::Any => string(to, &value.text()),
        Value::Bytes(bytes, _) => {
            to.extend((bytes.len() as u16).to_le_bytes());
            to.extend(bytes);
        }
        Value::Array(values, _) => {
            to.extend((values.len() as u16).to_le_bytes());
            values.iter().for_each(|value| number(to, of.of, value));
        }
        value => number(to, of.of, value),
    }
}

fn number(to: &mut Vec<u8>, of: Type, value: &Value) {
    let bits = match (value, of) {
        (Value::Unsigned(number) | Value::Duration(number), _) => *number,
        (Value::Signed(number), _) => *number as u64,
        // From an f32, and so exact.
        (Value::Float(number), Type::F32) => u64::from((*number as f32).to_bits()),
        (Value::Float(number), _) => number.to_bits(),
        (Value::Bool(is), _) => (*is).into(),
        _ => 0,
    };
    to.extend(&bits.to_le_bytes()[..of.size().unwrap_or(0)]);
}
