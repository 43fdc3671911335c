//! Which spans are open: for formats in which the begins and ends of a track must match.
//!
//! A recording may have an end without its begin, which was overwritten, and a begin without its end, if that was lost or
//! did not come yet.
//!
//! # Invariants
//! 1. Of each track as many ends are written as begins, and the inner span ends first.
//!    A span whose end is missing ends at the next event of its thread that is not in it.
//! 2. The memory in use is that of the open spans.

use std::collections::HashMap;

use corelocal::trace::format::Kind;

use crate::{Event, Recording, Site};

/// Where a span is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Track {
    /// That of a thread.
    Thread(u32),
    /// Its own: the span of a task.
    Task(u64),
}

/// A span that is open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open<'r> {
    pub(crate) id: u64,
    pub(crate) begin: u64,
    pub(crate) site: &'r Site,
    pub(crate) thread: u32,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Spans<'r> {
    /// Ends may be missing.
    is_lossy: bool,
    threads: HashMap<u32, Vec<Open<'r>>>,
    tasks: HashMap<u64, Open<'r>>,
}

impl<'r> Spans<'r> {
    /// Of a recording's events, which must be given in their order.
    pub(crate) fn new(recording: &Recording) -> Spans<'r> {
        Spans { is_lossy: recording.lost() > 0, ..Spans::default() }
    }

    /// Notes in which span the thread of an event was before it. Returns the spans of the thread that have ended by then, the
    /// inner ones first: their ends are missing.
    pub(crate) fn settle(&mut self, event: &Event<'r>) -> Vec<Open<'r>> {
        let open = self.threads.get_mut(&event.thread).filter(|_| self.is_lossy);
        let Some(open) = open else { return Vec::new() };
        let is_open = |id: u64| open.iter().rposition(|open| open.id == id);
        let inner = match event.within {
            0 => 0,
            // A task, or a span whose begin is missing, says nothing of the others.
            within => is_open(within).map_or(open.len(), |at| at + 1),
        };
        let mut ended = open.split_off(inner);
        ended.reverse();
        if open.is_empty() {
            self.threads.remove(&event.thread);
        }
        ended
    }

    /// Notes the begin of a span.
    pub(crate) fn begin(&mut self, event: &Event<'r>) -> Track {
        let Event { span, time, site, thread, .. } = *event;
        let open = Open { id: span, begin: time, site, thread };
        match site.kind {
            Kind::TaskSpan => {
                self.tasks.insert(span, open);
                Track::Task(span)
            }
            _ => {
                self.threads.entry(thread).or_default().push(open);
                Track::Thread(thread)
            }
        }
    }

    /// Notes the end of a span. Returns its track and the spans that end there now, the inner ones first. None if its begin
    /// is missing.
    pub(crate) fn end(&mut self, event: &Event<'r>) -> (Track, Vec<Open<'r>>) {
        let Event { span, thread, site, .. } = *event;
        if site.kind == Kind::TaskSpan {
            return (Track::Task(span), self.tasks.remove(&span).into_iter().collect());
        }
        let Some(open) = self.threads.get_mut(&thread) else {
            return (Track::Thread(thread), Vec::new());
        };
        let at = open.iter().rposition(|open| open.id == span).unwrap_or(open.len());
        let mut ended = open.split_off(at);
        ended.reverse();
        if open.is_empty() {
            self.threads.remove(&thread);
        }
        (Track::Thread(thread), ended)
    }

    /// The spans that are open, the outer ones first.
    pub(crate) fn open(&self) -> Vec<(Track, Open<'r>)> {
        let mut threads: Vec<_> = self.threads.iter().collect();
        threads.sort_unstable_by_key(|(thread, _)| **thread);
        let of_threads = threads
            .into_iter()
            .flat_map(|(thread, open)| open.iter().map(|open| (Track::Thread(*thread), *open)));
        let mut tasks: Vec<_> =
            self.tasks.iter().map(|(id, open)| (Track::Task(*id), *open)).collect();
        tasks.sort_unstable_by_key(|(_, open)| (open.begin, open.id));
        of_threads.chain(tasks).collect()
    }
}
