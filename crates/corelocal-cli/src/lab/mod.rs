//! `corelocal lab`: models of the kernel's halves, listed, explored and simulated.
//!
//! Exit codes: 0 each model is as the list says (a correct one holds, a planted fault is found); 1 one is not; 2 the
//! command line is wrong; 3 a search ended before all states were seen, and found nothing.
//!
//! Invariants:
//! - Progress is drawn on standard error, and only when that is a terminal.
//! - Ctrl-C ends the search, and what is known by then is printed.

mod explore;
mod html;
mod simulate;

use std::process::ExitCode;

use corelocal_lab::sim::catalogue::{Entry, catalogue};

use crate::cli::{LabArgs, LabCommand};
use crate::output;
use crate::report::term;

/// The command.
pub fn run(args: &LabArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        LabCommand::List => list(),
        LabCommand::Explore(args) => explore::run(args),
        LabCommand::Simulate(args) => simulate::run(args),
    }
}

fn list() -> anyhow::Result<ExitCode> {
    let mut grid = term::grid(term::width());
    grid.set_header(["MODEL", "KIND", "WHAT IT IS"].map(term::heading));
    for Entry { name, about, fault, .. } in catalogue() {
        grid.add_row([name, if fault.is_some() { "fault" } else { "correct" }, about]);
    }
    term::keep_whole(&mut grid, |column| column < 2);
    output::finish(term::lines(&grid), ExitCode::SUCCESS)
}

/// The models that the names mean: a model, or all of a protocol.
fn chosen(names: &[String]) -> anyhow::Result<Vec<Entry>> {
    let mut entries: Vec<Entry> = Vec::new();
    for name in names {
        let of_protocol =
            |entry: &Entry| entry.name.split('/').next() == Some(name.trim_end_matches('/'));
        let (mut exact, rest): (Vec<_>, Vec<_>) =
            catalogue().into_iter().partition(|entry| entry.name == name);
        if exact.is_empty() {
            let known = rest.iter().map(|entry| entry.name).collect::<Vec<_>>();
            exact = rest.into_iter().filter(of_protocol).collect();
            if exact.is_empty() {
                let near = |known: &&&str| (strsim::jaro_winkler(name, known) * 1e6) as u64;
                let nearest = known.iter().max_by_key(near).copied().unwrap_or_default();
                anyhow::bail!(
                    "there is no model {name}; do you mean {nearest}? `corelocal lab list` shows all"
                );
            }
        }
        let is_new = |entry: &Entry| entries.iter().all(|known| known.name != entry.name);
        let new = exact.into_iter().filter(is_new).collect::<Vec<_>>();
        entries.extend(new);
    }
    Ok(entries)
}
