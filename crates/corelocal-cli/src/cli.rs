//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand};
use corelocal_lab::torture::{Selection, Share};

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
    /// Check the critical sections (rseq) of any program, library or object file without running it
    Check(CheckArgs),
    /// Disturb the library's critical sections at every instruction, and see that nothing is lost
    Torture(TortureArgs),
    /// Show who waits for which lock, how long, and who made others wait: in a process that runs, or in
    /// a program that is run for it
    Locks(LocksArgs),
    /// Show who has how much memory: from files that corelocal's malloc wrote, or of a program that is
    /// run for it
    Heap(HeapArgs),
    /// Run a program with another malloc, and show its time and its memory, also beside other mallocs
    Run(RunArgs),
    /// Show the clock's back-ends: what they cost, whether they agree, how far they drift; or a
    /// published clock
    Clock(ClockArgs),
    /// Publish this machine's clock, with its bounds, in memory that other processes read
    Clockd(ClockdArgs),
    /// A process in which one of the clock's back-ends is looked at
    #[command(name = crate::clock::SUBCOMMAND, hide = true)]
    ClockObserver(ClockObserverArgs),
    /// The process that is disturbed
    #[command(name = crate::torture::VICTIM, hide = true)]
    Victim(VictimArgs),
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
    /// Short rounds: about half a minute in all
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
    #[arg(long, conflicts_with_all = ["names", "quick", "long", "json"])]
    pub list: bool,
    /// Tables to measure; --list shows their names
    #[arg(value_name = "NAME", required_unless_present = "list")]
    pub names: Vec<String>,
    /// Short rounds
    #[arg(long)]
    pub quick: bool,
    /// Rounds of a second where threads contend: how fair locks are (minutes for each table)
    #[arg(long, conflicts_with = "quick")]
    pub long: bool,
    /// Also write the figures here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// An older report.json: show what changed and what is noise
    #[arg(long, value_name = "OLD.json")]
    pub compare: Option<PathBuf>,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Executables, shared objects, object files, static archives (.a, .rlib)
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Exit with 1 for warnings too
    #[arg(long)]
    pub strict: bool,
    /// Leave out what this rule finds; may be given again
    #[arg(
        long,
        value_name = "RULE",
        value_parser = PossibleValuesParser::new(crate::check::rule_names()),
        hide_possible_values = true
    )]
    pub allow: Vec<String>,
}

/// Arguments of `torture`.
#[derive(Debug, Args)]
pub struct TortureArgs {
    /// Try these alone: SECTION@INSTRUCTION+DISTURBANCE, as a failure names them, or a part of it
    #[arg(long, value_name = "TRIPLE", default_value = "", hide_default_value = true)]
    pub only: Selection,
    /// Try every N-th instruction alone, beginning with the K-th
    #[arg(long, value_name = "K/N", default_value = "1/1", hide_default_value = true)]
    #[arg(conflicts_with = "only")]
    pub share: Share,
    /// Disturb at random and at full speed for so long (60s, 5m), without ptrace
    #[arg(long = "for", value_name = "TIME", value_parser = crate::torture::parse_time)]
    #[arg(conflicts_with_all = ["only", "share"])]
    pub time: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `clock`.
#[derive(Debug, Args)]
pub struct ClockArgs {
    /// For how long to watch the clocks drift (10s, 10m, 8h)
    #[arg(long, value_name = "TIME", default_value = "5s")]
    #[arg(value_parser = crate::torture::parse_time)]
    pub watch: Duration,
    /// Write every sample to this file
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write a page with a plot to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Show the clock that is published in this file, by `corelocal clockd`, a hypervisor
    /// (/dev/vmclock0) or ClockBound (/var/run/clockbound/shm0)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["watch", "csv", "html"])]
    pub file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `clockd`.
#[derive(Debug, Args)]
pub struct ClockdArgs {
    /// Where to publish, in a directory that no other user may write to; /run/corelocal/ENCODING if not given,
    /// $XDG_RUNTIME_DIR/corelocal/ENCODING for others than root
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// How the page is laid out, and so what it tells
    #[arg(long, value_enum, default_value_t = crate::clockd::Encoding::Vmclock)]
    pub encoding: crate::clockd::Encoding,
    /// Time between publications, at most 4s
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    #[arg(value_parser = crate::clockd::parse_every)]
    pub every: Duration,
    /// Who is asked how far the clock may be off
    #[arg(long, value_enum, default_value_t = crate::clockd::source::Source::Auto)]
    pub source: crate::clockd::source::Source,
    /// Where chronyd answers: its socket, or an address with a port; if not given
    /// /run/chrony/chronyd.sock and, while root alone may listen there, port 323 of this machine
    #[arg(long, value_name = "WHERE", value_parser = crate::clockd::chrony::Place::parse)]
    pub chrony: Option<crate::clockd::chrony::Place>,
    /// The hypervisor's page, whose disruptions are carried on if it is there
    #[arg(long, value_name = "FILE", default_value = crate::clockd::device::DEVICE)]
    pub vmclock: PathBuf,
    /// The clock is right to within this (40us, 5ms), whatever anybody was told: for a machine
    /// that follows its host's clock, say
    #[arg(long, value_name = "ERROR", value_parser = crate::clockd::parse_error)]
    pub max_error: Option<Duration>,
    /// End after so long
    #[arg(long = "for", value_name = "TIME", value_parser = crate::torture::parse_time)]
    pub time: Option<Duration>,
}

/// Arguments of `locks`.
#[derive(Debug, Args)]
#[command(override_usage = "corelocal locks [OPTIONS] PROCESS\n       \
                            corelocal locks [OPTIONS] PROGRAM [ARGUMENT]...")]
pub struct LocksArgs {
    /// The number of a process that has a profile: it was started with CORELOCAL_LOCKS=ready (or =on) in
    /// its environment, or began one itself. Or a program to run, with its arguments; its exit code is
    /// ours, and with --json its output goes to standard error
    #[arg(value_name = "PROCESS|PROGRAM", required = true)]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub target: Vec<OsString>,
    /// For how long to look (5s, 10m). A process whose profile is off is looked at for 5s if nothing
    /// is said; of one whose profile is on, all since it began is shown at once. A program is asked to
    /// end after that time (SIGTERM), and killed if it has not 10s later
    #[arg(long = "for", value_name = "TIME", value_parser = crate::torture::parse_time)]
    pub time: Option<Duration>,
    /// How many locks or potential deadlocks to show; --json has all
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// Show deadlocks instead, those that are there and potential ones: mutexes that were locked in orders
    /// that contradict each other, at whatever times. A process must have been started with
    /// CORELOCAL_LOCK_ORDER=on in its environment
    #[arg(long)]
    pub order: bool,
    /// Exit with 1 for deadlocks and potential ones, if the program's exit code is 0
    #[arg(long, requires = "order")]
    pub strict: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `heap`.
#[derive(Debug, Args)]
#[command(override_usage = "corelocal heap [OPTIONS] FILE...\n       \
                            corelocal heap --diff BEFORE [OPTIONS] AFTER\n       \
                            corelocal heap [OPTIONS] [--] PROGRAM [ARGUMENT]...")]
pub struct HeapArgs {
    /// Files that a program with corelocal's malloc wrote: it was started with
    /// CORELOCAL_MALLOC=profile. Without a slash, only a name that ends in .heap is a file. Or a
    /// program to run with that malloc, with its arguments; its exit code is ours, and with --json
    /// its output goes to standard error
    #[arg(value_name = "FILE|PROGRAM", required = true)]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub target: Vec<OsString>,
    /// What else.
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
    /// What else.
    #[command(flatten)]
    pub options: HeapOptions,
}

/// Options of `heap`.
#[derive(Debug, Args)]
pub struct HeapOptions {
    /// What was in use when most was, instead of at the end, or when the file was written
    #[arg(long)]
    pub peak: bool,
    /// Sample one object for each SIZE bytes that the program asks for, on average
    #[arg(long, value_name = "SIZE", default_value = "512K")]
    #[arg(value_parser = crate::heap::parse_size)]
    pub rate: u64,
    /// Look at the program after so long (5s, 10m), and ask it to end (SIGTERM); it is killed if it
    /// has not 10s later
    #[arg(long = "for", value_name = "TIME", value_parser = crate::torture::parse_time)]
    pub time: Option<Duration>,
    /// What came and went since this older profile of the same program; for files
    #[arg(long, value_name = "BEFORE")]
    pub diff: Option<PathBuf>,
    /// How many call sites to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// Write a profile for pprof (`go tool pprof FILE`)
    #[arg(long, value_name = "FILE")]
    pub pprof: Option<PathBuf>,
    /// Write a flame graph
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Write a line for each stack: functions, outermost first, with semicolons between, and bytes;
    /// with --diff bytes before and after
    #[arg(long, value_name = "FILE")]
    pub collapsed: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(override_usage = "corelocal run [OPTIONS] [--] PROGRAM [ARGUMENT]...")]
pub struct RunArgs {
    /// A program, with its arguments. Its output, its exit code and the signal that ends it are passed
    /// on; what is to be told goes to standard error
    #[arg(value_name = "PROGRAM", required = true)]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub target: Vec<OsString>,
    /// The malloc: corelocal, jemalloc, mimalloc, tcmalloc or libc, one that rivals/build has made, or the path of
    /// a library
    #[arg(long, value_name = "PATH|NAME", default_value = "corelocal")]
    pub malloc: String,
    /// Run it in turns with libc's malloc, this one, and the others that are installed. Its output is
    /// shown once; from a terminal it gets no input
    #[arg(long)]
    pub compare: bool,
    /// How often with each malloc, with --compare
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Do not count what is asked for, of which hits are a share: corelocal's malloc takes a little
    /// longer where it does. With --compare that is done in a run more, whose time is not shown
    #[arg(long)]
    pub no_hits: bool,
    /// Write a page with a plot of memory over time to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print JSON; the program's output goes to standard error
    #[arg(long)]
    pub json: bool,
}

/// Arguments of the process in which a back-end is looked at.
#[derive(Debug, Args)]
pub struct ClockObserverArgs {
    /// Clocks of others instead.
    #[arg(long)]
    pub others: bool,
    /// Milliseconds between samples.
    #[arg(long)]
    pub every_ms: u64,
    /// Milliseconds in all.
    #[arg(long)]
    pub for_ms: u64,
}

/// Arguments of the process that is disturbed.
#[derive(Debug, Args)]
pub struct VictimArgs {
    /// Milliseconds of a storm.
    #[arg(long)]
    pub storm: Option<u64>,
    /// Where its random numbers begin.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
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
