//! The hidden command: work in a process of its own (`process/child.rs` of support).

use std::process::ExitCode;

use clap::Args;
use corelocal_support::mallocs::library;
use corelocal_support::output;
use corelocal_support::process::child::{self, Named};

pub use child::SUBCOMMAND;

/// Arguments of the hidden command.
#[derive(Debug, Args)]
pub struct ChildArgs {
    /// The name of the child's function.
    pub name: String,
    /// The child's arguments.
    #[arg(allow_hyphen_values = true)]
    pub args: Vec<String>,
}

/// Prints one line of JSON on standard output.
pub fn run(args: &ChildArgs) -> anyhow::Result<ExitCode> {
    let answer = child::dispatch(&bodies(), &args.name, &args.args)?;
    output::finish(format_args!("{answer}\n"), ExitCode::SUCCESS)
}

#[cfg(feature = "report")]
fn bodies() -> Vec<Named> {
    corelocal_bench::children().chain([library::BODY]).collect()
}

#[cfg(not(feature = "report"))]
fn bodies() -> Vec<Named> {
    vec![library::BODY]
}
