//! A process that runs, and the mallocs in its memory.
//!
//! Invariants:
//! - All that is written to the process are the two words by which a profile is asked for ([`Running::ask`]).
//! - Whatever the memory contains, there is an answer or an error.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use anyhow::{Context as _, anyhow, bail};
use corelocal::alloc::inspect::{Found, MARK, Taken, Unread, inspect, options, samples};
use corelocal::alloc::profile::{Sample, Summary};
use corelocal_support::process::proc_files;

/// A process.
pub struct Running {
    pub process: u32,
    /// The name of the program.
    pub name: String,
    memory: File,
    /// The headers of its mallocs: a Rust program with `CoreLocal` may have another one preloaded.
    pub headers: Vec<usize>,
}

impl Running {
    /// Finds the mallocs of a process; `is_asked` where it is to be asked for a profile.
    ///
    /// # Errors
    /// When there is none, or it cannot be read; what to do.
    pub fn open(process: u32, is_asked: bool) -> anyhow::Result<Running> {
        let name = proc_files::text(process, "comm").trim_end().to_owned();
        let maps = proc_files::maps(process).with_context(|| forbidden(process, &name))?;
        let Some(maps) = maps else { bail!("there is no process {process}, or it has ended") };
        let path = format!("/proc/{process}/mem");
        let memory = match File::options().read(true).write(is_asked).open(path) {
            Ok(memory) => memory,
            Err(why) if why.kind() == io::ErrorKind::PermissionDenied => {
                return Err(anyhow!(forbidden(process, &name)));
            }
            Err(why) => return Err(anyhow!("the memory of process {process} ({name}): {why}")),
        };
        let mut running = Running { process, name, memory, headers: Vec::new() };
        let mut is_other_version = false;
        for start in maps.lines().filter_map(writable) {
            let mut mark = [0; 8];
            if !running.read(start, &mut mark) || u64::from_le_bytes(mark) != MARK {
                continue;
            }
            match running.look(start) {
                Ok(_) => running.headers.push(start),
                Err(Unread::OtherVersion) => is_other_version = true,
                Err(Unread::NotOne | Unread::Unreadable) => {}
            }
        }
        let (process, name) = (running.process, &running.name);
        if running.headers.is_empty() && is_other_version {
            bail!(
                "the malloc of process {process} ({name}) is of another version of corelocal than this command \
                 ({}): use the command that was built with it",
                env!("CARGO_PKG_VERSION")
            );
        }
        if running.headers.is_empty() {
            bail!(
                "process {process} ({name}) does not use corelocal's malloc, or has not allocated yet: preload it \
                 (`LD_PRELOAD=$(corelocal malloc-path)`), or use CoreLocal in a Rust program"
            );
        }
        Ok(running)
    }

    /// Reads bytes at an address; false if that fails, as at the end of the process.
    pub fn read(&self, at: usize, bytes: &mut [u8]) -> bool {
        self.memory.read_exact_at(bytes, at as u64).is_ok()
    }

    /// Reads a malloc, by its header.
    pub fn look(&self, header: usize) -> Result<Found, Unread> {
        inspect(header, &mut |at, bytes| self.read(at, bytes))
    }

    /// Reads the options of a malloc, which is quick.
    pub fn options(&self, header: usize) -> Result<Taken, Unread> {
        options(header, &mut |at, bytes| self.read(at, bytes))
    }

    /// Reads the samples of a malloc.
    pub fn samples(
        &self,
        header: usize,
        into: &mut Sample,
        each: &mut dyn FnMut(&Sample),
    ) -> Result<Summary, Unread> {
        samples(header, &mut |at, bytes| self.read(at, bytes), into, each)
    }

    /// Asks a malloc for a profile, or to end it.
    pub fn ask(&self, found: &Found, byte: u8) -> io::Result<()> {
        let number = own_number(&proc_files::text(self.process, "status"));
        let number = number.unwrap_or(self.process).to_ne_bytes();
        self.memory.write_all_at(&number, found.asked_of as u64)?;
        self.memory.write_all_at(&[byte], found.asked as u64)
    }

    /// Returns what a malloc was asked for.
    pub fn asked(&self, found: &Found) -> Option<u8> {
        let mut byte = [0];
        self.read(found.asked, &mut byte).then_some(byte[0])
    }

    /// Returns the resident bytes of the whole process; 0 if it does not tell.
    pub fn resident(&self) -> u64 {
        let status = proc_files::text(self.process, "status");
        status.lines().find_map(|line| kib(line, "VmRSS:")).unwrap_or(0)
    }
}

/// Returns the number by which a process knows itself, the innermost one, if the kernel tells (`NSpid` in
/// /proc/PROCESS/status).
fn own_number(status: &str) -> Option<u32> {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_ascii_whitespace().next_back()?.parse().ok()
}

fn forbidden(process: u32, name: &str) -> String {
    format!(
        "the memory of process {process} ({name}) may not be read: that takes the rights of a debugger. Try again as \
         root, or as its user with kernel.yama.ptrace_scope=0"
    )
}

/// Returns the start of a private writable mapping without a file: a line of /proc/PROCESS/maps.
fn writable(line: &str) -> Option<usize> {
    let mut words = line.split_ascii_whitespace();
    let (range, access) = (words.next()?, words.next()?);
    // The offset, the device, the inode: 0 without a file.
    let has_file = words.nth(2)? != "0";
    let start = usize::from_str_radix(range.split_once('-')?.0, 16).ok()?;
    (access.starts_with("rw") && !has_file).then_some(start)
}

/// Returns the bytes of a line `NAME:  NUMBER kB`.
pub fn kib(line: &str, name: &str) -> Option<u64> {
    let number = line.strip_prefix(name)?.trim().strip_suffix(" kB")?;
    number.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps() {
        let line = "110000000000-110000101000 rw-p 00000000 00:00 0 ";
        assert_eq!(writable(line), Some(0x1100_0000_0000));
        for line in [
            "",
            "7f00-7f01",
            "7f00-7f01 r--p 00000000 00:00 0",
            "7f00-7f01 rw-p 00000000 fe:00 71 /usr/lib/libc.so.6",
            "x-y rw-p 00000000 00:00 0",
        ] {
            assert_eq!(writable(line), None, "{line}");
        }
    }

    #[test]
    fn numbers_of_a_process() {
        assert_eq!(own_number("Pid:\t12\nNSpid:\t12\n"), Some(12));
        // In a namespace of its own.
        assert_eq!(own_number("Pid:\t4711\nNSpid:\t4711\t17\t1\n"), Some(1));
        assert_eq!(own_number("Pid:\t4711\n"), None);
    }

    #[test]
    fn lines_of_smaps() {
        assert_eq!(kib("Rss:                1024 kB", "Rss:"), Some(1 << 20));
        assert_eq!(kib("Rss:  many kB", "Rss:"), None);
    }
}
