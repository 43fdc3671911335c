//! A program that is run to be looked at, with all processes that come of it.
//!
//! Each of them leaves its profile in a folder that is there for this alone.
//!
//! Invariants:
//! - The folder is gone at the end, whatever happened.
//! - The program has our standard input, output and error; with `--json`, its output goes to standard error, so that
//!   standard output is JSON and nothing else.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::attach;
pub(crate) use super::folder::Folder;
use crate::clock::signals;
use crate::output::complain;

const TURN: Duration = Duration::from_millis(20);
/// How long a program has to end that was asked to, before it is killed or the user is told.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Runs the program, for so long at most, and reads what its processes left. They leave it in the folder that this
/// variable of their environment names. `read` gets the file of a process, and what /proc said last of the files that
/// this process had.
pub fn look<T>(
    target: &[OsString],
    time: Option<Duration>,
    is_quiet: bool,
    (variable, read): (&str, impl Fn(&Path, Option<String>) -> Option<T>),
) -> anyhow::Result<((Vec<T>, f64), ExitCode)> {
    let folder = Folder::new("locks")?;
    let (program, args) = target.split_first().context("no program is named")?;
    let mut command = Command::new(program);
    command.args(args).env(variable, &folder.0);
    if is_quiet {
        command.stdout(Stdio::from(std::io::stderr()));
    }
    let began = Instant::now();
    let child = command.spawn().with_context(|| {
        let program = Path::new(program).display();
        format!("cannot run {program}; name a program, with its path if it is not in PATH, or the number of a process")
    })?;
    let (status, maps) = wait(child, time.map(|time| began + time), &folder)?;
    let lasted = began.elapsed();
    let read = |path: &PathBuf| read(path, maps.get(path).cloned());
    let processes = folder.profiles().iter().filter_map(read).collect();
    Ok(((processes, lasted.as_secs_f64()), code(status)))
}

/// How a program is asked to end: by SIGTERM, once. A program that does not end in time is killed if `--for` ends it. If
/// another process has sent SIGTERM to this one, that process decides how long the program may take.
pub(crate) struct Ending {
    asked: Instant,
    is_ours: bool,
    is_told: bool,
}

impl Ending {
    pub(crate) fn ask(child: &Child, is_ours: bool) -> Ending {
        signal(child, libc::SIGTERM);
        Ending { asked: Instant::now(), is_ours, is_told: false }
    }

    /// Done now and then until the program has ended.
    pub(crate) fn insist(&mut self, child: &Child) {
        if self.asked.elapsed() <= PATIENCE {
            return;
        }
        if self.is_ours {
            signal(child, libc::SIGKILL);
        } else if !self.is_told {
            let (seconds, process) = (PATIENCE.as_secs(), child.id());
            complain(format_args!(
                "the program has not ended within {seconds} s of SIGTERM, and is waited for; to end it at once: \
                 kill -KILL {process}"
            ));
            self.is_told = true;
        }
    }
}

/// Until it ends; it is asked to at `end`. What files its processes had, as far as that was seen.
fn wait(
    mut child: Child,
    end: Option<Instant>,
    folder: &Folder,
) -> anyhow::Result<(ExitStatus, BTreeMap<PathBuf, String>)> {
    let mut maps = BTreeMap::new();
    let mut ending: Option<Ending> = None;
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for the program")? {
            return Ok((status, maps));
        }
        for path in folder.profiles() {
            // Files that were loaded later than its first wait.
            if let Some(now) = process_of(&path).and_then(maps_of) {
                maps.insert(path, now);
            }
        }
        let is_over = end.is_some_and(|end| Instant::now() >= end);
        match &mut ending {
            Some(ending) => ending.insist(&child),
            None if is_over => ending = Some(Ending::ask(&child, true)),
            None if signals::came_for_us() => ending = Some(Ending::ask(&child, false)),
            None => {}
        }
        thread::sleep(TURN);
    }
}

pub(crate) fn signal(child: &Child, signal: libc::c_int) {
    // SAFETY: a child of ours that was not waited for, so the number is still its own.
    unsafe { libc::kill(child.id() as libc::pid_t, signal) };
}

/// The process that left a profile: its number is in the file's name.
fn process_of(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    let rest = [attach::FILE, attach::ORDER_FILE].iter().find_map(|file| name.strip_prefix(file));
    rest?.split('.').next()?.parse().ok()
}

fn maps_of(process: u32) -> Option<String> {
    super::proc_files::maps(process).ok().flatten()
}

/// As a shell has it.
pub(crate) fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_a_file_is() {
        for (path, process) in [
            ("/x/corelocal-locks.12", Some(12)),
            ("/x/corelocal-locks.12.1", Some(12)),
            ("/x/corelocal-order.12", Some(12)),
            ("/x/corelocal-locks.", None),
            ("/x/other.12", None),
        ] {
            assert_eq!(process_of(Path::new(path)), process, "{path}");
        }
    }

    #[test]
    fn a_program_is_killed_only_if_the_time_is_ours() {
        for is_ours in [false, true] {
            let sleeps = Command::new("sh").args(["-c", "trap '' TERM; exec sleep 60"]).spawn();
            let mut child = sleeps.expect("a shell");
            let long_ago = Instant::now().checked_sub(PATIENCE * 2).expect("it runs that long");
            let mut ending = Ending { asked: long_ago, is_ours, is_told: false };
            ending.insist(&child);
            assert_eq!(ending.is_told, !is_ours);
            if !is_ours {
                assert_eq!(child.try_wait().ok(), Some(None));
                signal(&child, libc::SIGKILL);
            }
            let status = child.wait().expect("a child");
            assert_eq!(status.signal(), Some(libc::SIGKILL));
        }
    }

    #[test]
    fn codes_are_the_programs() {
        let status = |raw| code(ExitStatus::from_raw(raw));
        assert_eq!(status(0), ExitCode::SUCCESS);
        assert_eq!(status(7 << 8), ExitCode::from(7));
        assert_eq!(status(libc::SIGKILL), ExitCode::from(137));
    }
}
