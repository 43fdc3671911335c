//! `corelocal trace view --stats`: how often events come, and how long spans last.

use std::collections::BTreeMap;

use corelocal_support::output::one_line;
use corelocal_trace::{Event, Kind, What};
use hdrhistogram::Histogram;

use super::text::duration;

/// The longest duration that is told apart, in nanoseconds: a day.
const LONGEST: u64 = 86_400_000_000_000;

/// Events of a name.
#[derive(Default)]
struct Name {
    is_span: bool,
    every: u32,
    count: u64,
    durations: Option<Histogram<u64>>,
}

/// Returns a table: a line for each name, the most frequent one first, spans before events.
pub fn table<'r>(events: &mut dyn Iterator<Item = Event<'r>>) -> String {
    let mut names: BTreeMap<&str, Name> = BTreeMap::new();
    let (mut first, mut last) = (u64::MAX, 0);
    for event in events {
        first = first.min(event.time);
        last = last.max(event.time);
        let name = names.entry(event.name).or_default();
        name.every = name.every.max(event.site.every);
        name.is_span = event.site.kind != Kind::Event;
        name.count += u64::from(event.what != What::End);
        if let Some(began) = event.identity.began {
            // Two digits.
            let durations =
                name.durations.take().or_else(|| Histogram::new_with_max(LONGEST, 2).ok());
            name.durations = durations.map(|mut durations| {
                durations.saturating_record(event.time.saturating_sub(began));
                durations
            });
        }
    }
    let seconds = last.saturating_sub(first).max(1) as f64 / 1e9;
    let mut names: Vec<(&str, Name)> = names.into_iter().collect();
    names.sort_by(|(a, one), (b, other)| {
        let key = |name: &Name| (!name.is_span, std::cmp::Reverse(name.count));
        key(one).cmp(&key(other)).then(a.cmp(b))
    });
    let mut text = format!(
        "{:<6}{:>10}{:>12}{:>10}{:>10}{:>10}{:>10}  NAME\n",
        "KIND", "COUNT", "A SECOND", "P50", "P90", "P99", "LONGEST"
    );
    for (name, of) in names {
        let kind = if of.is_span { "span" } else { "event" };
        let rate = of.count as f64 / seconds;
        text += &format!("{kind:<6}{:>10}{rate:>12.1}", of.count);
        for quantile in [0.5, 0.9, 0.99, 1.0] {
            let value = of.durations.as_ref().map(|of| duration(of.value_at_quantile(quantile)));
            text += &format!("{:>10}", value.unwrap_or_else(|| "-".into()));
        }
        text += &format!("  {}", one_line(name.to_owned()));
        // The count is that of the recording.
        text += &if of.every > 1 { format!(", 1 of {}\n", of.every) } else { "\n".into() };
    }
    text
}
