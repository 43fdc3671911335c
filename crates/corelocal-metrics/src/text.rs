//! The Prometheus text format, version 0.0.4: which names may stand in it, and how values are written.
//!
//! Names are changed once, when a series is registered; what is written at a scrape is text already.
//!
//! # Invariants
//! 1. A name matches `[a-zA-Z_:][a-zA-Z0-9_:]*`, that of a label `[a-zA-Z_][a-zA-Z0-9_]*` without two
//!    underscores in front; names differ within a series.
//! 2. Equal sets of labels, in whatever order, become equal text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use metrics::{Label, Unit};

/// Returns a metric's name, with an underscore for each character that may not be in one.
pub(crate) fn metric_name(name: &str) -> String {
    valid(name, |c| c == ':')
}

fn label_name(name: &str) -> String {
    let name = valid(name, |_| false);
    match name.trim_start_matches('_') {
        // Names that begin so are Prometheus's own.
        rest if name.starts_with("__") => format!("_{rest}"),
        _ => name,
    }
}

fn valid(name: &str, also: impl Fn(char) -> bool) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || also(c);
    let mut valid: String = name.chars().map(|c| if allowed(c) { c } else { '_' }).collect();
    if valid.chars().next().is_none_or(|first| first.is_ascii_digit()) {
        valid.insert(0, '_');
    }
    valid
}

/// Returns the labels as they are written between braces, sorted by name.
///
/// Labels whose names become the same are one, with their values in order and `;` between them, as
/// OpenTelemetry does it. Names that the format needs itself get `exported_` in front.
pub(crate) fn labels<'a>(
    labels: impl Iterator<Item = &'a Label>,
    needed: Option<&str>,
) -> Box<str> {
    let mut by_name: BTreeMap<String, Vec<(&str, &str)>> = BTreeMap::new();
    for label in labels {
        let mut name = label_name(label.key());
        if needed == Some(name.as_str()) {
            name.insert_str(0, "exported_");
        }
        by_name.entry(name).or_default().push((label.key(), label.value()));
    }
    let mut text = String::new();
    for (name, mut values) in by_name {
        values.sort_unstable();
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&name);
        text.push_str("=\"");
        for (number, (_, value)) in values.into_iter().enumerate() {
            if number > 0 {
                text.push(';');
            }
            escape(&mut text, value, true);
        }
        text.push('"');
    }
    text.into()
}

/// Appends `text` with backslashes and ends of lines escaped, and quotes if they are to be.
fn escape(out: &mut String, text: &str, quotes: bool) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            c => out.push(c),
        }
    }
}

/// Returns a description for a line of help: with its unit, which the format has no other place for.
pub(crate) fn help(unit: Option<Unit>, description: &str) -> String {
    let mut help = String::new();
    escape(&mut help, description, false);
    if let Some(unit) = unit.filter(|&unit| unit != Unit::Count) {
        let space = if help.is_empty() { "" } else { " " };
        // A `String` takes everything.
        let _ = write!(help, "{space}({})", unit.as_str().replace('_', " "));
    }
    help
}

/// Returns a number, in the fewest digits from which the same `f64` is read.
pub(crate) fn number(value: f64) -> String {
    let magnitude = value.abs();
    if value.is_nan() {
        "NaN".into()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf".into() } else { "-Inf".into() }
    } else if magnitude >= 1e17 || (magnitude > 0.0 && magnitude < 1e-6) {
        format!("{value:e}")
    } else {
        format!("{value}")
    }
}

/// Appends the lines that introduce a family.
pub(crate) fn family(out: &mut String, name: &str, kind: &str, help: Option<&str>) {
    if let Some(help) = help {
        let _ = writeln!(out, "# HELP {name} {help}");
    }
    let _ = writeln!(out, "# TYPE {name} {kind}");
}

/// Appends a sample: `name suffix {labels, label = number} value`.
pub(crate) fn sample(
    out: &mut String,
    name: &str,
    suffix: &str,
    labels: &str,
    label: Option<(&str, f64)>,
    value: &str,
) {
    out.push_str(name);
    out.push_str(suffix);
    let more = label.map(|(name, value)| format!("{name}=\"{}\"", number(value)));
    match (labels, more) {
        ("", None) => {}
        ("", Some(more)) => drop(write!(out, "{{{more}}}")),
        (labels, None) => drop(write!(out, "{{{labels}}}")),
        (labels, Some(more)) => drop(write!(out, "{{{labels},{more}}}")),
    }
    let _ = writeln!(out, " {value}");
}

#[cfg(test)]
mod tests;
