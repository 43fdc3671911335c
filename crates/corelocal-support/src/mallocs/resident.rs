//! Memory of processes, as /proc tells it.
//!
//! Invariants:
//! - What is not told is `None`, never zero.
//! - A process that ends meanwhile is one that has no memory.

use std::fs;
use std::path::PathBuf;

/// A process: its own, or the one of this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// The calling one.
    This,
    /// The process of this id.
    Other(u32),
}

impl Process {
    fn file(self, name: &str) -> PathBuf {
        match self {
            Process::This => PathBuf::from(format!("/proc/self/{name}")),
            Process::Other(number) => PathBuf::from(format!("/proc/{number}/{name}")),
        }
    }

    /// Returns the resident KiB, as the kernel counts them in passing: cheap, and off by some pages.
    pub fn resident(self) -> Option<u64> {
        let pages = text(self.file("statm"))?;
        let pages: u64 = pages.split_whitespace().nth(1)?.parse().ok()?;
        Some(pages * page_kib())
    }

    /// Returns the resident KiB, of which those that several processes have are divided among them: exact, and as
    /// dear as the process is large.
    pub fn share(self) -> Option<u64> {
        field(&text(self.file("smaps_rollup"))?, "Pss")
    }

    /// Returns the resident KiB that are no file's.
    pub fn anonymous(self) -> Option<u64> {
        let exact = text(self.file("smaps_rollup"));
        let exact = exact.and_then(|text| field(&text, "Anonymous"));
        exact.or_else(|| field(&text(self.file("status"))?, "RssAnon"))
    }

    /// Returns the most KiB that were ever resident.
    pub fn peak(self) -> Option<u64> {
        field(&text(self.file("status"))?, "VmHWM")
    }

    /// Returns the most KiB that were ever resident and no file's, as far as files stay resident.
    pub fn peak_anonymous(self) -> Option<u64> {
        let status = text(self.file("status"))?;
        let of_files = field(&status, "RssFile")? + field(&status, "RssShmem")?;
        Some(field(&status, "VmHWM")?.saturating_sub(of_files))
    }

    /// Returns the processes that this one has started and that are there.
    pub fn children(self) -> Vec<u32> {
        let tasks = fs::read_dir(self.file("task")).into_iter().flatten().flatten();
        let lists = tasks.filter_map(|task| text(task.path().join("children")));
        lists
            .flat_map(|list| {
                list.split_whitespace().filter_map(|n| n.parse().ok()).collect::<Vec<_>>()
            })
            .collect()
    }
}

/// Returns a process and all that came of it, as far as their parents live.
pub fn tree(root: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&process) = found.get(next) {
        next += 1;
        for child in Process::Other(process).children() {
            if !found.contains(&child) {
                found.push(child);
            }
        }
    }
    found
}

/// Returns the KiB that a process and all that came of it have resident; `None` when there are none left.
pub fn of_tree(root: u32) -> Option<u64> {
    let processes = tree(root);
    let alone = processes.len() == 1;
    let of = |process: &u32| {
        let process = Process::Other(*process);
        // What a fork shares would count twice.
        let share = if alone { None } else { process.share() };
        share.or_else(|| process.resident()).filter(|&kib| kib > 0)
    };
    processes.iter().filter_map(of).reduce(|sum, kib| sum + kib)
}

/// Returns a file of /proc. The name of the process in it may be any bytes.
fn text(path: PathBuf) -> Option<String> {
    fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn page_kib() -> u64 {
    // SAFETY: takes a number.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).map_or(4, |bytes| bytes / 1024)
}

/// Returns the KiB of a line `name:  123 kB`.
fn field(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests;
