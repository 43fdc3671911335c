//! The arguments of `locks`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

/// Arguments of `locks`.
#[derive(Debug, Args)]
#[command(override_usage = "corelocal locks [OPTIONS] PROCESS\n       \
                            corelocal locks [OPTIONS] PROGRAM [ARGUMENT]...")]
pub struct LocksArgs {
    /// The id of a process that has a profile: it was started with CORELOCAL_LOCKS=ready (or =on) in its environment,
    /// or started one itself. Or a program to run, with its arguments. Its exit code is passed on, and the report goes
    /// to standard error. With --json and without --output that goes to standard output, and the program's output to
    /// standard error
    #[arg(value_name = "PROCESS|PROGRAM", required = true)]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub target: Vec<OsString>,
    /// How long to record (5s, 10m). Default for a process whose profile is off: 5s. If its profile is on, all since
    /// it began is shown at once. A program is asked to end after this time (SIGTERM), and killed 10s later
    #[arg(long = "for", value_name = "TIME", value_parser = corelocal_support::parse::time)]
    pub time: Option<Duration>,
    /// The number of locks or potential deadlocks to show; --json has all
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// Show deadlocks instead: existing ones, and potential ones from mutexes that were locked in inconsistent
    /// orders. A process must have been started with CORELOCAL_LOCK_ORDER=on in its environment
    #[arg(long)]
    pub order: bool,
    /// Exit with 1 for deadlocks and potential ones, if the program's exit code is 0
    #[arg(long, requires = "order")]
    pub strict: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Write the report to this file, not to standard error
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}
