//! A tracer of static probes (USDT), as perf and bpftrace are: it reads a file's notes, and has the kernel put a breakpoint
//! on a probe and count it in the probe's semaphore (`perf_event_open(2)`, uprobes).

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use object::read::elf::{ElfFile64, ProgramHeader as _};
use object::{Endianness, Object as _, ObjectSection as _};

/// A probe, as a note describes it. Places are offsets in the file.
#[derive(Debug)]
pub struct Probe {
    file: PathBuf,
    pub provider: String,
    pub name: String,
    pub arguments: String,
    place: u64,
    semaphore: u64,
}

/// Returns the probes of a file.
pub fn probes(path: &Path) -> Vec<Probe> {
    let bytes = std::fs::read(path).expect("the file");
    let file: ElfFile64<'_, Endianness> = ElfFile64::parse(&*bytes).expect("an ELF file");
    let segments = file.elf_program_headers();
    let in_file = |address: u64| {
        let of = segments.iter().find(|it| {
            let from = it.p_vaddr(Endianness::Little);
            it.p_type(Endianness::Little) == object::elf::PT_LOAD
                && (from..from + it.p_filesz(Endianness::Little)).contains(&address)
        });
        let of = of.unwrap_or_else(|| panic!("{address:#x} is in no part of the file"));
        address - of.p_vaddr(Endianness::Little) + of.p_offset(Endianness::Little)
    };
    let base = file.section_by_name(".stapsdt.base").map_or(0, |section| section.address());
    let Some(section) = file.section_by_name(".note.stapsdt") else { return Vec::new() };
    let mut rest = section.data().expect("notes");
    let mut probes = Vec::new();
    while !rest.is_empty() {
        let number = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().expect("4 bytes"));
        let (name, len, kind) = (number(0) as usize, number(4) as usize, number(8));
        assert_eq!((kind, &rest[12..12 + name]), (3, &b"stapsdt\0"[..]));
        let note = &rest[12 + name.next_multiple_of(4)..][..len];
        rest = &rest[12 + name.next_multiple_of(4) + len.next_multiple_of(4)..];
        let word =
            |nth: usize| u64::from_le_bytes(note[8 * nth..8 * nth + 8].try_into().expect("8"));
        assert_eq!(word(1), base, "nothing was moved");
        let texts = note[24..].split(|byte| *byte == 0);
        let mut texts = texts.map(|text| String::from_utf8(text.to_vec()).expect("text"));
        let mut text = || texts.next().expect("three texts");
        probes.push(Probe {
            file: path.to_owned(),
            provider: text(),
            name: text(),
            arguments: text(),
            place: in_file(word(0)),
            semaphore: in_file(word(2)),
        });
    }
    probes
}

const PAGE: usize = 4096;
const PAGES: usize = 64;
/// Registers, by their numbers for perf on x86-64: dx, si, di.
const REGISTERS: u64 = 1 << 3 | 1 << 4 | 1 << 5;

/// A probe of a process that is traced, until it is dropped.
pub struct Traced {
    _event: OwnedFd,
    ring: *mut u8,
}

/// What a probe was called with: its first three arguments.
pub type Call = [u64; 3];

impl Traced {
    /// Traces a probe in a process of one thread. Without `semaphore` the process is not told.
    pub fn new(probe: &Probe, process: u32, semaphore: bool) -> io::Result<Traced> {
        let kind = std::fs::read_to_string("/sys/bus/event_source/devices/uprobe/type")?;
        let kind: u32 = kind.trim().parse().map_err(io::Error::other)?;
        let path = CString::new(probe.file.as_os_str().as_bytes())?;
        // struct perf_event_attr, in words.
        let mut attr = [0_u64; 17];
        attr[0] = u64::from(kind) | 136 << 32;
        // The semaphore's place in the upper half (`ref_ctr_offset`).
        attr[1] = if semaphore { probe.semaphore << 32 } else { 0 };
        attr[2] = 1; // every call
        attr[3] = 1 << 12; // PERF_SAMPLE_REGS_USER
        attr[5] = 1 << 5 | 1 << 6; // neither kernel nor hypervisor
        attr[7] = path.as_ptr() as u64;
        attr[8] = probe.place;
        attr[10] = REGISTERS;
        // SAFETY: the kernel reads the structure of that length, and the path.
        let event = unsafe {
            let process = process as libc::pid_t;
            libc::syscall(libc::SYS_perf_event_open, attr.as_ptr(), process, -1, -1, 8)
        };
        if event < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor, which nothing else owns.
        let event = unsafe { OwnedFd::from_raw_fd(event as i32) };
        let (len, access) = ((1 + PAGES) * PAGE, libc::PROT_READ | libc::PROT_WRITE);
        let (none, shared) = (std::ptr::null_mut(), libc::MAP_SHARED);
        // SAFETY: a new mapping.
        let ring = unsafe { libc::mmap(none, len, access, shared, event.as_raw_fd(), 0) };
        if ring == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Traced { _event: event, ring: ring.cast() })
    }

    /// Returns the calls since the last time.
    pub fn calls(&mut self) -> Vec<Call> {
        // SAFETY: two words of the first page, which the kernel and this thread share.
        let (head, tail) = unsafe {
            let word = |at| &*self.ring.add(at).cast::<AtomicU64>();
            (word(1024), word(1032))
        };
        // Acquire: partner is the kernel's barrier before it moves the head.
        let (end, mut at) = (head.load(Ordering::Acquire), tail.load(Ordering::Relaxed));
        let word = |at: u64| {
            let place = PAGE + at as usize % (PAGES * PAGE);
            // SAFETY: in the mapping; records are of whole words, at multiples of 8.
            unsafe { self.ring.add(place).cast::<u64>().read_volatile() }
        };
        let mut calls = Vec::new();
        while at < end {
            let header = word(at);
            // PERF_RECORD_SAMPLE: what the registers are for, and the three.
            if header as u32 == 9 {
                let [dx, si, di] = [2, 3, 4].map(|nth| word(at + 8 * nth));
                calls.push([di, si, dx]);
            } else {
                panic!("record {} came, so some were lost", header as u32);
            }
            at += header >> 48;
        }
        // Release: partner is the kernel's look before it writes there again.
        tail.store(at, Ordering::Release);
        calls
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`.
        unsafe { libc::munmap(self.ring.cast(), (1 + PAGES) * PAGE) };
    }
}

/// Returns why probes cannot be traced here, if so.
pub fn is_refused(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound)
        || [Some(libc::ENOENT), Some(libc::EOPNOTSUPP), Some(libc::ENOSYS)]
            .contains(&why.raw_os_error())
}
