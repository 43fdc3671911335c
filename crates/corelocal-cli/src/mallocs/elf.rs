//! What a file is, as far as preloading depends on it: the head of an ELF file, and no more.
//!
//! Invariant: any bytes whatever give an answer; nothing here panics.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// `p_type` of the segment that names the dynamic loader.
const PT_INTERP: u32 = 3;
/// `p_type` of the segment that a dynamic loader needs.
const PT_DYNAMIC: u32 = 2;

/// More program headers than any program has; a damaged file may say anything.
const MOST_HEADERS: u64 = 1024;

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
    /// Whether both are for the same processor and the same width of addresses.
    pub fn fits(&self, other: &Elf) -> bool {
        (self.is_64, self.is_little, self.machine) == (other.is_64, other.is_little, other.machine)
    }

    /// The processor, as far as it has to be told from others here.
    pub fn kind(&self) -> String {
        let bits = if self.is_64 { 64 } else { 32 };
        let machine = match self.machine {
            3 => "x86",
            40 => "Arm",
            62 => "x86-64",
            183 => "Arm",
            243 => "RISC-V",
            21 => "Power",
            22 => "s390",
            258 => "LoongArch",
            other => return format!("{bits} bits, machine {other}"),
        };
        format!("{bits} bits, {machine}")
    }
}

/// Reads the head of a file; `None` if it is no ELF file.
///
/// # Errors
/// What opening and reading answered.
pub fn read(path: &Path) -> io::Result<Option<Elf>> {
    let mut file = File::open(path)?;
    let mut head = [0; 64];
    let length = read_up_to(&mut file, &mut head)?;
    let Some(layout) = Layout::of(&head[..length]) else { return Ok(None) };
    let (mut has_loader, mut is_dynamic) = (false, false);
    for nth in 0..layout.headers.min(MOST_HEADERS) {
        let Some(at) = layout.size.checked_mul(nth).and_then(|at| at.checked_add(layout.at)) else {
            break;
        };
        let mut word = [0; 4];
        file.seek(SeekFrom::Start(at))?;
        if read_up_to(&mut file, &mut word)? < word.len() {
            break;
        }
        let kind = layout.u32(word);
        has_loader |= kind == PT_INTERP;
        is_dynamic |= kind == PT_DYNAMIC;
    }
    let Layout { is_64, is_little, machine, .. } = layout;
    Ok(Some(Elf { is_64, is_little, machine, has_loader, is_dynamic }))
}

/// What follows `#!` in a script; `None` if the file is none.
///
/// # Errors
/// What opening and reading answered.
pub fn interpreter(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut head = [0; 256];
    let length = read_up_to(&mut File::open(path)?, &mut head)?;
    let Some(rest) = head[..length].strip_prefix(b"#!") else { return Ok(None) };
    let line = rest.split(|&byte| byte == b'\n').next().unwrap_or_default();
    Ok(Some(line.trim_ascii().to_owned()))
}

/// Fewer bytes only where the file has no more.
pub(super) fn read_up_to(file: &mut File, bytes: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < bytes.len() {
        match file.read(&mut bytes[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

/// The word of so many bytes at a place, if it is there.
pub(super) fn number(bytes: &[u8], is_little: bool, at: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(length)?)?;
    let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
    Some(if is_little { bytes.iter().rev().fold(0, add) } else { bytes.iter().fold(0, add) })
}

/// Where the program headers are.
struct Layout {
    is_64: bool,
    is_little: bool,
    machine: u16,
    at: u64,
    size: u64,
    headers: u64,
}

impl Layout {
    fn of(head: &[u8]) -> Option<Self> {
        let rest = head.strip_prefix(b"\x7fELF")?;
        let is_64 = match rest.first()? {
            1 => false,
            2 => true,
            _ => return None,
        };
        let is_little = *rest.get(1)? != 2;
        let number = |at, length| number(head, is_little, at, length);
        // e_machine, e_phoff, e_phentsize and e_phnum of Elf32_Ehdr and Elf64_Ehdr.
        let (offset, size, headers) =
            if is_64 { (number(32, 8), 54, 56) } else { (number(28, 4), 42, 44) };
        Some(Self {
            is_64,
            is_little,
            machine: number(18, 2)? as u16,
            at: offset?,
            size: number(size, 2)?,
            headers: number(headers, 2)?,
        })
    }

    fn u32(&self, bytes: [u8; 4]) -> u32 {
        if self.is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn of(bytes: &[u8]) -> Option<Elf> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, bytes).unwrap();
        read(&path).unwrap()
    }

    /// A head with one program header of `kind`.
    fn head(is_64: bool, kind: u32) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', if is_64 { 2 } else { 1 }, 1]);
        bytes[18] = 62;
        let (offset, size, count) = if is_64 { (32, 54, 56) } else { (28, 42, 44) };
        (bytes[offset], bytes[size], bytes[count]) = (64, 56, 1);
        bytes[64..68].copy_from_slice(&kind.to_le_bytes());
        bytes
    }

    #[test]
    fn heads_of_files() {
        for is_64 in [true, false] {
            let elf = of(&head(is_64, PT_INTERP)).unwrap();
            assert!(elf.has_loader && !elf.is_dynamic && elf.is_64 == is_64, "{elf:?}");
            let elf = of(&head(is_64, PT_DYNAMIC)).unwrap();
            assert!(!elf.has_loader && elf.is_dynamic, "{elf:?}");
        }
        assert!(!of(&head(true, 1)).unwrap().fits(&of(&head(false, 1)).unwrap()));
        assert_eq!(of(&head(true, 1)).unwrap().kind(), "64 bits, x86-64");
        for other in [&b""[..], b"\x7fELF", b"#!/bin/sh\n", b"\x7fELF\x07\x01garbage"] {
            assert_eq!(of(other), None, "{other:?}");
        }
    }

    #[test]
    fn damaged_files_have_an_end() {
        let mut bytes = head(true, 1);
        // Headers that lie beyond the end, in a number that is not true.
        bytes[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        bytes[56..58].copy_from_slice(&u16::MAX.to_le_bytes());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, &bytes).unwrap();
        // A seek beyond what a file can be is an error; that there is an answer is the point.
        let _ = read(&path);
        for cut in 0..head(true, PT_INTERP).len() {
            let _ = of(&head(true, PT_INTERP)[..cut]);
        }
    }

    #[test]
    fn this_program() {
        let elf = read(Path::new("/proc/self/exe")).unwrap().expect("an ELF file");
        assert_eq!(elf.is_64, cfg!(target_pointer_width = "64"));
        assert_eq!(elf.has_loader, !cfg!(target_feature = "crt-static"));
    }

    #[test]
    fn scripts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for (text, expected) in [
            ("#! /bin/sh -e \necho\n", Some("/bin/sh -e")),
            ("#!/usr/bin/env python3", Some("/usr/bin/env python3")),
            ("#!", Some("")),
            ("echo", None),
        ] {
            fs::write(&path, text).unwrap();
            let expected = expected.map(|text| text.as_bytes().to_owned());
            assert_eq!(interpreter(&path).unwrap(), expected, "{text:?}");
        }
    }
}
