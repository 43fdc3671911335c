//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use corelocal_lab::torture::{Selection, Share};

/// Show, measure and check the fast paths of this machine's kernel.
#[derive(Debug, Parser)]
#[command(name = "corelocal", version, propagate_version = true)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what kernel, libc and processor support, which fast paths are active, and how to enable the rest
    Doctor(DoctorArgs),
    /// Measure all tables beside their rivals, and write report.html and report.json
    Report(ReportArgs),
    /// Measure single tables, or list them
    Bench(BenchArgs),
    /// Check the critical sections (rseq) of any program, library or object file without running it
    Check(CheckArgs),
    /// Disturb the library's critical sections at every instruction, and check that no operation is lost
    Torture(TortureArgs),
    /// Explore models of the kernel's halves: critical sections, concurrency ids, futexes, pvclock
    Lab(LabArgs),
    /// Show lock contention, with waiters and holders, of a running process or of a program to run
    Locks(LocksArgs),
    /// Show heap use by call site, from files written by corelocal's malloc or of a program to run
    Heap(HeapArgs),
    /// Run a program with another malloc, and show its time and memory, also beside other mallocs
    Run(RunArgs),
    /// Print the path of corelocal's malloc, for LD_PRELOAD
    MallocPath,
    /// Record events of a program, and show recordings of the library's tracer
    Trace(TraceArgs),
    /// Show the clock's back-ends (cost, agreement, drift), or a published clock
    Clock(ClockArgs),
    /// Publish this machine's clock and its error bound in memory that other processes read
    Clockd(ClockdArgs),
    /// A process in which one of the clock's back-ends is observed
    #[command(name = crate::clock::SUBCOMMAND, hide = true)]
    ClockObserver(ClockObserverArgs),
    /// The process that is disturbed
    #[command(name = crate::torture::VICTIM, hide = true)]
    Victim(VictimArgs),
    /// A process in which a table runs one measurement
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
    /// Short rounds: about half a minute in total
    #[arg(long)]
    pub quick: bool,
    /// Measure for so many minutes at most; shorter rounds give wider spreads, and tables that do not fit are left out
    #[arg(long, value_name = "N", conflicts_with = "quick", value_parser = clap::value_parser!(u32).range(1..=600))]
    pub minutes: Option<u32>,
    /// Only these tables, with commas between them; `bench --list` shows their names
    #[arg(long, value_name = "TABLES", value_delimiter = ',')]
    pub only: Vec<String>,
    /// The file for the page
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub html: PathBuf,
    /// The file for the figures
    #[arg(long, value_name = "FILE", default_value = "report.json")]
    pub json: PathBuf,
    /// Compare with an older report.json: show what changed and what is noise
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
    /// Also write the figures to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Compare with an older report.json: show what changed and what is noise
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
    /// Ignore findings of this rule; may be repeated
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
    /// Try only this: SECTION@INSTRUCTION+DISTURBANCE, as a failure names it, or a part of it
    #[arg(long, value_name = "TRIPLE", default_value = "", hide_default_value = true)]
    pub only: Selection,
    /// Try only every N-th instruction, beginning with the K-th
    #[arg(long, value_name = "K/N", default_value = "1/1", hide_default_value = true)]
    #[arg(conflicts_with = "only")]
    pub share: Share,
    /// Disturb at random and at full speed for this time (60s, 5m), without ptrace
    #[arg(long = "for", value_name = "TIME", value_parser = crate::torture::parse_time)]
    #[arg(conflicts_with_all = ["only", "share"])]
    pub time: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `lab`.
#[derive(Debug, Args)]
pub struct LabArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: LabCommand,
}

/// What `lab` does.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// List the models
    List,
    /// Search all interleavings of models, and show the shortest schedule to what is wrong
    Explore(ExploreArgs),
    /// Explore a scenario from a file, or a shipped one
    Run(ScenarioArgs),
    /// Run models at random, and show what their steps cost
    Simulate(SimulateArgs),
    /// Show how many concurrency ids and how much per-core memory a process uses, under each kernel's policy
    Plan(PlanArgs),
}

/// Arguments of `trace`.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: TraceCommand,
}

/// What `trace` does.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Run a program and record its events, and those of its children, to disk
    Record(RecordArgs),
    /// Say whether a process records, how many events it has, and how many were lost
    Status(LiveArgs),
    /// List the events and spans that a process has reached
    List(LiveArgs),
    /// Write the events that a process has in memory to a file
    Dump(DumpArgs),
    /// Switch events of a process on
    Enable(EnableArgs),
    /// Switch events of a process off
    Disable(SwitchArgs),
    /// Show the events of a recording, in the order of time
    View(ViewArgs),
    /// Write a recording in another format
    Export(ExportArgs),
    /// Write a page about a recording: spans by thread, threads by cpu, rates, durations, losses
    Report(TraceReportArgs),
    /// Write what is whole in a damaged recording, or in one that a killed process has left, to a new file
    Recover(RecoverArgs),
}

/// Arguments of `trace record`.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// The program to run, with its arguments. Its exit code is passed on
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub program: Vec<OsString>,
    /// The file to write; those of further processes have their numbers behind this name [default: corelocal.trace]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Record only events whose names match, with * for any part of a name, or that are of @LEVEL or more severe; may be
    /// given several times
    #[arg(long, value_name = "PATTERN")]
    pub only: Vec<String>,
    /// Record one of N events whose names match, by chance; may be given several times
    #[arg(long, value_name = "N:PATTERN")]
    pub sample: Vec<String>,
    /// Record the times of the last timer tick: half the cost of an event, and up to 10 ms too early
    #[arg(long)]
    pub coarse_times: bool,
    /// Memory for events of each process until they are written
    #[arg(long, value_name = "BYTES", default_value = "16M")]
    pub max_bytes: String,
}

/// Arguments of `trace status` and `trace list`.
#[derive(Debug, Args)]
pub struct LiveArgs {
    /// The id of the process
    pub process: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `trace dump`.
#[derive(Debug, Args)]
pub struct DumpArgs {
    /// The id of the process
    pub process: u32,
    /// The file to write [default: PROCESS.trace]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Arguments of `trace enable` and `trace disable`.
#[derive(Debug, Args)]
pub struct SwitchArgs {
    /// The id of the process
    pub process: u32,
    /// Names of events, with * for any part of a name, or @LEVEL for events of that level and finer (`disable`) or more
    /// severe ones (`enable`). It holds for events that are reached later, too
    pub pattern: String,
}

/// Arguments of `trace enable`.
#[derive(Debug, Args)]
pub struct EnableArgs {
    #[command(flatten)]
    pub switch: SwitchArgs,
    /// Record one event of so many, by chance
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub every: u32,
}

/// Which events of a recording are wanted.
#[derive(Debug, Args)]
pub struct FilterArgs {
    /// Only events whose names begin so, or match, with * for any part of a name
    #[arg(long, value_name = "PATTERN")]
    pub name: Option<String>,
    /// Only events of a thread: its id, or its name
    #[arg(long, value_name = "THREAD")]
    pub thread: Option<String>,
    /// Only events from this time on, as `view` shows it: 2026-11-26 09:39:28.2, or with a zone 2026-11-26T09:39:28Z
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub since: Option<jiff::Timestamp>,
    /// Only events up to this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub until: Option<jiff::Timestamp>,
    /// Only events with this value of a field: path=/index.html; may be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    pub field: Vec<String>,
    /// Only events of this level or a more severe one
    #[arg(long, value_name = "LEVEL", value_enum, ignore_case = true)]
    pub level: Option<Level>,
    /// Only a span with the events directly in it: its id, or the name of spans with * for any part
    #[arg(long, value_name = "SPAN")]
    pub span: Option<String>,
}

/// A level of an event, the most severe one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Level {
    /// Errors.
    Error,
    /// Warnings.
    Warn,
    /// Information.
    Info,
    /// For debugging.
    Debug,
    /// The finest.
    Trace,
}

/// Parses a time with a zone, or one of this machine's zone.
fn time(text: &str) -> Result<jiff::Timestamp, String> {
    let local = || {
        let civil: jiff::civil::DateTime = text.parse().ok()?;
        Some(civil.to_zoned(jiff::tz::TimeZone::system()).ok()?.timestamp())
    };
    let time = text.parse().ok().or_else(local);
    time.ok_or_else(|| {
        "not a time such as 2026-11-26 09:39:28.2 or 2026-11-26T09:39:28Z".to_owned()
    })
}

/// Arguments of `trace export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// A recording
    pub file: PathBuf,
    /// The format: perfetto and chrome-json open in ui.perfetto.dev, ctf and ctf2 in babeltrace2 and Trace Compass
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Perfetto)]
    pub to: Format,
    /// The file to write, - for standard output; for ctf and ctf2 the folder; for parquet also s3://BUCKET/PREFIX; for otlp the address of a
    /// collector [default: FILE with an ending, http://localhost:4318/v1/traces]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// For parquet: write files below a folder, one for each hour: date=2026-11-26/hour=09/…
    #[arg(long)]
    pub partition: bool,
    /// Begin another file of Perfetto's format after so many bytes: the browser takes about 2 GB
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    pub split: u64,
    /// For otlp: the name of the service [default: OTEL_SERVICE_NAME, or the name of the program]
    #[arg(long, value_name = "NAME")]
    pub service_name: Option<String>,
    /// What is exported.
    #[command(flatten)]
    pub filter: FilterArgs,
}

/// A format of other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Perfetto's protobuf.
    Perfetto,
    /// Chrome's JSON.
    ChromeJson,
    /// The Common Trace Format 1.8.
    Ctf,
    /// The Common Trace Format 2.
    Ctf2,
    /// Tables for DuckDB and Spark (needs the feature `export`).
    Parquet,
    /// Spans for an OpenTelemetry collector (needs the feature `export`).
    Otlp,
    /// An object in each line.
    JsonLines,
    /// As `view` shows it.
    Text,
}

/// Arguments of `trace report`.
#[derive(Debug, Args)]
pub struct TraceReportArgs {
    /// A recording
    pub file: PathBuf,
    /// The page to write [default: FILE.html]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Arguments of `trace recover`.
#[derive(Debug, Args)]
pub struct RecoverArgs {
    /// A recording
    pub file: PathBuf,
    /// The file to write [default: FILE.recovered]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Arguments of `trace view`.
#[derive(Debug, Args)]
pub struct ViewArgs {
    /// A recording
    pub file: PathBuf,
    /// What is shown.
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Only the last events
    #[arg(long, value_name = "N")]
    pub last: Option<usize>,
    /// Print a table instead: how many of each, how many a second, and how long spans last
    #[arg(long, conflicts_with_all = ["last", "json"])]
    pub stats: bool,
    /// Go on with what a running process adds, until a recording to disk is complete, or Ctrl-C
    #[arg(long, short, conflicts_with_all = ["last", "stats"])]
    pub follow: bool,
    /// Print JSON, an object in each line
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `lab run`.
#[derive(Debug, Args)]
pub struct ScenarioArgs {
    /// A file, or the name of a shipped scenario
    #[arg(value_name = "FILE.toml", required_unless_present = "list")]
    pub file: Option<PathBuf>,
    /// List the shipped scenarios
    #[arg(long, conflicts_with = "file")]
    pub list: bool,
    /// Print a shipped scenario, as a beginning for one's own
    #[arg(long, conflicts_with = "list")]
    pub print: bool,
    /// How to search, and what to write.
    #[command(flatten)]
    pub search: SearchArgs,
}

/// Arguments of `lab explore`.
#[derive(Debug, Args)]
pub struct ExploreArgs {
    /// Models as `lab list` names them, or the first part of their names (cid, futex, pvclock, rseq)
    #[arg(value_name = "MODEL", required = true)]
    pub models: Vec<String>,
    /// How to search, and what to write.
    #[command(flatten)]
    pub search: SearchArgs,
}

/// How `lab explore` and `lab run` search.
#[derive(Debug, Args)]
pub struct SearchArgs {
    /// Search only schedules that preempt a thread which could go on at most so many times
    #[arg(long, value_name = "N")]
    pub preemptions: Option<u8>,
    /// Give up after so many states (about 150 bytes of memory each)
    #[arg(long, value_name = "N", default_value_t = 20_000_000)]
    pub states: usize,
    /// Count symmetric states singly
    #[arg(long)]
    pub no_symmetry: bool,
    /// Also write a page with a sequence diagram of each failure
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Also write the sequence diagram of the failure, of one model
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `lab plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Containers of a machine, as TOML: cpus, kernel, and a list `[[container]]` with name, allowed, threads
    #[arg(value_name = "FILE.toml", conflicts_with_all = ["cpus", "allowed", "once_allowed", "threads", "kernel"])]
    pub file: Option<PathBuf>,
    /// The number of possible cpus [default: this machine's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=8192))]
    pub cpus: Option<u32>,
    /// The cpus that the process may run on: 0-15,32 [default: all, or this process's]
    #[arg(long, value_name = "LIST")]
    pub allowed: Option<String>,
    /// Cpus that it was allowed to run on before
    #[arg(long, value_name = "LIST")]
    pub once_allowed: Option<String>,
    /// The number of its threads [default: one for each allowed cpu]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    pub threads: Option<u32>,
    /// A kernel version, to be marked: 6.12
    #[arg(long, value_name = "VERSION")]
    pub kernel: Option<String>,
    /// Mark the kernel of this machine
    #[arg(long, conflicts_with_all = ["cpus", "kernel", "file"])]
    pub this_machine: bool,
    /// Also write a page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `lab simulate`.
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// Models as `lab list` names them, or the first part of their names (cid, futex, pvclock, rseq)
    #[arg(value_name = "MODEL", required = true)]
    pub models: Vec<String>,
    /// The same seed gives the same steps
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// How many steps
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub steps: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `clock`.
#[derive(Debug, Args)]
pub struct ClockArgs {
    /// How long to watch the clocks drift (10s, 10m, 8h)
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
    /// The file to publish to, in a directory that no other user may write to. Default: /run/corelocal/ENCODING for
    /// root, $XDG_RUNTIME_DIR/corelocal/ENCODING for other users
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The format of the page, which determines its content
    #[arg(long, value_enum, default_value_t = crate::clockd::Encoding::Vmclock)]
    pub encoding: crate::clockd::Encoding,
    /// Time between publications, at most 4s
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    #[arg(value_parser = crate::clockd::parse_every)]
    pub every: Duration,
    /// The source for the clock's error
    #[arg(long, value_enum, default_value_t = crate::clockd::source::Source::Auto)]
    pub source: crate::clockd::source::Source,
    /// Where chronyd answers: its socket, or an address with a port. Default: /run/chrony/chronyd.sock and, while
    /// only root may listen there, port 323 of this machine
    #[arg(long, value_name = "WHERE", value_parser = crate::clockd::chrony::Place::parse)]
    pub chrony: Option<crate::clockd::chrony::Place>,
    /// The hypervisor's page, whose disruptions are copied if it exists
    #[arg(long, value_name = "FILE", default_value = crate::clockd::device::DEVICE)]
    pub vmclock: PathBuf,
    /// The clock's maximum error (40us, 5ms), overriding the source: for a machine that follows its host's clock, for
    /// example
    #[arg(long, value_name = "ERROR", value_parser = crate::clockd::parse_error)]
    pub max_error: Option<Duration>,
    /// End after this time
    #[arg(long = "for", value_name = "TIME", value_parser = crate::torture::parse_time)]
    pub time: Option<Duration>,
}

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
    #[arg(long = "for", value_name = "TIME", value_parser = crate::torture::parse_time)]
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

/// Arguments of `heap`.
#[derive(Debug, Args)]
#[command(override_usage = "corelocal heap [OPTIONS] FILE...\n       \
                            corelocal heap --diff BEFORE [OPTIONS] AFTER\n       \
                            corelocal heap [OPTIONS] [--] PROGRAM [ARGUMENT]...")]
pub struct HeapArgs {
    /// Files written by a program with corelocal's malloc that was started with CORELOCAL_MALLOC=profile. Without a
    /// slash, only a name that ends in .heap is a file. Or a program to run with that malloc, with its arguments. Its
    /// exit code is passed on, and the report goes to standard error. With --json and without --output that goes to
    /// standard output, and the program's output to standard error
    #[arg(value_name = "FILE|PROGRAM", required = true)]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub target: Vec<OsString>,
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
    #[arg(value_parser = crate::heap::parse_size)]
    pub rate: u64,
    /// Profile the program for this time (5s, 10m), and ask it to end (SIGTERM); it is killed 10s later
    #[arg(long = "for", value_name = "TIME", value_parser = crate::torture::parse_time)]
    pub time: Option<Duration>,
    /// Show the difference from this older profile of the same program; for files
    #[arg(long, value_name = "BEFORE")]
    pub diff: Option<PathBuf>,
    /// The number of call sites to show
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
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Write the report to this file, not to standard error
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

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
