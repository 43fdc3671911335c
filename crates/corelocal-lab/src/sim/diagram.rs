//! Sequence diagrams of schedules: as text for a terminal, and as SVG.
//!
//! Each actor has a line down the page. A step is a dot on the line of its actor, with the kernel function and what it
//! does beside it, and an arrow to the actor that it affects.

use std::fmt::{self, Write as _};

use super::schedule::{Line, Schedule};

/// Returns the schedule as lines of text, at most `width` columns wide where its words allow.
pub fn text(schedule: &Schedule, width: usize) -> String {
    let mut text = String::new();
    _ = write_text(&mut text, schedule, width.max(60));
    text
}

fn write_text(out: &mut String, schedule: &Schedule, width: usize) -> fmt::Result {
    let columns =
        schedule.actors.iter().map(|name| name.chars().count().max(3) + 1).collect::<Vec<_>>();
    let lifelines: usize = columns.iter().sum();
    write!(out, "  step  ")?;
    schedule
        .actors
        .iter()
        .zip(&columns)
        .try_for_each(|(name, &column)| write!(out, "{name:<column$}"))?;
    writeln!(out, " start: {}", schedule.start)?;
    let indent = 8 + lifelines + 1;
    let first_repeating = schedule.lines.len() - schedule.repeating;
    let mut before = &schedule.start;
    for (number, line) in schedule.lines.iter().enumerate() {
        if schedule.repeating > 0 && number == first_repeating {
            writeln!(out, "{:indent$}these steps repeat for ever:", "")?;
        }
        write!(out, "  {:>4}  {} ", number + 1, row(line, &columns))?;
        let words = format!("{}: {}", line.label.function, line.label.text);
        wrapped(out, &words, indent, width)?;
        if line.summary != *before {
            write!(out, "        {} ", row_between(&columns))?;
            wrapped(out, &format!("  → {}", line.summary), indent, width)?;
        }
        before = &line.summary;
    }
    if let Some(message) = &schedule.message {
        writeln!(out, "  {message}")?;
    }
    Ok(())
}

/// Returns the lines of all actors, the one that takes the step marked.
fn row(line: &Line, columns: &[usize]) -> String {
    let from = usize::from(line.actor);
    let to = line.label.to.map_or(from, usize::from);
    let (left, right) = (from.min(to), from.max(to));
    let mut row = String::new();
    for (at, &column) in columns.iter().enumerate() {
        row.push(match at {
            _ if at == from => '●',
            _ if at == to && to > from => '▶',
            _ if at == to => '◀',
            _ if left < at && at < right => '┼',
            _ => '│',
        });
        let fill = if left <= at && at < right { '─' } else { ' ' };
        row.extend(std::iter::repeat_n(fill, column - 1));
    }
    row
}

fn row_between(columns: &[usize]) -> String {
    columns.iter().map(|column| format!("{:<column$}", '│')).collect()
}

/// Writes words, broken at spaces; further lines are indented.
fn wrapped(out: &mut String, words: &str, indent: usize, width: usize) -> fmt::Result {
    let room = width.saturating_sub(indent).max(30);
    let mut used = 0;
    for (number, word) in words.split(' ').enumerate() {
        let length = word.chars().count();
        if number > 0 && used + 1 + length > room {
            write!(out, "\n{:indent$}    ", "")?;
            used = 4;
        } else if number > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += length;
    }
    writeln!(out)
}

const LANE: usize = 110;
const ROW: usize = 34;
/// The width of a character, more rather than less.
const CHARACTER: usize = 7;

/// Returns the schedule as an SVG element, for a page of its own or within another.
pub fn svg(schedule: &Schedule) -> String {
    let mut svg = String::new();
    _ = write_svg(&mut svg, schedule);
    svg
}

fn write_svg(out: &mut String, schedule: &Schedule) -> fmt::Result {
    let lanes = schedule.actors.len() * LANE;
    let words = |number: usize, line: &Line| {
        format!("{}. {}: {}", number + 1, line.label.function, line.label.text)
    };
    let start = format!("start: {}", schedule.start);
    let lines = schedule.lines.iter().enumerate();
    let texts = lines.flat_map(|(number, line)| [words(number, line), line.summary.clone()]);
    let longest = texts.chain([start.clone()]).map(|text| text.chars().count()).max().unwrap_or(0);
    let (width, height) = (lanes + longest * CHARACTER, (schedule.lines.len() + 3) * ROW);
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\" role=\"img\">"
    )?;
    writeln!(out, "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>")?;
    for (at, name) in schedule.actors.iter().enumerate() {
        let x = centre(at);
        writeln!(
            out,
            "<text x=\"{x}\" y=\"18\" text-anchor=\"middle\" font-weight=\"600\">{}</text>",
            escaped(name)
        )?;
        let end = height - ROW;
        writeln!(out, "<line x1=\"{x}\" y1=\"26\" x2=\"{x}\" y2=\"{end}\" stroke=\"#8a8f98\"/>")?;
    }
    writeln!(out, "<text x=\"{lanes}\" y=\"18\" fill=\"#6b7078\">{}</text>", escaped(&start))?;
    let first_repeating = schedule.lines.len() - schedule.repeating;
    let mut before = &schedule.start;
    for (number, line) in schedule.lines.iter().enumerate() {
        let y = (number + 1) * ROW + 12;
        let x = centre(line.actor.into());
        let colour = if number >= first_repeating { "#c2410c" } else { "#1d4ed8" };
        if let Some(to) = line.label.to.filter(|&to| to != line.actor) {
            let to = centre(to.into());
            let tip = if to > x { to - 7 } else { to + 7 };
            writeln!(
                out,
                "<line x1=\"{x}\" y1=\"{y}\" x2=\"{tip}\" y2=\"{y}\" stroke=\"{colour}\"/>"
            )?;
            writeln!(
                out,
                "<path d=\"M{to} {y} L{tip} {} L{tip} {} Z\" fill=\"{colour}\"/>",
                y - 4,
                y + 4
            )?;
        }
        writeln!(out, "<circle cx=\"{x}\" cy=\"{y}\" r=\"5\" fill=\"{colour}\"/>")?;
        let words = escaped(&words(number, line));
        writeln!(out, "<text x=\"{lanes}\" y=\"{}\">{words}</text>", y - 1)?;
        if line.summary != *before {
            let below = y + 14;
            writeln!(
                out,
                "<text x=\"{lanes}\" y=\"{below}\" fill=\"#6b7078\" font-size=\"11\">→ {}</text>",
                escaped(&line.summary)
            )?;
        }
        before = &line.summary;
    }
    if let Some(message) = &schedule.message {
        let y = height - 12;
        writeln!(
            out,
            "<text x=\"20\" y=\"{y}\" fill=\"#b91c1c\" font-weight=\"600\">{}</text>",
            escaped(message)
        )?;
    }
    writeln!(out, "</svg>")
}

fn centre(actor: usize) -> usize {
    actor * LANE + LANE / 2
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
