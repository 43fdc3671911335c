//! Whether a program brings a function itself: then the dynamic loader takes that one, whatever is preloaded.
//!
//! The loader looks a name up in the program first, among its dynamic symbols; they are found here by way of the
//! section headers, which strip(1) leaves. A program without section headers brings nothing, as far as is seen.
//!
//! Invariants:
//! - Any bytes whatever give an answer; nothing here panics.
//! - A symbol that is undefined is not brought, though it may have an address: that of a way to the function.

use std::fs::File;
use std::io;
use std::path::Path;

use object::elf::{FileHeader32, FileHeader64, SHT_DYNSYM};
use object::read::StringTable;
use object::read::elf::{FileHeader, SectionHeader as _, SectionTable, Sym as _};
use object::{Endianness, FileKind, ReadCache};

use super::elf;

/// How a program's malloc comes to be inside, if it is; what cannot be read has none, as far as is seen.
pub fn malloc_inside(program: &Path) -> Option<&'static str> {
    let is_static = !elf::read(program).ok()??.has_loader;
    let brings = || defines(program, "malloc").unwrap_or(false);
    match is_static {
        true => Some("is linked statically"),
        false => brings().then_some("defines malloc itself (one is linked into it)"),
    }
}

/// Whether the program of this file defines the function for the dynamic loader. What is no ELF file does not.
///
/// # Errors
/// What opening answered.
pub fn defines(path: &Path, function: &str) -> io::Result<bool> {
    let file = ReadCache::new(elf::open(path)?);
    let answer = match FileKind::parse(&file) {
        Ok(FileKind::Elf32) => brings::<FileHeader32<Endianness>>(&file, function),
        Ok(FileKind::Elf64) => brings::<FileHeader64<Endianness>>(&file, function),
        _ => return Ok(false),
    };
    Ok(answer.unwrap_or(false))
}

fn brings<H: FileHeader<Endian = Endianness>>(
    file: &ReadCache<File>,
    function: &str,
) -> object::Result<bool> {
    let head = H::parse(file)?;
    let endian = head.endian()?;
    // The names of sections may lack.
    let headers = head.section_headers(endian, file)?;
    let sections = SectionTable::<H, _>::new(headers, StringTable::default());
    let symbols = sections.symbols(endian, file, SHT_DYNSYM)?;
    // At once: a cache that is asked for each name reads the file as often.
    let names = sections.section(symbols.string_section())?.data(endian, file)?;
    let names = StringTable::new(names, 0, names.len() as u64);
    let is_it = |symbol: &H::Sym| {
        let is_there = !symbol.is_undefined(endian) && !symbol.is_local();
        is_there && symbol.name(endian, names).is_ok_and(|name| name == function.as_bytes())
    };
    Ok(symbols.iter().any(is_it))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const NAMES: &[u8] = b"\0mallocs\0malloc\0";
    /// Where [`NAMES`] has it.
    const MALLOC: u8 = 9;

    /// A file with names, with one symbol, and with three section headers: none, of the symbol, and of the names.
    fn file(is_64: bool, name: u8, binding: u8, section: u8) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', if is_64 { 2 } else { 1 }, 1, 1]);
        let (head, header, symbol) = if is_64 {
            ([40, 58, 60], [24, 32, 40], [4, 6])
        } else {
            ([32, 46, 48], [16, 20, 24], [12, 14])
        };
        let (size, length) = if is_64 { (64, 24) } else { (40, 16) };
        let mut one = vec![0; length];
        (one[0], one[symbol[0]], one[symbol[1]]) = (name, binding << 4 | 2, section);
        let (of_symbol, of_names) = (64, 64 + length);
        let at = of_names + NAMES.len();
        bytes.extend(one);
        bytes.extend(NAMES);
        (bytes[head[0]], bytes[head[1]], bytes[head[2]]) = (at as u8, size, 3);
        bytes.extend(vec![0; usize::from(size)]);
        for (kind, from, long, link) in [(11, of_symbol, length, 2), (3, of_names, NAMES.len(), 0)]
        {
            let mut section = vec![0; usize::from(size)];
            section[4] = kind;
            (section[header[0]], section[header[1]]) = (from as u8, long as u8);
            section[header[2]] = link;
            bytes.extend(section);
        }
        bytes
    }

    fn brings(bytes: &[u8]) -> bool {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, bytes).unwrap();
        defines(&path, "malloc").unwrap()
    }

    #[test]
    fn symbols_of_files() {
        for is_64 in [true, false] {
            // Global and weak ones.
            assert!(brings(&file(is_64, MALLOC, 1, 7)) && brings(&file(is_64, MALLOC, 2, 7)));
            assert!(!brings(&file(is_64, MALLOC, 1, 0)), "it is undefined");
            assert!(!brings(&file(is_64, MALLOC, 0, 7)), "it is local");
            assert!(!brings(&file(is_64, 1, 1, 7)) && !brings(&file(is_64, 200, 1, 7)));
        }
    }

    #[test]
    fn damaged_files_have_an_end() {
        for is_64 in [true, false] {
            let whole = file(is_64, MALLOC, 1, 7);
            (0..whole.len()).for_each(|cut| assert!(!brings(&whole[..cut]), "{cut}"));
            for at in 4..whole.len() {
                let mut damaged = whole.clone();
                damaged[at] = 0xff;
                let _ = brings(&damaged);
            }
        }
        assert!(!brings(b"#!/bin/sh\n"));
    }

    #[test]
    fn this_program_has_libcs() {
        if cfg!(target_feature = "crt-static") {
            return eprintln!("skipped: this_program_has_libcs: linked without a loader");
        }
        let this = Path::new("/proc/self/exe");
        assert!(!defines(this, "malloc").unwrap());
        let malloc = super::super::of_this_process();
        assert!(defines(&malloc, "malloc").unwrap(), "{malloc:?}");
    }
}
