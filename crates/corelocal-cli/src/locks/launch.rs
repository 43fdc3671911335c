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
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::attach;
pub(crate) use super::folder::Folder;
use crate::clock::signals;
use crate::inherited;
use crate::output::{complain, path_line};

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
    command.args(args).env(variable, folder.path());
    if is_quiet {
        command.stdout(Stdio::from(std::io::stderr()));
    }
    inherited::give_to(&mut command);
    let began = Instant::now();
    let child = command.spawn().with_context(|| {
        let program = path_line(Path::new(program));
        format!("cannot run {program}; name a program, with its path if it is not in PATH, or the number of a process")
    })?;
    let (status, maps) = wait(child, time.map(|time| began + time), &folder)?;
    let lasted = began.elapsed();
    let read = |path: &PathBuf| read(path, maps.get(path).cloned());
    let processes = folder.profiles().iter().filter_map(read).collect();
    Ok(((processes, lasted.as_secs_f64()), code(status)))
}

/// How a program is asked to end: by SIGTERM, once. A program that does not end in time is killed if `--for` ends it. If
/// another process has sent SIGTERM to this one, that process decides how long the program may take. A program of another
/// user, as sudo starts one, gets no signals of ours: it is waited for, and the user is told.
pub(crate) struct Ending {
    asked: Instant,
    is_ours: bool,
    is_told: bool,
}

impl Ending {
    pub(crate) fn ask(child: &Child, is_ours: bool) -> Ending {
        let mut ending = Ending { asked: Instant::now(), is_ours, is_told: false };
        ending.send(child, libc::SIGTERM);
        ending
    }

    fn send(&mut self, child: &Child, number: libc::c_int) {
        let Err(error) = signal(child, number) else { return };
        let process = child.id();
        complain(format_args!(
            "the program cannot be ended, and is waited for: signal {number} to process {process}: {error}. If it runs as \
             another user, let that user end it: sudo kill {process}"
        ));
        self.is_told = true;
    }

    /// Done now and then until the program has ended.
    pub(crate) fn insist(&mut self, child: &Child) {
        if self.is_told || self.asked.elapsed() <= PATIENCE {
            return;
        }
        if self.is_ours {
            self.send(child, libc::SIGKILL);
        } else {
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
            if let Some(now) = maps_of_writer(&path) {
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

/// # Errors
/// The program runs as another user.
pub(crate) fn signal(child: &Child, signal: libc::c_int) -> io::Result<()> {
    // SAFETY: a child of ours that was not waited for, so the number is still its own.
    match unsafe { libc::kill(child.id() as libc::pid_t, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The process that left a profile: its number is in the file's name.
fn process_of(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    let rest = [attach::FILE, attach::ORDER_FILE].iter().find_map(|file| name.strip_prefix(file));
    rest?.split('.').next()?.parse().ok()
}

/// What /proc says of the files of the process that left a profile, as long as that process runs. In a pid namespace a
/// program knows itself by another number, and the number of a process that has ended may be another's. So the process of
/// that number must map the profile, as its writer does until it ends or becomes another program.
fn maps_of_writer(profile: &Path) -> Option<String> {
    let maps = super::proc_files::maps(process_of(profile)?).ok().flatten()?;
    let is_profile = |line: &str| {
        line.find('/').is_some_and(|at| line.as_bytes()[at..] == *profile.as_os_str().as_bytes())
    };
    maps.lines().any(is_profile).then_some(maps)
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
    fn a_process_that_did_not_write_a_profile_is_not_looked_at() {
        use std::os::fd::AsRawFd as _;
        let folder = Folder::new("test").expect("a folder");
        let profile_of = |process: u32| {
            let path = folder.path().join(format!("{}{process}", attach::FILE));
            std::fs::write(&path, "content").expect("a new file");
            path
        };
        let mut stranger = Command::new("sleep").arg("60").spawn().expect("a process");
        let seen = maps_of_writer(&profile_of(stranger.id()));
        stranger.kill().expect("a child");
        stranger.wait().expect("a child");
        assert_eq!(seen, None);

        let ours = profile_of(std::process::id());
        assert_eq!(maps_of_writer(&ours), None);
        let file = std::fs::File::open(&ours).expect("a file");
        let (read, shared) = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let mapped =
            unsafe { libc::mmap(std::ptr::null_mut(), 7, read, shared, file.as_raw_fd(), 0) };
        assert_ne!(mapped, libc::MAP_FAILED);
        let seen = maps_of_writer(&ours);
        // SAFETY: the mapping of above, of which there is no reference.
        unsafe { libc::munmap(mapped, 7) };
        assert!(seen.is_some_and(|maps| maps.contains("r-xp")));
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
                signal(&child, libc::SIGKILL).expect("a child");
            }
            let status = child.wait().expect("a child");
            assert_eq!(status.signal(), Some(libc::SIGKILL));
        }
    }

    #[test]
    fn a_program_of_another_user_is_waited_for() {
        // SAFETY: no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            return eprintln!(
                "skipped: a_program_of_another_user_is_waited_for: only root becomes another user"
            );
        }
        let mut child = Command::new("sleep").arg("60").spawn().expect("a process");
        let is_told = thread::scope(|scope| {
            let ask = scope.spawn(|| {
                const OTHER: libc::uid_t = 65_534;
                // SAFETY: numbers only. Unlike the C library's function, the call changes this thread alone, which ends
                // soon.
                let changed = unsafe { libc::syscall(libc::SYS_setresuid, OTHER, OTHER, OTHER) };
                assert_eq!(changed, 0);
                let mut ending = Ending::ask(&child, true);
                let is_told = ending.is_told;
                ending.asked = Instant::now().checked_sub(PATIENCE * 2).expect("it runs that long");
                ending.is_told = false;
                ending.insist(&child);
                [is_told, ending.is_told]
            });
            ask.join().expect("no panic")
        });
        let status = child.try_wait();
        child.kill().expect("a child");
        child.wait().expect("a child");
        assert_eq!(is_told, [true, true]);
        assert_eq!(status.ok(), Some(None));
    }

    #[test]
    fn codes_are_the_programs() {
        let status = |raw| code(ExitStatus::from_raw(raw));
        assert_eq!(status(0), ExitCode::SUCCESS);
        assert_eq!(status(7 << 8), ExitCode::from(7));
        assert_eq!(status(libc::SIGKILL), ExitCode::from(137));
    }
}
