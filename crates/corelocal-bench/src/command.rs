//! `report` and `bench`: run tables, print each as it is done, write what was asked for.
//!
//! Invariant: a table that fails, an output that cannot be written or a comparison that cannot be
//! read never costs the figures that were measured; they are printed, and the exit code is 1. When
//! standard output itself fails, the files are still written.

pub mod args;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use corelocal::sys::Caps;
use corelocal_support::machine::{self, Counts};
use corelocal_support::measure::engine::Plan;
use corelocal_support::output::{self, complain, path_line};
use corelocal_support::process::child;
use corelocal_support::process::signals;
use corelocal_support::schema::{Machine, Missing, Report, SCHEMA_VERSION};
use corelocal_support::{console, user_file};

use crate::contest::{Context, Table};
use crate::report::{self, compare, term};
use crate::tables;
use args::{BenchArgs, ReportArgs};

/// Returns the fast paths that are used here, by name: a line of the report's stamp each.
pub type Paths = fn(&Caps) -> BTreeMap<String, String>;

/// Runs `corelocal report`.
pub fn report(args: &ReportArgs, paths: Paths) -> anyhow::Result<ExitCode> {
    if args.json == args.html {
        complain("--json and --html name the same file; give them different ones");
        return Ok(ExitCode::from(2));
    }
    let outputs = Outputs {
        json: Some(&args.json),
        html: Some(&args.html),
        compare: args.compare.as_deref(),
    };
    let Ok(mut chosen) = choose(&args.only) else { return Ok(ExitCode::from(2)) };
    if args.only.is_empty() {
        chosen = tables::all().to_vec();
        let rounds = Rounds { quick: args.quick, long: false, minutes: args.minutes };
        chosen.retain(|table| table.in_report(rounds.are_short(tables::all().len())));
    }
    if !outputs.may_be_written() {
        return Ok(ExitCode::FAILURE);
    }
    measure(
        &chosen,
        Rounds { quick: args.quick, long: false, minutes: args.minutes },
        &outputs,
        paths,
    )
}

/// Runs `corelocal bench`.
pub fn bench(args: &BenchArgs, paths: Paths) -> anyhow::Result<ExitCode> {
    if args.list {
        return output::finish(list(), ExitCode::SUCCESS);
    }
    let Ok(chosen) = choose(&args.names) else { return Ok(ExitCode::from(2)) };
    let outputs =
        Outputs { json: args.json.as_deref(), html: None, compare: args.compare.as_deref() };
    if !outputs.may_be_written() {
        return Ok(ExitCode::FAILURE);
    }
    measure(&chosen, Rounds { quick: args.quick, long: args.long, minutes: None }, &outputs, paths)
}

/// Returns the tables of these names, each once. An unknown name is reported.
fn choose(names: &[String]) -> Result<Vec<&'static dyn Table>, tables::UnknownTable> {
    let mut chosen: Vec<&dyn Table> = Vec::new();
    for name in names {
        let table = tables::find(name).inspect_err(|unknown| complain(unknown))?;
        if chosen.iter().all(|known| known.id() != table.id()) {
            chosen.push(table);
        }
    }
    Ok(chosen)
}

/// Returns what the tables run in processes of their own.
pub fn children() -> impl Iterator<Item = child::Named> {
    tables::all().iter().flat_map(|table| table.children()).copied()
}

/// The outputs for the figures besides the terminal.
struct Outputs<'a> {
    json: Option<&'a Path>,
    html: Option<&'a Path>,
    compare: Option<&'a Path>,
}

impl Outputs<'_> {
    /// Tries it before minutes are spent on figures. What cannot be written is reported.
    fn may_be_written(&self) -> bool {
        let problems: Vec<String> =
            self.files().filter_map(|path| user_file::may_write(path).err()).collect();
        problems.iter().for_each(complain);
        problems.is_empty()
    }

    fn files(&self) -> impl Iterator<Item = &Path> {
        self.json.into_iter().chain(self.html)
    }
}

/// The length of the rounds; full if none is given.
#[derive(Clone, Copy)]
struct Rounds {
    quick: bool,
    long: bool,
    minutes: Option<u32>,
}

/// The part of `--minutes` that is reserved for the end of a round and for the files.
const RESERVE: Duration = Duration::from_secs(3);

impl Rounds {
    /// Returns the plan for the next of `tables` tables.
    fn plan(self, began: Instant, tables: usize) -> Plan {
        match self {
            Rounds { minutes: Some(minutes), .. } => {
                Plan::until(began + Self::time(minutes) - RESERVE, tables)
            }
            Rounds { quick: true, .. } => Plan::QUICK,
            Rounds { long: true, .. } => Plan::LONG,
            _ => Plan::FULL,
        }
    }

    fn are_short(self, tables: usize) -> bool {
        let each = self.minutes.map(|minutes| Self::time(minutes) / tables.max(1) as u32);
        self.quick || each.is_some_and(Plan::is_short)
    }

    fn time(minutes: u32) -> Duration {
        Duration::from_secs(60) * minutes
    }
}

fn measure(
    chosen: &[&dyn Table],
    rounds: Rounds,
    outputs: &Outputs<'_>,
    paths: Paths,
) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let created = jiff::Timestamp::now();
    let machine = stamp(paths);
    // A comparison that cannot be read is told at once, not after minutes.
    let (old, mut failed) = match outputs.compare.map(compare::load).transpose() {
        Ok(old) => (old, false),
        Err(error) => {
            complain(format_args!("{error:#}\n  The figures follow without a comparison."));
            (None, true)
        }
    };

    let width = console::width();
    let mut screen = Screen::default();
    screen.show(term::stamp(&machine, width));
    let (mut measured, mut missing) = (Vec::new(), Vec::new());
    signals::note();
    for (nth, table) in chosen.iter().enumerate() {
        if screen.lost.is_some() && outputs.files().next().is_none() {
            break;
        }
        let plan = rounds.plan(began, chosen.len() - nth);
        let mut cx = Context::new(plan, &machine).nth(nth, chosen.len());
        cx.in_report = outputs.html.is_some();
        let result = table.run(&mut cx);
        cx.progress().finish();
        let (ended, why) = match rounds.minutes {
            _ if signals::came() => ("interrupted".to_owned(), "interrupted"),
            Some(minutes) if cx.plan.is_over() => {
                (format!("the {minutes} min of --minutes are over"), "the time was over")
            }
            _ => (String::new(), ""),
        };
        if !ended.is_empty() {
            complain(format_args!(
                "{ended}: the table `{}` and those after it are missing",
                table.id()
            ));
            missing.extend(chosen[nth..].iter().map(|table| absent(*table, why)));
            break;
        }
        match result.with_context(|| format!("the table `{}` was not measured", table.id())) {
            Ok(table) => {
                screen.show(term::table(&table, width));
                measured.push(table);
            }
            Err(error) => {
                complain(format_args!("{error:#}"));
                missing.push(absent(*table, &format!("{:#}", error.root_cause())));
                failed = true;
            }
        }
    }

    let report = Report {
        schema: SCHEMA_VERSION,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        created: format!("{created:.0}"),
        command: command_line(),
        quick: rounds.quick,
        long: rounds.long,
        interrupted: signals::came(),
        missing,
        elapsed_s: began.elapsed().as_secs_f64(),
        machine,
        tables: measured,
    };
    let comparison = old.map(|old| compare::compare(&old, &report));
    if let Some(comparison) = &comparison {
        screen.show(term::comparison(comparison, width));
    }
    let written = report::write_outputs(&report, outputs.json, outputs.html, comparison.as_ref());
    for problem in &written.problems {
        complain(problem);
        failed = true;
    }
    for file in &written.files {
        screen.show(format_args!("wrote {}", path_line(file)));
    }
    screen.show(format_args!("measured in {:.0} s", report.elapsed_s));
    if let Some(error) = screen.lost.filter(|error| error.kind() != ErrorKind::BrokenPipe) {
        complain(output::unwritable(&error));
        failed = true;
    }
    Ok(match failed {
        _ if report.interrupted => ExitCode::from(130),
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

fn absent(table: &dyn Table, why: &str) -> Missing {
    Missing { id: table.id().to_owned(), title: table.title().to_owned(), why: why.to_owned() }
}

fn stamp(paths: Paths) -> Machine {
    let caps = Caps::get();
    let topology = &caps.topology;
    let counts = Counts {
        cpus_allowed: topology.affinity.set.count(),
        cpus_online: topology.online.set.count(),
        cpus_possible: topology.possible.set.count(),
        numa_nodes: topology.nodes.set.count().max(1),
    };
    machine::collect(counts, paths(&caps))
}

/// Returns the command, with the program's own name in place of its path.
fn command_line() -> String {
    let args = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    std::iter::once("corelocal".to_owned()).chain(args).collect::<Vec<_>>().join(" ")
}

/// Returns names and titles of all tables.
fn list() -> String {
    let width = tables::all().iter().map(|table| table.id().len()).max().unwrap_or(0);
    let lines =
        tables::all().iter().map(|table| format!("{:width$}  {}\n", table.id(), table.title()));
    lines.collect()
}

/// Standard output until it fails; then the files are still to be written.
#[derive(Default)]
struct Screen {
    lost: Option<io::Error>,
}

impl Screen {
    fn show(&mut self, text: impl Display) {
        if self.lost.is_none() {
            self.lost = output::print(format_args!("{text}\n")).err();
        }
    }
}
