//! What a running process keeps in memory for those that look at it, found by way of /proc: its profile of locks, its
//! recording of events.
//!
//! The process keeps a descriptor of it open. So /proc/PROCESS/fd leads to it, for the user of the process and for root. A
//! forked child has a copy of that descriptor; the memory says whose it is.
//!
//! Invariant: a file is believed if the library's rules for memory of other users allow it (`Kept::open`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use corelocal_support::output::one_line;
use corelocal_support::process::{proc_files, signals};

/// The pause between two looks at the process.
const TURN: Duration = Duration::from_millis(50);

/// A record that a process keeps in memory for observers.
pub trait Kept: Sized {
    /// The environment variable that requests the record.
    const VARIABLE: &str;
    /// Returns what is in its value then.
    fn is_wish(value: &[u8]) -> bool;
    /// Returns `true` if a descriptor of the process, or a file in its memory, that leads to this target may be it. It
    /// is opened by `at`.
    fn may_be(target: &Path, at: &Path) -> bool;
    /// Returns the one in a file; else what is wrong with the file.
    fn open(path: &Path) -> anyhow::Result<Self>;
    /// Returns the number of its process, as that knows itself.
    fn process(&self) -> u32;
    /// Returns why a process of this number and name has none, and what to do.
    fn none(process: u32, name: &str) -> anyhow::Error;
}

/// Returns what a process keeps. Nothing if the process is to have it, but had no reason to make it until then.
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

/// Returns what a process keeps, if it is there; else why a file that may be it cannot be read.
fn find<K: Kept>(process: u32, refused: &mut Option<anyhow::Error>) -> anyhow::Result<Option<K>> {
    let folder = format!("/proc/{process}/fd");
    let descriptors = match fs::read_dir(&folder) {
        Ok(descriptors) => descriptors,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            bail!("process {process} belongs to another user: run this as that user, or as root")
        }
        Err(error) => return Err(error).context(format!("cannot read process {process}")),
    };
    let open_files = descriptors.flatten().filter_map(|descriptor| {
        let target = fs::read_link(descriptor.path()).ok()?;
        K::may_be(&target, &descriptor.path()).then(|| descriptor.path())
    });
    for path in open_files {
        match K::open(&path) {
            Ok(kept) if is_of(&kept, process) => return Ok(Some(kept)),
            Ok(_) => {}
            Err(why) => *refused = Some(why.context(format!("cannot read {}", path.display()))),
        }
    }
    let mut mapped = mapped_files::<K>(process).into_iter().filter_map(|path| K::open(&path).ok());
    Ok(mapped.find(|kept| is_of(kept, process)))
}

/// Returns the same by way of the process's memory, which root may open: a program may have closed all descriptors.
fn mapped_files<K: Kept>(process: u32) -> Vec<PathBuf> {
    let maps = proc_files::maps(process).ok().flatten().unwrap_or_default();
    let paths = maps.lines().filter_map(|line| {
        let mut fields = line.splitn(6, ' ');
        let (range, target) = (fields.next()?, fields.nth(4)?.trim_start());
        let path = format!("/proc/{process}/map_files/{}", without_leading_zeros(range)?);
        K::may_be(Path::new(target), Path::new(&path)).then(|| PathBuf::from(path))
    });
    paths.collect()
}

/// Returns it as the names of `map_files` have it.
fn without_leading_zeros(range: &str) -> Option<String> {
    let (start, end) = range.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(format!("{:x}-{:x}", number(start)?, number(end)?))
}

/// Returns `true` if it is of this process.
fn is_of(kept: &impl Kept, process: u32) -> bool {
    kept.process() == own_number(process).unwrap_or(process)
}

/// Returns by what number the process knows itself: another one, if it is in a container.
fn own_number(process: u32) -> Option<u32> {
    let status = proc_files::text(process, "status");
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().last()?.parse().ok()
}

/// Returns `true` if the environment of the process says that it is to have one.
fn is_to_have_one<K: Kept>(process: u32) -> bool {
    let environment = proc_files::environment(process);
    let named = |variable: &[u8]| {
        let rest = variable.strip_prefix(K::VARIABLE.as_bytes())?.strip_prefix(b"=")?;
        Some(K::is_wish(rest))
    };
    environment.split(|byte| *byte == 0).find_map(named) == Some(true)
}

#[cfg(test)]
mod tests;
