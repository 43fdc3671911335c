//! Perfetto's protobuf: opens in ui.perfetto.dev.
//!
//! A thread has a track, with its events as instants and its spans as slices. The task spans of a tree share a track as long
//! as they nest, and an arrow leads to one that begins on another track than its parent.
//! Names are interned: a packet has their number, and their text the first time.
//!
//! # Invariants
//! 1. Events are written as they come: the memory in use does not grow with their number.
//! 2. Each file explains itself: it begins without interned names and without tracks, and the spans that are open begin
//!    again.
//!
//! The numbers of the fields are those of `protos/perfetto/trace` in Perfetto's repository.

mod proto;

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::sync::Arc;

use prost::Message;

use crate::spans::{Open, Spans, Step, Track};
use crate::{Event, Kind, Recording, Value, What};

use proto::{
    DebugAnnotation, InternedData, InternedName, TracePacket, TrackDescriptor, TrackEvent, Type,
};

/// The only sequence of packets.
const SEQUENCE: u32 = 1;
/// Flags of a packet: interned names begin anew; the packet needs earlier ones.
const CLEARED: u32 = 1;
const NEEDS: u32 = 2;
/// CLOCK_REALTIME and CLOCK_BOOTTIME: times are the same in both.
const CLOCKS: [u32; 2] = [1, 6];
/// The track of the process.
const PROCESS: u64 = 1;
/// Added to a thread's id: its track.
const THREAD: u64 = 1 << 56;

/// Writes the events, to one file after the other: the next one is asked for when one has this many bytes.
///
/// Linear in the number of events.
///
/// # Errors
/// A writer fails, or cannot be made.
pub fn write<'r>(
    recording: &'r Recording,
    events: &mut dyn Iterator<Item = Event<'r>>,
    next_file: &mut dyn FnMut() -> io::Result<Box<dyn Write>>,
    most_bytes: u64,
) -> io::Result<()> {
    let mut spans = Spans::new(recording);
    let mut names: HashMap<u32, Arc<str>> = HashMap::new();
    let mut file = File::new(recording, next_file()?)?;
    let mut last = recording.time_of_start();
    for event in events {
        last = event.time;
        if file.len > most_bytes {
            file.finish(&spans, last)?;
            file = File::new(recording, next_file()?)?;
            for (track, open) in spans.open() {
                file.begin_again(track, &open, &names, last)?;
            }
        }
        if names.get(&event.thread) != Some(&event.thread_name) {
            names.insert(event.thread, Arc::clone(&event.thread_name));
        }
        for step in spans.settle(&event) {
            file.step(step, &event)?;
        }
        match event.what {
            What::Event => {
                let thread = Track::Thread(event.thread);
                file.event_in(Type::Instant, thread, &event, None)?;
            }
            What::Begin => {
                let (track, of_parent) = spans.begin(&event);
                let is_task = event.site.kind == Kind::TaskSpan;
                let of_parent = of_parent.filter(|_| is_task);
                if let Some(of_parent) = of_parent {
                    file.start_flow(of_parent, &event)?;
                }
                let flow = of_parent.map(|_| event.span);
                file.event_in(Type::SliceBegin, track, &event, flow)?;
            }
            What::End => {
                for step in spans.end(&event) {
                    file.step(step, &event)?;
                }
            }
        }
    }
    file.finish(&spans, last)
}

/// A file, and what it has explained so far.
struct File {
    to: Box<dyn Write>,
    len: u64,
    process: i32,
    /// Threads' names.
    threads: HashMap<u32, Arc<str>>,
    /// Tracks of task spans.
    tasks: HashSet<u64>,
    /// Numbers of events' names and of fields' names.
    events: HashMap<String, u64>,
    fields: HashMap<String, u64>,
    bytes: Vec<u8>,
}

impl File {
    fn new(recording: &Recording, to: Box<dyn Write>) -> io::Result<File> {
        let process = recording.process() as i32;
        let mut file = File {
            to,
            len: 0,
            process,
            threads: HashMap::new(),
            tasks: HashSet::new(),
            events: HashMap::new(),
            fields: HashMap::new(),
            bytes: Vec::new(),
        };
        let time = recording.time_of_start();
        let clock = |id| proto::Clock { clock_id: Some(id), timestamp: Some(time) };
        let clocks = CLOCKS.map(clock).to_vec();
        file.packet(TracePacket {
            clock_snapshot: Some(proto::ClockSnapshot { clocks }),
            sequence_flags: Some(CLEARED),
            ..TracePacket::default()
        })?;
        let name = match recording.program() {
            name if name.is_empty() => format!("process {process}"),
            name => name,
        };
        let process = proto::ProcessDescriptor { pid: Some(process), process_name: Some(name) };
        file.describe(TrackDescriptor {
            uuid: Some(PROCESS),
            process: Some(process),
            ..TrackDescriptor::default()
        })?;
        Ok(file)
    }

    fn packet(&mut self, packet: TracePacket) -> io::Result<()> {
        let packet = TracePacket { trusted_packet_sequence_id: Some(SEQUENCE), ..packet };
        self.bytes.clear();
        // Field 1 of the trace: a message of this length.
        self.bytes.push(1 << 3 | 2);
        prost::encoding::encode_varint(packet.encoded_len() as u64, &mut self.bytes);
        packet.encode_raw(&mut self.bytes);
        self.len += self.bytes.len() as u64;
        self.to.write_all(&self.bytes)
    }

    fn describe(&mut self, track: TrackDescriptor) -> io::Result<()> {
        self.packet(TracePacket { track_descriptor: Some(track), ..TracePacket::default() })
    }

    /// Returns the number of a track, which is described if it is new.
    fn track(&mut self, track: Track, name: &str, thread_name: &Arc<str>) -> io::Result<u64> {
        match track {
            Track::Thread(tid) => {
                let uuid = THREAD + u64::from(tid);
                if self.threads.get(&tid) != Some(thread_name) {
                    self.threads.insert(tid, Arc::clone(thread_name));
                    let thread = proto::ThreadDescriptor {
                        pid: Some(self.process),
                        tid: Some(tid as i32),
                        thread_name: Some(thread_name.to_string()),
                    };
                    self.describe(TrackDescriptor {
                        uuid: Some(uuid),
                        parent_uuid: Some(PROCESS),
                        thread: Some(thread),
                        ..TrackDescriptor::default()
                    })?;
                }
                Ok(uuid)
            }
            Track::Task(tree, nth) => {
                let uuid = task(tree, nth);
                if self.tasks.insert(uuid) {
                    // Further tracks of a tree are below its first one.
                    let parent = if nth == 0 { PROCESS } else { task(tree, 0) };
                    self.describe(TrackDescriptor {
                        uuid: Some(uuid),
                        parent_uuid: Some(parent),
                        name: Some(name.to_owned()),
                        ..TrackDescriptor::default()
                    })?;
                }
                Ok(uuid)
            }
        }
    }

    /// Writes a step of a track.
    fn step(&mut self, step: Step<'_>, event: &Event<'_>) -> io::Result<()> {
        match step {
            Step::End(track, open) => {
                if let Track::Task(tree, nth) = track {
                    // The tree's name stays until its first span has ended.
                    if nth > 0 || open.id == tree {
                        self.tasks.remove(&task(tree, nth));
                    }
                }
                self.end(track, event.time)
            }
            Step::GoOn(track, open) => {
                let uuid = self.track(track, &open.site.name, &event.thread_name)?;
                self.slice(Type::SliceBegin, uuid, event.time, Some(open.site.name.clone()))
            }
        }
    }

    /// Writes an instant on the track of the parent, from which an arrow leads to a span that begins on another track.
    fn start_flow(&mut self, of_parent: Track, event: &Event<'_>) -> io::Result<()> {
        let track = self.track(of_parent, event.name, &event.thread_name)?;
        self.packet(TracePacket {
            timestamp: Some(event.time),
            track_event: Some(TrackEvent {
                r#type: Some(Type::Instant as i32),
                track_uuid: Some(track),
                name: Some(format!("starts {}", event.name)),
                flow_ids: vec![event.span],
                ..TrackEvent::default()
            }),
            sequence_flags: Some(NEEDS),
            ..TracePacket::default()
        })
    }

    /// Writes an event, with the id of a flow that leads to it.
    fn event_in(
        &mut self,
        of: Type,
        track: Track,
        event: &Event<'_>,
        flow: Option<u64>,
    ) -> io::Result<()> {
        let track = self.track(track, event.name, &event.thread_name)?;
        let mut interned = InternedData::default();
        let name = intern(&mut self.events, event.name, &mut interned.event_names);
        let mut annotations = Vec::with_capacity(event.fields.len() + 2);
        let fields = &mut self.fields;
        let mut annotate = |name: &str, value: &Value| {
            let iid = intern(fields, name, &mut interned.debug_annotation_names);
            annotations.push(DebugAnnotation { name_iid: Some(iid), ..annotation(value) });
        };
        event.present_fields().for_each(|(name, value)| annotate(name, value));
        // A name with a dot is none of a field.
        annotate("corelocal.cpu", &Value::Unsigned(event.cpu.into()));
        if event.what == What::Begin && event.parent != 0 {
            annotate("corelocal.parent", &Value::Str(format!("{:#x}", event.parent), false));
        }
        let names = |fields: &mut dyn Iterator<Item = &str>| -> Vec<Value> {
            fields.map(|name| Value::Str(name.to_owned(), false)).collect()
        };
        let (absent, cut) = (names(&mut event.absent_fields()), names(&mut event.cut_fields()));
        for (name, fields) in [("corelocal.absent", absent), ("corelocal.cut", cut)] {
            if !fields.is_empty() {
                annotate(name, &Value::Array(fields, false));
            }
        }
        let is_new = interned != InternedData::default();
        self.packet(TracePacket {
            timestamp: Some(event.time),
            track_event: Some(TrackEvent {
                debug_annotations: annotations,
                r#type: Some(of as i32),
                name_iid: Some(name),
                track_uuid: Some(track),
                name: None,
                terminating_flow_ids: flow.into_iter().collect(),
                flow_ids: Vec::new(),
            }),
            interned_data: is_new.then_some(interned),
            sequence_flags: Some(NEEDS),
            ..TracePacket::default()
        })
    }

    /// Begins a span that began in an earlier file.
    fn begin_again(
        &mut self,
        track: Track,
        open: &Open<'_>,
        names: &HashMap<u32, Arc<str>>,
        time: u64,
    ) -> io::Result<()> {
        let unknown: Arc<str> = "".into();
        let uuid =
            self.track(track, &open.site.name, names.get(&open.thread).unwrap_or(&unknown))?;
        self.slice(Type::SliceBegin, uuid, time, Some(open.site.name.clone()))
    }

    fn end(&mut self, track: Track, time: u64) -> io::Result<()> {
        let track = match track {
            Track::Thread(tid) => THREAD + u64::from(tid),
            Track::Task(tree, nth) => task(tree, nth),
        };
        self.slice(Type::SliceEnd, track, time, None)
    }

    fn slice(&mut self, of: Type, track: u64, time: u64, name: Option<String>) -> io::Result<()> {
        self.packet(TracePacket {
            timestamp: Some(time),
            track_event: Some(TrackEvent {
                r#type: Some(of as i32),
                track_uuid: Some(track),
                name,
                ..TrackEvent::default()
            }),
            sequence_flags: Some(NEEDS),
            ..TracePacket::default()
        })
    }

    /// Ends the spans that are open, the inner ones first.
    fn finish(&mut self, spans: &Spans<'_>, time: u64) -> io::Result<()> {
        spans.open().into_iter().rev().try_for_each(|(track, _)| self.end(track, time))?;
        self.to.flush()
    }
}

/// Returns the number of a track of a tree of task spans.
fn task(tree: u64, nth: u32) -> u64 {
    // Neither the process's nor a thread's: these have other highest bytes.
    tree.wrapping_add(u64::from(nth).wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1 << 63
}

/// Returns the number of a name, which is added to `new` the first time.
fn intern(known: &mut HashMap<String, u64>, name: &str, new: &mut Vec<InternedName>) -> u64 {
    if let Some(iid) = known.get(name) {
        return *iid;
    }
    let iid = known.len() as u64 + 1;
    known.insert(name.to_owned(), iid);
    new.push(InternedName { iid: Some(iid), name: Some(name.to_owned()) });
    iid
}

fn annotation(value: &Value) -> DebugAnnotation {
    let value = match value {
        Value::Unsigned(number) | Value::Duration(number) => proto::Value::Uint(*number),
        Value::Signed(number) => proto::Value::Int(*number),
        Value::Float(number) => proto::Value::Double(*number),
        Value::Bool(is) => proto::Value::Bool(*is),
        Value::Str(..) => proto::Value::String(value.text()),
        Value::Missing => return DebugAnnotation::default(),
        Value::Bytes(bytes, _) => proto::Value::String(crate::hex(bytes)),
        Value::Array(values, _) => {
            let array_values = values.iter().map(annotation).collect();
            return DebugAnnotation { array_values, ..DebugAnnotation::default() };
        }
    };
    DebugAnnotation { value: Some(value), ..DebugAnnotation::default() }
}
