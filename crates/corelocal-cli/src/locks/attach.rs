//! A process that runs: its profile, by way of /proc, and what to do where there is none.
//!
//! Invariant: a profile that was off is off again at the end.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use corelocal::sync::profile::{LockProfile, Profile};
use corelocal_support::process::{proc_files, signals};

use super::summary::Process;
use crate::kept::{Kept, wait_for};
use crate::progress::spinner;

/// The time of a look that begins by switching the recording on.
const LOOK: Duration = Duration::from_secs(5);
/// The pause between two checks meanwhile.
const TURN: Duration = Duration::from_millis(50);

/// The beginning of a profile's file name, in a folder or as unnamed memory.
pub const FILE: &str = "corelocal-locks.";
/// The same of a record of the order of locks.
pub const ORDER_FILE: &str = "corelocal-order.";
const NAMELESS: &str = "/memfd:corelocal (deleted)";

impl Kept for Profile {
    const VARIABLE: &str = "CORELOCAL_LOCKS";

    fn is_wish(value: &[u8]) -> bool {
        matches!(value, b"on" | b"ready" | [b'/', ..])
    }

    fn may_be(target: &Path, _at: &Path) -> bool {
        may_be_profile(target)
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

/// Waits until the time is over, Ctrl-C comes or the process ends. What /proc said last of its files, if it has ended.
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

/// Returns how many locks were waited for, and how often in all. A process can write any number to its profile.
fn totals(waits: impl Iterator<Item = u64>) -> (u64, u64) {
    waits.fold((0, 0), |(locks, all), waits| {
        (locks + u64::from(waits > 0), all.saturating_add(waits))
    })
}

/// Returns `true` if a target is that of a profile, or of a record of the order of locks.
pub fn may_be_profile(target: &Path) -> bool {
    let name = target.file_name().unwrap_or_default().as_bytes();
    target.as_os_str() == NAMELESS
        || [FILE, ORDER_FILE].iter().any(|file| name.starts_with(file.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn totals_saturate() {
        assert_eq!(totals([3, 0, 4].into_iter()), (2, 7));
        assert_eq!(totals([u64::MAX, 1].into_iter()), (2, u64::MAX));
    }
}
