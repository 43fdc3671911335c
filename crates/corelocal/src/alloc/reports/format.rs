//! Statistics as text, JSON, and glibc's XML.
//!
//! Invariants:
//! - Text and JSON have the same content: fields are defined once, in [`TOTALS`], [`OF_NODE`] and [`OF_CLASS`].
//! - Nothing here allocates.

use core::fmt::{self, Write};

use crate::alloc::{self, ClassStats, NodeStats, Stats};

/// A number, or a part of a whole, which is printed in percent and omitted if the whole is 0.
enum Value {
    Number(u64),
    Share(u64, u64),
}

/// A field of a `T`, with its column width in a table.
struct Field<T> {
    text: &'static str,
    width: usize,
    key: &'static str,
    of: fn(&T) -> Value,
}

const fn field<T>(text: &'static str, key: &'static str, of: fn(&T) -> Value) -> Field<T> {
    Field { text, width: 16, key, of }
}

const fn column<T>(
    text: &'static str,
    width: usize,
    key: &'static str,
    of: fn(&T) -> Value,
) -> Field<T> {
    Field { text, width, key, of }
}

const TOTALS: [Field<Stats>; 17] = [
    field("bytes in use", "in_use", |stats| number(in_use(stats))),
    field("bytes cached", "cached", |stats| number(cached(stats))),
    field("bytes of spans and large objects", "used", |stats| number(stats.used)),
    field("of these not in use, %", "unused_percent", |stats| {
        share(stats.used.saturating_sub(in_use(stats)), stats.used)
    }),
    field("bytes idle", "idle", |stats| number(stats.idle)),
    field("bytes released so far", "released", |stats| number(stats.released)),
    field("bytes in huge pages", "huge", |stats| number(stats.huge)),
    field("bytes open", "committed", |stats| number(stats.committed)),
    field("bytes of addresses", "reserved", |stats| number(stats.reserved)),
    field("large objects", "large_objects", |stats| number(stats.large_objects)),
    field("bytes of large objects", "large_bytes", |stats| number(stats.large_bytes)),
    field("bytes they may grow into", "large_reserve", |stats| number(stats.large_reserve)),
    field("guarded objects", "guarded", |stats| number(stats.guarded)),
    field("guarded objects ever", "guarded_ever", |stats| Value::Number(stats.guarded_ever)),
    field("bytes not on their node", "displaced", |stats| number(stats.displaced)),
    field("objects asked for", "allocated", |stats| Value::Number(allocated(stats))),
    field("hits of caches, %", "hit_percent", |stats| {
        hits(allocated(stats), sum(stats, |class| class.refills))
    }),
];

const OF_NODE: [Field<NodeStats>; 3] = [
    column("node", 8, "node", |node| Value::Number(u64::from(node.number))),
    column("bytes used", 16, "used", |node| number(node.used)),
    column("open", 16, "committed", |node| number(node.committed)),
];

const OF_CLASS: [Field<ClassStats>; 12] = [
    column("size", 8, "size", |class| number(class.size)),
    column("in use", 10, "in_use", |class| number(class.in_use)),
    column("on cores", 9, "on_cores", |class| number(class.on_cores)),
    column("in depot", 9, "in_depot", |class| number(class.in_depot)),
    column("spans", 8, "spans", |class| number(class.spans)),
    column("span bytes", 13, "span_bytes", |class| number(class.span_bytes)),
    column("unused, %", 10, "unused_percent", |class| {
        share(class.span_bytes.saturating_sub(class.in_use * class.size), class.span_bytes)
    }),
    column("allocated", 13, "allocated", |class| Value::Number(class.allocated)),
    column("freed", 13, "freed", |class| Value::Number(class.freed)),
    column("refills", 10, "refills", |class| Value::Number(class.refills)),
    column("spills", 10, "spills", |class| Value::Number(class.spills)),
    column("hits, %", 8, "hit_percent", |class| hits(class.allocated, class.refills)),
];

fn number(number: usize) -> Value {
    Value::Number(number as u64)
}

fn share(part: usize, whole: usize) -> Value {
    Value::Share(part as u64, whole as u64)
}

/// Returns, of all allocations, those that a cache served.
fn hits(allocated: u64, refills: u64) -> Value {
    Value::Share(allocated.saturating_sub(refills), allocated)
}

fn sum(stats: &Stats, of: fn(&ClassStats) -> u64) -> u64 {
    stats.classes.iter().map(of).fold(0, u64::wrapping_add)
}

fn allocated(stats: &Stats) -> u64 {
    sum(stats, |class| class.allocated)
}

/// Returns the bytes in use by the program.
pub fn in_use(stats: &Stats) -> usize {
    let small = stats.classes.iter().map(|class| class.in_use * class.size);
    stats.large_bytes + small.sum::<usize>()
}

/// Returns the bytes of free objects in caches.
pub fn cached(stats: &Stats) -> usize {
    stats.classes.iter().map(|class| (class.on_cores + class.in_depot) * class.size).sum()
}

/// Returns the nodes among which memory is divided; none if there is only one.
fn nodes(stats: &Stats) -> &[NodeStats] {
    stats.of_nodes.get(..stats.nodes).filter(|nodes| nodes.len() > 1).unwrap_or_default()
}

fn classes(stats: &Stats) -> impl Iterator<Item = &ClassStats> {
    stats.classes.iter().filter(|class| class.spans > 0)
}

/// Prints a value in a column of this width; `none` stands for a share of 0.
fn put(out: &mut dyn Write, value: &Value, width: usize, none: &str) -> fmt::Result {
    match *value {
        Value::Number(number) => write!(out, "{number:>width$}"),
        Value::Share(_, 0) => write!(out, "{none:>width$}"),
        Value::Share(part, whole) => {
            let tenths = u128::from(part) * 1000 / u128::from(whole);
            write!(out, "{:>1$}.{2}", tenths / 10, width.saturating_sub(2), tenths % 10)
        }
    }
}

/// Writes it for people.
pub fn write_text(out: &mut dyn Write, stats: &Stats) -> fmt::Result {
    writeln!(out, "corelocal malloc")?;
    for field in &TOTALS {
        write!(out, "  {:<34}", field.text)?;
        put(out, &(field.of)(stats), field.width, "-")?;
        writeln!(out)?;
    }
    write_table(out, &OF_NODE, nodes(stats).iter())?;
    write_table(out, &OF_CLASS, classes(stats))?;
    write!(out, "  bytes on each core:")?;
    alloc::cores().try_for_each(|bytes| write!(out, " {bytes}"))?;
    writeln!(out)
}

/// Writes a heading and a line for each item; nothing if there are none.
fn write_table<'a, T: 'a>(
    out: &mut dyn Write,
    fields: &[Field<T>],
    rows: impl Iterator<Item = &'a T>,
) -> fmt::Result {
    for (nth, row) in rows.enumerate() {
        if nth == 0 {
            fields.iter().try_for_each(|field| write!(out, "{:>1$}", field.text, field.width))?;
            writeln!(out)?;
        }
        for field in fields {
            put(out, &(field.of)(row), field.width, "-")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Writes it for programs: one object on each line.
pub fn write_json(out: &mut dyn Write, stats: &Stats) -> fmt::Result {
    write!(out, "{{")?;
    write_members(out, &TOTALS, stats)?;
    write!(out, ",\"classes\":[")?;
    write_objects(out, &OF_CLASS, classes(stats))?;
    write!(out, "],\"cores\":[")?;
    for (nth, bytes) in alloc::cores().enumerate() {
        write!(out, "{}{bytes}", if nth > 0 { "," } else { "" })?;
    }
    write!(out, "]")?;
    if !nodes(stats).is_empty() {
        write!(out, ",\"nodes\":[")?;
        write_objects(out, &OF_NODE, nodes(stats).iter())?;
        write!(out, "]")?;
    }
    writeln!(out, "}}")
}

fn write_objects<'a, T: 'a>(
    out: &mut dyn Write,
    fields: &[Field<T>],
    of: impl Iterator<Item = &'a T>,
) -> fmt::Result {
    for (nth, of) in of.enumerate() {
        write!(out, "{}", if nth > 0 { ",{" } else { "{" })?;
        write_members(out, fields, of)?;
        write!(out, "}}")?;
    }
    Ok(())
}

fn write_members<T>(out: &mut dyn Write, fields: &[Field<T>], of: &T) -> fmt::Result {
    for (nth, field) in fields.iter().enumerate() {
        write!(out, "{}\"{}\":", if nth > 0 { "," } else { "" }, field.key)?;
        put(out, &(field.of)(of), 0, "null")?;
    }
    Ok(())
}

/// Writes it for `malloc_info(3)`: glibc's shape, with elements of our own.
pub fn write_xml(out: &mut dyn Write, stats: &Stats) -> fmt::Result {
    writeln!(out, "<malloc version=\"corelocal-1\">")?;
    for class in classes(stats) {
        writeln!(
            out,
            "<size from=\"{0}\" to=\"{0}\" in_use=\"{1}\" cached=\"{2}\" spans=\"{3}\"/>",
            class.size,
            class.in_use,
            class.on_cores + class.in_depot,
            class.spans
        )?;
    }
    writeln!(out, "<total type=\"rest\" size=\"{}\"/>", in_use(stats))?;
    writeln!(out, "<total type=\"fast\" size=\"{}\"/>", cached(stats))?;
    writeln!(
        out,
        "<total type=\"mmap\" count=\"{}\" size=\"{}\"/>",
        stats.large_objects, stats.large_bytes
    )?;
    writeln!(out, "<system type=\"current\" size=\"{}\"/>", stats.used + stats.idle)?;
    writeln!(out, "<system type=\"huge\" size=\"{}\"/>", stats.huge)?;
    writeln!(out, "<system type=\"max\" size=\"{}\"/>", stats.committed)?;
    writeln!(out, "</malloc>")
}
