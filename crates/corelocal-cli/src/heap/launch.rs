//! A program that is run with corelocal's malloc and a profile, with all processes that come of it. A Rust program with
//! `CoreLocal` has that malloc already.
//!
//! Each of them writes its profile when it ends, into a folder that is there for this alone; when it is over because
//! of the time, the program is asked for one by a signal first. A program that runs for a while is told to write one also
//! when a signal ends it: Ctrl-C comes to it by itself.
//!
//! Invariants:
//! - The folder is gone at the end, whatever happened.
//! - A program that the signal would end is not sent it, as far as that can be seen: between the look and the signal
//!   it may become another one.
//! - The program has our standard input, output and error; with `--json` and without `--output`, its output goes to
//!   standard error.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use corelocal_support::mallocs::{Malloc, library};
use corelocal_support::output::path_line;
use corelocal_support::process::ending::{PATIENCE, code, signal, signal_with};
use corelocal_support::process::folder::Folder;
use corelocal_support::process::launch::{self, Look};
use corelocal_support::process::proc_files;

use super::args::HeapArgs;
use super::cause;
use super::file::{self, Heap};
use crate::run::program::{Program, Refusal};

const TURN: Duration = Duration::from_millis(20);
/// The time that a program may take for its profile, as long as the profile grows.
const MOST_PATIENCE: Duration = Duration::from_secs(60);
/// The signal that asks for a profile: one that programs hardly use.
const ASKS: libc::c_int = 61;
/// The value with that signal: the program's end by a signal is to write a profile first. The malloc has the same.
const PROFILE_AT_END: usize = 0x656e64;
/// The signals of which that is true.
const ENDS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
/// The time after which a new program has most likely installed its signal handlers.
const SETTLED: Duration = Duration::from_millis(300);

/// The results of a program's run.
pub struct Looked {
    /// The profiles of its processes.
    pub heaps: Vec<Heap>,
    /// The program's exit code.
    pub code: ExitCode,
    /// The reason why it was not asked for a profile, or wrote none.
    pub complaint: Option<String>,
}

/// Runs the program, until it ends or the time is over.
pub fn look(args: &HeapArgs) -> Result<Looked, Refusal> {
    let before = std::env::var("CORELOCAL_MALLOC").unwrap_or_default();
    let words = |folder: &Path| words(&before, folder, args.options.rate);
    let (program, arguments) =
        args.target.split_first().context("no program was given").map_err(Refusal::unable)?;
    let program = Program::find(program)?;
    let ours = library::ours().map_err(Refusal::unable)?;
    let malloc = match program.takes(&ours) {
        // Its own malloc writes the profile.
        Err(_) if program.has_core_local() => Malloc::of_libc(),
        answer => answer.map(|()| ours)?,
    };
    may_be_profiled(&before).map_err(Refusal::unable)?;
    let folder = Folder::with_room("heap").map_err(Refusal::unable)?;
    let mut command = Command::new(&program.path);
    command.arg0(&program.name).args(arguments);
    if let Some(value) = malloc.preload(std::env::var_os("LD_PRELOAD").as_deref()) {
        command.env("LD_PRELOAD", value);
    }
    command.env("CORELOCAL_MALLOC", words(folder.path()));
    if args.options.json && args.options.output.is_none() {
        command.stdout(Stdio::from(std::io::stderr()));
    }
    let began = Instant::now();
    let mut child = command.spawn().map_err(|error| {
        Refusal::unfit(format!("cannot run {}: {error}", path_line(&program.path)))
    })?;
    let end = args.options.time.map(|time| began + time);
    let main = u64::from(child.id());
    let mut watch = Watch::new(&folder);
    let status = launch::wait(&mut child, end, &mut watch).map_err(Refusal::unable)?;
    let Watch { is_deaf, answers, .. } = watch;
    let mut heaps: Vec<Heap> = Vec::new();
    let mut profiles = folder.profiles();
    without_later_ones(&mut profiles, &answers);
    profiles.sort_by_key(|path| number(path));
    for heap in profiles.iter().filter_map(|path| file::read(path).ok()) {
        keep(&mut heaps, heap);
    }
    // The program itself first: in a pid namespace of its own it is known to itself by another number.
    heaps.sort_by_key(|heap| (heap.process != main, std::cmp::Reverse((heap.in_use, heap.peak))));
    let complaint = match () {
        () if is_deaf => Some(cause::deaf(ASKS)),
        () if heaps.is_empty() => Some(cause::nothing(status, args.options.rate)),
        () => None,
    };
    Ok(Looked { heaps, code: code(status), complaint })
}

/// Checks whether the malloc writes a profile beside what else the environment asks it for.
fn may_be_profiled(before: &str) -> anyhow::Result<()> {
    if before.split(',').any(|word| word == "check") {
        bail!(
            "CORELOCAL_MALLOC={before} in the environment includes `check`, which excludes a profile; remove \
             that word: `unset CORELOCAL_MALLOC`, or set it to the other words"
        );
    }
    Ok(())
}

/// Puts what else the environment asks the malloc for before what we do: what is found first counts, but for
/// the place of files and the rate.
fn words(before: &str, folder: &Path, rate: u64) -> OsString {
    let others = before.split(',').filter(|word| !word.is_empty() && !word.starts_with("profile"));
    let mut words: Vec<String> = others.map(str::to_owned).collect();
    words.push(format!("profile:{}/of", folder.display()));
    words.push(format!("profile-rate:{rate}"));
    words.push(format!("profile-signal:{ASKS}"));
    words.join(",").into()
}

/// Returns the last two of PREFIX.PROCESS.NUMBER.heap, NUMBER first.
fn numbers(path: &Path) -> impl Iterator<Item = u64> {
    let name = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".heap"));
    name.unwrap_or_default().rsplit('.').map_while(|number| number.parse().ok())
}

/// Returns the profile's number: of those of a process, later ones have higher ones.
fn number(path: &Path) -> Option<u64> {
    numbers(path).next()
}

fn process(path: &Path) -> Option<u64> {
    numbers(path).nth(1)
}

/// Leaves out the profiles that the program wrote after it had answered: on its way to its end it gives back what it
/// had. Its other processes were not asked.
fn without_later_ones(profiles: &mut Vec<PathBuf>, answers: &[PathBuf]) {
    let is_later = |path: &Path| {
        answers.iter().any(|it| process(it) == process(path) && number(it) < number(path))
    };
    profiles.retain(|path| answers.contains(path) || !is_later(path));
}

/// Keeps, of several profiles of one program in one process, the one of which most was allocated: the last one of a malloc,
/// and that of `CoreLocal` where another one was preloaded. One that is cut off only if no other one is there.
fn keep(heaps: &mut Vec<Heap>, heap: Heap) {
    let program = |heap: &Heap| {
        heap.maps.lines().next().and_then(|line| line.split('/').next_back().map(str::to_owned))
    };
    let same =
        heaps.iter_mut().find(|it| it.process == heap.process && program(it) == program(&heap));
    match same {
        Some(known) if known.is_whole && !heap.is_whole => {}
        Some(known) if known.is_whole && known.asked_for > heap.asked_for => {}
        Some(known) => *known = heap,
        None => heaps.push(heap),
    }
}

/// The state of a look at a running program.
struct Watch<'a> {
    folder: &'a Folder,
    began: Instant,
    /// The time of the next check whether its end would write a profile.
    next: Instant,
    /// Whether it could not be asked for a profile.
    is_deaf: bool,
    /// The profiles that it wrote when it was asked.
    answers: Vec<PathBuf>,
}

impl<'a> Watch<'a> {
    fn new(folder: &'a Folder) -> Self {
        let began = Instant::now();
        Watch { folder, began, next: began + SETTLED, is_deaf: false, answers: Vec::new() }
    }
}

impl Look for Watch<'_> {
    fn look(&mut self, program: &Child) {
        if Instant::now() >= self.next {
            // Less and less often: an older malloc would write a profile each time.
            self.next += 2 * (self.next - self.began);
            let signals = Signals::of(program.id());
            // It may have become another program since, or have changed its mind.
            if signals.catches(ASKS) && ENDS.iter().any(|end| signals.is_default(*end)) {
                // A process that has ended is told nothing.
                let _ = signal_with(program, ASKS, PROFILE_AT_END);
            }
        }
    }

    fn before_end(&mut self, program: &mut Child) {
        let is_deaf = !Signals::of(program.id()).catches(ASKS);
        if !is_deaf {
            self.answers = ask(program, self.folder);
        }
        self.is_deaf = is_deaf && matches!(program.try_wait(), Ok(None));
    }
}

/// The signal dispositions of a process, as far as /proc shows them.
struct Signals {
    caught: Option<u64>,
    ignored: Option<u64>,
}

impl Signals {
    fn of(process: u32) -> Signals {
        let status = proc_files::text(process, "status");
        let mask = |name| {
            let mask = status.lines().find_map(|line| line.strip_prefix(name))?;
            u64::from_str_radix(mask.trim(), 16).ok()
        };
        Signals { caught: mask("SigCgt:"), ignored: mask("SigIgn:") }
    }

    /// Returns `true` if it has a handler for a signal; it is taken to have one where that cannot be seen.
    fn catches(&self, signal: libc::c_int) -> bool {
        self.caught.is_none_or(|caught| caught >> (signal - 1) & 1 == 1)
    }

    /// Returns `true` if it is seen to do nothing about a signal.
    fn is_default(&self, signal: libc::c_int) -> bool {
        let of = |mask: Option<u64>| mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 0);
        of(self.caught) && of(self.ignored)
    }
}

/// Asks for a profile, and gives those that the process wrote since. They are whole, if they come at all in time: the
/// process may take its time as long as they grow.
fn ask(child: &mut Child, folder: &Folder) -> Vec<PathBuf> {
    let asked = Some(u64::from(child.id()));
    let before = folder.profiles();
    let answers = || {
        let mut profiles = folder.profiles();
        profiles.retain(|path| process(path) == asked && !before.contains(path));
        profiles
    };
    let (began, mut grew) = (Instant::now(), Instant::now());
    let mut seen = 0;
    if signal(child, ASKS).is_err() {
        return Vec::new();
    }
    while grew.elapsed() < PATIENCE
        && began.elapsed() < MOST_PATIENCE
        && matches!(child.try_wait(), Ok(None))
    {
        let profiles = answers();
        let sizes = profiles.iter().filter_map(|path| Some(path.metadata().ok()?.len()));
        let size: u64 = sizes.sum();
        let is_whole = |path| file::read(path).is_ok_and(|heap| heap.is_whole);
        // A file that still grows is not read, which would slow its writer down.
        if size != seen {
            (seen, grew) = (size, Instant::now());
        } else if !profiles.is_empty() && profiles.iter().all(|path| is_whole(path)) {
            return profiles;
        }
        thread::sleep(TURN);
    }
    answers()
}

#[cfg(test)]
mod tests;
