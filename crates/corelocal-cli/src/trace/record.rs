//! `corelocal trace record`: a program with all processes that come of it, recorded to disk.
//!
//! Each process records into a file in memory, in a folder that is there for this alone, and this process copies full
//! buffers from there. So a program that is killed loses no event, and needs no thread of its own for it.
//!
//! Invariants:
//! - The folder is gone at the end, whatever happened.
//! - The program has our standard input, output and error.
//! - What was recorded stays, also after Ctrl-C.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use corelocal::trace::Drain;
use corelocal_trace::Recording;

use crate::cli::RecordArgs;
use crate::output::{self, complain, path_line, remark};
use crate::process::ending::{Ending, code};
use crate::process::folder::Folder;
use crate::process::{ignored_signals, signals};

/// How long it sleeps between looks for full buffers.
const TURN: Duration = Duration::from_millis(20);

/// A process that records.
struct Process {
    drain: Drain,
    /// Where its events go.
    to: PathBuf,
    has_failed: bool,
}

/// The command.
pub fn run(args: &RecordArgs) -> anyhow::Result<ExitCode> {
    let folder = Folder::new("trace")?;
    let (program, arguments) = args.program.split_first().context("no program was given")?;
    let mut command = Command::new(program);
    command.args(arguments).env("CORELOCAL_TRACE", wish(args, &folder)?);
    ignored_signals::give_to(&mut command);
    let output = args.output.clone().unwrap_or_else(|| "corelocal.trace".into());
    // What cannot be written is said before the program runs.
    File::create(&output).with_context(|| format!("cannot write {}", path_line(&output)))?;
    let child = command.spawn().inspect_err(|_| {
        // It is empty.
        let _ = std::fs::remove_file(&output);
    });
    let child = child.with_context(|| {
        let program = path_line(Path::new(program));
        format!("cannot run {program}; name a program, with its path if it is not in PATH")
    })?;
    let mut recorder = Recorder { folder, output, known: HashSet::new(), processes: Vec::new() };
    let status = recorder.wait(child)?;
    recorder.finish();
    Ok(code(status))
}

/// The value of the variable.
fn wish(args: &RecordArgs, folder: &Folder) -> anyhow::Result<OsString> {
    let mut wish = OsString::from("drained,children,file=");
    wish.push(folder.path());
    wish.push(format!("/%p.trace,max-bytes={}", args.max_bytes));
    for pattern in &args.only {
        anyhow::ensure!(
            !pattern.contains(','),
            "a pattern has no comma: {}",
            output::one_line(pattern.clone())
        );
    }
    if !args.only.is_empty() {
        wish.push(",off=*");
    }
    args.only.iter().for_each(|pattern| wish.push(format!(",on={pattern}")));
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
    fn wait(&mut self, mut child: Child) -> anyhow::Result<std::process::ExitStatus> {
        let mut ending: Option<Ending> = None;
        loop {
            let status = child.try_wait().context("cannot wait for the program")?;
            self.look(status.is_some());
            if let Some(status) = status {
                return Ok(status);
            }
            match &mut ending {
                Some(ending) => ending.insist(&child),
                None if signals::came_for_us() => ending = Some(Ending::ask(&child, false)),
                None => {}
            }
            thread::sleep(TURN);
        }
    }

    /// Copies what is full; at the end, all.
    fn look(&mut self, is_end: bool) {
        for path in self.folder.profiles() {
            // One that is incomplete still is found at the next look.
            if let Err(why) = self.find(&path) {
                complain(format_args!("cannot record {}: {why:#}", path_line(&path)));
            }
        }
        for process in &mut self.processes {
            match process.drain.copy(is_end) {
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
        let file = File::create(&to).with_context(|| format!("cannot write {}", path_line(&to)))?;
        let drain = Drain::new(Box::new(memory), file)?;
        self.processes.push(Process { drain, to, has_failed: false });
        Ok(())
    }

    /// Says what was recorded.
    fn finish(&self) {
        if self.processes.is_empty() {
            // It was made to see whether it can be written.
            let _ = std::fs::remove_file(&self.output);
            remark(
                "nothing was recorded: the program has no events of corelocal::trace, or no memory for them (see its \
                 standard error)\n",
            );
        }
        for Process { to, .. } in &self.processes {
            let name = path_line(to);
            match Recording::open(to) {
                Ok(recording) => {
                    let events = recording.events().count();
                    let lost = recording.lost();
                    let process = recording.process();
                    remark(format_args!(
                        "process {process}: {events} events in {name}, {lost} lost\n"
                    ));
                }
                Err(error) => complain(format_args!("cannot read {name}: {error}")),
            }
        }
    }
}
