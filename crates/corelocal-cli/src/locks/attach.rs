//! A process that runs: its profile, by way of /proc, and what to do where there is none.
//!
//! A process that has a profile keeps a descriptor of it open. So /proc/PROCESS/fd leads to it, for the user of the
//! process and for root. A forked child has a copy of that descriptor; the profile says whose it is.
//!
//! Invariants:
//! - A profile that was off is off again at the end.
//! - A file is believed if the library's rules for memory of other users allow it (`Profile::open`).

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use corelocal::sync::profile::{LockProfile, Profile};
use indicatif::{ProgressBar, ProgressStyle};

use super::proc_files;
use super::summary::Process;
use crate::output::one_line;
use crate::process::proc_folder;
use crate::process::signals;

/// How long a look takes that begins with switching on.
const LOOK: Duration = Duration::from_secs(5);
/// How often something is done meanwhile.
const TURN: Duration = Duration::from_millis(50);

/// What a descriptor of a profile leads to: a file in a folder, or memory without a name.
pub const FILE: &str = "corelocal-locks.";
/// The same of a record of the order of locks.
pub const ORDER_FILE: &str = "corelocal-order.";
const NAMELESS: &str = "/memfd:corelocal (deleted)";

/// What a process keeps in memory for those that look at it.
pub trait Kept: Sized {
    /// What the environment of the process has if there is to be one.
    const VARIABLE: &str;
    /// What is in its value then.
    fn is_wish(value: &[u8]) -> bool;
    /// The one in a file; else what is wrong with the file.
    fn open(path: &Path) -> anyhow::Result<Self>;
    /// The number of its process, as that knows itself.
    fn process(&self) -> u32;
    /// Why a process of this number and name has none, and what to do.
    fn none(process: u32, name: &str) -> anyhow::Error;
}

impl Kept for Profile {
    const VARIABLE: &str = "CORELOCAL_LOCKS";

    fn is_wish(value: &[u8]) -> bool {
        matches!(value, b"on" | b"ready" | [b'/', ..])
    }

    fn open(path: &Path) -> anyhow::Result<Profile> {
        Ok(Profile::open(&CString::new(path.as_os_str().as_bytes())?)?)
    }

    fn process(&self) -> u32 {
        Profile::process(self)
    }

    fn none(process: u32, name: &str) -> anyhow::Error {
        anyhow!(
            "process {process} ({name}) keeps no profile of its locks: it does not use those of corelocal, or it was \
             started without CORELOCAL_LOCKS in its environment. Start it with CORELOCAL_LOCKS=ready and look again; \
             or run it by `corelocal locks PROGRAM`; or let it call corelocal::sync::profile::start()"
        )
    }
}

/// Looks at a process, for so long; without a time, at what it recorded since it began, if it did.
pub fn look(process: u32, time: Option<Duration>) -> anyhow::Result<(Vec<Process>, f64)> {
    let lasts = time.unwrap_or(LOOK);
    let profile = wait_for::<Profile>(process, Instant::now() + lasts)?;
    let Some(profile) = profile else { return Ok((Vec::new(), 0.0)) };
    let was_on = profile.is_on();
    if was_on && time.is_none() {
        let age = profile.age().as_secs_f64();
        return Ok((vec![Process::of(&profile, Some(process), &[], None, None)], age));
    }
    let began = Instant::now();
    let on = SwitchedOn::new(&profile);
    let before: Vec<LockProfile> = profile.locks().collect();
    let gone = watch(process, &profile, began + lasts);
    drop(on);
    let lasted = began.elapsed();
    let look = Process::of(&profile, Some(process), &before, Some(began), gone);
    Ok((vec![look], lasted.as_secs_f64()))
}

struct SwitchedOn<'a>(&'a Profile);

impl<'a> SwitchedOn<'a> {
    fn new(profile: &'a Profile) -> Self {
        profile.switch_on();
        SwitchedOn(profile)
    }
}

impl Drop for SwitchedOn<'_> {
    fn drop(&mut self) {
        self.0.switch_off();
    }
}

/// Until the time is over, Ctrl-C comes or the process ends. What /proc said last of its files, if it has ended.
fn watch(process: u32, profile: &Profile, end: Instant) -> Option<String> {
    let bar = spinner();
    let mut maps = String::new();
    while Instant::now() < end && !signals::came() {
        match proc_files::maps(process) {
            Ok(Some(now)) => maps = now,
            Ok(None) => return Some(maps),
            // The process runs, but its list cannot be read any more: the last one stays.
            Err(_) => {}
        }
        let (locks, waits) = totals(profile.locks().map(|lock| lock.waits));
        let left = end.saturating_duration_since(Instant::now()).as_secs_f64();
        bar.set_message(format!("{locks} locks, {waits} waits; {left:.0} s to go, Ctrl-C ends it"));
        bar.tick();
        thread::sleep(TURN.min(end.saturating_duration_since(Instant::now())));
    }
    bar.finish_and_clear();
    None
}

/// How many locks were waited for, and how often in all. A process can write any number to its profile.
fn totals(waits: impl Iterator<Item = u64>) -> (u64, u64) {
    waits.fold((0, 0), |(locks, all), waits| {
        (locks + u64::from(waits > 0), all.saturating_add(waits))
    })
}

fn spinner() -> ProgressBar {
    let style = ProgressStyle::with_template("  {spinner} {wide_msg}");
    ProgressBar::new_spinner()
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
}

/// What a process keeps. Nothing if the process is to have it, but had no reason to make it until then.
pub fn wait_for<K: Kept>(process: u32, end: Instant) -> anyhow::Result<Option<K>> {
    if !Path::new(&format!("/proc/{process}")).exists() {
        bail!("there is no process {process}; `ps` lists the running ones");
    }
    loop {
        let mut refused = None;
        if let Some(kept) = find(process, &mut refused)? {
            return Ok(Some(kept));
        }
        if !is_to_have_one::<K>(process) {
            let name = proc_files::text(process, "comm");
            return Err(K::none(process, &one_line(name.trim_end().to_owned())));
        }
        if Instant::now() >= end || signals::came() {
            return refused.map_or(Ok(None), Err);
        }
        thread::sleep(TURN);
    }
}

/// What a process keeps, if it is there; else why a file that may be it cannot be read.
fn find<K: Kept>(process: u32, refused: &mut Option<anyhow::Error>) -> anyhow::Result<Option<K>> {
    let folder = proc_folder::of(process).join("fd");
    let descriptors = match fs::read_dir(&folder) {
        Ok(descriptors) => descriptors,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            bail!("process {process} belongs to another user: run this as that user, or as root")
        }
        Err(error) => return Err(error).context(format!("cannot read process {process}")),
    };
    let open_files = descriptors.flatten().filter_map(|descriptor| {
        let target = fs::read_link(descriptor.path()).ok()?;
        may_be_profile(&target).then(|| descriptor.path())
    });
    for path in open_files {
        match K::open(&path) {
            Ok(kept) if is_of(&kept, process) => return Ok(Some(kept)),
            Ok(_) => {}
            Err(why) => *refused = Some(why.context(format!("cannot read {}", path.display()))),
        }
    }
    let mut mapped = mapped_files(process).into_iter().filter_map(|path| K::open(&path).ok());
    Ok(mapped.find(|kept| is_of(kept, process)))
}

/// The same by way of the process's memory, which root may open: a program may have closed all descriptors.
fn mapped_files(process: u32) -> Vec<PathBuf> {
    let maps = proc_files::maps(process).ok().flatten().unwrap_or_default();
    let paths = maps.lines().filter_map(|line| {
        let mut fields = line.splitn(6, ' ');
        let (range, target) = (fields.next()?, fields.nth(4)?.trim_start());
        let path = format!("/proc/{process}/map_files/{}", without_leading_zeros(range)?);
        may_be_profile(Path::new(target)).then(|| PathBuf::from(path))
    });
    paths.collect()
}

/// As the names of `map_files` have it.
fn without_leading_zeros(range: &str) -> Option<String> {
    let (start, end) = range.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(format!("{:x}-{:x}", number(start)?, number(end)?))
}

fn may_be_profile(target: &Path) -> bool {
    let name = target.file_name().unwrap_or_default().as_bytes();
    target.as_os_str() == NAMELESS
        || [FILE, ORDER_FILE].iter().any(|file| name.starts_with(file.as_bytes()))
}

/// Whether it is of this process.
fn is_of(kept: &impl Kept, process: u32) -> bool {
    kept.process() == own_number(process).unwrap_or(process)
}

/// By what number the process knows itself: another one, if it is in a container.
fn own_number(process: u32) -> Option<u32> {
    let status = proc_files::text(process, "status");
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().last()?.parse().ok()
}

/// Whether the environment of the process says that it is to have one.
fn is_to_have_one<K: Kept>(process: u32) -> bool {
    let environment = proc_files::environment(process);
    let named = |variable: &[u8]| {
        let rest = variable.strip_prefix(K::VARIABLE.as_bytes())?.strip_prefix(b"=")?;
        Some(K::is_wish(rest))
    };
    environment.split(|byte| *byte == 0).find_map(named) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::process::{Child, Command, Stdio};

    #[test]
    fn descriptors() {
        let targets = [
            ("/memfd:corelocal (deleted)", true),
            ("/dev/shm/x/corelocal-locks.12", true),
            ("/dev/shm/x/corelocal-locks.12.1 (deleted)", true),
            ("/x/corelocal-order.12", true),
            ("/memfd:other (deleted)", false),
            ("socket:[123]", false),
            ("/", false),
        ];
        for (target, may_be) in targets {
            assert_eq!(may_be_profile(Path::new(target)), may_be, "{target}");
        }
    }

    #[test]
    fn memory_has_names_too() {
        let me = std::process::id();
        assert!(mapped_files(me).is_empty());
        assert_eq!(without_leading_zeros("00400000-7f00").as_deref(), Some("400000-7f00"));
        assert_eq!(without_leading_zeros("x"), None);
    }

    /// A shell that waits until it is dropped.
    struct Shell(Child);

    impl Shell {
        fn start(script: &str) -> io::Result<Shell> {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("{script}\necho begun; read line")]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            command.env(Profile::VARIABLE, "ready");
            let mut shell = Shell(command.spawn()?);
            let mut said = [0; 6];
            shell.0.stdout.as_mut().expect("a pipe").read_exact(&mut said)?;
            Ok(shell)
        }
    }

    impl Drop for Shell {
        fn drop(&mut self) {
            // It may have ended.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn the_environment_tells_whether_a_program_is_to_have_a_profile() {
        let shell = Shell::start("").expect("a shell");
        assert!(is_to_have_one::<Profile>(shell.0.id()));
    }

    #[test]
    fn a_process_may_have_any_name() {
        let script = r"printf 'caf\351' > /proc/$$/comm";
        let shell = Shell::start(script).expect("a shell");
        let process = shell.0.id();
        let name = proc_files::text(process, "comm");
        if name != "caf\u{fffd}\n" {
            return eprintln!("skipped: a_process_may_have_any_name: it is called {name:?}");
        }
        if own_number(std::process::id()).is_none() {
            return eprintln!("skipped: a_process_may_have_any_name: no NSpid (Linux 4.1)");
        }
        assert!(own_number(process).is_some());
    }

    #[test]
    fn totals_saturate() {
        assert_eq!(totals([3, 0, 4].into_iter()), (2, 7));
        assert_eq!(totals([u64::MAX, 1].into_iter()), (2, u64::MAX));
    }

    #[test]
    fn what_is_said_where_there_is_none() {
        let me = std::process::id();
        let said = wait_for::<Profile>(me, Instant::now()).expect_err("no profile").to_string();
        assert!(said.contains(&me.to_string()) && said.contains("CORELOCAL_LOCKS=ready"), "{said}");
        let nobody = wait_for::<Profile>(u32::MAX, Instant::now()).expect_err("nobody").to_string();
        assert!(nobody.starts_with("there is no process 4294967295"), "{nobody}");
    }
}
