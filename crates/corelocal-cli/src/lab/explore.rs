//! `corelocal lab explore`: all interleavings of models, and the shortest schedule to what is wrong.

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use corelocal_lab::sim::case::{Entry, Found, Options};
use corelocal_lab::sim::diagram;
use corelocal_lab::sim::explore::{Limits, Progress, Scope};
use corelocal_support::output::{self, complain};
use corelocal_support::process::signals;
use corelocal_support::{console, user_file};

use super::args::{ExploreArgs, ScenarioArgs, SearchArgs};
use super::finding::Finding;
use super::{chosen, html, scenario};
use crate::progress::spinner;

pub(super) const INCOMPLETE: u8 = 3;

/// Runs the command.
pub fn run(args: &ExploreArgs) -> anyhow::Result<ExitCode> {
    match chosen(&args.models) {
        Ok(entries) => explore(&entries, &args.search),
        Err(error) => {
            complain(error);
            Ok(ExitCode::from(2))
        }
    }
}

/// Runs `lab run`.
pub fn run_scenario(args: &ScenarioArgs) -> anyhow::Result<ExitCode> {
    let Some(path) = &args.file else { return list_scenarios() };
    if args.print {
        let shipped = scenario::SHIPPED.iter().find(|(name, _)| path.as_os_str() == *name);
        let Some((_, text)) = shipped else {
            let name = output::path_line(path);
            complain(format_args!(
                "{name} is no shipped scenario: `corelocal lab run --list` shows them"
            ));
            return Ok(ExitCode::from(2));
        };
        return output::finish(text, ExitCode::SUCCESS);
    }
    match scenario::load(path) {
        Ok(entry) => explore(&[entry], &args.search),
        Err(why) => {
            complain(why);
            Ok(ExitCode::from(2))
        }
    }
}

fn list_scenarios() -> anyhow::Result<ExitCode> {
    let mut grid = console::grid(console::width());
    grid.set_header(["SCENARIO", "WHAT IT IS"].map(console::heading));
    for (name, _) in scenario::SHIPPED {
        let about =
            scenario::load(name.as_ref()).map_or_else(|why| why, |entry| entry.about.into_owned());
        grid.add_row([name, &about]);
    }
    console::keep_whole(&mut grid, |column| column == 0);
    output::finish(console::lines(&grid), ExitCode::SUCCESS)
}

fn explore(entries: &[Entry], args: &SearchArgs) -> anyhow::Result<ExitCode> {
    if args.svg.is_some() && entries.len() > 1 {
        let count = entries.len();
        complain(format_args!(
            "--svg is for one model, and {count} are named: use --html, or name one"
        ));
        return Ok(ExitCode::from(2));
    }
    for path in args.html.iter().chain(&args.svg) {
        user_file::may_write(path).map_err(anyhow::Error::msg)?;
    }
    signals::note();
    let limits = Limits { states: args.states, symmetry: !args.no_symmetry };
    let options = Options { limits, preemptions: args.preemptions };
    let mut findings = Vec::new();
    for entry in entries {
        findings.push(search(entry, options));
        if signals::came() {
            break;
        }
    }
    if let Some(path) = &args.html {
        let page = html::page(&findings);
        user_file::write(path, page).map_err(anyhow::Error::msg)?;
    }
    if let Some(path) = &args.svg {
        let schedule = findings.first().and_then(|finding| finding.schedule.as_ref());
        match schedule {
            Some(schedule) => {
                user_file::write(path, diagram::svg(schedule)).map_err(anyhow::Error::msg)?
            }
            None => complain(format_args!(
                "no failure was found, so {} is not written",
                output::path_line(path)
            )),
        }
    }
    let code = match () {
        () if findings.iter().any(Finding::is_wrong) => ExitCode::FAILURE,
        () if findings.iter().all(|finding| finding.is_as_listed) && !signals::came() => {
            ExitCode::SUCCESS
        }
        () => ExitCode::from(INCOMPLETE),
    };
    if args.json {
        return output::finish(serde_json::to_string_pretty(&findings)? + "\n", code);
    }
    output::finish(text(&findings, console::width()), code)
}

fn search(entry: &Entry, options: Options) -> Finding {
    let began = Instant::now();
    let bar = spinner();
    bar.enable_steady_tick(Duration::from_millis(200));
    let found = entry.case.explore(options, &mut |progress| {
        let Progress { states, waiting, depth, .. } = progress;
        bar.set_message(format!(
            "{}: {} states, {} waiting, depth {depth}",
            entry.name,
            grouped(*states),
            grouped(*waiting)
        ));
        if signals::came() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish_and_clear();
    let Found { outcome, schedule } = found;
    let message = outcome.failure.as_ref().map(|failure| failure.message.as_str());
    let is_as_listed = match (entry.fault, message) {
        (None, None) => outcome.scope == Scope::Complete,
        (Some(fault), Some(message)) => message.contains(fault),
        _ => false,
    };
    let states = grouped(outcome.progress.states);
    let covers = match (outcome.scope, options.preemptions) {
        (Scope::Complete, None) => format!("complete, {states} states"),
        (Scope::Complete, Some(preemptions)) => {
            format!("up to {preemptions} preemptions, {states} states")
        }
        (Scope::Failed, _) => format!("failure after {states} states"),
        (Scope::Stopped, _) => format!("stopped after {states} states"),
        (Scope::Full, _) => {
            format!("ended after {states} states: raise --states, or bound --preemptions")
        }
    };
    Finding {
        model: entry.name.to_string(),
        about: entry.about.to_string(),
        is_faulty: entry.fault.is_some(),
        covers,
        progress: outcome.progress,
        scope: outcome.scope,
        is_everything: outcome.scope == Scope::Complete && options.preemptions.is_none(),
        seconds: began.elapsed().as_secs_f64(),
        failure: outcome.failure.map(|failure| failure.kind),
        schedule,
        is_as_listed,
    }
}

fn text(findings: &[Finding], width: usize) -> String {
    let mut grid = console::grid(width);
    grid.set_header(["MODEL", "RESULT", "SEARCH", "TIME"].map(console::heading));
    for finding in findings {
        let result = finding.result();
        grid.add_row([
            finding.model.clone(),
            result,
            finding.covers.clone(),
            format!("{:.2} s", finding.seconds),
        ]);
    }
    console::keep_whole(&mut grid, |column| column == 0 || column == 3);
    let mut text = console::lines(&grid);
    if let [Finding { schedule: Some(schedule), .. }] = findings {
        text += "\n";
        text += &diagram::text(schedule, width);
    } else if findings.iter().any(|finding| finding.schedule.is_some()) {
        text += "\nexplore one model to see its schedule, or give --html FILE for all\n";
    }
    text
}

/// Returns a number with its thousands apart.
pub fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let groups =
        digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group).into_owned());
    groups.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_apart() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
