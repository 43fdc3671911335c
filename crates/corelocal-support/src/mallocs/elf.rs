//! What a file is, as far as preloading depends on it: the head of an ELF file, and which libc it is linked with.
//!
//! Invariants:
//! - Any bytes whatever give an answer; nothing here panics.
//! - No FIFO or device is read, which could hold this process up.
//! - Of a file of any size no more is read than its headers, and for the libc its dynamic section and the names there.

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use object::elf::{
    self, DT_NEEDED, EM_386, EM_AARCH64, EM_ARM, EM_LOONGARCH, EM_PPC64, EM_RISCV, EM_S390,
    EM_X86_64, PT_DYNAMIC, PT_INTERP,
};
use object::read::elf::{Dyn as _, FileHeader, ProgramHeader as _};
use object::{Endianness, FileKind, ReadCache};

/// An ELF file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elf {
    /// Whether addresses have 64 bits.
    pub is_64: bool,
    /// Whether words are little endian.
    pub is_little: bool,
    /// `e_machine`: the processor.
    pub machine: u16,
    /// Whether a dynamic loader starts it.
    pub has_loader: bool,
    /// Whether it can be loaded by one.
    pub is_dynamic: bool,
}

impl Elf {
    /// Returns `true` if both are for the same processor and the same width of addresses.
    pub fn fits(&self, other: &Elf) -> bool {
        (self.is_64, self.is_little, self.machine) == (other.is_64, other.is_little, other.machine)
    }

    /// Returns the processor, as far as it has to be told from others here.
    pub fn kind(&self) -> String {
        let bits = if self.is_64 { 64 } else { 32 };
        let machine = match self.machine {
            EM_386 => "x86",
            EM_ARM => "Arm",
            EM_X86_64 => "x86-64",
            EM_AARCH64 => "Arm",
            EM_RISCV => "RISC-V",
            EM_PPC64 => "Power",
            EM_S390 => "s390",
            EM_LOONGARCH => "LoongArch",
            other => return format!("{bits} bits, machine {other}"),
        };
        format!("{bits} bits, {machine}")
    }
}

/// Opens a regular file. The name may be a FIFO's, which would wait for a writer, or a device's.
///
/// # Errors
/// What opening answered, or that it is no regular file.
pub fn open(path: &Path) -> io::Result<File> {
    let is_regular = |meta: Metadata| match meta.is_file() {
        true => Ok(()),
        false => Err(io::Error::other("it is not a regular file")),
    };
    is_regular(fs::metadata(path)?)?;
    // The name may lead elsewhere by now.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    is_regular(file.metadata()?)?;
    Ok(file)
}

/// Reads the head of a file; `None` if it is no ELF file.
///
/// # Errors
/// What opening answered.
pub fn read(path: &Path) -> io::Result<Option<Elf>> {
    let file = ReadCache::new(open(path)?);
    Ok(match FileKind::parse(&file) {
        Ok(FileKind::Elf32) => head::<elf::FileHeader32<Endianness>>(&file),
        Ok(FileKind::Elf64) => head::<elf::FileHeader64<Endianness>>(&file),
        _ => None,
    })
}

fn head<H: FileHeader<Endian = Endianness>>(file: &ReadCache<File>) -> Option<Elf> {
    let head = H::parse(file).ok()?;
    let endian = head.endian().ok()?;
    // Headers that are not there: nothing that the kernel or a dynamic loader would load.
    let headers = head.program_headers(endian, file).unwrap_or_default();
    let has = |kind| headers.iter().any(|header| header.p_type(endian) == kind);
    Some(Elf {
        is_64: head.is_class_64(),
        is_little: head.is_little_endian(),
        machine: head.e_machine(endian),
        has_loader: has(PT_INTERP),
        is_dynamic: has(PT_DYNAMIC),
    })
}

/// A libc, as far as they have to be told apart: a library of one cannot be loaded beside the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Libc {
    /// GNU's.
    Glibc,
    /// Alpine's, among others.
    Musl,
}

impl Libc {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Libc::Glibc => "glibc",
            Libc::Musl => "musl",
        }
    }

    /// Returns the libc of which the loader, or the library itself, has this name.
    fn of(file: &[u8]) -> Option<Libc> {
        let name = file.rsplit(|&byte| byte == b'/').next()?;
        if name.starts_with(b"ld-linux") || name == b"libc.so.6" {
            Some(Libc::Glibc)
        } else if name.starts_with(b"ld-musl-")
            || name.starts_with(b"libc.musl-")
            || name == b"libc.so"
        {
            Some(Libc::Musl)
        } else {
            None
        }
    }
}

/// Returns the libc that a program or library is linked with: `None` if neither its loader nor what it needs tells.
pub fn libc_of(path: &Path) -> Option<Libc> {
    let file = ReadCache::new(open(path).ok()?);
    match FileKind::parse(&file).ok()? {
        FileKind::Elf32 => linked::<elf::FileHeader32<Endianness>>(&file),
        FileKind::Elf64 => linked::<elf::FileHeader64<Endianness>>(&file),
        _ => None,
    }
}

fn linked<H: FileHeader<Endian = Endianness>>(file: &ReadCache<File>) -> Option<Libc> {
    let head = H::parse(file).ok()?;
    let endian = head.endian().ok()?;
    let headers = head.program_headers(endian, file).ok()?;
    let loader = headers.iter().find_map(|header| header.interpreter(endian, file).ok().flatten());
    if let Some(libc) = loader.and_then(Libc::of) {
        return Some(libc);
    }
    let sections = head.sections(endian, file).ok()?;
    let (entries, link) = sections.dynamic(endian, file).ok()??;
    let names = sections.strings(endian, file, link).ok()?;
    let needed = entries.iter().filter(|entry| entry.tag32(endian) == Some(DT_NEEDED));
    needed.filter_map(|entry| names.get(entry.val32(endian)?).ok()).find_map(Libc::of)
}

/// Returns what follows `#!` in a script; `None` if the file is none.
///
/// # Errors
/// What opening and reading answered.
pub fn interpreter(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    open(path)?.take(256).read_to_end(&mut head)?;
    let Some(rest) = head.strip_prefix(b"#!") else { return Ok(None) };
    let line = rest.split(|&byte| byte == b'\n').next().unwrap_or_default();
    Ok(Some(line.trim_ascii().to_owned()))
}

#[cfg(test)]
mod tests;
