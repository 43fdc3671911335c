//! A profile in the format of pprof: `profile.proto`, compressed with gzip. `go tool pprof FILE`, speedscope, Grafana
//! Pyroscope and others open it.
//!
//! Invariants:
//! - String 0 is empty, and numbers of mappings, locations and functions begin with 1: 0 means none.
//! - Functions and lines are included, so the program's files are not needed.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use corelocal_symbols::callers::{Areas, Map};
use flate2::{Compression, write::GzEncoder};
use prost::Message;

use super::file::Heap;
use super::sites::Told;

/// The message `perftools.profiles.Profile` of pprof.
#[derive(Clone, PartialEq, Message)]
pub struct Profile {
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    #[prost(message, optional, tag = "11")]
    pub period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    pub period: i64,
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    pub default_sample_type: i64,
}

/// A kind of value and its unit.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct ValueType {
    #[prost(int64, tag = "1")]
    pub kind: i64,
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

/// The values of a stack, whose innermost location comes first.
#[derive(Clone, PartialEq, Message)]
pub struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    pub label: Vec<Label>,
}

/// A label of a sample: text or a number.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Label {
    #[prost(int64, tag = "1")]
    pub key: i64,
    #[prost(int64, tag = "2")]
    pub str: i64,
    #[prost(int64, tag = "3")]
    pub num: i64,
    #[prost(int64, tag = "4")]
    pub num_unit: i64,
}

/// A mapping of a file's code.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Mapping {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub memory_start: u64,
    #[prost(uint64, tag = "3")]
    pub memory_limit: u64,
    #[prost(uint64, tag = "4")]
    pub file_offset: u64,
    #[prost(int64, tag = "5")]
    pub filename: i64,
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
    #[prost(bool, tag = "8")]
    pub has_filenames: bool,
    #[prost(bool, tag = "9")]
    pub has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    pub has_inline_frames: bool,
}

/// An instruction, and the functions it is of, innermost first.
#[derive(Clone, PartialEq, Message)]
pub struct Location {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub mapping_id: u64,
    #[prost(uint64, tag = "3")]
    pub address: u64,
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<Line>,
}

/// A line of a function.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Line {
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    #[prost(int64, tag = "2")]
    pub line: i64,
}

/// A function.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Function {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(int64, tag = "2")]
    pub name: i64,
    #[prost(int64, tag = "3")]
    pub system_name: i64,
    #[prost(int64, tag = "4")]
    pub filename: i64,
}

/// Returns all processes in one profile, compressed.
pub fn file(processes: &[(Heap, Told)]) -> anyhow::Result<Vec<u8>> {
    let processes: Vec<_> = processes.iter().map(|(heap, told)| (heap, told, 1)).collect();
    compressed(&profile(&processes))
}

/// Returns the file of a difference: the earlier values are negative in it, as in pprof's own `-diff_base`.
pub fn difference(before: &(Heap, Told), after: &(Heap, Told)) -> anyhow::Result<Vec<u8>> {
    compressed(&profile(&[(&after.0, &after.1, 1), (&before.0, &before.1, -1)]))
}

fn compressed(profile: &Profile) -> anyhow::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&profile.encode_to_vec()).context("cannot compress")?;
    encoder.finish().context("cannot compress")
}

/// Returns each process with a sign.
fn profile(processes: &[(&Heap, &Told, i64)]) -> Profile {
    let mut builder = Builder::default();
    builder.text("");
    let (objects, space) = (builder.text("inuse_objects"), builder.text("inuse_space"));
    let (count, bytes) = (builder.text("count"), builder.text("bytes"));
    builder.profile.sample_type =
        vec![ValueType { kind: objects, unit: count }, ValueType { kind: space, unit: bytes }];
    builder.profile.default_sample_type = space;
    builder.profile.period_type = Some(ValueType { kind: builder.text("space"), unit: bytes });
    if let Some((first, ..)) = processes.first() {
        builder.profile.period = int(first.rate);
        builder.profile.time_nanos = int(first.time);
    }
    let of_several = processes.len() > 1;
    for (heap, told, sign) in processes {
        builder.process(heap, told, *sign, of_several);
    }
    builder.profile
}

#[derive(Default)]
struct Builder {
    profile: Profile,
    texts: HashMap<String, i64>,
    functions: HashMap<(String, String), u64>,
}

impl Builder {
    fn text(&mut self, text: &str) -> i64 {
        if let Some(known) = self.texts.get(text) {
            return *known;
        }
        let next = self.profile.string_table.len() as i64;
        self.profile.string_table.push(text.to_owned());
        self.texts.insert(text.to_owned(), next);
        next
    }

    fn process(&mut self, heap: &Heap, told: &Told, sign: i64, of_several: bool) {
        let before = self.profile.mapping.len();
        let maps: Vec<(Map, PathBuf)> = heap.maps.lines().filter_map(Map::parse).collect();
        let areas = Areas::new(maps.iter().map(|(map, _)| *map).zip(before..));
        for (map, path) in maps {
            let filename = self.text(&path.to_string_lossy());
            self.profile.mapping.push(Mapping {
                id: self.profile.mapping.len() as u64 + 1,
                memory_start: map.start,
                memory_limit: map.end,
                file_offset: map.offset,
                filename,
                has_functions: true,
                has_filenames: true,
                has_line_numbers: true,
                has_inline_frames: true,
            });
        }
        let first = self.profile.location.len() as u64 + 1;
        for (frame, calls) in told.frames.iter().zip(&told.calls) {
            // The call, not where it goes on.
            let address = frame.address.saturating_sub(1);
            let mapping_id = areas.find(address).map_or(0, |mapping| mapping as u64 + 1);
            let line = calls.iter().map(|call| {
                let (file, line) = split(call.source.as_deref().unwrap_or_default());
                Line { function_id: self.function(&call.function, file), line }
            });
            let line = line.collect();
            let id = self.profile.location.len() as u64 + 1;
            self.profile.location.push(Location { id, mapping_id, address, line });
        }
        let (bytes, unit) = (self.text("bytes"), self.text("bytes"));
        let (thread, process) = (self.text("thread"), self.text("process"));
        let thread_number = self.text("thread_number");
        for stack in &told.stacks {
            let number = |key, num, num_unit| Label { key, num, num_unit, ..Label::default() };
            let mut label = vec![number(bytes, int(stack.size), unit)];
            label.push(number(thread_number, int(stack.thread.1), 0));
            if !stack.thread.0.is_empty() {
                let str = self.text(&stack.thread.0);
                label.push(Label { key: thread, str, ..Label::default() });
            }
            if sign < 0 {
                let (key, str) = (self.text("pprof::base"), self.text("true"));
                label.push(Label { key, str, ..Label::default() });
            } else if of_several {
                label.push(number(process, int(heap.process), 0));
            }
            self.profile.sample.push(Sample {
                location_id: stack.frames.iter().map(|frame| first + *frame as u64).collect(),
                value: [stack.objects, stack.bytes].map(|it| sign * it.round() as i64).to_vec(),
                label,
            });
        }
    }

    fn function(&mut self, name: &str, file: &str) -> u64 {
        let key = (name.to_owned(), file.to_owned());
        if let Some(known) = self.functions.get(&key) {
            return *known;
        }
        let id = self.profile.function.len() as u64 + 1;
        let (name, filename) = (self.text(name), self.text(file));
        self.profile.function.push(Function { id, name, system_name: name, filename });
        self.functions.insert(key, id);
        id
    }
}

/// Splits `file:line`.
pub fn split(source: &str) -> (&str, i64) {
    let parts = source.rsplit_once(':');
    parts.and_then(|(file, line)| Some((file, line.parse().ok()?))).unwrap_or((source, 0))
}

/// Returns a number as the formats have it.
pub fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::file::{parse, tests};
    use super::super::sites;
    use super::*;

    #[test]
    fn it_is_what_pprof_wants() {
        let heap = parse(&tests::file(&[100, 1000])).unwrap();
        let told = sites::told(&heap, false);
        let bytes = file(&[(heap, told)]).unwrap();
        let mut plain = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&bytes[..]), &mut plain)
            .unwrap();
        let profile = Profile::decode(&plain[..]).unwrap();
        let text = |index: i64| profile.string_table[index as usize].as_str();
        assert_eq!(text(0), "");
        let kinds: Vec<(&str, &str)> =
            profile.sample_type.iter().map(|kind| (text(kind.kind), text(kind.unit))).collect();
        assert_eq!(kinds, [("inuse_objects", "count"), ("inuse_space", "bytes")]);
        assert_eq!((profile.period, profile.sample.len()), (512 << 10, 2));
        assert_eq!(text(profile.mapping[0].filename), "/usr/bin/program");
        for sample in &profile.sample {
            assert!(sample.value.len() == 2 && sample.value[1] >= 512 << 10);
            assert!(
                sample.location_id.iter().all(|id| profile.location[*id as usize - 1].id == *id)
            );
            assert_eq!(text(sample.label[2].str), "worker-3");
        }
        let lines = profile.location.iter().flat_map(|location| &location.line);
        for line in lines {
            assert!(!text(profile.function[line.function_id as usize - 1].name).is_empty());
        }
    }

    #[test]
    fn what_was_there_before_has_a_minus() {
        let heap = parse(&tests::file(&[1 << 20])).unwrap();
        let told = sites::told(&heap, false);
        let profile = profile(&[(&heap, &told, 1), (&heap, &told, -1)]);
        let values: Vec<i64> = profile.sample.iter().map(|sample| sample.value[1]).collect();
        assert_eq!(values, [1 << 20, -(1 << 20)]);
        let keys = profile.sample[1].label.iter().map(|label| label.key as usize);
        assert!(keys.into_iter().any(|key| profile.string_table[key] == "pprof::base"));
        assert!(difference(&(heap.clone(), told), &(heap, Told::default())).is_ok());
    }

    #[test]
    fn lines() {
        assert_eq!(split("src/a.rs:12"), ("src/a.rs", 12));
        assert_eq!(split("src/a.rs"), ("src/a.rs", 0));
        assert_eq!(split("a:b"), ("a:b", 0));
    }
}
