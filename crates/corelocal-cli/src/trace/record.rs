//! `corelocal trace record`: a program with all processes that come of it, recorded to disk.
//!
//! Each process records into a file in memory, in a folder that is there for this alone, and this process copies full
//! buffers from there. So a program that is killed loses no event, and needs no thread of its own for it.
//!
//! Invariants:
//! - The folder is gone at the end, whatever happened.
//! - The program has our standard input, output and error.
//! - What was recorded stays, also after Ctrl-C: then the rest is copied, and the summary is printed.
//! - A recording that is there stays until there is a new one, and is renamed then. Another file stays.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};

use anyhow::Context as _;
use corelocal::trace::format::{LOST_NAME, OVERWRITTEN_NAME};
use corelocal::trace::{Drain, replaceable, set_recording_aside};
use corelocal_support::output::{self, complain, path_line, remark};
use corelocal_support::process::ending::code;
use corelocal_support::process::folder::Folder;
use corelocal_support::process::{launch, signals};
use corelocal_trace::Recording;

use super::args::RecordArgs;

/// A process that records.
struct Process {
    drain: Drain,
    /// The file for its events until the end, and the file that it becomes then.
    draft: PathBuf,
    to: PathBuf,
    has_failed: bool,
}

/// Runs the command.
pub fn run(args: &RecordArgs) -> anyhow::Result<ExitCode> {
    let folder = Folder::new("trace")?;
    let (program, arguments) = args.program.split_first().context("no program was given")?;
    let mut command = Command::new(program);
    command.args(arguments).env("CORELOCAL_TRACE", wish(args, &folder)?);
    let output = args.output.clone().unwrap_or_else(|| "corelocal.trace".into());
    // What cannot be written is said before the program runs, and what is there stays until it has ended.
    let try_out = || {
        replaceable(&output)?;
        let draft = draft_of(&output);
        File::create(&draft)?;
        std::fs::remove_file(&draft)
    };
    try_out().with_context(|| format!("cannot write {}", path_line(&output)))?;
    signals::note();
    let mut child = launch::start(&mut command, "")?;
    let mut recorder = Recorder { folder, output, known: HashSet::new(), processes: Vec::new() };
    let status = launch::wait(&mut child, None, &mut |_: &Child| recorder.look(false))?;
    recorder.look(true);
    let is_whole = recorder.finish();
    signals::note_no_more();
    Ok(match status.success() && !is_whole {
        true => ExitCode::FAILURE,
        false => code(status),
    })
}

/// The name of a file while it is written.
fn draft_of(to: &Path) -> PathBuf {
    let mut name = to.to_owned().into_os_string();
    name.push(format!(".{}.part", std::process::id()));
    name.into()
}

/// Returns the value of the variable.
fn wish(args: &RecordArgs, folder: &Folder) -> anyhow::Result<OsString> {
    let mut wish = OsString::from("drained,children,file=");
    wish.push(folder.path());
    wish.push(format!("/%p.trace,max-bytes={}", args.max_bytes));
    for pattern in args.only.iter().chain(&args.sample) {
        anyhow::ensure!(
            !pattern.contains(','),
            "a pattern has no comma: {}",
            output::one_line(pattern.clone())
        );
    }
    if args.coarse_times {
        wish.push(",coarse-times");
    }
    if !args.only.is_empty() {
        wish.push(",off=*");
    }
    args.only.iter().for_each(|pattern| wish.push(format!(",on={pattern}")));
    for sample in &args.sample {
        let every = sample.split_once(':').and_then(|(every, _)| every.parse::<u32>().ok());
        every.with_context(|| format!("--sample {sample}: not a number, a colon and a pattern"))?;
        wish.push(format!(",sample={sample}"));
    }
    Ok(wish)
}

struct Recorder {
    folder: Folder,
    output: PathBuf,
    /// Files that were seen: device and inode.
    known: HashSet<(u64, u64)>,
    processes: Vec<Process>,
}

impl Recorder {
    /// Copies what is full; at the end, all.
    fn look(&mut self, is_end: bool) {
        for path in self.folder.profiles() {
            // One that is incomplete still is found at the next look.
            if let Err(why) = self.find(&path) {
                complain(format_args!("cannot record {}: {why:#}", path_line(&path)));
            }
        }
        for process in &mut self.processes {
            let copied = if is_end { process.drain.finish() } else { process.drain.copy(false) };
            match copied {
                Ok(_) => process.has_failed = false,
                Err(error) if !process.has_failed || is_end => {
                    complain(format_args!("cannot write {}: {error}", path_line(&process.to)));
                    process.has_failed = true;
                }
                Err(_) => {}
            }
        }
    }

    /// Begins with a file that is new.
    fn find(&mut self, path: &Path) -> anyhow::Result<()> {
        let Ok(memory) = File::options().read(true).write(true).open(path) else { return Ok(()) };
        let meta = memory.metadata()?;
        let identity = (meta.dev(), meta.ino());
        if self.known.contains(&identity) || Recording::open(path).is_err() {
            return Ok(());
        }
        self.known.insert(identity);
        // The first process has the name that was asked for; a child's has its number.
        let to = match self.processes.len() {
            0 => self.output.clone(),
            nth => {
                let mut name = self.output.clone().into_os_string();
                let process = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                name.push(format!(".{}", process.split('.').next().unwrap_or_default()));
                // A process that has become another program has the same number.
                if self.processes.iter().any(|process| *process.to == *name) {
                    name.push(format!("-{nth}"));
                }
                name.into()
            }
        };
        let draft = draft_of(&to);
        let cannot = || format!("cannot write {}", path_line(&draft));
        let file = File::create(&draft).with_context(cannot)?;
        let drain = Drain::new(Box::new(memory), file).with_context(cannot)?;
        self.processes.push(Process { drain, draft, to, has_failed: false });
        Ok(())
    }

    /// Gives the files their names, and says what was recorded. False: a part of it could not be written.
    fn finish(&self) -> bool {
        if self.processes.is_empty() {
            remark(
                "nothing was recorded: the program has no events of corelocal::trace, or no memory for them (see its \
                 standard error)\n",
            );
        }
        let mut is_whole = true;
        for process in &self.processes {
            let name = path_line(&process.to);
            let moved = set_recording_aside(&process.to)
                .and_then(|()| std::fs::rename(&process.draft, &process.to));
            if let Err(error) = moved {
                is_whole = false;
                let draft = path_line(&process.draft);
                complain(format_args!("cannot write {name}: {error}; the recording is in {draft}"));
                continue;
            }
            match Recording::open(&process.to) {
                Ok(recording) => {
                    is_whole &= recording.unwritten() == 0 && recording.problems().is_empty();
                    let is_own = |name: &str| [LOST_NAME, OVERWRITTEN_NAME].contains(&name);
                    let events = recording.events().filter(|event| !is_own(event.name)).count();
                    let lost = recording.lost();
                    let process = recording.process();
                    remark(format_args!(
                        "process {process}: {events} events in {name}, {lost} lost\n"
                    ));
                }
                Err(error) => {
                    is_whole = false;
                    complain(format_args!("cannot read {name}: {error}"));
                }
            }
        }
        is_whole
    }
}
