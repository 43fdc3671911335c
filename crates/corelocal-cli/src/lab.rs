//! `corelocal lab`: models of the kernel's halves, listed, explored and simulated.
//!
//! Exit codes: 0 each model is as the list says (a correct one holds, a planted fault is found); 1 one is not; 2 the
//! command line is wrong; 3 a search ended before all states were seen, and found nothing.
//!
//! Invariants:
//! - Progress is drawn on standard error, and only when that is a terminal.
//! - Ctrl-C ends the search, and what is known by then is printed.

pub mod args;
mod explore;
mod finding;
mod html;
mod plan;
mod scenario;
mod simulate;

use std::process::ExitCode;

use anyhow::Context as _;
use corelocal_lab::check;
use corelocal_lab::sim::case::Entry;
use corelocal_lab::sim::catalogue::catalogue;
use corelocal_lab::sim::rseq;
use corelocal_symbols::input;

use args::{LabArgs, LabCommand};
use corelocal_support::console;
use corelocal_support::output;

/// Runs the command.
pub fn run(args: &LabArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        LabCommand::List => list(),
        LabCommand::Explore(args) => explore::run(args),
        LabCommand::Run(args) => explore::run_scenario(args),
        LabCommand::Simulate(args) => simulate::run(args),
        LabCommand::Plan(args) => plan::run(args),
    }
}

fn list() -> anyhow::Result<ExitCode> {
    let mut grid = console::grid(console::width());
    grid.set_header(["MODEL", "KIND", "WHAT IT IS"].map(console::heading));
    for Entry { name, about, fault, .. } in all(true)? {
        grid.add_row([&*name, if fault.is_some() { "fault" } else { "correct" }, &*about]);
    }
    console::keep_whole(&mut grid, |column| column < 2);
    output::finish(console::lines(&grid), ExitCode::SUCCESS)
}

/// Returns all models. Those of critical sections are made from this program's own file.
fn all(with_sections: bool) -> anyhow::Result<Vec<Entry>> {
    let mut entries = catalogue();
    if with_sections && cfg!(not(any(target_arch = "x86_64", target_arch = "aarch64"))) {
        output::remark(
            "note: models of critical sections run instructions of x86-64 and aarch64 only; `corelocal check` and \
             `corelocal torture` verify this processor's\n",
        );
    }
    if with_sections {
        let program = std::env::current_exe()
            .context("cannot find this program's own file; is /proc mounted?")?;
        let data = input::read(&program, input::MOST)
            .with_context(|| format!("cannot read {}", output::path_line(&program)))?;
        let codes =
            check::sections("this program", &data).map_err(|why| anyhow::anyhow!("{why}"))?;
        let of_sections = rseq::entries(&codes);
        entries.extend(
            of_sections
                .map_err(|why| anyhow::anyhow!("a critical section cannot be explored: {why}"))?,
        );
    }
    Ok(entries)
}

/// Returns the models that the names mean: a model, or all whose names begin so, up to a slash.
fn chosen(names: &[String]) -> anyhow::Result<Vec<Entry>> {
    let with_sections =
        names.iter().any(|name| !["cid", "futex", "pvclock"].iter().any(|of| name.starts_with(of)));
    let mut rest = all(with_sections)?;
    let mut entries: Vec<Entry> = Vec::new();
    for name in names {
        let name = name.trim_end_matches('/');
        let is_meant = |known: &str| {
            known.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if !rest.iter().chain(&entries).any(|entry| is_meant(&entry.name)) {
            let near = |entry: &&Entry| (strsim::jaro_winkler(name, &entry.name) * 1e6) as u64;
            let nearest =
                rest.iter().max_by_key(near).map(|entry| &*entry.name).unwrap_or_default();
            anyhow::bail!(
                "there is no model {name}; do you mean {nearest}? `corelocal lab list` shows all"
            );
        }
        let (meant, others): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|entry| is_meant(&entry.name));
        entries.extend(meant);
        rest = others;
    }
    Ok(entries)
}
