//! Heap profiles for an OpenTelemetry collector: the messages of OTLP profiles, which are in alpha
//! (`opentelemetry.proto.profiles.v1development`).
//!
//! ```text
//!   a process ──► a resource with two profiles: inuse_objects and inuse_space, as in pprof's format
//!   a stack   ──► a sample of each: its value, the size asked for, the thread
//! ```
//! All profiles share one dictionary. Functions and lines are included, so the collector needs no files of the program.
//!
//! Invariants (the schema's):
//! - The first entry of each table of the dictionary is empty: 0 means none.
//! - No entry is there twice, and none is unused.

use std::collections::HashMap;
use std::hash::Hash;
use std::path::PathBuf;

use corelocal_symbols::callers::{Areas, Frame, Map};
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::profiles::v1development::{
    Function, KeyValueAndUnit, Line, Link, Location, Mapping, Profile, ProfilesDictionary,
    ResourceProfiles, Sample, ScopeProfiles, Stack, ValueType,
};
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::file::Heap;
use super::pprof::{int, split};
use super::sites::{Call, Told};

/// Returns the message for all processes.
pub fn request(
    processes: &[(Heap, Told)],
    service: Option<&str>,
    host: Option<&str>,
) -> ExportProfilesServiceRequest {
    let mut tables = Tables::default();
    let resource_profiles = processes.iter().map(|(heap, told)| ResourceProfiles {
        resource: Some(resource(heap, told, service, host)),
        scope_profiles: vec![ScopeProfiles {
            scope: Some(InstrumentationScope {
                name: "corelocal".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                ..InstrumentationScope::default()
            }),
            profiles: tables.profiles(heap, told),
            ..ScopeProfiles::default()
        }],
        ..ResourceProfiles::default()
    });
    let resource_profiles = resource_profiles.collect();
    ExportProfilesServiceRequest { resource_profiles, dictionary: Some(tables.dictionary()) }
}

fn resource(heap: &Heap, told: &Told, service: Option<&str>, host: Option<&str>) -> Resource {
    let path = told.program.as_deref().map(|path| path.to_string_lossy().into_owned());
    let name = path.as_deref().and_then(|path| path.rsplit('/').next()).map(str::to_owned);
    let service = service.map(str::to_owned).or_else(|| name.clone());
    let service = service.unwrap_or_else(|| format!("process {}", heap.process));
    let texts = [
        ("service.name", Some(service)),
        ("host.name", host.map(str::to_owned)),
        ("process.executable.name", name),
        ("process.executable.path", path),
    ];
    let attribute = |key: &str, value| KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    };
    let texts = texts.into_iter().filter_map(|(key, text)| {
        let text = text?;
        Some(attribute(key, Value::StringValue(text)))
    });
    let process = attribute("process.pid", Value::IntValue(int(heap.process)));
    Resource { attributes: texts.chain([process]).collect(), ..Resource::default() }
}

/// A table of which no entry is there twice. Its first entry, of number 0, is not in it.
struct Table<K, V> {
    known: HashMap<K, i32>,
    entries: Vec<V>,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Table { known: HashMap::new(), entries: Vec::new() }
    }
}

impl<K: Hash + Eq, V> Table<K, V> {
    /// Returns the number of an entry, which is made unless it is known.
    fn number(&mut self, key: K, entry: impl FnOnce() -> V) -> i32 {
        *self.known.entry(key).or_insert_with(|| {
            self.entries.push(entry());
            self.entries.len() as i32
        })
    }

    /// Returns all entries, after an empty one.
    fn all(self) -> Vec<V>
    where
        V: Default,
    {
        [V::default()].into_iter().chain(self.entries).collect()
    }
}

/// The dictionary, as it is made.
#[derive(Default)]
struct Tables {
    texts: Table<String, String>,
    functions: Table<Function, Function>,
    mappings: Table<Mapping, Mapping>,
    locations: Table<(i32, u64, Vec<Line>), Location>,
    stacks: Table<Stack, Stack>,
    attributes: Table<(i32, String), KeyValueAndUnit>,
}

impl Tables {
    fn dictionary(self) -> ProfilesDictionary {
        ProfilesDictionary {
            mapping_table: self.mappings.all(),
            location_table: self.locations.all(),
            function_table: self.functions.all(),
            link_table: vec![Link::default()],
            string_table: self.texts.all(),
            attribute_table: self.attributes.all(),
            stack_table: self.stacks.all(),
        }
    }

    fn text(&mut self, text: &str) -> i32 {
        if text.is_empty() {
            return 0;
        }
        self.texts.number(text.to_owned(), || text.to_owned())
    }

    fn kind(&mut self, kind: &str, unit: &str) -> Option<ValueType> {
        Some(ValueType { type_strindex: self.text(kind), unit_strindex: self.text(unit) })
    }

    fn attribute(&mut self, key: &str, value: Value, unit: &str) -> i32 {
        let (key_strindex, unit_strindex) = (self.text(key), self.text(unit));
        let name = (key_strindex, format!("{value:?}"));
        self.attributes.number(name, || KeyValueAndUnit {
            key_strindex,
            value: Some(AnyValue { value: Some(value) }),
            unit_strindex,
        })
    }

    /// Returns the two profiles of a process.
    fn profiles(&mut self, heap: &Heap, told: &Told) -> Vec<Profile> {
        let maps: Vec<(Map, PathBuf)> = heap.maps.lines().filter_map(Map::parse).collect();
        let areas = Areas::new(maps.iter().map(|(map, _)| *map).zip(0..));
        let frames = told.frames.iter().zip(&told.calls);
        let locations: Vec<i32> = frames
            .map(|(frame, calls)| {
                // The call, not where it goes on.
                let address = frame.address.saturating_sub(1);
                let mapping = areas.find(address).map_or(0, |nth| self.mapping(&maps[nth]));
                self.location(frame, mapping, calls)
            })
            .collect();
        let samples: Vec<(Sample, [i64; 2])> = told
            .stacks
            .iter()
            .map(|stack| {
                let frames = stack.frames.iter().map(|frame| locations[*frame]);
                let key = Stack { location_indices: frames.collect() };
                let stack_index = self.stacks.number(key.clone(), || key);
                let size = Value::IntValue(int(stack.size));
                let number = Value::IntValue(int(stack.thread.1));
                let mut attribute_indices = vec![
                    self.attribute("allocation_size", size, "bytes"),
                    self.attribute("thread.id", number, ""),
                ];
                if !stack.thread.0.is_empty() {
                    let name = Value::StringValue(stack.thread.0.clone());
                    attribute_indices.push(self.attribute("thread.name", name, ""));
                }
                let values = [stack.objects, stack.bytes].map(|value| value.round() as i64);
                (Sample { stack_index, attribute_indices, ..Sample::default() }, values)
            })
            .collect();
        let kinds = [("inuse_objects", "count"), ("inuse_space", "bytes")];
        let profile = |(nth, (kind, unit)): (usize, (&str, &str))| Profile {
            sample_type: self.kind(kind, unit),
            samples: samples
                .iter()
                .map(|(sample, values)| Sample { values: vec![values[nth]], ..sample.clone() })
                .collect(),
            time_unix_nano: heap.time,
            period_type: self.kind("space", "bytes"),
            period: int(heap.rate),
            ..Profile::default()
        };
        kinds.into_iter().enumerate().map(profile).collect()
    }

    fn mapping(&mut self, (map, path): &(Map, PathBuf)) -> i32 {
        let mapping = Mapping {
            memory_start: map.start,
            memory_limit: map.end,
            file_offset: map.offset,
            filename_strindex: self.text(&path.to_string_lossy()),
            attribute_indices: Vec::new(),
        };
        self.mappings.number(mapping.clone(), || mapping)
    }

    fn location(&mut self, frame: &Frame, mapping_index: i32, calls: &[Call]) -> i32 {
        let lines: Vec<Line> = calls.iter().map(|call| self.line(call)).collect();
        let kind =
            self.attribute("profile.frame.type", Value::StringValue("native".to_owned()), "");
        let address = frame.address.saturating_sub(1);
        self.locations.number((mapping_index, address, lines.clone()), || Location {
            mapping_index,
            address,
            lines,
            attribute_indices: vec![kind],
        })
    }

    fn line(&mut self, call: &Call) -> Line {
        let (file, line) = split(call.source.as_deref().unwrap_or_default());
        let name = self.text(&call.function);
        let function = Function {
            name_strindex: name,
            system_name_strindex: name,
            filename_strindex: self.text(file),
            start_line: 0,
        };
        Line { function_index: self.functions.number(function, || function), line, column: 0 }
    }
}
