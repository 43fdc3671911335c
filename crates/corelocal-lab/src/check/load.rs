//! Loads from a file what the rules need: descriptors with resolved addresses, the pointer array, and the code.
//!
//! Invariants:
//! - Descriptors are the 32-byte pieces of the sections called `__rseq_cs`, in file order.
//! - `text` is sorted by address and its regions do not overlap. Overlapping regions of a damaged file are dropped.

use std::borrow::Cow;

use object::elf;
use object::{Endian as _, Endianness};

use super::elf::{Elf, Kind};
use super::machine::Processor;

const DESCRIPTORS: &str = "__rseq_cs";
const POINTER_ARRAY: &str = "__rseq_cs_ptr_array";
/// Declarations by authors about their sections: see `docs/verification.md`.
const PREPARE: &str = "__rseq_prepare";
const STAYS: &str = "__rseq_stays";

/// Size of `struct rseq_cs` in include/uapi/linux/rseq.h.
pub const DESCRIPTOR_LEN: usize = 32;

/// `struct rseq_cs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Its address.
    pub address: u64,
    pub version: u32,
    pub flags: u32,
    /// `start_ip`.
    pub start: u64,
    /// `post_commit_offset`.
    pub length: u64,
    /// `abort_ip`.
    pub abort: u64,
}

impl Descriptor {
    /// Returns the address of the instruction after the commit. Saturates if the sum is not an address.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.length)
    }

    pub fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.length
    }
}

/// An entry of `__rseq_cs_ptr_array`, which names a descriptor, or of `__rseq_prepare`, which names an instruction.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its address.
    pub address: u64,
    /// The address that it names.
    pub target: u64,
}

/// An executable section.
pub struct Region<'a> {
    pub start: u64,
    pub bytes: Cow<'a, [u8]>,
}

/// The input of the rules.
pub struct Image<'a> {
    pub elf: &'a Elf<'a>,
    pub descriptors: Vec<Descriptor>,
    /// Address and length of bytes at the end of a descriptor section that do not form a whole descriptor.
    pub rest: Vec<(u64, usize)>,
    pub entries: Vec<Entry>,
    /// Stores that are declared to be invisible until the commit, by the address of the instruction.
    pub prepared: Vec<Entry>,
    /// Whether it is declared that `dlclose` never unmaps the file.
    pub stays: bool,
    text: Vec<Region<'a>>,
}

impl<'a> Image<'a> {
    pub fn load(elf: &'a Elf<'a>) -> Image<'a> {
        let endian = elf.endian();
        let mut image = Image {
            elf,
            descriptors: Vec::new(),
            rest: Vec::new(),
            entries: Vec::new(),
            prepared: Vec::new(),
            stays: !elf.sections_named(STAYS).is_empty(),
            text: Vec::new(),
        };
        for index in elf.sections_named(DESCRIPTORS) {
            let (place, bytes) = (elf.place(index), elf.relocated(index));
            for (i, piece) in bytes.chunks(DESCRIPTOR_LEN).enumerate() {
                let address = place.wrapping_add((i * DESCRIPTOR_LEN) as u64);
                match piece.try_into() {
                    Ok(piece) => image.descriptors.push(descriptor(address, piece, endian)),
                    Err(_) => image.rest.push((address, piece.len())),
                }
            }
        }
        for index in elf.sections_named(POINTER_ARRAY) {
            let (place, bytes) = (elf.place(index), elf.relocated(index));
            for (i, word) in bytes.chunks_exact(8).enumerate() {
                let target = u64_at(word, 0, endian);
                // 0 is padding between the pieces that the linker concatenated.
                if target != 0 {
                    image.entries.push(Entry { address: place.wrapping_add(i as u64 * 8), target });
                }
            }
        }
        for index in elf.sections_named(PREPARE) {
            let (place, bytes) = (elf.place(index), elf.relocated(index));
            for (i, distance) in bytes.chunks_exact(4).enumerate() {
                let address = place.wrapping_add(i as u64 * 4);
                let distance = i64::from(u32_at(distance, 0, endian) as i32);
                let target = address.wrapping_add_signed(distance);
                image.prepared.push(Entry { address, target });
            }
        }
        image.prepared.sort_by_key(|entry| entry.target);
        if !image.descriptors.is_empty() {
            image.text = text(elf);
        }
        image
    }

    /// Returns `true` if it is declared that the instruction's store is invisible until the commit.
    pub fn is_prepared(&self, instruction: u64) -> bool {
        self.prepared.binary_search_by_key(&instruction, |entry| entry.target).is_ok()
    }

    /// Returns the executable sections.
    pub fn regions(&self) -> &[Region<'a>] {
        &self.text
    }

    /// Returns the executable bytes from `address` to the end of its section. Empty if there are none.
    pub fn code_at(&self, address: u64) -> &[u8] {
        let after = self.text.partition_point(|region| region.start <= address);
        let Some(region) = after.checked_sub(1).and_then(|i| self.text.get(i)) else { return &[] };
        let offset = usize::try_from(address - region.start).unwrap_or(usize::MAX);
        region.bytes.get(offset..).unwrap_or_default()
    }

    /// Returns the `N` bytes before `address`, if they are executable.
    pub fn before<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let bytes = self.code_at(address.checked_sub(N as u64)?);
        // More bytes must follow, or `address` would be past its section.
        if bytes.len() <= N { None } else { bytes[..N].try_into().ok() }
    }

    /// Returns the signature that glibc and librseq register on this architecture, and how it is stored.
    pub fn signature(&self) -> Option<u32> {
        match self.elf.machine() {
            elf::EM_X86_64 => Some(0x5305_3053),
            elf::EM_AARCH64 => Some(0xd428_bc00),
            elf::EM_RISCV => Some(0xf140_1073),
            _ => None,
        }
    }

    /// Returns the processor, if its instructions are decoded.
    pub fn processor(&self) -> Option<Processor> {
        Processor::of(self.elf.machine())
    }

    /// Returns `true` if the instructions of this architecture are decoded.
    pub fn is_decoded(&self) -> bool {
        self.processor().is_some()
    }

    pub fn architecture(&self) -> String {
        match self.elf.machine() {
            elf::EM_X86_64 => "x86-64".to_owned(),
            elf::EM_AARCH64 => "aarch64".to_owned(),
            elf::EM_RISCV => "riscv64".to_owned(),
            elf::EM_PPC64 => "powerpc64".to_owned(),
            elf::EM_S390 => "s390x".to_owned(),
            other => format!("ELF machine {other}"),
        }
    }

    pub fn kind(&self) -> Kind {
        self.elf.kind
    }
}

fn text<'a>(elf: &Elf<'a>) -> Vec<Region<'a>> {
    let mut extents = elf.extents();
    extents.retain(|extent| extent.executable);
    extents.sort_by_key(|extent| extent.start);
    let mut text: Vec<Region<'a>> = Vec::new();
    let mut free = 0;
    for extent in extents {
        if let Some(end) = extent.start.checked_add(extent.length).filter(|_| extent.start >= free)
        {
            free = end;
            text.push(Region { start: extent.start, bytes: elf.code(extent.index) });
        }
    }
    text
}

fn descriptor(address: u64, piece: &[u8; DESCRIPTOR_LEN], endian: Endianness) -> Descriptor {
    Descriptor {
        address,
        version: u32_at(piece, 0, endian),
        flags: u32_at(piece, 4, endian),
        start: u64_at(piece, 8, endian),
        length: u64_at(piece, 16, endian),
        abort: u64_at(piece, 24, endian),
    }
}

/// Returns the 32-bit word at `at`, which the caller has checked to exist.
fn u32_at(bytes: &[u8], at: usize, endian: Endianness) -> u32 {
    let mut half = [0; 4];
    half.copy_from_slice(&bytes[at..at + 4]);
    endian.read_u32_bytes(half)
}

/// Returns the 64-bit word at `at`, which the caller has checked to exist.
fn u64_at(bytes: &[u8], at: usize, endian: Endianness) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    endian.read_u64_bytes(word)
}
