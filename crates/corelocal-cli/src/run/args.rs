//! The arguments of `run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(override_usage = "corelocal run [OPTIONS] [--] PROGRAM [ARGUMENT]...
       corelocal run --compare [OPTIONS] [--] PROGRAM [ARGUMENT]... [::: PROGRAM [ARGUMENT]...]...")]
pub struct RunArgs {
    /// A program, with its arguments. Its output, its exit code and the signal that ends it are passed on; messages
    /// go to standard error
    #[arg(value_name = "PROGRAM", required = true)]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub target: Vec<OsString>,
    /// The malloc: corelocal, jemalloc, mimalloc, tcmalloc or libc, one built by rivals/build, or the path of a
    /// library
    #[arg(long, value_name = "PATH|NAME", default_value = "corelocal")]
    pub malloc: String,
    /// Run the program in turns with libc's malloc, this one, and the others that are installed. Its output is shown
    /// once; from a terminal it gets no input. Several programs, with ::: between them, are compared one after the other
    #[arg(long)]
    pub compare: bool,
    /// The number of runs with each malloc, with --compare
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// The number of runs with each malloc before those that count, with --compare [default: one, with the first malloc]
    #[arg(long, value_name = "N", requires = "compare")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub warmup: Option<u32>,
    /// Skip hit-rate counting, which makes corelocal's malloc slightly slower. With --compare hits are counted in an
    /// additional run, whose time is not shown
    #[arg(long)]
    pub no_hits: bool,
    /// Write a page with a plot of memory over time to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print JSON; the program's output goes to standard error
    #[arg(long)]
    pub json: bool,
}
