//! What came out of all triples, as text: a matrix for each section, what failed and how to see it
//! again, and what else there is in the program.
//!
//! Invariant: a line of a matrix fits the width; longer instructions are cut.

use std::fmt::Write as _;

use anstyle::Style;
use corelocal_lab::torture::{Disturbance, Report, Row, Section, Verdict};
use corelocal_support::figures::wrap;

use super::{Answer, BOLD, DIM, FAIL, OK, SKIPPED};

/// Returns the whole text.
pub fn text(answer: &Answer<'_>, width: usize) -> String {
    let mut out = String::new();
    for section in &answer.report.sections {
        matrix(&mut out, section, width);
    }
    coverage(&mut out, answer.report, width);
    let Answer { triples, ok, failed, not_reached, skipped, seconds, .. } = answer;
    let plural = if *triples == 1 { "" } else { "s" };
    let _ = write!(out, "{BOLD}{triples} triple{plural}{BOLD:#}: {ok} ok, {failed} failed, ");
    let _ = writeln!(out, "{not_reached} not reached, {skipped} skipped, in {seconds:.1} s");
    out
}

/// Shows one section: a line for each instruction, a column for each disturbance, then what failed.
fn matrix(out: &mut String, section: &Section, width: usize) {
    if let Some(why) = &section.broken {
        let _ = writeln!(out, "{BOLD}{}{BOLD:#}\n  {FAIL}FAIL{FAIL:#} {why}\n", section.name);
        return;
    }
    let _ = writeln!(out, "{BOLD}{}{BOLD:#} {DIM}in {}{DIM:#}", section.name, section.function);
    let columns: Vec<Disturbance> = Disturbance::ALL
        .into_iter()
        .filter(|&d| section.rows.iter().any(|row| row.tried.iter().any(|t| t.disturbance == d)))
        .collect();
    let taken: usize = columns.iter().map(|column| 2 + column.name().len()).sum();
    let room = width.saturating_sub(taken + 7).max(12);
    let code = section.rows.iter().map(|row| row.instruction.chars().count()).max().unwrap_or(0);
    let code = code.min(room);
    let _ = write!(out, "{DIM}{:w$}", "", w = code + 6);
    for column in &columns {
        let _ = write!(out, "  {column}");
    }
    let _ = writeln!(out, "{DIM:#}");
    for row in &section.rows {
        let instruction = shorten(&row.instruction, code);
        let mut line = format!("{:4}  {instruction:code$}", row.number);
        for column in &columns {
            let (word, style) = cell(row, *column);
            let _ = write!(line, "  {style}{word}{style:#}");
            let gap = column.name().len().saturating_sub(word.chars().count());
            let _ = write!(line, "{:gap$}", "");
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    for row in &section.rows {
        for tried in &row.tried {
            if let Verdict::Failed(why) = &tried.verdict {
                let triple = format!("{}@{}+{}", section.name, row.number, tried.disturbance);
                let why = wrap(&format!("FAIL {triple}: {why}"), width.saturating_sub(2), 5);
                let why = why.replacen("FAIL", &format!("{FAIL}FAIL{FAIL:#}"), 1);
                let _ = writeln!(out, "  {}", why.replace('\n', "\n  "));
                let _ = writeln!(out, "       to repeat: corelocal torture --only '{triple}'");
            }
        }
    }
    out.push('\n');
}

fn cell(row: &Row, column: Disturbance) -> (&'static str, Style) {
    let tried = row.tried.iter().find(|tried| tried.disturbance == column);
    match tried.map(|tried| &tried.verdict) {
        Some(Verdict::Ok) => ("ok", OK),
        Some(Verdict::Failed(_)) => ("FAIL", FAIL),
        Some(Verdict::NotReached) => ("never", FAIL),
        Some(Verdict::Skipped(_)) => ("–", SKIPPED),
        None => ("", Style::new()),
    }
}

fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Tells what else there is in the program, and what was not tried.
fn coverage(out: &mut String, report: &Report, width: usize) {
    let coverage = &report.coverage;
    let mut paragraph = |style: Style, text: String| {
        let _ = writeln!(out, "{style}{}{style:#}", wrap(&text, width, 2));
    };
    let mut sum = format!(
        "{} critical sections in this program: {} reached by workloads, {} inlined copies of these",
        coverage.sections, coverage.disturbed, coverage.alike
    );
    for excluded in coverage.excluded.iter().filter(|excluded| excluded.sections > 0) {
        let _ = write!(sum, ", {} excluded ({})", excluded.sections, excluded.reason);
    }
    paragraph(Style::new(), sum);
    let skipped = report.sections.iter().flat_map(|section| &section.rows);
    let skipped = skipped.flat_map(|row| &row.tried).find_map(|tried| match &tried.verdict {
        Verdict::Skipped(why) => Some(format!("skipped: {}: {why}", tried.disturbance)),
        _ => None,
    });
    skipped.into_iter().for_each(|text| paragraph(SKIPPED, text));
    paragraph(DIM, "processes are not killed in a section here: tests/trace.rs does that".into());
    for forgotten in &coverage.unreached {
        let (function, address) = (&forgotten.function, forgotten.address);
        paragraph(
            FAIL,
            format!(
                "no workload reaches the section in {function} ({address:#x}: {}); give it one in \
                 crates/corelocal-lab/src/torture/workload/",
                forgotten.instructions
            ),
        );
    }
    for name in &coverage.idle {
        paragraph(FAIL, format!("the workload {name} runs no critical section"));
    }
}

#[cfg(test)]
mod tests;
