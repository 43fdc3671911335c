//! Whether a program brings a function itself: then the dynamic loader takes that one, whatever is preloaded.
//!
//! The loader looks a name up in the program first, among its dynamic symbols; they are found here by way of the
//! section headers, which strip(1) leaves. A program without section headers brings nothing, as far as is seen.
//!
//! Invariants:
//! - Any bytes whatever give an answer; nothing here panics.
//! - A symbol that is undefined is not brought, though it may have an address: that of a way to the function.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom};
use std::path::Path;

use super::elf::{self, number, read_up_to};

/// `sh_type` of the section with the symbols that the dynamic loader knows.
const SHT_DYNSYM: u64 = 11;

/// No section that is read here has more bytes; a damaged file may say anything.
const MOST_BYTES: u64 = 256 << 20;

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
/// What opening and reading answered.
pub fn defines(path: &Path, function: &str) -> io::Result<bool> {
    let mut file = File::open(path)?;
    let mut head = [0; 64];
    let length = read_up_to(&mut file, &mut head)?;
    let head = &head[..length];
    let Some(words) = Words::of(head) else { return Ok(false) };
    let Some((at, size, count)) = words.sections(head) else { return Ok(false) };
    let headers = read_at(&mut file, at, size.saturating_mul(count))?;
    let mut headers = headers.chunks_exact(usize::try_from(size).unwrap_or(usize::MAX));
    let symbols = headers.clone().find(|header| words.kind(header) == Some(SHT_DYNSYM));
    let Some((place, names)) = symbols.and_then(|it| Some((words.place(it)?, words.link(it)?)))
    else {
        return Ok(false);
    };
    let Some(place_of_names) = headers.nth(names).and_then(|header| words.place(header)) else {
        return Ok(false);
    };
    let symbols = read_at(&mut file, place.0, place.1)?;
    let names = read_at(&mut file, place_of_names.0, place_of_names.1)?;
    let mut symbols = symbols.chunks_exact(if words.is_64 { 24 } else { 16 });
    Ok(symbols.any(|symbol| words.is_of(symbol, &names, function.as_bytes()).unwrap_or(false)))
}

/// As many of these bytes as there are; none where so many cannot be.
fn read_at(file: &mut File, at: u64, length: u64) -> io::Result<Vec<u8>> {
    let there = file.metadata()?.len().saturating_sub(at).min(length);
    if there == 0 || there > MOST_BYTES {
        return Ok(Vec::new());
    }
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = vec![0; there as usize];
    let length = read_up_to(file, &mut bytes)?;
    bytes.truncate(length);
    Ok(bytes)
}

/// A field of a structure: where it begins, and how many bytes it has.
type Field = (usize, usize);

/// How words lie in a file; structures have one layout for 64 bits and one for 32.
#[derive(Clone, Copy)]
struct Words {
    is_64: bool,
    is_little: bool,
}

impl Words {
    fn of(head: &[u8]) -> Option<Self> {
        let rest = head.strip_prefix(b"\x7fELF")?;
        let is_64 = match rest.first()? {
            1 => false,
            2 => true,
            _ => return None,
        };
        Some(Words { is_64, is_little: *rest.get(1)? != 2 })
    }

    fn field(self, bytes: &[u8], of_64: Field, of_32: Field) -> Option<u64> {
        let (at, length) = if self.is_64 { of_64 } else { of_32 };
        number(bytes, self.is_little, at, length)
    }

    /// Where the section headers are, how long one is, and how many there are: e_shoff, e_shentsize and e_shnum.
    fn sections(self, head: &[u8]) -> Option<(u64, u64, u64)> {
        let at = self.field(head, (40, 8), (32, 4))?;
        let size = self.field(head, (58, 2), (46, 2))?;
        let count = self.field(head, (60, 2), (48, 2))?;
        (at > 0 && size > 0).then_some((at, size, count))
    }

    /// `sh_type`.
    fn kind(self, header: &[u8]) -> Option<u64> {
        self.field(header, (4, 4), (4, 4))
    }

    /// `sh_offset` and `sh_size`.
    fn place(self, header: &[u8]) -> Option<(u64, u64)> {
        let at = self.field(header, (24, 8), (16, 4))?;
        Some((at, self.field(header, (32, 8), (20, 4))?))
    }

    /// `sh_link`: of symbols, the section with their names.
    fn link(self, header: &[u8]) -> Option<usize> {
        usize::try_from(self.field(header, (40, 4), (24, 4))?).ok()
    }

    /// Whether the symbol is the function's, and defined.
    fn is_of(self, symbol: &[u8], names: &[u8], function: &[u8]) -> Option<bool> {
        const STB_LOCAL: u64 = 0;
        const SHN_UNDEF: u64 = 0;
        // st_info, st_shndx and st_name.
        let binding = self.field(symbol, (4, 1), (12, 1))? >> 4;
        let section = self.field(symbol, (6, 2), (14, 2))?;
        if binding == STB_LOCAL || section == SHN_UNDEF {
            return Some(false);
        }
        let at = usize::try_from(self.field(symbol, (0, 4), (0, 4))?).ok()?;
        let rest = names.get(at..)?.strip_prefix(function)?;
        Some(rest.first() == Some(&0))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const NAMES: &[u8] = b"\0mallocs\0malloc\0";
    /// Where [`NAMES`] has it.
    const MALLOC: u8 = 9;

    /// A file with names, with one symbol, and with two section headers: of the symbol, and of the names.
    fn file(is_64: bool, name: u8, binding: u8, section: u8) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', if is_64 { 2 } else { 1 }, 1]);
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
        (bytes[head[0]], bytes[head[1]], bytes[head[2]]) = (at as u8, size, 2);
        for (kind, from, long, link) in [(11, of_symbol, length, 1), (3, of_names, NAMES.len(), 0)]
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
