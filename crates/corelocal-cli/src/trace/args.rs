//! The arguments of `trace`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// Arguments of `trace`.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// The command of `trace`.
    #[command(subcommand)]
    pub command: TraceCommand,
}

/// The commands of `trace`.
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
    /// Selects the events that are exported.
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
    /// Selects the events that are shown.
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
