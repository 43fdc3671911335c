//! The events of all buffers, merged in the order of time.
//!
//! # Invariants
//! 1. A buffer is in memory from when it was begun, in the order of time, to its last record.
//! 2. Records of a buffer are delivered in its order.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::Arc;

use corelocal::trace::format::{CONTEXT, CURRENT, Kind, LOST_NAME, OVERWRITTEN_NAME, SPAN_END};
use serde::Serialize;

use crate::file::{Buffer, Recording, word};
use crate::identities::Identities;
use crate::{Identity, Overwritten, Problem, Site, Value};

/// An event, or the begin or end of a span.
#[derive(Clone, Debug, PartialEq)]
pub struct Event<'r> {
    /// Nanoseconds since 1970.
    pub time: u64,
    /// The thread that recorded it, and its cpu; 0 if that is not known.
    pub thread: u32,
    /// See `thread`.
    pub cpu: u32,
    /// The thread's name.
    pub thread_name: Arc<str>,
    /// The kind of the event.
    pub what: What,
    /// The span that begins or ends; of an event, the one that the thread is in. 0: none.
    pub span: u64,
    /// The parent of a span that begins. 0: none.
    pub parent: u64,
    /// The span that the thread was in before; 0: none. Differs from the parent if another one was named.
    pub within: u64,
    /// The event's name.
    pub name: &'r str,
    /// Its site.
    pub site: &'r Site,
    /// The number of its site, from 1 on.
    pub site_number: u16,
    /// Names and values of its fields. The last ones are missing if the record had no room for them.
    pub fields: Vec<(&'r str, Value)>,
    /// Its ids as other processes know them. They do not depend on which events are looked at.
    pub identity: Identity,
}

impl<'r> Event<'r> {
    /// Returns the fields that have a value.
    pub fn present_fields(&self) -> impl Iterator<Item = (&'r str, &Value)> {
        let fields = self.fields.iter().map(|(name, value)| (*name, value));
        fields.filter(|(_, value)| *value != &Value::Missing)
    }

    /// Returns the names of fields for which the record had no room.
    pub fn absent_fields(&self) -> impl Iterator<Item = &'r str> + use<'r> {
        let site = self.site;
        let known = if self.what == What::End { site.fields.len() } else { self.fields.len() };
        site.fields.iter().skip(known).map(|(name, _)| name.as_str())
    }

    /// Returns the names of strings, blobs and arrays of which only the beginning was recorded.
    pub fn cut_fields(&self) -> impl Iterator<Item = &'r str> {
        self.fields.iter().filter(|(_, value)| value.is_cut()).map(|(name, _)| *name)
    }
}

/// The kind of the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// An event.
    Event,
    /// A span begins.
    Begin,
    /// A span ends.
    End,
}

/// The events of a recording, in the order of time.
#[derive(Debug)]
pub struct Events<'r> {
    recording: &'r Recording,
    /// The state of each buffer while it is read.
    buffers: Vec<Option<Box<Reader>>>,
    /// The time of each buffer's next event, or when it was begun.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    problems: Vec<Problem>,
    identities: Identities,
    unnamed: Arc<str>,
    /// The overwritten events, until they are reported.
    before: Option<Event<'r>>,
    /// Lost events that no event so far has told.
    untold: u64,
    /// The time of the last event.
    last: u64,
    /// The buffers that are read, with those of an earlier look.
    read: HashMap<(u64, u64), (usize, Context)>,
}

/// The position up to which a buffer was read.
#[derive(Debug)]
struct Reader {
    records: Vec<u8>,
    at: usize,
    context: Context,
}

/// The thread that records in a buffer, and where.
#[derive(Clone, Debug)]
struct Context {
    thread: u32,
    cpu: u32,
    thread_name: Arc<str>,
    span: u64,
    /// The time of the last record: coarse times may go back.
    last: u64,
}

/// The position up to which a growing recording was read: see [`Recording::events_after`].
#[derive(Debug, Default)]
pub struct Progress {
    /// The position in each buffer, by the buffer's place and the time when it was begun.
    read: HashMap<(u64, u64), (usize, Context)>,
    identities: Option<Identities>,
}

impl Recording {
    /// Returns the events, in the order of time; of the same time, in that of buffers.
    ///
    /// Logarithmic in the number of buffers for each event. Takes memory for the buffers that were in use at the same time.
    pub fn events(&self) -> Events<'_> {
        Events::new(self)
    }

    /// Returns the events that were not there at a look before, in the order of time among themselves: of a file that a
    /// process writes, or of its memory, opened again. Losses are among them where the process has told them.
    ///
    /// ```no_run
    /// let mut progress = corelocal_trace::Progress::default();
    /// loop {
    ///     let recording = corelocal_trace::Recording::open("/var/tmp/server.trace")?;
    ///     let mut events = recording.events_after(progress);
    ///     events.by_ref().for_each(|event| println!("{}", event.name));
    ///     progress = events.progress();
    ///     std::thread::sleep(std::time::Duration::from_secs(1));
    /// }
    /// # #[expect(unreachable_code)]
    /// # Ok::<(), corelocal_trace::OpenError>(())
    /// ```
    pub fn events_after(&self, progress: Progress) -> Events<'_> {
        Events::after(self, progress)
    }
}

impl<'r> Events<'r> {
    fn new(recording: &'r Recording) -> Events<'r> {
        let mut events = Events::after(recording, Progress::default());
        events.untold = recording.lost();
        events.before = recording.overwritten().and_then(|overwritten| {
            let Overwritten { buffers, bytes, until } = overwritten;
            made(recording, OVERWRITTEN_NAME, &events.unnamed, until, [buffers, bytes])
        });
        events
    }

    fn after(recording: &'r Recording, progress: Progress) -> Events<'r> {
        let buffers = recording.buffers();
        let Progress { mut read, identities } = progress;
        let there: HashSet<_> = buffers.iter().map(key).collect();
        read.retain(|key, _| there.contains(key));
        let has_more = |buffer: &Buffer| read.get(&key(buffer)).is_none_or(|it| it.0 < buffer.len);
        let begins = buffers
            .iter()
            .enumerate()
            .filter(|(_, buffer)| has_more(buffer))
            .map(|(number, buffer)| Reverse((recording.clock().time(buffer.begin), number)));
        Events {
            recording,
            buffers: buffers.iter().map(|_| None).collect(),
            next: begins.collect(),
            problems: Vec::new(),
            identities: identities.unwrap_or_else(|| Identities::new(recording)),
            before: None,
            untold: 0,
            last: 0,
            unnamed: "".into(),
            read,
        }
    }

    /// Returns how far the recording was read: all of it, once no event is left.
    pub fn progress(self) -> Progress {
        Progress { read: self.read, identities: Some(self.identities) }
    }

    /// Returns the records that were left out so far.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Reads the records of a buffer.
    fn load(&mut self, number: usize) {
        let place = self.recording.buffers()[number];
        let problem = |what| Problem { at: place.at, what };
        match self.recording.records(&place) {
            Ok(records) => {
                if records.len() < place.len {
                    self.problems.push(problem("the file ends within a buffer"));
                }
                let (at, context) = self.read.remove(&key(&place)).unwrap_or_else(|| {
                    let thread_name = Arc::clone(&self.unnamed);
                    let last = self.recording.clock().time(place.begin);
                    (0, Context { thread: 0, cpu: 0, thread_name, span: 0, last })
                });
                let at = at.min(records.len());
                let reader = Reader { records, at, context };
                self.buffers[number] = Some(Box::new(reader));
                self.seek(number);
            }
            Err(_) => self.problems.push(problem("a buffer cannot be read")),
        }
    }

    /// Notes the time of the buffer's next event. If it has none, the buffer is released.
    fn seek(&mut self, number: usize) {
        while let Some(reader) = &mut self.buffers[number] {
            let Reader { records, at, .. } = &mut **reader;
            let (at, end) = (*at, records.len());
            if at == end {
                break;
            }
            let [ticks, first] = [at, at + 8].map(|at| word(records, at));
            let len = 8 + 8 * (first >> 16 & 0xffff) as usize;
            let time = self.recording.clock().time(ticks).max(reader.context.last);
            let place = self.recording.buffers()[number].at + at as u64;
            if end - at < 16 || len == 8 || len > end - at {
                let what = "a record with a wrong length: the rest of its buffer is left out";
                self.problems.push(Problem { at: place, what });
                break;
            }
            match first as u16 {
                CONTEXT => {
                    reader.take_context(at, first);
                    reader.context.last = time;
                }
                CURRENT => reader.context.span = two_words(&reader.records[at..at + len])[0],
                site if self.recording.site(site & !SPAN_END).is_none() => {
                    self.problems.push(Problem { at: place, what: "a record of an unknown site" });
                }
                _ => {
                    reader.context.last = time;
                    return self.next.push(Reverse((time, number)));
                }
            }
            reader.at += len;
        }
        if let Some(reader) = self.buffers[number].take() {
            let place = key(&self.recording.buffers()[number]);
            self.read.insert(place, (reader.at, reader.context));
        }
    }
}

/// Tells buffers apart: one that is begun again in the same place is another one.
fn key(buffer: &Buffer) -> (u64, u64) {
    (buffer.at, buffer.begin)
}

impl Reader {
    fn take_context(&mut self, at: usize, first: u64) {
        let name = self.records.get(at + 24..at + 40).unwrap_or_default();
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        let name = String::from_utf8_lossy(name);
        let context = &mut self.context;
        if *name != *context.thread_name {
            context.thread_name = name.into();
        }
        context.thread = word(&self.records, at + 16) as u32;
        context.cpu = (first >> 32) as u32;
        context.span = word(&self.records, at + 40);
    }
}

/// Returns the first two words of a record's fields.
fn two_words(record: &[u8]) -> [u64; 2] {
    [12, 20].map(|at| word(record, at))
}

impl<'r> Iterator for Events<'r> {
    type Item = Event<'r>;

    fn next(&mut self) -> Option<Event<'r>> {
        loop {
            let Some(Reverse((time, number))) = self.next.pop() else {
                // At the end of the recording.
                let untold = std::mem::take(&mut self.untold);
                return self.before.take().or_else(|| {
                    let values = (untold > 0).then_some([untold, 0])?;
                    made(self.recording, LOST_NAME, &self.unnamed, self.last, values)
                });
            };
            let realtime = self.recording.realtime();
            if let Some(event) =
                self.before.take_if(|before| before.time <= time.wrapping_add(realtime))
            {
                self.next.push(Reverse((time, number)));
                self.last = event.time;
                return Some(event);
            }
            let Some(reader) = &mut self.buffers[number] else {
                // It was begun now. (1)
                self.load(number);
                continue;
            };
            let at = reader.at;
            // `seek` has found this record, and its site.
            let first = word(&reader.records, at + 8);
            let len = 8 + 8 * (first >> 16 & 0xffff) as usize;
            let site_number = first as u16 & !SPAN_END;
            let site = self.recording.site(site_number)?;
            let record = reader.records.get(at..at + len)?;
            let [id, other] = two_words(record);
            let context = &mut reader.context;
            let (what, span, parent, now) = match (first as u16 & SPAN_END, site.kind) {
                (0, Kind::Event) => (What::Event, context.span, 0, context.span),
                // A thread is in its span from here on; in that of a task when it has entered it.
                (0, Kind::Span) => (What::Begin, id, other, id),
                (0, Kind::TaskSpan) => (What::Begin, id, other, context.span),
                (_, Kind::TaskSpan) => (What::End, id, 0, context.span),
                _ => (What::End, id, 0, other),
            };
            let fields = match what {
                What::Event => fields(site, record.get(12..).unwrap_or_default()),
                What::Begin => fields(site, record.get(28..).unwrap_or_default()),
                What::End => Vec::new(),
            };
            let mut event = Event {
                time: time.wrapping_add(self.recording.realtime()),
                thread: context.thread,
                cpu: context.cpu,
                thread_name: Arc::clone(&context.thread_name),
                what,
                span,
                parent,
                within: context.span,
                name: &site.name,
                site,
                site_number,
                fields,
                identity: Identity::default(),
            };
            event.identity = self.identities.of(&event);
            context.span = now;
            reader.at += len;
            if let (LOST_NAME, Some((_, Value::Unsigned(told)))) =
                (event.name, event.fields.first())
            {
                self.untold = self.untold.saturating_sub(*told);
            }
            self.last = event.time;
            self.seek(number);
            return Some(event);
        }
    }
}

/// Returns an event that no record tells: of a site with two numbers as fields. `None` if the recording has no such
/// site.
fn made<'r>(
    recording: &'r Recording,
    name: &str,
    thread_name: &Arc<str>,
    time: u64,
    values: [u64; 2],
) -> Option<Event<'r>> {
    let (site, site_number) =
        recording.numbered_sites().find(|(site, _)| site.name == name && site.fields.len() == 2)?;
    let names = site.fields.iter().map(|(name, _)| name.as_str());
    Some(Event {
        time,
        thread: 0,
        cpu: 0,
        thread_name: Arc::clone(thread_name),
        what: What::Event,
        span: 0,
        parent: 0,
        within: 0,
        name: &site.name,
        site,
        site_number,
        fields: names.zip(values.map(Value::Unsigned)).collect(),
        identity: Identity::default(),
    })
}

/// Returns the fields of a record, as many as it has room for.
fn fields<'r>(site: &'r Site, mut bytes: &[u8]) -> Vec<(&'r str, Value)> {
    let mut fields = Vec::with_capacity(site.fields.len());
    let (of_site, of_records) = site.fields.split_at(usize::from(site.level.is_some()));
    for ((name, _), level) in of_site.iter().zip(site.level) {
        fields.push((name.as_str(), Value::Str(level.name().into(), false)));
    }
    for (name, of) in of_records {
        let Some(value) = Value::take(*of, &mut bytes) else { break };
        fields.push((name.as_str(), value));
    }
    fields
}
