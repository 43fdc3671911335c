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
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use corelocal_support::process::ending::code;
use corelocal_support::process::folder::Folder;
use corelocal_support::process::launch;

use super::attach;

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
    let (program, args) = target.split_first().context("no program was given")?;
    let mut command = Command::new(program);
    command.args(args).env(variable, folder.path());
    if is_quiet {
        command.stdout(Stdio::from(std::io::stderr()));
    }
    let began = Instant::now();
    let mut child = launch::start(&mut command, ", or the number of a process")?;
    // What files its processes had, as far as that was seen.
    let mut maps = BTreeMap::new();
    let end = time.map(|time| began + time);
    let status = launch::wait(&mut child, end, &mut |_: &Child| {
        for path in folder.profiles() {
            // Files that were loaded later than its first wait.
            if let Some(now) = maps_of_writer(&path) {
                maps.insert(path, now);
            }
        }
    })?;
    let lasted = began.elapsed();
    let read = |path: &PathBuf| read(path, maps.get(path).cloned());
    let processes = folder.profiles().iter().filter_map(read).collect();
    Ok(((processes, lasted.as_secs_f64()), code(status)))
}

/// Returns the process that left a profile: its number is in the file's name.
fn process_of(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    let rest = [attach::FILE, attach::ORDER_FILE].iter().find_map(|file| name.strip_prefix(file));
    rest?.split('.').next()?.parse().ok()
}

/// Returns what /proc says of the files of the process that left a profile, as long as that process runs. In a pid
/// namespace a program knows itself by another number, and the number of a process that has ended may be another's. So
/// the process of that number must map the profile, as its writer does until it ends or becomes another program.
fn maps_of_writer(profile: &Path) -> Option<String> {
    let maps = corelocal_support::process::proc_files::maps(process_of(profile)?).ok().flatten()?;
    let is_profile = |line: &str| {
        line.find('/').is_some_and(|at| line.as_bytes()[at..] == *profile.as_os_str().as_bytes())
    };
    maps.lines().any(is_profile).then_some(maps)
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
}
