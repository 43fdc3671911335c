//! The arguments of `heap`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser};

use crate::trace::export::NOT_BUILT;

/// Arguments of `heap`.
#[derive(Debug, Args)]
#[command(override_usage = "corelocal heap [OPTIONS] FILE...\n       \
                            corelocal heap --diff BEFORE [OPTIONS] AFTER\n       \
                            corelocal heap --attach PID [OPTIONS]\n       \
                            corelocal heap --status PID [--top N] [--json] [-o FILE]\n       \
                            corelocal heap [OPTIONS] [--] PROGRAM [ARGUMENT]...")]
pub struct HeapArgs {
    /// Files written by a program with corelocal's malloc that was started with CORELOCAL_MALLOC=profile. Without a
    /// slash, only a name that ends in .heap is a file. Or a program to run with that malloc, with its arguments. Its
    /// exit code is passed on, and the report goes to standard error. With --json and without --output that goes to
    /// standard output, and the program's output to standard error
    #[arg(value_name = "FILE|PROGRAM", required_unless_present_any = ["status", "attach"])]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub target: Vec<OsString>,
    /// Show the malloc of a running process: what is in use, in caches, idle and resident, by size class, and its
    /// options. The process does nothing for it. Takes the rights of a debugger
    #[arg(long, value_name = "PID", conflicts_with_all = ["target", "diff", "time", "peak", "otlp"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub status: Option<u32>,
    /// Sample what a running process allocates, and show what grew meanwhile, by call site: for 10s, or --for TIME, or
    /// until Ctrl-C. It need not have been started for it. Takes the rights of a debugger
    #[arg(long, value_name = "PID", conflicts_with_all = ["target", "status", "diff", "peak"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub attach: Option<u32>,
    /// The options.
    #[command(flatten)]
    pub options: HeapOptions,
}

/// Arguments of `heap` with files alone: options may come after them.
#[derive(Debug, Parser)]
#[command(name = "corelocal heap")]
pub struct HeapFiles {
    /// The files
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// The options.
    #[command(flatten)]
    pub options: HeapOptions,
}

/// Options of `heap`.
#[derive(Debug, Args)]
pub struct HeapOptions {
    /// Show the peak, not the end or the time when the file was written
    #[arg(long)]
    pub peak: bool,
    /// Sample one object for each SIZE bytes allocated, on average
    #[arg(long, value_name = "SIZE", default_value = "512K")]
    #[arg(value_parser = corelocal_support::parse::size)]
    pub rate: u64,
    /// Profile the program for this time (5s, 10m), and ask it to end (SIGTERM); it is killed 10s later. With --attach: the
    /// time between the two moments
    #[arg(long = "for", value_name = "TIME", value_parser = corelocal_support::parse::time)]
    pub time: Option<Duration>,
    /// Show the difference from this older profile of the same program; for files
    #[arg(long, value_name = "BEFORE")]
    pub diff: Option<PathBuf>,
    /// The number of call sites to show, or of size classes
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// Write a profile for pprof (`go tool pprof FILE`)
    #[arg(long, value_name = "FILE")]
    pub pprof: Option<PathBuf>,
    /// Write a flame graph
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Write a line for each stack: functions, outermost first, separated by semicolons, and bytes; with --diff bytes
    /// before and after
    #[arg(long, value_name = "FILE")]
    pub collapsed: Option<PathBuf>,
    /// Send the profiles to an OpenTelemetry collector: http://localhost:4318 or another address. The name of the service is
    /// OTEL_SERVICE_NAME, or that of the program. OTLP profiles are in alpha
    #[arg(long, value_name = "URL", conflicts_with = "diff", value_parser = collector)]
    pub otlp: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Write the report to this file, not to standard error
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Returns the address of a collector, if profiles can be sent there.
fn collector(address: &str) -> Result<String, String> {
    if cfg!(not(feature = "export")) {
        return Err(NOT_BUILT.to_owned());
    }
    if address.starts_with("https:") {
        return Err("profiles are sent by http alone: send them to a collector on this machine, which forwards them".to_owned());
    }
    match address.strip_prefix("http://") {
        Some(host) if !host.is_empty() => Ok(address.to_owned()),
        _ => Err("an address is like http://localhost:4318".to_owned()),
    }
}
