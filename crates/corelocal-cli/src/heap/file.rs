//! A file with a heap profile, as `corelocal::alloc::profile` writes it; there it says what is in it.
//!
//! Invariant: any bytes may come in; what is no profile is refused with a sentence, and nothing here panics.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use corelocal_lab::input;

use crate::output::{one_line, path_line};

const MAGIC: &[u8] = b"CLHEAP1\n";
const INFO: u32 = 1;
const MAP: u32 = 2;
const SAMPLE: u32 = 3;
const END: u32 = 4;

/// What a process wrote.
#[derive(Clone, Debug, Default)]
pub struct Heap {
    /// Bytes for each of which an object was sampled, on average.
    pub rate: u64,
    pub process: u64,
    /// Nanoseconds since 1970.
    pub time: u64,
    /// Nanoseconds of the clock that samples have.
    pub now: u64,
    /// Bytes that were asked for since the beginning.
    pub asked_for: u64,
    pub in_use: u64,
    pub peak: u64,
    pub peak_time: u64,
    /// Objects that should have been sampled.
    pub missed: u64,
    /// A stack of so many bytes may be the beginning of a longer one.
    pub most_stack: u64,
    /// Libraries that were unloaded before it was written.
    pub unloaded: u64,
    /// Lines of /proc/PROCESS/maps.
    pub maps: String,
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

/// Whether a path is that of a profile: its name says so, or it has a slash and the file says so. A name without a slash
/// is else a program's: a file of that name in the working directory may be another user's.
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

/// What the bytes of a file say.
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

/// The first piece, and what follows.
fn piece(bytes: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    let (kind, rest) = bytes.split_first_chunk::<4>()?;
    let (len, rest) = rest.split_first_chunk::<4>()?;
    let (piece, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    Some((u32::from_le_bytes(*kind), piece, rest))
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
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
        let len = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        Some(Sample {
            size,
            thread,
            name: one_line(String::from_utf8_lossy(&name[..len]).into_owned()),
            is_in_use: flags & 1 != 0,
            was_at_peak: flags & 2 != 0,
            registers,
            stack: numbers.collect(),
        })
    }

    /// How many objects it stands for: see `corelocal::alloc::profile`.
    pub fn objects(&self, rate: u64) -> f64 {
        let (size, rate) = (self.size.max(1) as f64, rate.max(1) as f64);
        if size >= rate { 1.0 } else { 1.0 / -(-size / rate).exp_m1() }
    }

    /// How many bytes.
    pub fn bytes(&self, rate: u64) -> f64 {
        self.objects(rate) * self.size.max(1) as f64
    }
}

#[cfg(test)]
pub mod tests {
    use proptest::prelude::*;

    use super::super::{diff, diff_text, flame, pprof, sites, summary, text};
    use super::*;

    /// A piece of a file.
    pub fn made(kind: u32, numbers: &[u64], text: &[u8]) -> Vec<u8> {
        let len = (numbers.len() * 8 + text.len()) as u32;
        let mut bytes = [kind.to_le_bytes(), len.to_le_bytes()].concat();
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        bytes.extend(text);
        bytes
    }

    /// A file with a sample of each of these sizes, all of one stack.
    pub fn file(sizes: &[u64]) -> Vec<u8> {
        let samples: Vec<(u64, u64)> = sizes.iter().map(|size| (*size, 1)).collect();
        file_of_stacks(&samples)
    }

    /// A file with a sample of each of these sizes and program counters.
    pub fn file_of_stacks(samples: &[(u64, u64)]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(made(INFO, &[512 << 10, 4711, 0, 9, 2, 100, 60, 80, 5, 3, 8064, 99], b""));
        bytes.extend(made(MAP, &[], b"1000-2000 r-xp 00001000 fe:00 12 /usr/bin/program"));
        bytes.extend(made(77, &[1, 2], b"later"));
        for (size, at) in samples {
            let name = u64::from_le_bytes(*b"worker-3");
            bytes.extend(made(
                SAMPLE,
                &[*size, 7, 8, 1, name, 0, *at, 2, 3, 4, 5, 6, 7, 8, 9, 10],
                b"",
            ));
        }
        bytes.extend(made(END, &[], b""));
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        let heap = parse(&file(&[100, 200])).expect("a profile");
        assert_eq!(
            (heap.rate, heap.process, heap.missed, heap.most_stack),
            (512 << 10, 4711, 3, 8064)
        );
        assert!(heap.is_whole && heap.maps.contains("/usr/bin/program\n"));
        let [first, second] = &heap.samples[..] else { panic!("two samples") };
        assert_eq!((first.size, second.size), (100, 200));
        assert_eq!(
            (first.name.as_str(), first.thread, &first.stack[..]),
            ("worker-3", 8, &[9, 10][..])
        );
        assert!(
            first.is_in_use && !first.was_at_peak && first.registers == [1, 2, 3, 4, 5, 6, 7, 8]
        );
        let bytes = first.bytes(heap.rate);
        assert!((bytes / (f64::from(512 << 10) + 50.0) - 1.0).abs() < 1e-6, "{bytes}");
        assert!(first.objects(100) == 1.0 && first.objects(1) == 1.0);
    }

    #[test]
    fn what_is_no_profile_is_refused() {
        let said = |bytes: &[u8]| parse(bytes).expect_err("no profile").to_string();
        assert!(said(b"").contains("not a heap profile"));
        assert!(said(b"CLHEAP2\n").contains("another version"));
        assert!(said(MAGIC).contains("truncated"));
        let whole = file(&[1]);
        let cut = parse(&whole[..whole.len() - 1]).expect("most of it");
        assert!(!cut.is_whole && cut.samples.len() == 1);
        assert!(!is_meant(Path::new("/proc/self/exe")) && is_meant(Path::new("no/such.heap")));
    }

    /// A FIFO with this name.
    pub fn make_pipe(path: &Path) {
        use std::os::unix::ffi::OsStrExt as _;
        let path = std::ffi::CString::new(path.as_os_str().as_bytes()).expect("no zero byte");
        // SAFETY: a path that ends with NUL.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    }

    #[test]
    fn a_pipe_without_a_writer_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let [named, unnamed] = ["a.heap", "a"].map(|name| dir.path().join(name));
        make_pipe(&named);
        make_pipe(&unnamed);
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            done.send((is_meant(&unnamed), read(&named).map(|_| ()).map_err(|e| format!("{e:#}"))))
        });
        let (is_meant, read) =
            is_done.recv_timeout(std::time::Duration::from_secs(60)).expect("no wait");
        assert!(!is_meant);
        assert!(read.as_ref().is_err_and(|why| why.contains("not a heap profile")), "{read:?}");
    }

    proptest! {
        #[test]
        fn mangled_bytes_do_no_harm(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
            len in any::<prop::sample::Index>(),
        ) {
            let mut bytes = file(&[1, 1000, 1 << 20]);
            for (index, byte) in changes {
                let at = index.index(bytes.len());
                bytes[at] = byte;
            }
            bytes.truncate(len.index(bytes.len()) + 1);
            if let Ok(heap) = parse(&bytes) {
                show(heap);
            }
        }

        /// As where bits of the sizes have flipped.
        #[test]
        fn sizes_that_no_object_has_do_no_harm(
            sizes in proptest::collection::vec(prop_oneof![Just(u64::MAX), any::<u64>(), 0_u64..4096], 4),
        ) {
            let samples: Vec<(u64, u64)> = sizes.into_iter().zip((0x1100..).step_by(16)).collect();
            let heap = parse(&file_of_stacks(&samples)).expect("a profile");
            assert_eq!(show(heap), samples.len());
        }
    }

    /// In every way there is; how many stacks there are.
    fn show(heap: Heap) -> usize {
        let told = sites::told(&heap, false);
        let process = summary::Process::of(&heap, &told, 10, false);
        let _ = text::all(&[process], &[], 80);
        let lines = flame::collapsed([&told]);
        let _ = flame::svg(&lines, "");
        let stacks = told.stacks.len();
        let after = (heap, told);
        assert!(pprof::file(std::slice::from_ref(&after)).is_ok());

        let heap = parse(&file(&[100])).expect("a profile");
        let told = sites::told(&heap, false);
        let before = (heap, told);
        let lines = diff::collapsed(&before.1, &after.1);
        let _ = flame::svg(&lines, "");
        let _ = pprof::difference(&before, &after);
        if let Ok(difference) = diff::Difference::of(&before, &after, 10, false) {
            let _ = diff_text::all(&difference, 80);
        }
        stacks
    }
}
