//! What a page about a recording shows, gathered in two passes over its events.
//!
//! # Invariants
//! 1. Memory and page are bounded: rows of threads and cpus, columns of time, and names have upper bounds. What has no room
//!    is counted.
//! 2. A cell of the timeline shows the span that lasted longest of those that touch it, so that a long one is never hidden.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::RangeInclusive;
use std::sync::Arc;

use corelocal::trace::format::LOST_NAME;
use corelocal_trace::{Event, Events, Kind, Recording, Site, Value, What};
use hdrhistogram::Histogram;

/// Columns of the timeline.
pub const COLUMNS: usize = 600;
/// Rows of it: threads, nested spans of a thread, spans of tasks that overlap, cpus.
pub const THREADS: usize = 40;
pub const DEPTHS: usize = 4;
pub const LANES: usize = 8;
pub const CPUS: usize = 64;
/// Bars of the rate.
pub const BARS: usize = 150;
/// The longest duration that is told apart, in nanoseconds: a day.
const LONGEST: u64 = 86_400_000_000_000;

/// Removes the spans that the thread of an event was not in any more: their ends are missing.
fn settle(nested: &mut HashMap<u32, Vec<u64>>, event: &Event<'_>) {
    let Some(spans) = nested.get_mut(&event.thread) else { return };
    let inner = match event.within {
        0 => 0,
        within => spans.iter().rposition(|span| *span == within).map_or(spans.len(), |at| at + 1),
    };
    spans.truncate(inner);
}

/// A recording in numbers.
pub struct Summary<'r> {
    pub first: u64,
    pub last: u64,
    pub events: u64,
    pub names: Vec<Name<'r>>,
    /// The busiest ones first.
    pub threads: Vec<Thread>,
    pub more_threads: usize,
    /// Rows of cells: by lane.
    pub tasks: Vec<Row>,
    pub cpus: Vec<CpuRow>,
    pub more_cpus: usize,
    pub rate: [u64; BARS],
    /// By column of the timeline: whether events are missing there.
    pub unknown: [bool; COLUMNS],
}

/// Events of a site's name.
pub struct Name<'r> {
    /// Its number in the cells of rows.
    pub number: u16,
    pub site: &'r Site,
    /// Events, or spans that began.
    pub count: u64,
    pub durations: Option<Histogram<u64>>,
}

pub struct Thread {
    pub id: u32,
    pub name: Arc<str>,
    /// By depth.
    pub spans: Vec<Row>,
}

/// A row of the timeline: of each column the name's number, and how long its span lasted.
pub struct Row(pub Vec<Option<(u16, u64)>>);

/// A row of a cpu: of each column the thread with most events, by majority vote.
pub struct CpuRow {
    pub cpu: u32,
    pub cells: Vec<Option<(u32, i64)>>,
}

impl Row {
    fn new() -> Row {
        Row(vec![None; COLUMNS])
    }

    fn paint(&mut self, columns: RangeInclusive<usize>, name: u16, lasted: u64) {
        for cell in &mut self.0[columns] {
            if cell.is_none_or(|(_, other)| other <= lasted) {
                *cell = Some((name, lasted));
            }
        }
    }
}

/// A span that is open.
struct Open {
    begin: u64,
    row: Option<usize>,
    name: u16,
}

impl<'r> Summary<'r> {
    /// Gathers it. Also returns the events of the second pass, which know what was left out. `each` is called for each event of both passes; false ends the pass.
    pub fn of(
        recording: &'r Recording,
        each: &mut dyn FnMut() -> bool,
    ) -> (Summary<'r>, Events<'r>) {
        let mut summary = Summary {
            first: u64::MAX,
            last: 0,
            events: 0,
            names: Vec::new(),
            threads: Vec::new(),
            more_threads: 0,
            tasks: (0..LANES).map(|_| Row::new()).collect(),
            cpus: Vec::new(),
            more_cpus: 0,
            rate: [0; BARS],
            unknown: [false; COLUMNS],
        };
        let mut counts: HashMap<u32, (u64, Arc<str>)> = HashMap::new();
        for event in recording.events().take_while(|_| each()) {
            summary.first = summary.first.min(event.time);
            summary.last = summary.last.max(event.time);
            summary.events += 1;
            match counts.entry(event.thread) {
                Entry::Occupied(mut there) => there.get_mut().0 += 1,
                Entry::Vacant(new) => drop(new.insert((1, event.thread_name))),
            }
        }
        summary.first = summary.first.min(summary.last);
        summary.choose_threads(counts);
        let events = summary.gather(recording, each);
        summary.cpus.sort_by_key(|row| row.cpu);
        summary.names.sort_by(|a, b| b.count.cmp(&a.count).then(a.site.name.cmp(&b.site.name)));
        (summary, events)
    }

    fn choose_threads(&mut self, counts: HashMap<u32, (u64, Arc<str>)>) {
        let mut threads: Vec<_> = counts.into_iter().collect();
        threads.sort_by(|(a, (more, _)), (b, (less, _))| less.cmp(more).then(a.cmp(b)));
        self.more_threads = threads.len().saturating_sub(THREADS);
        threads.truncate(THREADS);
        let row = |(id, (_, name))| {
            let spans = (0..DEPTHS).map(|_| Row::new()).collect();
            Thread { id, name, spans }
        };
        self.threads = threads.into_iter().map(row).collect();
    }

    /// Returns the column of a time, of so many.
    fn column(&self, time: u64, columns: usize) -> usize {
        let length = u128::from(self.last - self.first) + 1;
        let at = u128::from(time.clamp(self.first, self.last) - self.first);
        (at * columns as u128 / length) as usize
    }

    /// Returns the second pass.
    fn gather(&mut self, recording: &'r Recording, each: &mut dyn FnMut() -> bool) -> Events<'r> {
        if let Some(overwritten) = recording.overwritten() {
            self.note_unknown(self.first, overwritten.until);
        }
        let mut events = recording.events();
        let rows: HashMap<u32, usize> =
            self.threads.iter().enumerate().map(|(row, thread)| (thread.id, row)).collect();
        let mut numbers: HashMap<u16, u16> = HashMap::new();
        // Names have numbers in the order of their first events, and are sorted at the end.
        let mut names: Vec<Name<'r>> = Vec::new();
        let mut open: HashMap<u64, Open> = HashMap::new();
        // Of each thread the spans that are open, the inner one last.
        let mut nested: HashMap<u32, Vec<u64>> = HashMap::new();
        let is_lossy = recording.lost() > 0;
        let mut lanes = [false; LANES];
        for event in events.by_ref().take_while(|_| each()) {
            let column = self.column(event.time, BARS);
            self.rate[column] += 1;
            self.note_cpu(&event);
            if let (LOST_NAME, Some((_, Value::Unsigned(lasted)))) =
                (event.name, event.fields.get(1))
            {
                self.note_unknown(event.time.saturating_sub(*lasted), event.time);
            }
            let name = *numbers.entry(event.site_number).or_insert_with(|| {
                let number = names.len() as u16;
                names.push(Name { number, site: event.site, count: 0, durations: None });
                number
            });
            if is_lossy {
                settle(&mut nested, &event);
            }
            match event.what {
                What::Event => names[usize::from(name)].count += 1,
                What::Begin => {
                    names[usize::from(name)].count += 1;
                    let row = match event.site.kind {
                        Kind::TaskSpan => {
                            let lane = lanes.iter().position(|is_taken| !is_taken);
                            lane.inspect(|lane| lanes[*lane] = true)
                        }
                        _ => {
                            let spans = nested.entry(event.thread).or_default();
                            spans.push(event.span);
                            Some(spans.len() - 1)
                        }
                    };
                    open.insert(event.span, Open { begin: event.time, row, name });
                }
                What::End => {
                    let Some(Open { begin, row, name }) = open.remove(&event.span) else {
                        continue;
                    };
                    let lasted = event.time.saturating_sub(begin);
                    let durations = &mut names[usize::from(name)].durations;
                    if durations.is_none() {
                        // Two digits, up to the longest.
                        *durations = Histogram::new_with_max(LONGEST, 2).ok();
                    }
                    if let Some(durations) = durations {
                        durations.saturating_record(lasted);
                    }
                    let columns = self.column(begin, COLUMNS)..=self.column(event.time, COLUMNS);
                    let row = match event.site.kind {
                        Kind::TaskSpan => row
                            .inspect(|lane| lanes[*lane] = false)
                            .map(|lane| &mut self.tasks[lane]),
                        _ => {
                            if let Some(spans) = nested.get_mut(&event.thread) {
                                let at = spans.iter().rposition(|span| *span == event.span);
                                spans.truncate(at.unwrap_or(spans.len()));
                            }
                            let thread = rows.get(&event.thread).map(|row| &mut self.threads[*row]);
                            thread.zip(row).and_then(|(thread, depth)| thread.spans.get_mut(depth))
                        }
                    };
                    if let Some(row) = row {
                        row.paint(columns, name, lasted);
                    }
                }
            }
        }
        // Spans that have not ended last to the end.
        for (_, Open { begin, row, name }) in open {
            let columns = self.column(begin, COLUMNS)..=COLUMNS - 1;
            let is_task = names[usize::from(name)].site.kind == Kind::TaskSpan;
            if let Some(row) = row.filter(|_| is_task) {
                self.tasks[row].paint(columns, name, self.last - begin);
            }
        }
        self.names = names;
        events
    }

    /// Notes that events of this time are missing.
    fn note_unknown(&mut self, from: u64, to: u64) {
        let columns = self.column(from, COLUMNS)..=self.column(to, COLUMNS);
        self.unknown[columns].fill(true);
    }

    fn note_cpu(&mut self, event: &Event<'_>) {
        let column = self.column(event.time, COLUMNS);
        let at = match self.cpus.iter().position(|row| row.cpu == event.cpu) {
            Some(at) => at,
            None if self.cpus.len() < CPUS => {
                self.cpus.push(CpuRow { cpu: event.cpu, cells: vec![None; COLUMNS] });
                self.cpus.len() - 1
            }
            None => {
                self.more_cpus += 1;
                return;
            }
        };
        let cell = &mut self.cpus[at].cells[column];
        *cell = match *cell {
            Some((thread, votes)) if thread == event.thread => Some((thread, votes + 1)),
            Some((thread, votes)) if votes > 1 => Some((thread, votes - 1)),
            _ => Some((event.thread, 1)),
        };
    }
}
