//! An event as a line of text.

use std::collections::HashMap;
use std::fmt::Write as _;

use corelocal_trace::{Event, Value, What, hex};

use corelocal_support::output::one_line;

/// The deepest indentation.
const DEEPEST: usize = 20;

/// Writes lines of a recording's events, which are given in their order.
#[derive(Default)]
pub struct Lines {
    /// For each open span, how many others are around it.
    depths: HashMap<u64, usize>,
}

impl Lines {
    /// Returns the line, without its end: events and spans are indented by the spans that they are in, and an end has
    /// the duration.
    pub fn line(&mut self, event: &Event<'_>) -> String {
        let around = |span: u64| self.depths.get(&span).map_or(0, |depth| depth + 1);
        let depth = match event.what {
            What::Event => around(event.span),
            What::Begin => around(event.parent),
            What::End => self.depths.remove(&event.span).unwrap_or(0),
        };
        if event.what == What::Begin {
            self.depths.insert(event.span, depth);
        }
        let when = jiff::Timestamp::from_nanosecond(event.time.into()).unwrap_or_default();
        let when = when.to_zoned(jiff::tz::TimeZone::system());
        let what = match event.what {
            What::Event => "",
            What::Begin => "begin ",
            What::End => "end ",
        };
        let mut line = format!(
            "{} {:<15} {:>7} cpu {:<3} {:indent$}{what}{}",
            when.strftime("%F %H:%M:%S.%9f"),
            one_line(event.thread_name.to_string()),
            event.thread,
            event.cpu,
            "",
            one_line(event.name.to_owned()),
            indent = 2 * depth.min(DEEPEST),
        );
        if let Some(began) = event.identity.began {
            line += &format!(" after {}", duration(event.time.saturating_sub(began)));
        }
        for (name, value) in event.present_fields() {
            let _ = write!(line, " {name}=");
            put(&mut line, value);
        }
        // The record had no room for these.
        event.absent_fields().for_each(|name| line += &format!(" {name}=?"));
        line
    }
}

/// Returns the nanoseconds with a unit, and three digits.
pub fn duration(nanos: u64) -> String {
    let (unit, name) = match nanos {
        0..1_000 => return format!("{nanos} ns"),
        1_000..1_000_000 => (1e3, "µs"),
        1_000_000..1_000_000_000 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    let value = nanos as f64 / unit;
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.decimals$} {name}")
}

fn put(line: &mut String, value: &Value) {
    // To a string: never fails.
    let _ = match value {
        Value::Unsigned(number) => write!(line, "{number}"),
        Value::Signed(number) => write!(line, "{number}"),
        Value::Float(number) => write!(line, "{number}"),
        Value::Bool(is) => write!(line, "{is}"),
        Value::Duration(nanos) => write!(line, "{}", duration(*nanos)),
        Value::Missing => Ok(()),
        Value::Str(text, was_cut) => {
            write!(line, "{text:?}{}", if *was_cut { "…" } else { "" })
        }
        Value::Bytes(bytes, was_cut) => {
            write!(line, "{}{}", hex(bytes), if *was_cut { "…" } else { "" })
        }
        Value::Array(values, was_cut) => {
            line.push('[');
            for (nth, value) in values.iter().enumerate() {
                line.push_str(if nth > 0 { ", " } else { "" });
                put(line, value);
            }
            write!(line, "{}]", if *was_cut { ", …" } else { "" })
        }
    };
}
