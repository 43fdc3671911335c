//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Fast paths of this machine's kernel: which there are, what they cost, what they save.
#[derive(Debug, Parser)]
#[command(name = "corelocal", version, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what kernel, libc and processor offer, what corelocal uses, and what to do about the rest
    Doctor(DoctorArgs),
    /// Measure everything beside its rivals; write report.html and report.json
    Report(ReportArgs),
    /// Measure some tables, or list them
    Bench(BenchArgs),
    /// What a table runs in a process of its own
    #[command(name = crate::bench::child::SUBCOMMAND, hide = true)]
    Child(ChildArgs),
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Exit with 1 when a fast path is degraded
    #[arg(long)]
    pub strict: bool,
}

/// Arguments of `report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Short rounds: under 20 seconds in all
    #[arg(long)]
    pub quick: bool,
    /// Where the page goes
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub html: PathBuf,
    /// Where the figures go
    #[arg(long, value_name = "FILE", default_value = "report.json")]
    pub json: PathBuf,
    /// An older report.json: show what changed and what is noise
    #[arg(long, value_name = "OLD.json")]
    pub compare: Option<PathBuf>,
}

/// Arguments of `bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// List the tables
    #[arg(long, conflicts_with_all = ["names", "quick", "json"])]
    pub list: bool,
    /// Tables to measure; --list shows their names
    #[arg(value_name = "NAME", required_unless_present = "list")]
    pub names: Vec<String>,
    /// Short rounds
    #[arg(long)]
    pub quick: bool,
    /// Also write the figures here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// An older report.json: show what changed and what is noise
    #[arg(long, value_name = "OLD.json")]
    pub compare: Option<PathBuf>,
}

/// Arguments of the hidden command.
#[derive(Debug, Args)]
pub struct ChildArgs {
    /// Which of the tables' children.
    pub name: String,
    /// Its arguments.
    #[arg(allow_hyphen_values = true)]
    pub args: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn is_consistent() {
        Cli::command().debug_assert();
    }
}
