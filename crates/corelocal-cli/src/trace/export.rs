//! `corelocal trace export`: a recording in another format.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use corelocal_support::file;
use corelocal_support::output::{path_line, remark};
use corelocal_support::process::signals;
use corelocal_trace::{Event, Recording, chrome, ctf, json_lines, perfetto};

use super::args::{ExportArgs, Format};
use super::live::is_recording;
use super::{Filter, UNREADABLE, open, tell_problems, text};
use crate::progress::spinner;

/// The address at which a collector of this machine listens.
const COLLECTOR: &str = "http://localhost:4318/v1/traces";
/// After so many events the progress is shown.
const STEP: u64 = 1 << 14;

/// Runs the command.
pub fn run(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let Some(recording) = open(&args.file) else { return Ok(ExitCode::from(UNREADABLE)) };
    let to = args.output.clone().unwrap_or_else(|| {
        if args.to == Format::Otlp {
            return COLLECTOR.into();
        }
        let mut name = args.file.clone().into_os_string();
        name.push(args.to.ending());
        PathBuf::from(name)
    });
    // As other programs have it.
    let to = if to.as_os_str() == "-" { "/dev/stdout".into() } else { to };
    let name = path_line(&to);
    anyhow::ensure!(
        !is_recording(&to),
        "{name} is a recording, which an export does not replace; name another file"
    );
    let mut events = recording.events();
    let mut filter = Filter::new(&args.filter);
    let bar = spinner();
    let mut count = 0_u64;
    let mut shown = events
        .by_ref()
        .take_while(|_| {
            count += 1;
            if count % STEP == 0 {
                bar.set_message(format!("{count} events"));
                bar.tick();
            }
            // What was written so far is kept.
            !signals::came()
        })
        .filter(|event| filter.is_wanted(event));
    let written = write(&recording, args, &mut shown, &to);
    bar.finish_and_clear();
    let files = written.with_context(|| format!("cannot write {name}"))?;
    if signals::came() {
        remark(format_args!("interrupted: {name} has a part of the events\n"));
    }
    match files {
        1 => remark(format_args!("wrote {name}: {}\n", args.to.hint())),
        files => remark(format_args!("wrote {name} and {} more: {}\n", files - 1, args.to.hint())),
    }
    Ok(tell_problems(&args.file, &recording, &events))
}

/// Returns the number of files.
fn write<'r>(
    recording: &'r Recording,
    args: &ExportArgs,
    events: &mut dyn Iterator<Item = Event<'r>>,
    to: &Path,
) -> io::Result<u64> {
    let one_file = |write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>| {
        file::write_with(to, |to| {
            let mut to = BufWriter::new(to);
            write(&mut to)?;
            to.flush()
        })
    };
    match args.to {
        Format::ChromeJson => one_file(&mut |to| chrome::write(recording, events, to))?,
        Format::JsonLines => one_file(&mut |to| json_lines::write(events, to))?,
        Format::Text => one_file(&mut |to| {
            let mut lines = text::Lines::default();
            for event in &mut *events {
                writeln!(to, "{}", lines.line(&event))?;
            }
            Ok(())
        })?,
        Format::Ctf => folder(to, |to| ctf::write(recording, events, to, ctf::Version::V1_8))?,
        Format::Ctf2 => folder(to, |to| ctf::write(recording, events, to, ctf::Version::V2))?,
        Format::Parquet => return parquet(recording, args, events, to),
        Format::Otlp => return otlp(recording, args, events, to),
        Format::Perfetto => {
            let mut files = 0;
            let mut drafts = file::Drafts::default();
            let mut next = || -> io::Result<Box<dyn Write>> {
                files += 1;
                let path = part(to, files);
                if is_recording(&path) {
                    let why = format!("{} is a recording", path_line(&path));
                    return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
                }
                let file = drafts.create(&path)?;
                Ok(Box::new(BufWriter::with_capacity(1 << 16, file)))
            };
            // Standard output has one file.
            let is_file = to != Path::new("/dev/stdout");
            let most = if is_file { args.split } else { u64::MAX };
            perfetto::write(recording, events, &mut next, most)?;
            drafts.persist()?;
            return Ok(files);
        }
    }
    Ok(1)
}

/// Writes a folder, which gets its name when it is complete.
fn folder(to: &Path, write: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    if fs::read_dir(to).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the folder is not empty"));
    }
    let draft = beside(to)?;
    let new = draft.path().join("new");
    write(&new)?;
    fs::rename(&new, to)
}

/// Makes a folder for drafts of this file, on the same file system.
fn beside(to: &Path) -> io::Result<tempfile::TempDir> {
    let parent = to.parent().filter(|folder| !folder.as_os_str().is_empty());
    tempfile::Builder::new()
        .prefix(".corelocal.")
        .suffix(".tmp")
        .tempdir_in(parent.unwrap_or(Path::new(".")))
}

/// Writes to a file or below a folder, or by way of a temporary folder to an object store.
#[cfg(feature = "export")]
fn parquet<'r>(
    recording: &'r Recording,
    args: &ExportArgs,
    events: &mut dyn Iterator<Item = Event<'r>>,
    to: &Path,
) -> io::Result<u64> {
    use corelocal_trace::parquet;
    let address = to.to_str().filter(|to| to.starts_with("s3://"));
    let Some(address) = address else {
        if args.partition {
            fs::create_dir_all(to)?;
            let draft = tempfile::Builder::new().prefix(".corelocal.").tempdir_in(to)?;
            let files = parquet::write(recording, events, draft.path(), true)?;
            for file in &files {
                let Ok(name) = file.strip_prefix(draft.path()) else { continue };
                let to = to.join(name);
                fs::create_dir_all(to.parent().unwrap_or(&to))?;
                fs::rename(file, to)?;
            }
            return Ok(files.len() as u64);
        }
        let mut drafts = file::Drafts::default();
        parquet::write_file(recording, events, drafts.create(to)?)?;
        drafts.persist()?;
        return Ok(1);
    };
    let folder = tempfile::tempdir()?;
    let file = match args.partition {
        true => folder.path().to_owned(),
        false => {
            folder.path().join(format!("{}-{}.parquet", recording.host(), recording.process()))
        }
    };
    let files = parquet::write(recording, events, &file, args.partition)?;
    parquet::upload(folder.path(), &files, address).map(|files| files as u64)
}

#[cfg(feature = "export")]
fn otlp<'r>(
    recording: &'r Recording,
    args: &ExportArgs,
    events: &mut dyn Iterator<Item = Event<'r>>,
    to: &Path,
) -> io::Result<u64> {
    let address = to.to_str().unwrap_or_default();
    let spans = corelocal_trace::otlp::send(recording, events, address, &service(recording, args))?;
    remark(format_args!("sent {spans} spans\n"));
    Ok(1)
}

/// Returns the name of the service: of the option, else of OpenTelemetry's variable, else of the program.
#[cfg(feature = "export")]
fn service(recording: &Recording, args: &ExportArgs) -> String {
    let given = args.service_name.clone();
    let given = given.or_else(|| std::env::var("OTEL_SERVICE_NAME").ok());
    let program = || match recording.program() {
        name if name.is_empty() => format!("process {}", recording.process()),
        name => name,
    };
    given.filter(|name| !name.is_empty()).unwrap_or_else(program)
}

#[cfg(not(feature = "export"))]
fn parquet<'r>(
    _: &'r Recording,
    _: &ExportArgs,
    _: &mut dyn Iterator<Item = Event<'r>>,
    _: &Path,
) -> io::Result<u64> {
    Err(io::Error::new(io::ErrorKind::Unsupported, NOT_BUILT))
}

#[cfg(not(feature = "export"))]
fn otlp<'r>(
    _: &'r Recording,
    _: &ExportArgs,
    _: &mut dyn Iterator<Item = Event<'r>>,
    _: &Path,
) -> io::Result<u64> {
    Err(io::Error::new(io::ErrorKind::Unsupported, NOT_BUILT))
}

/// What a command without the feature `export` says.
pub const NOT_BUILT: &str = "this command was built without the feature `export`: build it with \
                         `cargo build --release -p corelocal-cli --features export`";

/// The first file has the name, the others have their number behind it.
fn part(to: &Path, number: u64) -> PathBuf {
    if number == 1 {
        return to.to_owned();
    }
    let mut name = to.to_owned().into_os_string();
    name.push(format!(".{number}"));
    name.into()
}

impl Format {
    /// Returns what is appended to a file's name.
    fn ending(self) -> &'static str {
        match self {
            Format::Perfetto => ".perfetto-trace",
            Format::ChromeJson => ".json",
            Format::JsonLines => ".jsonl",
            Format::Text => ".txt",
            Format::Ctf => ".ctf",
            Format::Ctf2 => ".ctf2",
            Format::Parquet | Format::Otlp => ".parquet",
        }
    }

    fn hint(self) -> &'static str {
        match self {
            Format::Perfetto | Format::ChromeJson => "open it in ui.perfetto.dev",
            Format::JsonLines => "an object in each line",
            Format::Text => "an event in each line",
            Format::Ctf => "`babeltrace2` shows the folder, Trace Compass opens it",
            Format::Ctf2 => "`babeltrace2` shows the folder, from version 2.1 on",
            Format::Parquet => "a table for DuckDB, Spark and others",
            Format::Otlp => "a collector has the spans",
        }
    }
}
