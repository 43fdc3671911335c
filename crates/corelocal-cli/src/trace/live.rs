//! The recording of a running process: `status`, `list`, `dump`, `enable` and `disable`.
//!
//! A process has its recording in memory without a name, or in a file, and keeps a descriptor of it open.

use std::ffi::CString;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, anyhow};
use corelocal::trace::format::{self, FieldType};
use corelocal::trace::{self, Level, Remote};
use corelocal_support::file;
use corelocal_support::output::{self, one_line, path_line, remark};
use corelocal_trace::{Kind, Recording, Site};
use serde::Serialize;

use super::args::{DumpArgs, LiveArgs, SwitchArgs};
use super::linked;
use crate::kept::{Kept, wait_for};

/// The recording of a process, and where it is.
struct Live {
    path: PathBuf,
    recording: Recording,
}

impl Kept for Live {
    const VARIABLE: &str = "CORELOCAL_TRACE";

    fn is_wish(_value: &[u8]) -> bool {
        // It would have been made before `main`.
        false
    }

    fn may_be(target: &Path, at: &Path) -> bool {
        let is_nameless = target.as_os_str() == "/memfd:corelocal-trace (deleted)";
        // A file is opened only to read from it: no device and no pipe is.
        is_nameless || is_recording(at)
    }

    fn open(path: &Path) -> anyhow::Result<Live> {
        let recording = Recording::open(path)?;
        if recording.is_file() {
            return Err(anyhow!("a file that was written, and not the memory of a process"));
        }
        Ok(Live { path: path.to_owned(), recording })
    }

    fn process(&self) -> u32 {
        self.recording.process() as u32
    }

    fn none(process: u32, name: &str) -> anyhow::Error {
        anyhow!(
            "process {process} ({name}) records nothing: it does not call corelocal::trace::start, or was started without \
             CORELOCAL_TRACE in its environment. Start it with CORELOCAL_TRACE=on, or by `corelocal trace record`"
        )
    }
}

/// Returns `true` if a regular file begins as a recording does.
pub(super) fn is_recording(path: &Path) -> bool {
    let mut first = [0; 8];
    let is_file = path.metadata().is_ok_and(|meta| meta.is_file());
    is_file
        && File::open(path).is_ok_and(|mut file| file.read_exact(&mut first).is_ok())
        && first == format::MAGIC.to_le_bytes()
}

fn find(process: u32) -> anyhow::Result<Live> {
    let found = wait_for::<Live>(process, Instant::now())?;
    found.ok_or_else(|| Live::none(process, "?"))
}

/// The answer of `status`.
#[derive(Serialize)]
struct Status {
    process: u64,
    is_recording: bool,
    sites: usize,
    sites_on: usize,
    buffers_begun: u64,
    /// Bytes of events that there is room for.
    bytes: u64,
    events: u64,
    lost: u64,
    overwritten_bytes: u64,
    sites_left_out: u64,
    disk_error: Option<String>,
}

/// Runs `corelocal trace status PROCESS`.
pub fn status(args: &LiveArgs) -> anyhow::Result<ExitCode> {
    let Live { recording, .. } = find(args.process)?;
    let sites: Vec<&Site> = recording.sites().filter(|site| is_of_program(site)).collect();
    let error = recording.disk_error().map(std::io::Error::from_raw_os_error);
    let status = Status {
        process: recording.process(),
        is_recording: sites.iter().any(|site| site.is_on),
        sites: sites.len(),
        sites_on: sites.iter().filter(|site| site.is_on).count(),
        buffers_begun: recording.begun(),
        bytes: recording.room(),
        events: recording.events().count() as u64,
        lost: recording.lost(),
        overwritten_bytes: recording.overwritten().map_or(0, |overwritten| overwritten.bytes),
        sites_left_out: recording.sites_left_out(),
        disk_error: error.map(|error| error.to_string()),
    };
    if args.json {
        return output::finish(
            format!("{}\n", serde_json::to_string_pretty(&status)?),
            ExitCode::SUCCESS,
        );
    }
    let state = match (status.sites, status.sites_on) {
        (0, _) => "recording, but no event was reached yet",
        (_, 0) => "all events are switched off",
        _ => "recording",
    };
    let mut text = format!(
        "process {}: {state}, {} events in memory, {} lost\n{} of {} sites are on; {} buffers were begun, memory for {} MiB\n",
        status.process,
        status.events,
        status.lost,
        status.sites_on,
        status.sites,
        status.buffers_begun,
        status.bytes >> 20,
    );
    for line in recording.remarks() {
        text += &format!("{line}\n");
    }
    if let Some(error) = status.disk_error {
        text += &format!("the file of the recording cannot be written: {error}\n");
    }
    output::finish(text, ExitCode::SUCCESS)
}

/// A line of `list`.
#[derive(Serialize)]
struct Listed {
    name: String,
    kind: &'static str,
    is_reached: bool,
    is_on: bool,
    /// The number of events of which one is recorded.
    every: u32,
    level: Option<&'static str>,
    lost: u64,
    /// Names and types; unknown before the site is reached.
    fields: Vec<String>,
}

/// Runs `corelocal trace list PROCESS`.
pub fn list(args: &LiveArgs) -> anyhow::Result<ExitCode> {
    let Live { recording, .. } = find(args.process)?;
    let reached = |site: &Site| Listed {
        name: site.name.clone(),
        kind: kind(site.kind),
        is_reached: true,
        is_on: site.is_on,
        every: site.every,
        level: site.level.map(Level::name),
        lost: site.lost,
        fields: site.fields.iter().skip(usize::from(site.level.is_some())).map(field).collect(),
    };
    let of_program = recording.sites().filter(|site| is_of_program(site));
    let mut all: Vec<Listed> = of_program.map(reached).collect();
    for (name, of) in linked::sites(args.process) {
        if all.iter().all(|site| site.name != name) {
            all.push(Listed {
                name,
                kind: kind(of),
                is_reached: false,
                is_on: false,
                every: 1,
                level: None,
                lost: 0,
                fields: Vec::new(),
            });
        }
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    if args.json {
        return output::finish(
            format!("{}\n", serde_json::to_string_pretty(&all)?),
            ExitCode::SUCCESS,
        );
    }
    let mut text =
        format!("{:<10}{:<6}{:<6}{:>8}  NAME AND FIELDS\n", "ON", "KIND", "LEVEL", "LOST");
    for site in all {
        let name = one_line(site.name);
        let level = site.level.unwrap_or("-");
        let is_on = match site.every {
            _ if !site.is_on => "no".into(),
            1 => "yes".into(),
            every => format!("1 of {every}"),
        };
        text += &match site.is_reached {
            true => format!(
                "{is_on:<9} {:<6}{level:<6}{:>8}  {name}({})\n",
                site.kind,
                site.lost,
                site.fields.join(", ")
            ),
            false => {
                format!(
                    "{:<10}{:<6}{:<6}{:>8}  {name}, not reached yet\n",
                    "-", site.kind, "-", "-"
                )
            }
        };
    }
    output::finish(text, ExitCode::SUCCESS)
}

/// Returns `true` if a site is none of the tracer's own.
fn is_of_program(site: &Site) -> bool {
    ![format::LOST_NAME, format::OVERWRITTEN_NAME].contains(&&*site.name)
}

fn field((name, of): &(String, FieldType)) -> String {
    let letter = format!("{:?}", of.of).to_lowercase();
    if of.is_array { format!("{name}: [{letter}]") } else { format!("{name}: {letter}") }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Event => "event",
        Kind::Span => "span",
        Kind::TaskSpan => "task",
    }
}

/// Runs `corelocal trace dump PROCESS`.
pub fn dump(args: &DumpArgs) -> anyhow::Result<ExitCode> {
    let Live { path, .. } = find(args.process)?;
    let to = args.output.clone().unwrap_or_else(|| format!("{}.trace", args.process).into());
    let from = File::open(&path).with_context(|| format!("cannot read {}", path_line(&path)))?;
    let len = file::write_with(&to, |to| {
        let mut to = std::io::BufWriter::new(to);
        let len = trace::copy_from(&from, &mut to)?;
        to.flush()?;
        Ok(len)
    });
    let name = path_line(&to);
    let len = len.with_context(|| format!("cannot write {name}"))?;
    remark(format_args!("wrote {name}, {len} bytes: `corelocal trace view` shows it\n"));
    Ok(ExitCode::SUCCESS)
}

/// Runs `corelocal trace enable PROCESS PATTERN` and `disable`.
pub fn switch(args: &SwitchArgs, every: u32) -> anyhow::Result<ExitCode> {
    let Live { path, .. } = find(args.process)?;
    let path = CString::new(path.as_os_str().as_bytes())?;
    let switched = Remote::open(&path).and_then(|remote| remote.switch(&args.pattern, every));
    let process = args.process;
    let sites =
        switched.with_context(|| format!("cannot switch the sites of process {process}"))?;
    let state = match every {
        0 => "off".to_owned(),
        1 => "on".to_owned(),
        every => format!("on for one event of {every}"),
    };
    let pattern = one_line(args.pattern.clone());
    output::finish(
        format!("{pattern} is {state}: {sites} sites that were reached match; others follow\n"),
        ExitCode::SUCCESS,
    )
}
