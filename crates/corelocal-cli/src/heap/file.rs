//! A file with a heap profile, as `corelocal::alloc::profile` writes it; there it says what is in it.
//!
//! Invariant: any bytes may come in; what is no profile is refused with a sentence, and nothing here panics.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use corelocal::alloc::profile;
use corelocal_symbols::input;

use corelocal_support::output::{one_line, path_line};

const MAGIC: &[u8] = b"CLHEAP1\n";
const INFO: u32 = 1;
const MAP: u32 = 2;
const SAMPLE: u32 = 3;
const END: u32 = 4;

/// The profile that a process wrote.
#[derive(Clone, Debug, Default)]
pub struct Heap {
    /// The sampling rate: one object for so many bytes, on average.
    pub rate: u64,
    pub process: u64,
    /// The time of the profile, in nanoseconds since 1970.
    pub time: u64,
    /// The time of the profile, by the clock of the samples.
    pub now: u64,
    /// The bytes allocated since the beginning.
    pub asked_for: u64,
    pub in_use: u64,
    pub peak: u64,
    pub peak_time: u64,
    /// The number of objects whose samples were lost.
    pub missed: u64,
    /// A stack of so many bytes may be the beginning of a longer one.
    pub most_stack: u64,
    /// The number of libraries that were unloaded before it was written.
    pub unloaded: u64,
    /// The lines of /proc/PROCESS/maps.
    pub maps: String,
    /// The root directory of the paths in it, of a process that runs.
    pub root: Option<PathBuf>,
    pub samples: Vec<Sample>,
    /// Whether it has an end.
    pub is_whole: bool,
}

/// An object.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    pub size: u64,
    pub thread: u64,
    pub name: String,
    pub is_in_use: bool,
    pub was_at_peak: bool,
    pub registers: [u64; 8],
    pub stack: Vec<u64>,
}

/// Returns `true` if a path is that of a profile: its name says so, or it has a slash and the file says so. A name
/// without a slash is else a program's: a file of that name in the working directory may be another user's.
pub fn is_meant(path: &Path) -> bool {
    let is_named = path.extension().is_some_and(|extension| extension == "heap");
    let is_path = path.as_os_str().as_bytes().contains(&b'/');
    is_named
        || is_path && input::read_start(path, MAGIC.len() as u64).is_ok_and(|start| start == MAGIC)
}

/// Reads a file.
pub fn read(path: &Path) -> anyhow::Result<Heap> {
    let name = path_line(path);
    let bytes = input::read(path, input::MOST).with_context(|| {
        format!(
            "cannot read {name}; give a file written by a program that was started with \
             CORELOCAL_MALLOC=profile"
        )
    })?;
    parse(&bytes).with_context(|| format!("cannot use {name}"))
}

/// Returns what the bytes of a file say.
pub fn parse(bytes: &[u8]) -> anyhow::Result<Heap> {
    let Some(mut rest) = bytes.strip_prefix(MAGIC) else {
        if bytes.starts_with(b"CLHEAP") {
            bail!(
                "it was written by another version of corelocal; use the command of that version"
            );
        }
        bail!("it is not a heap profile of corelocal; their names are NAME.PROCESS.NUMBER.heap");
    };
    let mut heap = Heap::default();
    let mut has_info = false;
    while let Some((kind, piece, after)) = piece(rest) {
        rest = after;
        match kind {
            INFO => {
                let mut numbers = numbers(piece);
                let mut next = || numbers.next().unwrap_or(0);
                heap.rate = next().max(1);
                heap.process = next();
                heap.time = next();
                heap.now = next();
                let _samples = next();
                heap.asked_for = next();
                heap.in_use = next();
                heap.peak = next();
                heap.peak_time = next();
                heap.missed = next();
                heap.most_stack = next();
                heap.unloaded = next();
                has_info = true;
            }
            MAP => {
                heap.maps.push_str(&String::from_utf8_lossy(piece));
                heap.maps.push('\n');
            }
            SAMPLE => heap.samples.extend(Sample::parse(piece)),
            END => {
                heap.is_whole = true;
                break;
            }
            _ => {}
        }
    }
    if !has_info {
        bail!("it is empty or truncated; was the disk full?");
    }
    Ok(heap)
}

/// Returns the first piece, and what follows.
fn piece(bytes: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    let (kind, rest) = bytes.split_first_chunk::<4>()?;
    let (len, rest) = rest.split_first_chunk::<4>()?;
    let (piece, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    Some((u32::from_le_bytes(*kind), piece, rest))
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
}

/// Returns the name of a thread, which zeros follow.
fn thread_name(bytes: &[u8]) -> String {
    let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    one_line(String::from_utf8_lossy(&bytes[..len]).into_owned())
}

impl Sample {
    fn parse(piece: &[u8]) -> Option<Sample> {
        let mut numbers = numbers(piece);
        let mut head = [0; 14];
        for number in &mut head {
            *number = numbers.next()?;
        }
        let [size, _time, thread, flags, first, second, registers @ ..] = head;
        let name: Vec<u8> = [first, second].into_iter().flat_map(u64::to_le_bytes).collect();
        Some(Sample {
            size,
            thread,
            name: thread_name(&name),
            is_in_use: flags & 1 != 0,
            was_at_peak: flags & 2 != 0,
            registers,
            stack: numbers.collect(),
        })
    }

    /// Returns a sample that was read from the memory of a process.
    pub fn of(sample: &profile::Sample) -> Sample {
        Sample {
            size: sample.size(),
            thread: sample.thread().into(),
            name: thread_name(sample.thread_name()),
            is_in_use: sample.is_in_use(),
            was_at_peak: sample.was_at_peak(),
            registers: *sample.registers(),
            stack: sample.words().to_vec(),
        }
    }

    /// Returns how many objects it stands for: see `corelocal::alloc::profile`.
    pub fn objects(&self, rate: u64) -> f64 {
        let (size, rate) = (self.size.max(1) as f64, rate.max(1) as f64);
        if size >= rate { 1.0 } else { 1.0 / -(-size / rate).exp_m1() }
    }

    /// Returns how many bytes.
    pub fn bytes(&self, rate: u64) -> f64 {
        self.objects(rate) * self.size.max(1) as f64
    }
}

#[cfg(test)]
pub mod tests;
