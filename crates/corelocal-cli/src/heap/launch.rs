//! A program that is run with corelocal's malloc and a profile, with all processes that come of it.
//!
//! Each of them writes its profile when it ends, into a folder that is there for this alone; when it is over because
//! of the time, the program is asked for one by a signal first.
//!
//! Invariants:
//! - The folder is gone at the end, whatever happened.
//! - The program has our standard input, output and error; with `--json`, its output goes to standard error.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};

use super::file::{self, Heap};
use crate::cli::HeapArgs;
use crate::clock::signals;
use crate::locks::launch::{Folder, code, signal};
use crate::mallocs::library;
use crate::run::program::{Program, Refusal};

const TURN: Duration = Duration::from_millis(20);
/// How long a program has to do what it was asked for.
const PATIENCE: Duration = Duration::from_secs(10);
/// The signal that asks for a profile: one that programs hardly use.
const ASKS: libc::c_int = 61;

/// What the processes wrote, and how the program ended.
pub fn look(args: &HeapArgs) -> Result<(Vec<Heap>, ExitCode), Refusal> {
    let malloc = library::ours().map_err(Refusal::unable)?;
    let (program, arguments) =
        args.target.split_first().context("no program is named").map_err(Refusal::unable)?;
    let program = Program::find(program)?;
    program.takes(&malloc)?;
    let folder = Folder::new("heap").map_err(Refusal::unable)?;
    let mut command = Command::new(&program.path);
    command.arg0(&program.name).args(arguments);
    if let Some(value) = malloc.preload(std::env::var_os("LD_PRELOAD").as_deref()) {
        command.env("LD_PRELOAD", value);
    }
    command.env("CORELOCAL_MALLOC", words(&folder.0, args.options.rate));
    if args.options.json {
        command.stdout(Stdio::from(std::io::stderr()));
    }
    let began = Instant::now();
    let child = command.spawn().map_err(|error| {
        Refusal::unfit(format!("cannot run {}: {error}", program.path.display()))
    })?;
    let status = wait(child, args.options.time.map(|time| began + time), &folder)
        .map_err(Refusal::unable)?;
    let mut heaps: Vec<Heap> = Vec::new();
    for heap in folder.profiles().iter().filter_map(|path| file::read(path).ok()) {
        keep(&mut heaps, heap);
    }
    heaps.sort_by_key(|heap| std::cmp::Reverse((heap.in_use, heap.peak)));
    Ok((heaps, code(status)))
}

/// What else the environment asks the malloc for goes before what we do: what is found first counts, but for the
/// place of files and the rate.
fn words(folder: &Path, rate: u64) -> OsString {
    let before = std::env::var("CORELOCAL_MALLOC").unwrap_or_default();
    let others = before.split(',').filter(|word| !word.is_empty() && !word.starts_with("profile"));
    let mut words: Vec<String> = others.map(str::to_owned).collect();
    words.push(format!("profile:{}/of", folder.display()));
    words.push(format!("profile-rate:{rate}"));
    words.push(format!("profile-signal:{ASKS}"));
    words.join(",").into()
}

/// Of several profiles of one program in one process, the one with most in use.
fn keep(heaps: &mut Vec<Heap>, heap: Heap) {
    let program = |heap: &Heap| {
        heap.maps.lines().next().and_then(|line| line.split('/').next_back().map(str::to_owned))
    };
    let same =
        heaps.iter_mut().find(|it| it.process == heap.process && program(it) == program(&heap));
    match same {
        Some(known) if known.in_use >= heap.in_use => {}
        Some(known) => *known = heap,
        None => heaps.push(heap),
    }
}

/// Until it ends; at `end` it is asked for a profile, and then to end.
fn wait(mut child: Child, end: Option<Instant>, folder: &Folder) -> anyhow::Result<ExitStatus> {
    let mut asked = None;
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for the program")? {
            return Ok(status);
        }
        let is_over = end.is_some_and(|end| Instant::now() >= end);
        // What comes from the terminal comes to the program too, which may have its own idea of it.
        let is_told = matches!(signals::which(), Some(libc::SIGTERM | libc::SIGHUP));
        if asked.is_none() && (is_over || is_told) {
            ask(&mut child, folder);
            signal(&child, libc::SIGTERM);
            asked = Some(Instant::now());
        }
        if asked.is_some_and(|asked| asked.elapsed() > PATIENCE) {
            signal(&child, libc::SIGKILL);
        }
        thread::sleep(TURN);
    }
}

/// For a profile, which is there when this ends, if it comes at all.
fn ask(child: &mut Child, folder: &Folder) {
    let before = folder.profiles().len();
    let began = Instant::now();
    signal(child, ASKS);
    while began.elapsed() < PATIENCE && matches!(child.try_wait(), Ok(None)) {
        let profiles = folder.profiles();
        let is_there = profiles.len() > before
            && profiles.iter().all(|path| file::read(path).is_ok_and(|heap| heap.is_whole));
        if is_there {
            return;
        }
        thread::sleep(TURN);
    }
}

/// Why there is nothing to show.
pub fn nothing(rate: u64) -> anyhow::Error {
    anyhow!(
        "no process of the program wrote a profile: it ended by a signal, by _exit(2), or goes on in the background. \
         Let it end by itself; or say --for TIME, after which it is asked for a profile; or let it call \
         corelocal_malloc_profile(NULL) (one object was sampled for each {rate} bytes)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_profile_of_each_program() {
        let heap = |process, in_use, program: &str| Heap {
            process,
            in_use,
            maps: format!("1-2 r-xp 0 0:0 1 /bin/{program}\n"),
            ..Heap::default()
        };
        let mut heaps = Vec::new();
        for it in [
            heap(1, 5, "sh"),
            heap(1, 7, "ls"),
            heap(1, 3, "ls"),
            heap(1, 9, "sh"),
            heap(2, 0, "sh"),
        ] {
            keep(&mut heaps, it);
        }
        let kept: Vec<(u64, u64)> = heaps.iter().map(|heap| (heap.process, heap.in_use)).collect();
        assert_eq!(kept, [(1, 9), (1, 7), (2, 0)]);
    }
}
