//! What corelocal's malloc did with its caches in a run: each process of the program writes a few numbers to a file
//! when it ends, in a folder that is there for this run alone.
//!
//! How often a cache did not have what was asked for is always known, and costs nothing. How often it had is
//! counted only where it is wanted, since it makes each call of the malloc slower.
//!
//! Invariants:
//! - The folder is gone at the end, whatever happened.
//! - Processes that wrote nothing (ended by a signal, by `_exit(2)`, became another program, or changed their user or
//!   root, so that the folder is out of reach) are not told of, and if the program itself is one of them, it is said.

use std::ffi::OsString;
use std::fs;

use serde::{Deserialize, Serialize};

use corelocal_support::output::remark;
use corelocal_support::process::folder::Folder;

/// Whether hits are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Nothing is counted: the program runs as it would without us.
    Nothing,
    /// Misses are counted, as they are anyway.
    Misses,
    /// Hits are counted, too.
    Hits,
}

/// The sums over all processes that wrote statistics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// The number of processes that wrote statistics.
    pub processes: usize,
    /// Whether the program itself is one of them.
    pub has_program: bool,
    /// The number of objects of up to 1 MiB allocated; `None` unless they were counted.
    pub allocated: Option<u64>,
    /// The number of such objects freed.
    pub freed: Option<u64>,
    /// The number of times that a cache was empty.
    pub refills: u64,
    /// The number of times that a cache was full.
    pub spills: u64,
}

/// The file that a process writes.
#[derive(Deserialize)]
struct File {
    process: u32,
    allocated: u64,
    freed: u64,
    refills: u64,
    spills: u64,
}

/// The folder that processes write to.
pub struct Place {
    folder: Folder,
    counts: bool,
}

impl Place {
    /// Creates one for a run; nothing where nothing is wanted, or there is no place to write to, which is said.
    pub fn new(wanted: Wanted) -> Option<Place> {
        let counts = match wanted {
            Wanted::Nothing => return None,
            Wanted::Misses => false,
            Wanted::Hits => true,
        };
        match Folder::new("run") {
            Ok(folder) => Some(Place { folder, counts }),
            Err(why) => {
                remark(format_args!("note: cache hits are not counted: {why:#}\n"));
                None
            }
        }
    }

    /// Returns what `CORELOCAL_MALLOC` is to be, where it was `before`.
    pub fn words(&self, before: Option<OsString>) -> OsString {
        // What is found first counts.
        let mut words: OsString = format!("tally:{}/of", self.folder.path().display()).into();
        words.push(if self.counts { ",count" } else { "" });
        if let Some(before) = before.filter(|before| !before.is_empty()) {
            words.push(",");
            words.push(before);
        }
        words
    }

    /// Returns the program's statistics, when it has ended. `None` if it wrote none.
    pub fn read(&self, program: u32) -> Option<Tally> {
        let files = self
            .folder
            .profiles()
            .into_iter()
            .filter_map(|path| serde_json::from_slice(&fs::read(path).ok()?).ok());
        Tally::of(files, program, self.counts)
    }
}

impl Tally {
    fn of(files: impl Iterator<Item = File>, program: u32, counts: bool) -> Option<Tally> {
        let mut tally = Tally::default();
        let (mut allocated, mut freed) = (0_u64, 0_u64);
        for file in files {
            tally.processes += 1;
            tally.has_program |= file.process == program;
            allocated = allocated.saturating_add(file.allocated);
            freed = freed.saturating_add(file.freed);
            tally.refills = tally.refills.saturating_add(file.refills);
            tally.spills = tally.spills.saturating_add(file.spills);
        }
        if counts {
            (tally.allocated, tally.freed) = (Some(allocated), Some(freed));
        }
        Some(tally).filter(|tally| tally.processes > 0)
    }

    /// Returns the share of what was asked for that a cache had, 0 to 1; nothing where it was not counted.
    pub fn hits(&self) -> Option<f64> {
        share(self.refills, self.allocated?)
    }

    /// Returns the share of frees for which a cache had room, likewise.
    pub fn room(&self) -> Option<f64> {
        share(self.spills, self.freed?)
    }
}

/// Returns the share of all that is no miss.
fn share(misses: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| all.saturating_sub(misses) as f64 / all as f64)
}

/// Returns a share in percent. What is not all is never called all.
pub fn percent(share: f64) -> String {
    let percent = (share * 1e4).floor() / 100.0;
    if share >= 1.0 { "100 %".to_owned() } else { format!("{percent:.2} %") }
}

#[cfg(test)]
pub mod tests;
