//! An ELF file as the loader or the linker sees it: sections at addresses, with relocations applied.
//!
//! Invariants:
//! - Every section has a place in one address space. In a linked file that is its address. In an object file, whose
//!   sections all begin at 0, each loadable section gets an invented address. The others (debug information) stay at
//!   0, since they refer to each other by offset.
//! - A file whose sections have more bytes than the file itself is refused, so no byte is processed twice.
//! - A symbol that the file does not define is at `EXTERNAL`, where there is no section.

use std::borrow::Cow;

use super::distances;
use object::elf::{self, FileHeader64, Rela64, SectionHeader64, Sym64};
use object::read::elf::{
    Dyn as _, FileHeader as _, ProgramHeader as _, Rela as _, SectionHeader as _, SectionTable,
    Sym as _, SymbolTable,
};
use object::{Endianness, SectionIndex};

pub type Header = FileHeader64<Endianness>;
type Rela = Rela64<Endianness>;

/// The first invented address for sections of an object file.
const FIRST: u64 = 0x1_0000;

/// In a linked file relocations name addresses, in any section.
const ANY: usize = 0;

/// The address of every symbol defined elsewhere, within reach of a 32-bit displacement.
const EXTERNAL: u64 = 0x7000_0000;

/// The kind of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A program, position-independent or not.
    Executable,
    /// A shared object, which may be unloaded.
    Shared,
    /// Input of a linker.
    Object,
}

/// A loadable section.
#[derive(Clone, Debug)]
pub struct Extent {
    pub name: String,
    pub index: usize,
    pub start: u64,
    pub length: u64,
    pub executable: bool,
}

/// A parsed file.
pub struct Elf<'a> {
    data: &'a [u8],
    header: &'a Header,
    endian: Endianness,
    sections: SectionTable<'a, Header>,
    /// The address of each section, by index.
    places: Vec<u64>,
    /// The symbols of the linker and of the loader. Finding each takes a pass over all sections.
    symbols: [SymbolTable<'a, Header>; 2],
    /// Relocation tables, sorted by the section that they apply to (`ANY` in a linked file).
    relocations: Vec<(usize, &'a SectionHeader64<Endianness>)>,
    pub kind: Kind,
    /// Set for a shared object that `dlclose` never unmaps.
    pub nodelete: bool,
}

impl<'a> Elf<'a> {
    /// # Errors
    /// A sentence that says what `data` is.
    pub fn parse(data: &'a [u8]) -> Result<Elf<'a>, String> {
        if !data.starts_with(b"\x7fELF") {
            return Err("not an ELF file; name an executable, a shared object, an object file or \
                        a static archive"
                .to_owned());
        }
        if data.get(4) == Some(&elf::ELFCLASS32) {
            return Err("a 32-bit ELF file, and only 64-bit ones are checked; build it for a \
                        64-bit target"
                .to_owned());
        }
        let damaged = |error| format!("a damaged ELF file ({error}); build it again");
        let header = Header::parse(data).map_err(damaged)?;
        let endian = header.endian().map_err(damaged)?;
        let sections = header.sections(endian, data).map_err(damaged)?;
        let kind = match header.e_type(endian) {
            elf::ET_EXEC => Kind::Executable,
            elf::ET_DYN => Kind::Shared,
            elf::ET_REL => Kind::Object,
            _ => {
                return Err("an ELF file of no known kind, a core dump perhaps; name the program \
                             it came from"
                    .to_owned());
            }
        };
        let mut elf = Elf {
            data,
            header,
            endian,
            sections,
            places: Vec::new(),
            symbols: [elf::SHT_SYMTAB, elf::SHT_DYNSYM]
                .map(|table| sections.symbols(endian, data, table).unwrap_or_default()),
            relocations: Vec::new(),
            kind,
            nodelete: false,
        };
        let claimed = sections.iter().map(|section| elf.raw(section).len());
        if claimed.fold(0, usize::saturating_add) > data.len() {
            return Err("a damaged ELF file (its sections overlap); build it again".to_owned());
        }
        elf.places = elf.lay_out();
        elf.relocations = elf.relocation_tables();
        if kind == Kind::Shared {
            elf.read_dynamic();
        }
        Ok(elf)
    }

    /// Returns `true` if the file has the debug information of a program without its code, as `objcopy
    /// --only-keep-debug` leaves it: sections of instructions have a length and no bytes.
    pub fn is_debug_only(&self) -> bool {
        let is_code = |section: &&SectionHeader64<Endianness>| {
            section.sh_flags(self.endian) & u64::from(elf::SHF_EXECINSTR) != 0
        };
        let is_missing = |section: &SectionHeader64<Endianness>| {
            section.sh_type(self.endian) == elf::SHT_NOBITS && section.sh_size(self.endian) > 0
        };
        let mut code = self.sections.iter().filter(is_code).peekable();
        code.peek().is_some() && code.all(is_missing)
    }

    fn lay_out(&self) -> Vec<u64> {
        let mut next = FIRST;
        let mut places = Vec::with_capacity(self.sections.len());
        for section in self.sections.iter() {
            if self.kind != Kind::Object {
                places.push(section.sh_addr(self.endian));
            } else if self.is_loaded(section) {
                let align = section.sh_addralign(self.endian);
                let align = if align.is_power_of_two() { align.min(4096) } else { 1 };
                let start = next.next_multiple_of(align);
                places.push(start);
                next = start + self.raw(section).len() as u64;
            } else {
                places.push(0);
            }
        }
        places
    }

    fn relocation_tables(&self) -> Vec<(usize, &'a SectionHeader64<Endianness>)> {
        let mut tables = Vec::new();
        for table in self.sections.iter() {
            if table.sh_type(self.endian) != elf::SHT_RELA {
                continue;
            }
            if self.kind == Kind::Object {
                tables.push((table.sh_info(self.endian) as usize, table));
            } else if self.is_loaded(table) {
                tables.push((ANY, table));
            }
        }
        tables.sort_by_key(|(target, _)| *target);
        tables
    }

    /// Distinguishes programs from shared objects, and finds DF_1_NODELETE.
    fn read_dynamic(&mut self) {
        let Ok(Some((entries, _))) = self.sections.dynamic(self.endian, self.data) else { return };
        let (mut flags, mut has_name) = (0, false);
        for entry in entries {
            match entry.tag32(self.endian) {
                Some(elf::DT_FLAGS_1) => flags = entry.val32(self.endian).unwrap_or(0),
                Some(elf::DT_SONAME) => has_name = true,
                _ => {}
            }
        }
        let segments = self.header.program_headers(self.endian, self.data).unwrap_or_default();
        let has_loader = segments.iter().any(|s| s.p_type(self.endian) == elf::PT_INTERP);
        self.nodelete = flags & elf::DF_1_NODELETE != 0;
        // Linkers before 2.26 did not mark position independent programs.
        if flags & elf::DF_1_PIE != 0 || (has_loader && !has_name) {
            self.kind = Kind::Executable;
        }
    }

    fn is_loaded(&self, section: &SectionHeader64<Endianness>) -> bool {
        section.sh_flags(self.endian) & u64::from(elf::SHF_ALLOC) != 0
    }

    fn raw(&self, section: &SectionHeader64<Endianness>) -> &'a [u8] {
        section.data(self.endian, self.data).unwrap_or_default()
    }

    pub fn machine(&self) -> u16 {
        self.header.e_machine(self.endian)
    }

    pub fn endian(&self) -> Endianness {
        self.endian
    }

    /// Returns `true` if the file has a section table, without which nothing can be found in it.
    pub fn has_sections(&self) -> bool {
        !self.sections.is_empty()
    }

    /// Returns the loadable sections that have bytes in the file.
    pub fn extents(&self) -> Vec<Extent> {
        let mut extents = Vec::new();
        for (index, section) in self.sections.iter().enumerate() {
            let length = self.raw(section).len() as u64;
            if self.is_loaded(section) && length > 0 {
                let flags = section.sh_flags(self.endian);
                let executable = flags & u64::from(elf::SHF_EXECINSTR) != 0;
                let name = self.section_name(section);
                extents.push(Extent { name, index, start: self.places[index], length, executable });
            }
        }
        extents
    }

    /// Indices of the sections called `name`; there may be several in an object file.
    pub fn sections_named(&self, name: &str) -> Vec<usize> {
        let named = |section: &SectionHeader64<Endianness>| {
            self.sections.section_name(self.endian, section) == Ok(name.as_bytes())
        };
        self.sections.enumerate().filter(|(_, section)| named(section)).map(|(i, _)| i.0).collect()
    }

    fn section_name(&self, section: &SectionHeader64<Endianness>) -> String {
        let name = self.sections.section_name(self.endian, section).unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }

    /// Returns the address of the section.
    pub fn place(&self, index: usize) -> u64 {
        self.places.get(index).copied().unwrap_or(0)
    }

    /// Returns the section's bytes as in the file, with relocations applied if it is an object file.
    pub fn code(&self, index: usize) -> Cow<'a, [u8]> {
        if self.kind == Kind::Object { self.relocated(index) } else { self.bytes(index).into() }
    }

    fn bytes(&self, index: usize) -> &'a [u8] {
        self.sections.section(SectionIndex(index)).map_or(&[], |section| self.raw(section))
    }

    /// Returns the section's bytes with all relocations applied, including the loader's. An address that the loader
    /// takes from another file keeps its value in the file.
    pub fn relocated(&self, index: usize) -> Cow<'a, [u8]> {
        let mut bytes = Cow::Borrowed(self.bytes(index));
        let (start, length) = (self.place(index), bytes.len() as u64);
        let (target, base) = if self.kind == Kind::Object { (index, 0) } else { (ANY, start) };
        let first = self.relocations.partition_point(|(of, _)| *of < target);
        let tables = self.relocations[first..].iter().take_while(|(of, _)| *of == target);
        for (_, table) in tables {
            let Ok(Some((entries, link))) = table.rela(self.endian, self.data) else { continue };
            // A static program's table names no symbols, and needs none.
            let symbols = self.symbols.iter().find(|symbols| symbols.section() == link);
            let symbols = symbols.unwrap_or(&self.symbols[1]);
            for entry in entries {
                let offset = entry.r_offset(self.endian).wrapping_sub(base);
                if offset < length {
                    self.apply(bytes.to_mut(), offset, start, entry, symbols);
                }
            }
        }
        bytes
    }

    fn apply(
        &self,
        bytes: &mut [u8],
        offset: u64,
        start: u64,
        entry: &Rela,
        symbols: &SymbolTable<'a, Header>,
    ) {
        let symbol = entry.symbol(self.endian, false);
        let base = symbol.map_or(0, |symbol| {
            let found = symbols.symbol(symbol).ok();
            found.and_then(|found| self.value(symbols, symbol.0, found)).unwrap_or(EXTERNAL)
        });
        let target = base.wrapping_add_signed(entry.r_addend(self.endian));
        let relative = target.wrapping_sub(start.wrapping_add(offset));
        // What is there: as many bytes of a little-endian number.
        let at = |size: usize| {
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            let field = bytes.get(start..start.saturating_add(size)).unwrap_or_default();
            field.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
        };
        let (value, size) = match (self.machine(), entry.r_type(self.endian, false)) {
            (elf::EM_X86_64, elf::R_X86_64_64 | elf::R_X86_64_RELATIVE)
            | (elf::EM_AARCH64, elf::R_AARCH64_ABS64 | elf::R_AARCH64_RELATIVE)
            | (elf::EM_RISCV, elf::R_RISCV_64 | elf::R_RISCV_RELATIVE) => (target, 8),
            (elf::EM_X86_64, elf::R_X86_64_32 | elf::R_X86_64_32S)
            | (elf::EM_AARCH64, elf::R_AARCH64_ABS32)
            | (elf::EM_RISCV, elf::R_RISCV_32) => (target, 4),
            (elf::EM_X86_64, elf::R_X86_64_PC64) | (elf::EM_AARCH64, elf::R_AARCH64_PREL64) => {
                (relative, 8)
            }
            (elf::EM_X86_64, elf::R_X86_64_PC32 | elf::R_X86_64_PLT32)
            | (elf::EM_AARCH64, elf::R_AARCH64_PREL32)
            | (elf::EM_RISCV, elf::R_RISCV_32_PCREL) => (relative, 4),
            (elf::EM_X86_64, elf::R_X86_64_PC8) => (relative, 1),
            // Pairs of these, at one place, are what lies between two labels.
            (elf::EM_RISCV, elf::R_RISCV_ADD64) => (at(8).wrapping_add(target), 8),
            (elf::EM_RISCV, elf::R_RISCV_SUB64) => (at(8).wrapping_sub(target), 8),
            (elf::EM_RISCV, elf::R_RISCV_ADD32) => (at(4).wrapping_add(target), 4),
            (elf::EM_RISCV, elf::R_RISCV_SUB32) => (at(4).wrapping_sub(target), 4),
            (elf::EM_RISCV, kind) => {
                let is_short = matches!(kind, elf::R_RISCV_RVC_BRANCH | elf::R_RISCV_RVC_JUMP);
                let size = if is_short { 2 } else { 4 };
                match distances::with_distance(kind, at(size) as u32, relative) {
                    Some(instruction) => (instruction.into(), size),
                    None => return,
                }
            }
            _ => return,
        };
        let mut image = value.to_le_bytes();
        let mut used = 0..size;
        if self.endian == Endianness::Big {
            image = value.to_be_bytes();
            used = 8 - size..8;
        }
        let Ok(offset) = usize::try_from(offset) else { return };
        if let Some(field) = bytes.get_mut(offset..offset.saturating_add(size)) {
            field.copy_from_slice(&image[used]);
        }
    }

    /// Returns the address of a symbol. `None` if it is defined elsewhere.
    fn value(
        &self,
        table: &SymbolTable<'a, Header>,
        index: usize,
        symbol: &Sym64<Endianness>,
    ) -> Option<u64> {
        let value = symbol.st_value(self.endian);
        if symbol.is_absolute(self.endian) {
            return Some(value);
        }
        let index = object::SymbolIndex(index);
        let section = table.symbol_section(self.endian, symbol, index).ok().flatten()?;
        Some(if self.kind == Kind::Object {
            self.place(section.0).wrapping_add(value)
        } else {
            value
        })
    }

    /// Calls `visit` with start, size and name of each defined symbol of code. For a stripped file, of the dynamic
    /// symbols.
    pub fn symbols(&self, mut visit: impl FnMut(u64, u64, &'a [u8])) {
        let [linker, loader] = &self.symbols;
        let symbols = if linker.is_empty() { loader } else { linker };
        for (index, symbol) in symbols.enumerate() {
            let of_code = matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_NOTYPE);
            if !of_code || symbol.st_name(self.endian) == 0 {
                continue;
            }
            let name = symbol.name(self.endian, symbols.strings());
            if let (Some(start), Ok(name)) = (self.value(symbols, index.0, symbol), name) {
                visit(start, symbol.st_size(self.endian), name);
            }
        }
    }
}
