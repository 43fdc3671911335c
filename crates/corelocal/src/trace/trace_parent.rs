//! W3C trace context: the header `traceparent`, by which spans of several processes and machines belong together.
//!
//! ```text
//!   00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
//!   version   id of the trace            id of the parent   flags: 1 is "sampled"
//! ```
//! A span with a field `traceparent` belongs to that trace, and so do the spans in it. Readers of recordings take it
//! from there. Outside of a process a span's id is combined with a random number of the process's recording, so that
//! two processes have different ids.
//!
//! Source: W3C Recommendation "Trace Context", 2021.

use core::fmt;
use core::str::FromStr;
use core::sync::atomic::Ordering;

use super::encode::{Encoder, Field, sealed};
use super::format::{FieldType, Type, header};
use super::memory::Recording;
use super::random::random;
use super::span_id::SpanId;

/// The header `traceparent` of a request.
///
/// ```
/// use corelocal::span;
/// use corelocal::trace::TraceParent;
///
/// # fn header(name: &str) -> Option<&'static str> { None }
/// # fn send(name: &str, value: &str) {}
/// // The request's, or that of a new trace.
/// let incoming: TraceParent = header("traceparent").and_then(|text| text.parse().ok()).unwrap_or_else(TraceParent::new);
/// let span = span!(server::request, traceparent = incoming);
/// send("traceparent", &incoming.child(span.id()).to_string());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceParent {
    trace: u128,
    parent: u64,
    flags: u8,
}

/// The error for a text that is no `traceparent` of version 00 or compatible with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseTraceParentError;

impl fmt::Display for ParseTraceParentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "not a traceparent: 00-, 32 and 16 hexadecimal digits that are not all 0, and flags",
        )
    }
}

impl core::error::Error for ParseTraceParentError {}

impl Default for TraceParent {
    fn default() -> TraceParent {
        TraceParent::new()
    }
}

impl TraceParent {
    /// Creates a new trace, with a random id, whose first span has no parent. One system call (`getrandom(2)`).
    #[must_use]
    pub fn new() -> TraceParent {
        let trace = u128::from(random()) << 64 | u128::from(random());
        TraceParent { trace: trace.max(1), parent: 0, flags: 1 }
    }

    /// Returns the `traceparent` for a request made in this span: the same trace, with the span as the parent.
    #[must_use]
    pub fn child(self, span: SpanId) -> TraceParent {
        TraceParent { parent: global_id(span), ..self }
    }

    /// Returns the id of the trace.
    #[must_use]
    pub fn trace_id(self) -> u128 {
        self.trace
    }

    /// Returns the id of the parent; 0 for the first span of a trace.
    #[must_use]
    pub fn parent_id(self) -> u64 {
        self.parent
    }

    /// Returns `true` if the caller records its part of the trace.
    #[must_use]
    pub fn is_sampled(self) -> bool {
        self.flags & 1 != 0
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.parent, self.flags)
    }
}

impl FromStr for TraceParent {
    type Err = ParseTraceParentError;

    fn from_str(text: &str) -> Result<TraceParent, ParseTraceParentError> {
        let parent = parse(text).filter(|parent| parent.parent != 0);
        parent.ok_or(ParseTraceParentError)
    }
}

/// Does what [`FromStr`] does, but for the first span of a trace, too, which has no parent: as recordings have it.
#[doc(hidden)]
pub fn parse(text: &str) -> Option<TraceParent> {
    let digits = |part: &str, len: usize| {
        let is_hex = part.bytes().all(|c| c.is_ascii_digit() || matches!(c, b'a'..=b'f'));
        (part.len() == len && is_hex).then(|| u128::from_str_radix(part, 16).ok()).flatten()
    };
    let mut parts = text.split('-');
    let version = digits(parts.next()?, 2)?;
    let trace = digits(parts.next()?, 32)?;
    let parent = digits(parts.next()?, 16)? as u64;
    let flags = digits(parts.next()?, 2)? as u8;
    // A later version may have more parts.
    let is_known = version != 0xff && (version != 0 || parts.next().is_none());
    (is_known && trace != 0).then_some(TraceParent { trace, parent, flags })
}

/// Returns a span's id as other processes know it. None stays none.
fn global_id(span: SpanId) -> u64 {
    let key = Recording::here()
        .map_or(0, |recording| recording.word(header::SPAN_KEY).load(Ordering::Relaxed));
    combine(span.as_raw(), key)
}

/// Returns a span's id and the number of its recording.
#[doc(hidden)]
#[must_use]
pub fn combine(span: u64, key: u64) -> u64 {
    match span {
        0 => 0,
        // Never 0, which is none: the key then stands for the span whose id it is.
        span if span == key => key,
        span => span ^ key,
    }
}

impl sealed::Sealed for TraceParent {}
impl Field for TraceParent {
    const TYPE: FieldType = FieldType { of: Type::Str, is_array: false };

    #[inline]
    fn put(&self, into: &mut Encoder) {
        into.put_text(format_args!("{self}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString as _;

    #[test]
    fn headers() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parent: TraceParent = text.parse().unwrap();
        assert_eq!(parent.to_string(), text);
        assert_eq!(
            (parent.trace_id() >> 96, parent.parent_id() & 0xffff, parent.is_sampled()),
            (0x4bf9_2f35, 0x02b7, true)
        );
        let child = parent.child(SpanId::from_raw(7));
        assert_eq!(
            (child.trace_id(), child.parent_id()),
            (parent.trace_id(), global_id(SpanId::from_raw(7)))
        );
        assert!(
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more"
                .parse::<TraceParent>()
                .is_ok()
        );
        for wrong in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4BF92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(wrong.parse::<TraceParent>(), Err(ParseTraceParentError), "{wrong}");
        }
        assert_ne!(TraceParent::new(), TraceParent::new());
        assert_eq!((combine(0, 5), combine(5, 5), combine(4, 5)), (0, 5, 1));
    }
}
