//! An event as a line of text.

use std::fmt::Write as _;

use corelocal_trace::{Event, Value, What, hex};

use crate::output::one_line;

/// The line, without its end.
pub fn line(event: &Event<'_>) -> String {
    let when = jiff::Timestamp::from_nanosecond(event.time.into()).unwrap_or_default();
    let when = when.to_zoned(jiff::tz::TimeZone::system());
    let what = match event.what {
        What::Event => "",
        What::Begin => "begin ",
        What::End => "end ",
    };
    let mut line = format!(
        "{} {:<15} {:>7} cpu {:<3} {what}{}",
        when.strftime("%F %H:%M:%S.%9f"),
        one_line(event.thread_name.to_string()),
        event.thread,
        event.cpu,
        one_line(event.name.to_owned()),
    );
    for (name, value) in event.present_fields() {
        let _ = write!(line, " {name}=");
        put(&mut line, value);
    }
    line
}

fn put(line: &mut String, value: &Value) {
    // To a string: never fails.
    let _ = match value {
        Value::Unsigned(number) => write!(line, "{number}"),
        Value::Signed(number) => write!(line, "{number}"),
        Value::Float(number) => write!(line, "{number}"),
        Value::Bool(is) => write!(line, "{is}"),
        Value::Missing => Ok(()),
        Value::Str(text) => write!(line, "{text:?}"),
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
