//! The events of all buffers, merged in the order of time.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use corelocal::trace::format::{CONTEXT, Type, WAS_CUT};
use serde::Serialize;

use crate::file::Recording;
use crate::{Problem, Site};

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event<'r> {
    /// Nanoseconds since 1970.
    pub time: u64,
    /// The thread that recorded it, and its cpu; 0 if that is not known.
    pub thread: u32,
    /// See `thread`.
    pub cpu: u32,
    /// The thread's name.
    pub thread_name: String,
    /// The event's name.
    pub name: &'r str,
    /// Names and values of its fields.
    pub fields: Vec<(&'r str, Value<'r>)>,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value<'r> {
    /// Of an unsigned type.
    Unsigned(u64),
    /// Of a signed type.
    Signed(i64),
    /// Of a floating-point type.
    Float(f64),
    /// Of `bool`.
    Bool(bool),
    /// Of a string, with replacement characters where it is not UTF-8. Ends with an ellipsis if it was cut.
    Str(Cow<'r, str>),
    /// Of a blob. `true`: it was cut.
    Bytes(&'r [u8], bool),
}

/// The events of a recording, in the order of time.
#[derive(Clone, Debug)]
pub struct Events<'r> {
    recording: &'r Recording,
    buffers: Vec<Buffer>,
    /// The time of each buffer's next event.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    problems: Vec<Problem>,
}

/// How far a buffer was read.
#[derive(Clone, Debug)]
struct Buffer {
    at: usize,
    end: usize,
    thread: u32,
    cpu: u32,
    thread_name: String,
}

impl<'r> Events<'r> {
    pub(crate) fn new(recording: &'r Recording) -> Events<'r> {
        let buffer = |&(at, end): &(usize, usize)| Buffer {
            at,
            end,
            thread: 0,
            cpu: 0,
            thread_name: String::new(),
        };
        let buffers: Vec<Buffer> = recording.buffers().iter().map(buffer).collect();
        let count = buffers.len();
        let mut events =
            Events { recording, buffers, next: BinaryHeap::new(), problems: Vec::new() };
        (0..count).for_each(|number| events.seek(number));
        events
    }

    /// The records that were left out so far.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Notes the time of the buffer's next event, if it has one.
    fn seek(&mut self, number: usize) {
        loop {
            let Buffer { at, end, .. } = self.buffers[number];
            if at >= end {
                return;
            }
            let Some((ticks, first)) = self.recording.word(at).zip(self.recording.word(at + 8))
            else {
                return self.give_up(number, "a record is cut short");
            };
            let len = 8 + 8 * (first >> 16 & 0xffff) as usize;
            if len == 8 || at + len > end {
                return self.give_up(
                    number,
                    "a record with a wrong length: the rest of its buffer is left out",
                );
            }
            match first as u16 {
                CONTEXT => self.take_context(number, first),
                site if self.recording.site(site).is_none() => {
                    self.problems.push(Problem { at, what: "a record of an unknown site" });
                }
                _ => return self.next.push(Reverse((self.recording.clock().time(ticks), number))),
            }
            self.buffers[number].at += len;
        }
    }

    fn give_up(&mut self, number: usize, what: &'static str) {
        let at = std::mem::replace(&mut self.buffers[number].at, usize::MAX);
        self.problems.push(Problem { at, what });
    }

    fn take_context(&mut self, number: usize, first: u64) {
        let at = self.buffers[number].at;
        let name = self.recording.bytes(at + 24, 16).unwrap_or_default();
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        let buffer = &mut self.buffers[number];
        buffer.thread = self.recording.word(at + 16).unwrap_or_default() as u32;
        buffer.cpu = (first >> 32) as u32;
        buffer.thread_name = String::from_utf8_lossy(name).into_owned();
    }
}

impl<'r> Iterator for Events<'r> {
    type Item = Event<'r>;

    fn next(&mut self) -> Option<Event<'r>> {
        let Reverse((time, number)) = self.next.pop()?;
        let Buffer { at, thread, cpu, ref thread_name, .. } = self.buffers[number];
        let thread_name = thread_name.clone();
        let recording = self.recording;
        // `seek` has found this record, and its site.
        let first = recording.word(at + 8)?;
        let len = 8 * (first >> 16 & 0xffff) as usize;
        let site = recording.site(first as u16)?;
        let bytes = recording.bytes(at + 12, len - 4)?;
        self.buffers[number].at += 8 + len;
        self.seek(number);
        let time = time.wrapping_add(recording.realtime());
        let fields = fields(site, bytes);
        Some(Event { time, thread, cpu, thread_name, name: &site.name, fields })
    }
}

/// The fields of a record, as many as it has room for.
fn fields<'r>(site: &'r Site, mut bytes: &'r [u8]) -> Vec<(&'r str, Value<'r>)> {
    let mut fields = Vec::with_capacity(site.fields.len());
    for (name, of) in &site.fields {
        let Some(value) = value(*of, &mut bytes) else { break };
        fields.push((name.as_str(), value));
    }
    fields
}

/// Takes a value from the beginning of the bytes.
fn value<'r>(of: Type, bytes: &mut &'r [u8]) -> Option<Value<'r>> {
    let (len, was_cut) = match of.size() {
        Some(len) => (len, false),
        None => {
            let len = u16::from_le_bytes(take(bytes, 2)?.try_into().ok()?);
            (usize::from(len & !WAS_CUT), len & WAS_CUT != 0)
        }
    };
    let taken = take(bytes, len)?;
    let mut word = [0; 8];
    if of.size().is_some() {
        word[..len].copy_from_slice(taken);
    }
    let unsigned = u64::from_le_bytes(word);
    Some(match of {
        Type::U8 | Type::U16 | Type::U32 | Type::U64 => Value::Unsigned(unsigned),
        Type::I8 => Value::Signed((unsigned as i8).into()),
        Type::I16 => Value::Signed((unsigned as i16).into()),
        Type::I32 => Value::Signed((unsigned as i32).into()),
        Type::I64 => Value::Signed(unsigned as i64),
        Type::F32 => Value::Float(f32::from_bits(unsigned as u32).into()),
        Type::F64 => Value::Float(f64::from_bits(unsigned)),
        Type::Bool => Value::Bool(unsigned != 0),
        Type::Str if was_cut => Value::Str(format!("{}…", String::from_utf8_lossy(taken)).into()),
        Type::Str => Value::Str(String::from_utf8_lossy(taken)),
        Type::Bytes => Value::Bytes(taken, was_cut),
    })
}

fn take<'r>(bytes: &mut &'r [u8], len: usize) -> Option<&'r [u8]> {
    let (taken, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(taken)
}
