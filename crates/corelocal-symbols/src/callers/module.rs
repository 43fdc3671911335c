//! One file of a program: where it is mapped, how to find the callers of its functions, and their names.
//!
//! Invariants:
//! - An address in memory is an address in the file plus `bias`, modulo 2^64.
//! - Inlined functions are found in debug information only. The function that was called is named by its symbol, if
//!   there is one.

use std::cell::{OnceCell, RefCell};

use addr2line::Context;
use gimli::{
    AbbreviationsCacheStrategy, BaseAddresses, Dwarf, EhFrame, EhFrameHdr, EndianSlice,
    ParsedEhFrameHdr, RunTimeEndian, SectionId, UnwindContext, UnwindSection as _,
};
use object::{Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _, SymbolKind};

use super::Function;
use super::maps::Map;
use super::unwind::{self, Registers, Stack, Step};
use crate::demangle::{cut, demangled};

pub type Bytes<'a> = EndianSlice<'a, RunTimeEndian>;

/// The maximum number of functions that are returned for one call: the innermost ones.
const MOST_FUNCTIONS: usize = 256;

/// A symbol.
struct Symbol<'a> {
    start: u64,
    size: u64,
    name: &'a str,
}

/// A parsed file.
pub struct Module<'a> {
    file: object::File<'a>,
    endian: RunTimeEndian,
    bias: u64,
    /// The addresses and sizes of its segments.
    segments: Vec<(u64, u64)>,
    frames: Option<Frames<'a>>,
    names: OnceCell<Option<Context<Bytes<'a>>>>,
    functions: OnceCell<Vec<Symbol<'a>>>,
    variables: OnceCell<Vec<Symbol<'a>>>,
}

/// The unwind tables.
struct Frames<'a> {
    table: EhFrame<Bytes<'a>>,
    index: Option<ParsedEhFrameHdr<Bytes<'a>>>,
    bases: BaseAddresses,
    /// Reused, because it is large.
    context: RefCell<UnwindContext<usize>>,
}

impl<'a> Module<'a> {
    /// Parses a file. `map` is the mapping of a part of its code.
    pub fn parse(map: &Map, content: &'a [u8]) -> Option<Module<'a>> {
        let file = object::File::parse(content).ok()?;
        let endian =
            if file.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
        let segment = file.segments().find(|segment| {
            let (start, len) = segment.file_range();
            // A mapping begins at a page boundary, a segment anywhere in that page.
            let first_page = start & !(page_size() - 1);
            (first_page..start.saturating_add(len)).contains(&map.offset)
                && segment_is_code(segment)
        })?;
        let in_file =
            map.offset.wrapping_sub(segment.file_range().0).wrapping_add(segment.address());
        let bias = map.start.wrapping_sub(in_file);
        let segments = file.segments().map(|it| (it.address(), it.size())).collect();
        let frames = Frames::of(&file, endian);
        let (names, functions, variables) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
        Some(Module { file, endian, bias, segments, frames, names, functions, variables })
    }

    /// Steps from a function to its caller. `None` if the file has no entry for it.
    pub fn caller(&self, inside: u64, registers: &Registers, stack: &Stack<'_>) -> Option<Step> {
        let frames = self.frames.as_ref()?;
        let at = inside.wrapping_sub(self.bias);
        let (table, bases) = (&frames.table, &frames.bases);
        let fde = match &frames.index {
            Some(index) => {
                let lookup = index.table()?;
                lookup.fde_for_address(table, bases, at, EhFrame::cie_from_offset).ok()?
            }
            None => table.fde_for_address(bases, at, EhFrame::cie_from_offset).ok()?,
        };
        let mut context = frames.context.try_borrow_mut().ok()?;
        let row = fde.unwind_info_for_address(table, bases, &mut context, at).ok()?;
        let unit = fde.cie().encoding();
        Some(unwind::by_row(row, table, unit, fde.is_signal_trampoline(), registers, stack))
    }

    /// Returns the functions that contain this address, innermost first. Empty if unknown.
    pub fn functions_at(&self, inside: u64) -> Vec<Function> {
        let at = inside.wrapping_sub(self.bias);
        let mut functions = self.functions_of_debug_information(at).unwrap_or_default();
        // If debug information has lines only, its names have no path. The symbol has.
        if let Some(name) = self.function_symbol(at).map(|it| demangled(it).into()) {
            match functions.last_mut() {
                Some(function) => function.name = Some(name),
                None => functions.push(Function { name: Some(name), source: None }),
            }
        }
        functions
    }

    fn functions_of_debug_information(&self, at: u64) -> Option<Vec<Function>> {
        let context = self.names.get_or_init(|| self.debug_information()).as_ref()?;
        // addr2line adds 1.
        at.checked_add(1)?;
        let mut functions = Vec::new();
        let mut frames = context.find_frames(at).skip_all_loads().ok()?;
        while let Ok(Some(frame)) = frames.next() {
            let raw_name = frame.function.as_ref().and_then(|function| function.raw_name().ok());
            let name = raw_name.map(|name| demangled(&name).into());
            let source =
                frame.location.as_ref().and_then(|location| {
                    let file = cut(location.file?);
                    Some(location.line.map_or_else(
                        || file.as_str().into(),
                        |line| format!("{file}:{line}").into(),
                    ))
                });
            functions.push(Function { name, source });
            if functions.len() == MOST_FUNCTIONS {
                break;
            }
        }
        Some(functions)
    }

    fn debug_information(&self) -> Option<Context<Bytes<'a>>> {
        let load = |id: SectionId| {
            let section = self.file.section_by_name(id.name());
            let bytes = section.and_then(|section| section.data().ok()).unwrap_or_default();
            Ok::<_, gimli::Error>(EndianSlice::new(bytes, self.endian))
        };
        let mut dwarf = Dwarf::load(load).ok()?;
        dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
        Context::from_dwarf(dwarf).ok()
    }

    fn function_symbol(&self, at: u64) -> Option<&'a str> {
        let symbols = self.functions.get_or_init(|| self.symbols(SymbolKind::Text));
        covering(symbols, at).map(|symbol| symbol.name)
    }

    /// Returns whether a segment of the file contains the address.
    pub fn holds(&self, address: u64) -> bool {
        let at = address.wrapping_sub(self.bias);
        self.segments.iter().any(|(start, size)| at.wrapping_sub(*start) < *size)
    }

    /// Returns the static that contains the address, and the offset in it.
    pub fn variable_at(&self, address: u64) -> Option<(String, u64)> {
        let at = address.wrapping_sub(self.bias);
        let symbols = self.variables.get_or_init(|| self.symbols(SymbolKind::Data));
        covering(symbols, at).map(|symbol| (demangled(symbol.name), at - symbol.start))
    }

    /// Returns the symbols of this kind, sorted by address.
    fn symbols(&self, kind: SymbolKind) -> Vec<Symbol<'a>> {
        let all = self.file.symbols().chain(self.file.dynamic_symbols());
        let wanted = all.filter(|symbol| symbol.kind() == kind && symbol.is_definition());
        let mut symbols: Vec<Symbol<'a>> = wanted
            .filter_map(|symbol| {
                let name = symbol.name().ok().filter(|name| !name.is_empty())?;
                Some(Symbol { start: symbol.address(), size: symbol.size(), name })
            })
            .collect();
        symbols.sort_by_key(|symbol| (symbol.start, symbol.size));
        symbols
    }
}

/// Returns the bytes of a page of this machine.
fn page_size() -> u64 {
    // SAFETY: no preconditions.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

fn segment_is_code(segment: &object::Segment<'_, '_>) -> bool {
    match segment.flags() {
        object::SegmentFlags::Elf { p_flags } => p_flags & object::elf::PF_X != 0,
        _ => false,
    }
}

/// Returns the last of the sorted symbols that begins at or before `at`, and does not end before it.
fn covering<'b, 'a>(symbols: &'b [Symbol<'a>], at: u64) -> Option<&'b Symbol<'a>> {
    let after = symbols.partition_point(|symbol| symbol.start <= at);
    // Symbols may be nested. Only the nearest ones are considered.
    let before = symbols[..after].iter().rev().take(16);
    before.into_iter().find(|symbol| at - symbol.start < symbol.size)
}

impl<'a> Frames<'a> {
    fn of(file: &object::File<'a>, endian: RunTimeEndian) -> Option<Frames<'a>> {
        let section = |name| {
            let section = file.section_by_name(name)?;
            Some((section.address(), EndianSlice::new(section.data().ok()?, endian)))
        };
        let (table_at, table) = section(".eh_frame")?;
        let mut bases = BaseAddresses::default().set_eh_frame(table_at);
        if let Some((text, _)) = section(".text") {
            bases = bases.set_text(text);
        }
        let word = if file.is_64() { 8 } else { 4 };
        let mut index = None;
        if let Some((index_at, bytes)) = section(".eh_frame_hdr") {
            bases = bases.set_eh_frame_hdr(index_at);
            let parsed = EhFrameHdr::from(bytes).parse(&bases, word).ok();
            index = parsed.filter(|parsed| parsed.table().is_some());
        }
        let mut table = EhFrame::from(table);
        table.set_address_size(word);
        table.set_vendor(unwind::VENDOR);
        Some(Frames { table, index, bases, context: RefCell::new(UnwindContext::new()) })
    }
}
