//! `corelocal check`: the critical sections of any ELF file, read without being run.
//!
//! Exit codes: 0 sound; 1 a fault was found (`--strict`: or a warning); 2 the command line is wrong;
//! 3 a file could not be read or is no ELF file, whatever was found in the others; 4 likewise, and each of these files has
//! debug information only, without the code.
//!
//! Invariants:
//! - One file that cannot be read never costs the answer about another one.
//! - Names in a file, which may be another user's, stay in their lines: they are escaped before anything is told.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use clap::Args;
use clap::builder::PossibleValuesParser;
use corelocal_lab::check::{self, Checked, Finding, Place, Report, Rule, Severity};
use serde::Serialize;

use corelocal_support::output::{self, complain, one_line};
use corelocal_support::{console, figures::wrap};

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const REMEDY: Style = AnsiColor::Cyan.on_default();

const UNREADABLE: u8 = 3;
const DEBUG_ONLY: u8 = 4;

/// The output of `--json`.
#[derive(Serialize)]
struct Answer {
    version: &'static str,
    sections: usize,
    errors: usize,
    warnings: usize,
    files: Vec<Checked>,
    /// A sentence for each file that was not checked.
    unreadable: Vec<String>,
}

/// Returns the names of the rules, for `--allow`.
pub fn rule_names() -> impl Iterator<Item = &'static str> {
    Rule::ALL.iter().map(|rule| rule.id())
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Executables, shared objects, object files, static archives (.a, .rlib)
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Exit with 1 for warnings too
    #[arg(long)]
    pub strict: bool,
    /// Ignore findings of this rule; may be repeated
    #[arg(
        long,
        value_name = "RULE",
        value_parser = PossibleValuesParser::new(rule_names()),
        hide_possible_values = true
    )]
    pub allow: Vec<String>,
}

/// Runs the command.
pub fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let mut answer = Answer {
        version: env!("CARGO_PKG_VERSION"),
        sections: 0,
        errors: 0,
        warnings: 0,
        files: Vec::new(),
        unreadable: Vec::new(),
    };
    let mut code_is_elsewhere = true;
    for path in &args.files {
        match check::file(path) {
            Ok(checked) => answer.add(checked, &args.allow),
            Err(why) => {
                code_is_elsewhere &= why.is_debug_only();
                // A member of an archive has a name in it.
                let why = one_line(why.to_string());
                complain(&why);
                answer.unreadable.push(why);
            }
        }
    }
    let code = if !answer.unreadable.is_empty() {
        ExitCode::from(if code_is_elsewhere { DEBUG_ONLY } else { UNREADABLE })
    } else if answer.errors > 0 || (args.strict && answer.warnings > 0) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    };
    if args.json {
        return output::finish(serde_json::to_string_pretty(&answer)? + "\n", code);
    }
    output::finish(text(&answer, console::width()), code)
}

impl Answer {
    fn add(&mut self, mut checked: Checked, allowed: &[String]) {
        escape_names(&mut checked);
        for report in &mut checked.reports {
            report.findings.retain(|f| !allowed.iter().any(|allowed| allowed == f.rule.id()));
            self.sections += report.sections.len();
            self.errors += report.count(Severity::Error);
            self.warnings += report.count(Severity::Warning);
        }
        self.files.push(checked);
    }
}

/// Escapes what the file may have chosen: names of members, functions and sections, and source lines.
fn escape_names(checked: &mut Checked) {
    let escape = |text: &mut String| *text = one_line(std::mem::take(text));
    let of_place = |place: &mut Place| {
        escape(&mut place.elf_section);
        place.function.iter_mut().chain(&mut place.source).for_each(escape);
    };
    checked.skipped.iter_mut().for_each(escape);
    for report in &mut checked.reports {
        escape(&mut report.object);
        report.notes.iter_mut().for_each(escape);
        for section in &mut report.sections {
            of_place(&mut section.descriptor);
            of_place(&mut section.start);
            of_place(&mut section.abort);
        }
        for finding in &mut report.findings {
            of_place(&mut finding.place);
            escape(&mut finding.message);
            // The target of a branch may have a section's name.
            finding.disassembly.iter_mut().for_each(|line| escape(&mut line.text));
        }
    }
}

fn text(answer: &Answer, width: usize) -> String {
    let mut out = String::new();
    for checked in &answer.files {
        for report in &checked.reports {
            // Most members of an archive have nothing to do with rseq.
            if checked.reports.len() == 1
                || !report.sections.is_empty()
                || !report.findings.is_empty()
            {
                object(&mut out, report, width);
            }
        }
        for member in &checked.skipped {
            let _ = writeln!(out, "{BOLD}{member}{BOLD:#}: not an ELF file, not checked");
        }
    }
    let sum = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let faults = match (answer.errors, answer.warnings) {
        (0, 0) => "sound".to_owned(),
        (errors, warnings) => format!("{}, {}", sum(errors, "error"), sum(warnings, "warning")),
    };
    let verdict =
        if answer.sections == 0 && faults == "sound" { "nothing to check" } else { &faults };
    let counts =
        format!("{}, {}", sum(answer.files.len(), "file"), sum(answer.sections, "section"));
    let _ = writeln!(out, "{counts}: {verdict}");
    out
}

fn object(out: &mut String, report: &Report, width: usize) {
    let n = report.sections.len();
    let plural = if n == 1 { "" } else { "s" };
    let _ = writeln!(
        out,
        "{BOLD}{}{BOLD:#}: {}, {n} critical section{plural}",
        report.object, report.architecture
    );
    for note in &report.notes {
        let _ = writeln!(out, "  note: {note}");
    }
    let mut explained = Vec::new();
    for finding in &report.findings {
        // The same advice twenty times would hide the places.
        let explain = !explained.contains(&finding.rule);
        explained.push(finding.rule);
        self::finding(out, report, finding, explain, width);
    }
}

/// Shortens a name: C++ has some of a thousand letters, whose ends tell most.
fn shortened(place: &Place) -> String {
    const HEAD: usize = 60;
    const TAIL: usize = 30;
    let mut place = place.clone();
    if let Some(name) = &mut place.function {
        let letters: Vec<char> = name.chars().collect();
        if letters.len() > HEAD + TAIL {
            let (head, tail) = (&letters[..HEAD], &letters[letters.len() - TAIL..]);
            *name = head.iter().chain(&['…']).chain(tail).collect();
        }
    }
    place.to_string()
}

/// Returns where the finding is; when that is a descriptor, also the section it describes, which a reader
/// knows by the name of a function.
fn whereabouts(report: &Report, finding: &Finding) -> (String, Vec<String>) {
    let place = &finding.place;
    let section = finding.section.and_then(|index| report.sections.get(index));
    match section {
        Some(section) if *place == section.descriptor => (
            format!("{}, the section {}", shortened(place), shortened(&section.start)),
            section.start.source.clone(),
        ),
        _ => (shortened(place), place.source.clone()),
    }
}

fn finding(out: &mut String, report: &Report, finding: &Finding, explain: bool, width: usize) {
    const INDENT: usize = 4;
    let (word, style) = match finding.severity {
        Severity::Error => ("error", AnsiColor::Red.on_default().bold()),
        Severity::Warning => ("warning", AnsiColor::Yellow.on_default().bold()),
    };
    let (place, sources) = whereabouts(report, finding);
    let _ = writeln!(out, "  {style}{word}{style:#}: {BOLD}{}{BOLD:#} in {place}", finding.rule);
    let mut paragraph = |style: Style, text: &str, hang: usize| {
        for (i, line) in wrap(text, width.saturating_sub(INDENT).max(30), hang).lines().enumerate()
        {
            let line = if i == 0 { line } else { line.trim_start() };
            let indent = if i == 0 { INDENT } else { INDENT + hang };
            let _ = writeln!(out, "{:indent$}{style}{line}{style:#}", "");
        }
    };
    for (i, source) in sources.iter().enumerate() {
        paragraph(DIM, &format!("{} {source}", if i == 0 { "at" } else { "inlined at" }), 3);
    }
    paragraph(Style::new(), &finding.message, 0);
    if explain {
        paragraph(REMEDY, &format!("do: {}", finding.remedy), 4);
    }
    let widest = finding.disassembly.iter().map(|line| line.address).max().unwrap_or(0);
    let digits = format!("{widest:x}").len();
    for line in &finding.disassembly {
        let (mark, style) = if line.spot { (">", BOLD) } else { (" ", DIM) };
        let _ =
            writeln!(out, "    {mark} {style}{:digits$x}  {}{style:#}", line.address, line.text);
    }
}

#[cfg(test)]
mod tests;
