//! Names for addresses: ELF section, function, source lines.
//!
//! Invariants:
//! - All addresses are looked up together, in one pass over the symbols, since a large program has millions of them.
//!   The time grows with the number of symbols plus that of addresses, not with their product.
//! - Missing or damaged debug information costs the lines only. The same holds for debug information whose functions
//!   are nested too deeply; a note reports it.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use addr2line::Context;
use gimli::{AbbreviationsCacheStrategy, Dwarf, EndianSlice, RunTimeEndian, SectionId};
use object::Endianness;

use super::elf::{Elf, Extent, Kind};
use super::nesting::{self, Unused};
use super::report::Place;
use corelocal_symbols::demangle::demangled;

/// Names for a set of addresses.
pub struct Names {
    kind: Kind,
    extents: Vec<Extent>,
    places: BTreeMap<u64, Place>,
    /// Notes on what was left out, with the reasons.
    pub notes: Vec<String>,
}

impl Names {
    /// Looks up all `addresses`.
    pub fn of(elf: &Elf<'_>, addresses: impl IntoIterator<Item = u64>) -> Names {
        let mut extents = elf.extents();
        extents.sort_by_key(|extent| extent.start);
        let mut names =
            Names { kind: elf.kind, extents, places: BTreeMap::new(), notes: Vec::new() };
        names.places = addresses.into_iter().map(|it| (it, names.bare(it))).collect();
        if !names.places.is_empty() {
            add_functions(elf, &names.extents, &mut names.places);
            if add_lines(elf, &mut names.places) == Err(Unused::TooDeep) {
                let why = "source lines are left out: functions are nested too deep in the debug information";
                names.notes.push(why.to_owned());
            }
        }
        names
    }

    fn bare(&self, address: u64) -> Place {
        let extent = extent_of(&self.extents, address);
        Place {
            address: self.shown(address),
            elf_section: extent.map_or("no section".to_owned(), |extent| extent.name.clone()),
            function: None,
            source: Vec::new(),
        }
    }

    /// Returns the address as a user knows it: in an object file, the offset in the ELF section.
    pub fn shown(&self, address: u64) -> u64 {
        match extent_of(&self.extents, address) {
            Some(extent) if self.kind == Kind::Object => address - extent.start,
            _ => address,
        }
    }

    /// Returns the target of a branch at `from`; with its ELF section, where that is another one.
    pub fn target(&self, from: u64, target: u64) -> String {
        let extents = [from, target].map(|address| extent_of(&self.extents, address));
        let shown = self.shown(target);
        match extents {
            [_, None] if self.kind == Kind::Object => "a symbol of another file".to_owned(),
            [Some(from), Some(to)] if self.kind == Kind::Object && from.index != to.index => {
                format!("{}:{shown:#x}", to.name)
            }
            _ => format!("{shown:#x}"),
        }
    }

    /// Returns the place of one of the addresses given.
    pub fn place(&self, address: u64) -> Place {
        self.places.get(&address).cloned().unwrap_or_else(|| Place {
            address,
            elf_section: String::new(),
            function: None,
            source: Vec::new(),
        })
    }
}

/// Returns the one of the sorted `extents` that holds `address`.
fn extent_of(extents: &[Extent], address: u64) -> Option<&Extent> {
    let after = extents.partition_point(|extent| extent.start <= address);
    let extent = extents.get(after.checked_sub(1)?)?;
    (address - extent.start < extent.length).then_some(extent)
}

/// A symbol that may name addresses.
struct Candidate<'a> {
    start: u64,
    /// Whether its size says where it ends.
    certain: bool,
    name: &'a [u8],
    /// The addresses that it contains, by index.
    addresses: Range<usize>,
}

fn add_functions(elf: &Elf<'_>, extents: &[Extent], places: &mut BTreeMap<u64, Place>) {
    let addresses: Vec<u64> =
        places.keys().copied().filter(|address| extent_of(extents, *address).is_some()).collect();
    let mut candidates = Vec::new();
    elf.symbols(|start, size, name| {
        let first = addresses.partition_point(|address| *address < start);
        let Some(nearest) = addresses.get(first) else { return };
        let certain = size > 0;
        let end = if certain {
            start.saturating_add(size)
        } else {
            // Assembly often states no size. Such a symbol reaches to the end of its section.
            extent_of(extents, start).map_or(0, |extent| extent.start + extent.length)
        };
        if *nearest >= end || name.starts_with(b".L") {
            return;
        }
        let addresses = first..addresses.partition_point(|address| *address < end);
        candidates.push(Candidate { start, certain, name, addresses });
    });
    // The best first; of equal ones the first in the file.
    candidates.sort_by_key(|candidate| Reverse((candidate.certain, candidate.start)));
    let ranges = candidates.iter().map(|candidate| candidate.addresses.clone());
    // A name is demangled once for all its addresses.
    let (mut last, mut name) = (None, String::new());
    assign(addresses.len(), ranges, |address, candidate| {
        let (address, best) = (addresses[address], &candidates[candidate]);
        if last.replace(candidate) != Some(candidate) {
            name = demangled(&String::from_utf8_lossy(best.name));
        }
        if let Some(place) = places.get_mut(&address) {
            place.function = Some(format!("{name}+{:#x}", address - best.start));
        }
    });
}

/// Calls `visit` for each of `count` items that lies in a range, with the number of the first range that contains it.
/// It takes about one step for each item and each range, even if the ranges overlap.
fn assign(
    count: usize,
    ranges: impl Iterator<Item = Range<usize>>,
    mut visit: impl FnMut(usize, usize),
) {
    // For each item the next one that is free: itself, if it is free.
    let mut next: Vec<usize> = (0..=count).collect();
    for (number, range) in ranges.enumerate() {
        let mut item = free(&mut next, range.start.min(count));
        while item < range.end.min(count) {
            visit(item, number);
            next[item] = item + 1;
            item = free(&mut next, item + 1);
        }
    }
}

/// Returns the first free item from here on. Shortens the path to it for later calls.
fn free(next: &mut [usize], mut item: usize) -> usize {
    while next[item] != item {
        next[item] = next[next[item]];
        item = next[item];
    }
    item
}

fn add_lines(elf: &Elf<'_>, places: &mut BTreeMap<u64, Place>) -> Result<(), Unused> {
    let load = |id: SectionId| {
        let bytes = elf.sections_named(id.name()).first().map(|index| elf.code(*index));
        Ok::<_, gimli::Error>(bytes.unwrap_or(Cow::Borrowed(&[])))
    };
    let sections = gimli::DwarfSections::load(load)?;
    let endian = match elf.endian() {
        Endianness::Little => RunTimeEndian::Little,
        Endianness::Big => RunTimeEndian::Big,
    };
    let mut dwarf: Dwarf<_> = sections.borrow(|bytes| EndianSlice::new(bytes, endian));
    dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
    nesting::check(&dwarf)?;
    let context = Context::from_dwarf(dwarf)?;
    for (address, place) in places {
        // addr2line adds 1.
        if *address < u64::MAX {
            place.source = lines(&context, *address).unwrap_or_default();
        }
    }
    Ok(())
}

fn lines(
    context: &Context<EndianSlice<'_, RunTimeEndian>>,
    address: u64,
) -> Result<Vec<String>, gimli::Error> {
    let mut lines = Vec::new();
    let mut frames = context.find_frames(address).skip_all_loads()?;
    while let Some(frame) = frames.next()? {
        if let Some((Some(file), line)) = frame.location.map(|l| (l.file, l.line)) {
            let line = line.map_or_else(|| file.to_owned(), |line| format!("{file}:{line}"));
            if lines.last() != Some(&line) {
                lines.push(line);
            }
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_range_that_contains_an_item_gets_it() {
        let ranges = [3..5, 4..4, 2..7, 0..100, 1..3];
        let mut of = [None; 10];
        assign(of.len(), ranges.iter().cloned(), |item, range| {
            assert_eq!(of[item], None);
            of[item] = Some(range);
        });
        let expected = |item| ranges.iter().position(|range| range.contains(&item));
        for (item, range) in of.iter().enumerate() {
            assert_eq!(*range, expected(item), "{item}");
        }
        let mut visits = 0;
        assign(10, ranges[..3].iter().cloned(), |_, _| visits += 1);
        assert_eq!(visits, 5);
    }

    #[test]
    fn ranges_that_contain_everything_cost_a_step_each() {
        const MANY: usize = 2000;
        let mut visits = 0;
        assign(MANY, (0..MANY).map(|_| 0..MANY), |_, range| {
            assert_eq!(range, 0);
            visits += 1;
        });
        assert_eq!(visits, MANY);
    }
}
