//! `corelocal doctor`: which fast paths this machine has, and what to do about the others.
//!
//! ```text
//!   surroundings.rs   what the library does not ask: libc's version, seccomp, valgrind, clock source
//!   findings.rs       facts in, findings out; pure, so that every world can be tested here
//!   clock.rs          that of the clock
//!   doctor.rs         printing
//! ```

pub mod args;
mod clock;
mod clock_state;
mod finding;
mod findings;
mod surroundings;

use std::fmt::Write as _;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use corelocal::sys::Caps;
use serde::Serialize;

use args::DoctorArgs;
use corelocal_support::output;
use corelocal_support::{console, figures::wrap};
pub use finding::{Finding, State};
use surroundings::Surroundings;

const DIM: Style = Style::new().dimmed();

/// The output of `--json`.
#[derive(Serialize)]
struct Diagnosis<'a> {
    version: &'static str,
    degraded: usize,
    findings: &'a [Finding],
    surroundings: &'a Surroundings,
    caps: &'a Caps,
}

/// Returns what each path uses on this machine, by its name.
#[cfg(feature = "report")]
pub fn paths(caps: &Caps) -> std::collections::BTreeMap<String, String> {
    let findings = findings::of(caps, &Surroundings::read());
    findings.into_iter().map(|finding| (finding.path.to_owned(), finding.used)).collect()
}

/// Runs the command. Exit code 1 under `--strict` when a path is degraded.
pub fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let caps = Caps::get();
    let surroundings = Surroundings::read();
    let findings = findings::of(&caps, &surroundings);
    let degraded = findings.iter().filter(|finding| finding.state == State::Degraded).count();
    let failed = args.strict && degraded > 0;
    let code = if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    if args.json {
        let version = env!("CARGO_PKG_VERSION");
        let diagnosis = Diagnosis {
            version,
            degraded,
            findings: &findings,
            surroundings: &surroundings,
            caps: &caps,
        };
        let json = serde_json::to_string_pretty(&diagnosis)?;
        output::finish(json + "\n", code)
    } else {
        output::finish(text(&findings, &title(&caps, &surroundings), console::width()), code)
    }
}

fn title(caps: &Caps, surroundings: &Surroundings) -> String {
    let cpus = &caps.topology;
    format!(
        "Linux {}, {}, {} of {} cpus allowed",
        caps.kernel,
        if surroundings.libc.is_empty() { "unknown libc" } else { &surroundings.libc },
        cpus.affinity.set.count(),
        cpus.online.set.count(),
    )
}

/// Returns the findings in columns: name, state, what is used; beneath, why and what to do.
fn text(findings: &[Finding], title: &str, width: usize) -> String {
    let name = findings.iter().map(|finding| finding.path.len()).max().unwrap_or(0) + 2;
    let state = State::LONGEST + 2;
    let indent = name + state;
    let mut out = String::new();
    let _ = writeln!(out, "{title}\n");
    let mut lines = |first: &str, style: Style, text: &str, hang: usize| {
        let text = wrap(text, width.saturating_sub(indent).max(30), hang);
        for (i, line) in text.lines().enumerate() {
            let lead = if i == 0 { first.to_owned() } else { " ".repeat(indent) };
            let _ = writeln!(out, "{lead}{style}{line}{style:#}");
        }
    };
    for finding in findings {
        let style = finding.state.style();
        let word = format!("{:<width$}", finding.state.word(), width = state);
        let first = format!("{:<name$}{style}{word}{style:#}", finding.path);
        lines(&first, Style::new(), &finding.used, 0);
        let rest = " ".repeat(indent);
        lines(&rest, DIM, &finding.offered, 0);
        if let Some(why) = &finding.why {
            lines(&rest, Style::new(), &format!("why: {why}"), 5);
        }
        if let Some(remedy) = &finding.remedy {
            lines(&rest, AnsiColor::Cyan.on_default(), &format!("do: {remedy}"), 4);
        }
    }
    let count = |state| findings.iter().filter(|finding| finding.state == state).count();
    let _ = writeln!(
        out,
        "\n{} active, {} degraded, {} absent",
        count(State::Active),
        count(State::Degraded),
        count(State::Absent)
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(state: State) -> Finding {
        Finding {
            path: "concurrency id",
            state,
            used: "the cpu number".to_owned(),
            offered: "kernel: 0 bytes of rseq fields beyond the cpu number".to_owned(),
            why: Some("Linux 6.1 has no mm_cid, it came with 6.3".to_owned()),
            remedy: Some("run Linux 6.3 or later".to_owned()),
        }
    }

    #[test]
    fn columns_are_aligned_and_narrow_terminals_wrap() {
        let findings = [finding(State::Active), finding(State::Degraded), finding(State::Absent)];
        for width in [1, 40, 80, 200] {
            let text = anstream::adapter::strip_str(&text(&findings, "title", width)).to_string();
            assert!(text.contains("concurrency id  active    the cpu"), "{text}");
            assert!(text.contains("concurrency id  degraded  the cpu"), "{text}");
            assert!(text.ends_with("1 active, 1 degraded, 1 absent\n"), "{text}");
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
            assert!(widest <= width.max(26 + 30), "{widest} columns at {width}:\n{text}");
        }
    }
}
