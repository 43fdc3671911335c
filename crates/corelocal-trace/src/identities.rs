//! Ids of spans as other processes know them, the traces that they belong to, and how long they lasted.
//!
//! A span belongs to the trace of its field `traceparent` (W3C Trace Context), else to that of the span that it is in.
//!
//! # Invariant
//! 1. The memory in use is that of the open spans.

use std::collections::HashMap;

use corelocal::trace::{combine, parse_trace_parent};

use crate::{Event, Recording, Value, What};

/// The identity of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The trace; 0: none.
    pub trace: u128,
    /// The span that begins or ends, or that the event is in; 0: none.
    pub span: u64,
    /// The parent of a span, which may be of another process; 0: none.
    pub parent: u64,
    /// The time of the span's begin, for the end of a span whose begin is in the recording.
    pub began: Option<u64>,
}

/// Follows the spans of a recording.
#[derive(Debug)]
pub(crate) struct Identities {
    key: u64,
    open: HashMap<u64, Open>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    trace: u128,
    parent: u64,
    begin: u64,
}

impl Identities {
    /// Creates those of a recording's events, which must be given in their order.
    pub(crate) fn new(recording: &Recording) -> Identities {
        Identities { key: recording.span_key(), open: HashMap::new() }
    }

    /// Returns what is known of the next event.
    pub(crate) fn of(&mut self, event: &Event<'_>) -> Identity {
        let span = combine(event.span, self.key);
        match event.what {
            What::Event => {
                let open = self.open.get(&event.span);
                Identity { trace: open.map_or(0, |open| open.trace), span, parent: 0, began: None }
            }
            What::Begin => {
                let given = event.fields.iter().find_map(|(name, value)| match value {
                    Value::Str(text, _) if *name == "traceparent" => parse_trace_parent(text),
                    _ => None,
                });
                let outer = self.open.get(&event.parent).map_or(0, |open| open.trace);
                let trace = given.map_or(outer, |given| given.trace_id());
                let of_other_process = given.map_or(0, |given| given.parent_id());
                let parent = match of_other_process {
                    0 => combine(event.parent, self.key),
                    parent => parent,
                };
                self.open.insert(event.span, Open { trace, parent, begin: event.time });
                Identity { trace, span, parent, began: None }
            }
            What::End => match self.open.remove(&event.span) {
                Some(Open { trace, parent, begin }) => {
                    Identity { trace, span, parent, began: Some(begin) }
                }
                None => Identity { span, ..Identity::default() },
            },
        }
    }
}
