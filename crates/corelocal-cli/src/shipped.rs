//! What goes with the command where it is installed: completions of shells, and manual pages. Both are made from its
//! arguments, so they are those of this version and of the features that it was built with.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;
use corelocal_support::output::{self, path_line};

use crate::cli::Cli;

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell that is to complete the command
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Arguments of `man-pages`.
#[derive(Debug, Args)]
pub struct ManPagesArgs {
    /// The folder for the pages, which exists
    pub folder: PathBuf,
}

/// Prints a script that completes the command's arguments.
pub fn completions(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "corelocal", &mut script);
    output::finish(String::from_utf8_lossy(&script), ExitCode::SUCCESS)
}

/// Writes a page for the command, and one for each subcommand that help shows.
pub fn man_pages(args: &ManPagesArgs) -> anyhow::Result<ExitCode> {
    let folder = &args.folder;
    clap_mangen::generate_to(Cli::command(), folder)
        .with_context(|| format!("cannot write manual pages to {}", path_line(folder)))?;
    Ok(ExitCode::SUCCESS)
}
