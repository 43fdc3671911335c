//! How near this process is to a limit of memory: that of its control groups, under cgroup v1 and v2, and how long
//! tasks wait for memory (PSI).
//!
//! Formats: cgroup-v2.rst (`memory.max`, `memory.high`, `memory.current`, `memory.stat`, `memory.pressure`), v1's
//! memory.rst (`memory.limit_in_bytes`, `memory.usage_in_bytes`, `memory.stat`), psi.rst.
//!
//! # Invariants
//! 1. Nothing is kept: each call opens what it reads, and closes it.
//! 2. A file that is missing or not understood is a limit that does not exist.

use crate::sys::file::lines::Lines;
use crate::sys::file::{File, PathBuf};
use crate::sys::topology::FsRoot;
use crate::sys::topology::cgroup::{CgroupVersion, Group};

/// A limit in bytes, and the bytes in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryUse {
    pub(crate) limit: u64,
    /// The bytes in use, without inactive cached files, which the kernel drops first.
    pub(crate) used: u64,
}

impl MemoryUse {
    /// Returns `true` if 7 of 8 bytes are used.
    pub(crate) fn is_near(self) -> bool {
        self.used >= self.limit / 8 * 7
    }

    /// Thousandths of the limit.
    fn share(self) -> u64 {
        self.used.saturating_mul(1000) / self.limit.max(1)
    }
}

/// Limits from this number on mean "no limit": v1 says so with a number that depends on the page size.
const UNLIMITED: u64 = 1 << 60;

/// Returns the limit that this process's control group, or one above it, is nearest to; `None` if none has one.
#[inline(never)]
pub(crate) fn nearest(root: FsRoot<'_>) -> Option<MemoryUse> {
    let mut group = Group::of(root, b"memory")?;
    let mut nearest: Option<MemoryUse> = None;
    loop {
        if let Some(found) = of_group(&group) {
            if nearest.is_none_or(|known| known.share() < found.share()) {
                nearest = Some(found);
            }
        }
        if !group.go_up() {
            return nearest;
        }
    }
}

fn of_group(group: &Group) -> Option<MemoryUse> {
    let (limits, current, files): (&[&[u8]], &[u8], &[u8]) = match group.version {
        CgroupVersion::V1 => {
            (&[b"/memory.limit_in_bytes"], b"/memory.usage_in_bytes", b"total_inactive_file ")
        }
        CgroupVersion::V2 => {
            (&[b"/memory.max", b"/memory.high"], b"/memory.current", b"inactive_file ")
        }
    };
    let number = |file: &[u8]| group.with(file, number_in).flatten();
    let limits = limits.iter().filter_map(|file| number(file));
    let limit = limits.filter(|limit| (1..UNLIMITED).contains(limit)).min()?;
    let all = MemoryUse { limit, used: number(current)? };
    if !all.is_near() {
        return Some(all);
    }
    let files = group.with(b"/memory.stat", |path| field_of(path, files)).flatten().unwrap_or(0);
    Some(MemoryUse { used: all.used.saturating_sub(files), ..all })
}

/// Returns how much of the last ten seconds some task waited for memory, in hundredths of a percent: in this process's
/// control group, or on the machine where groups do not say.
#[inline(never)]
pub(crate) fn stalled(root: FsRoot<'_>) -> Option<u32> {
    stalled_group(root).or_else(|| stall_in(&root.path(&[b"/proc/pressure/memory"])?))
}

#[inline(never)]
fn stalled_group(root: FsRoot<'_>) -> Option<u32> {
    let group = Group::of(root, b"memory")?;
    match group.version {
        CgroupVersion::V1 => None,
        CgroupVersion::V2 => group.with(b"/memory.pressure", stall_in).flatten(),
    }
}

/// Returns the number that a file holds; `None` of the word `max`.
fn number_in(path: &PathBuf) -> Option<u64> {
    let mut text = [0; 32];
    let len = File::open(path).ok()?.read(&mut text).ok()?;
    number(&text[..len])
}

fn number(text: &[u8]) -> Option<u64> {
    core::str::from_utf8(text).ok()?.trim_end().parse().ok()
}

/// Returns the number behind a name, which ends with a blank, at the beginning of a line.
fn field_of(path: &PathBuf, name: &[u8]) -> Option<u64> {
    let mut lines = Lines::new(File::open(path).ok()?);
    while let Some(line) = lines.next() {
        if let Some(value) = line.strip_prefix(name) {
            return number(value);
        }
    }
    None
}

fn stall_in(path: &PathBuf) -> Option<u32> {
    let mut lines = Lines::new(File::open(path).ok()?);
    while let Some(line) = lines.next() {
        if let Some(stall) = stall(line) {
            return Some(stall);
        }
    }
    None
}

/// Reads that of a line as `some avg10=1.53 avg60=0.87 avg300=0.73 total=12345`.
fn stall(line: &[u8]) -> Option<u32> {
    let value = line.strip_prefix(b"some avg10=")?.split(|byte| *byte == b' ').next()?;
    let (whole, part) = core::str::from_utf8(value).ok()?.split_once('.')?;
    if part.len() != 2 {
        return None;
    }
    whole.parse::<u32>().ok()?.checked_mul(100)?.checked_add(part.parse().ok()?)
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests;
