//! Whether a program brings a function itself, then the dynamic loader takes that one, whatever is preloaded; or our
//! malloc as `CoreLocal`.
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

/// Returns how a program's malloc comes to be inside, if it is; what cannot be read has none, as far as is seen.
pub fn malloc_inside(program: &Path) -> Option<&'static str> {
    let is_static = !elf::read(program).ok()??.has_loader;
    let brings = || defines(program, "malloc").unwrap_or(false);
    match is_static {
        true => Some("is linked statically"),
        false => brings().then_some("defines malloc itself (one is linked into it)"),
    }
}

/// The section that programs with `CoreLocal` have (`corelocal::alloc`).
const INSIDE: &[u8] = b".corelocal.malloc";

/// Returns `true` if a Rust program may have our malloc as `CoreLocal`, and so read `CORELOCAL_MALLOC` itself.
pub fn has_core_local(program: &Path) -> bool {
    let Ok(file) = elf::open(program).map(ReadCache::new) else { return false };
    match FileKind::parse(&file) {
        Ok(FileKind::Elf64) => has_section::<FileHeader64<Endianness>>(&file).unwrap_or(false),
        _ => false,
    }
}

fn has_section<H: FileHeader<Endian = Endianness>>(file: &ReadCache<File>) -> object::Result<bool> {
    let head = H::parse(file)?;
    let sections = head.sections(head.endian()?, file)?;
    Ok(sections.section_by_name(head.endian()?, INSIDE).is_some())
}

/// Returns `true` if the program of this file defines the function for the dynamic loader. What is no ELF file does
/// not.
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
mod tests;
