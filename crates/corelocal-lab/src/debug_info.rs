//! Prepares debug information for addr2line, and tells whether reading it there takes bounded time and memory.
//!
//! addr2line recurses for inlined functions, and reads what several units or functions share once for each of them: a
//! table of abbreviations, a line program, a list of ranges. A file of 200 KB can make it take gigabytes.
//!
//! Invariants:
//! - Each table of abbreviations is parsed once, and no byte belongs to two of them.
//! - What is shared counts as often as it is used. Its sum is bounded by the size of the sections and [`SLACK`].
//! - Debug information is given up at the first limit that it exceeds. The check itself goes one item beyond a limit
//!   at most.

use std::collections::BTreeMap;

use gimli::{
    AbbreviationsCacheStrategy, AttributeValue, DW_AT_ranges, DW_FORM_implicit_const,
    DW_TAG_inlined_subroutine, DW_TAG_subprogram, Dwarf, Range, Reader, ReaderOffset as _,
    Section as _, Unit, UnitHeader, UnitType,
};

/// How deep inlined functions, or functions, may be nested. addr2line recurses for each inlined one, and reads a
/// function again for each one that it is nested in.
const MOST_NESTED: usize = 128;

/// An entry of debug information has a few attributes without bytes at most.
const ATTRIBUTES_OF_A_BYTE: u64 = 16;

/// Partial units share line programs. More than this is not shared in real files.
const USES: u64 = 4;

/// So many bytes of line programs and entries of range lists may be shared beyond that.
const SLACK: u64 = 1 << 20;

/// The paths of source files may have so many bytes, beyond [`USES`] of the line programs.
const MOST_TEXT: u64 = 64 << 20;

/// addr2line may compare so many pairs of a unit's range and an address.
const MOST_COMPARED: u64 = 1 << 34;

/// And look into units so many times.
const MOST_LOOKED_INTO: u64 = 1 << 26;

/// Why debug information is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unused {
    /// It cannot be read.
    Damaged,
    /// It exceeds a limit.
    TooMuch,
}

impl From<gimli::Error> for Unused {
    fn from(_: gimli::Error) -> Unused {
        Unused::Damaged
    }
}

/// Parses all tables of abbreviations, each once for all units that use it.
pub(crate) fn cache_abbreviations<R: Reader>(dwarf: &mut Dwarf<R>) -> Result<(), Unused> {
    let mut offsets = Vec::new();
    let mut units = dwarf.units();
    while let Ok(Some(unit)) = units.next() {
        offsets.push(unit.debug_abbrev_offset().0);
    }
    offsets.sort_unstable();
    offsets.dedup();
    let mut end = 0;
    for offset in offsets {
        if offset.into_u64() < end {
            return Err(Unused::TooMuch);
        }
        let mut table = dwarf.debug_abbrev.reader().clone();
        if table.skip(offset).is_ok() {
            let len = table.len();
            // gimli reports what is wrong with it when it is used.
            let _ = skip_table(&mut table);
            end = (offset + (len - table.len())).into_u64();
        }
    }
    dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::All);
    Ok(())
}

fn skip_table<R: Reader>(table: &mut R) -> gimli::Result<()> {
    while !table.is_empty() && table.read_uleb128()? != 0 {
        let _tag = table.read_uleb128()?;
        let _has_children = table.read_u8()?;
        loop {
            let (name, form) = (table.read_uleb128()?, table.read_uleb128()?);
            if form == u64::from(DW_FORM_implicit_const.0) {
                table.read_sleb128()?;
            }
            if (name, form) == (0, 0) {
                break;
            }
        }
    }
    Ok(())
}

/// Whether addr2line can look up these sorted addresses.
pub(crate) fn is_bounded<R: Reader>(dwarf: &Dwarf<R>, addresses: &[u64]) -> Result<(), Unused> {
    let mut check = Check::new(dwarf, addresses);
    check.address_ranges()?;
    let mut units = dwarf.units();
    while let Some(header) = units.next()? {
        // addr2line does not read these.
        if !matches!(header.type_(), UnitType::Type { .. } | UnitType::SplitType { .. }) {
            check.unit(header)?;
        }
    }
    Ok(())
}

/// What is left of a limit.
struct Left(u64);

impl Left {
    fn take(&mut self, count: u64) -> Result<(), Unused> {
        self.0 = self.0.checked_sub(count).ok_or(Unused::TooMuch)?;
        Ok(())
    }
}

struct Check<'a, R: Reader> {
    dwarf: &'a Dwarf<R>,
    /// Those that are looked up.
    addresses: &'a [u64],
    /// Units by offset that have ranges in `.debug_aranges`, and whether these hold an address.
    listed: BTreeMap<u64, bool>,
    attributes: Left,
    /// Entries of range lists.
    entries: Left,
    /// Bytes of line programs.
    lines: Left,
    text: Left,
    compared: Left,
    looked_into: Left,
}

impl<'a, R: Reader> Check<'a, R> {
    fn new(dwarf: &'a Dwarf<R>, addresses: &'a [u64]) -> Check<'a, R> {
        let len = |reader: &R| reader.len().into_u64();
        let lines = len(dwarf.debug_line.reader()).saturating_mul(USES);
        let information = len(dwarf.debug_info.reader());
        Check {
            dwarf,
            addresses,
            listed: BTreeMap::new(),
            attributes: Left(
                information.saturating_mul(ATTRIBUTES_OF_A_BYTE).saturating_add(SLACK),
            ),
            entries: Left(information.saturating_add(SLACK)),
            lines: Left(lines.saturating_add(SLACK)),
            text: Left(lines.saturating_add(MOST_TEXT)),
            compared: Left(MOST_COMPARED),
            looked_into: Left(MOST_LOOKED_INTO),
        }
    }

    fn address_ranges(&mut self) -> Result<(), Unused> {
        let mut sets = self.dwarf.debug_aranges.headers();
        while let Some(set) = sets.next()? {
            let (mut is_listed, mut holds) = (false, false);
            let mut ranges = set.entries();
            while let Some(range) = ranges.next().transpose() {
                // addr2line ignores what cannot be read.
                let Ok(range) = range else { continue };
                if range.length() != 0 {
                    is_listed = true;
                    holds |= self.range(&range.range())?;
                }
            }
            if is_listed {
                *self.listed.entry(set.debug_info_offset().0.into_u64()).or_default() |= holds;
            }
        }
        Ok(())
    }

    /// Counts a range of a unit. Returns whether it holds an address.
    fn range(&mut self, range: &Range) -> Result<bool, Unused> {
        let before = |end| self.addresses.partition_point(|address| *address < end);
        let held = before(range.end).saturating_sub(before(range.begin));
        self.compared.take(self.addresses.len() as u64)?;
        self.looked_into.take(held as u64)?;
        Ok(held > 0)
    }

    fn unit(&mut self, header: UnitHeader<R>) -> Result<(), Unused> {
        let unit = self.dwarf.unit(header)?;
        let name_len =
            [&unit.name, &unit.comp_dir].into_iter().flatten().map(|name| name.len().into_u64());
        self.text.take(name_len.sum())?;
        let program_len = match &unit.line_program {
            Some(program) => {
                self.lines.take(program.header().unit_length().into_u64())?;
                program.header().raw_program_buf().len().into_u64()
            }
            None => 0,
        };
        let has_list = self.entries(&unit)?;
        if unit.header.type_() == UnitType::Partial {
            return Ok(());
        }
        let offset = unit.header.offset().as_debug_info_offset();
        let listed = offset.and_then(|offset| self.listed.get(&offset.0.into_u64()).copied());
        let mut declares = listed.is_some() && !has_list;
        let mut is_parsed = listed.unwrap_or(false);
        let mut ranges = self.dwarf.unit_ranges(&unit)?;
        while let Some(range) = ranges.next()? {
            if range.begin < range.end {
                declares = true;
                is_parsed |= self.range(&range)?;
            }
        }
        if !declares {
            // The ranges are those of the line program's sequences, which have 4 bytes at least.
            is_parsed = true;
            let (ranges, addresses) = (program_len / 4, self.addresses.len() as u64);
            self.looked_into.take(ranges.saturating_mul(addresses))?;
        }
        if is_parsed { self.paths(&unit) } else { Ok(()) }
    }

    /// Reads all entries. Returns whether the first one has a list of ranges.
    fn entries(&mut self, unit: &Unit<R>) -> Result<bool, Unused> {
        let mut entries = unit.header.entries_raw(&unit.abbreviations, None)?;
        // The depths of those functions, and inlined functions, that the next entry is in.
        let (mut functions, mut inlined) = (Vec::new(), Vec::new());
        let (mut is_first, mut has_list) = (true, false);
        while !entries.is_empty() {
            let depth = entries.next_depth();
            for nested in [&mut functions, &mut inlined] {
                while nested.last().is_some_and(|outer| *outer >= depth) {
                    nested.pop();
                }
            }
            let Some(entry) = entries.read_abbreviation()? else { continue };
            self.attributes.take(entry.attributes().len() as u64)?;
            let tag = entry.tag();
            let nested = if tag == DW_TAG_subprogram {
                Some(&mut functions)
            } else {
                (tag == DW_TAG_inlined_subroutine).then_some(&mut inlined)
            };
            let has_ranges = nested.is_some() || is_first;
            if let Some(nested) = nested {
                nested.push(depth);
                if nested.len() > MOST_NESTED {
                    return Err(Unused::TooMuch);
                }
            }
            if !has_ranges {
                entries.skip_attributes(entry.attributes())?;
                continue;
            }
            for attribute in entry.attributes() {
                let attribute = entries.read_attribute(*attribute)?;
                if attribute.name() == DW_AT_ranges {
                    has_list |= is_first;
                    self.list(unit, attribute.value())?;
                }
            }
            is_first = false;
        }
        Ok(has_list)
    }

    /// Counts the entries of a list of ranges.
    fn list(&mut self, unit: &Unit<R>, list: AttributeValue<R>) -> Result<(), Unused> {
        if let Some(offset) = self.dwarf.attr_ranges_offset(unit, list)? {
            let mut entries = self.dwarf.raw_ranges(unit, offset)?;
            while entries.next()?.is_some() {
                self.entries.take(1)?;
            }
        }
        Ok(())
    }

    /// Counts the bytes of the paths that addr2line makes for a unit.
    fn paths(&mut self, unit: &Unit<R>) -> Result<(), Unused> {
        let Some(program) = &unit.line_program else { return Ok(()) };
        let header = program.header();
        let start = unit.comp_dir.as_ref().map_or(0, |folder| folder.len().into_u64());
        for file in header.file_names() {
            self.text.take(start)?;
            for part in file.directory(header).into_iter().chain([file.path_name()]) {
                // addr2line gives the unit up there.
                let Ok(part) = self.dwarf.attr_string(unit, part) else { return Ok(()) };
                self.text.take(part.len().into_u64())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gimli::SectionId::{self, DebugAbbrev, DebugInfo, DebugLine, DebugRanges};
    use gimli::{EndianSlice, LittleEndian};

    use super::*;

    /// `.debug_abbrev` and `.debug_info` of a function from 0 to 4096 with so many inlined functions in each other.
    fn nested(levels: usize) -> (Vec<u8>, Vec<u8>) {
        // Number, tag, whether it has children, attributes with their forms: low_pc as an address, high_pc as 8 bytes.
        let range = [0x11, 0x01, 0x12, 0x07, 0, 0];
        let abbreviations =
            [&[1, 0x11, 1][..], &range, &[2, 0x2e, 1], &range, &[3, 0x1d, 1, 0, 0], &[0]].concat();
        let mut entries = vec![4, 0, 0, 0, 0, 0, 8];
        for number in [1, 2] {
            entries.push(number);
            entries.extend(0_u64.to_le_bytes());
            entries.extend(4096_u64.to_le_bytes());
        }
        entries.extend(std::iter::repeat_n(3, levels));
        entries.extend(std::iter::repeat_n(0, levels + 2));
        let length = (entries.len() as u32).to_le_bytes();
        (abbreviations, [&length[..], &entries].concat())
    }

    #[test]
    fn what_is_nested_too_deep_is_refused() {
        let verdict = |(abbreviations, entries): (Vec<u8>, Vec<u8>)| {
            judged(&[(DebugAbbrev, &abbreviations), (DebugInfo, &entries)], &[16])
        };
        assert_eq!([0, MOST_NESTED].map(|levels| verdict(nested(levels))), [Ok(()); 2]);
        for levels in [MOST_NESTED + 1, 1_000_000] {
            assert_eq!(verdict(nested(levels)), Err(Unused::TooMuch));
        }
        let (abbreviations, mut entries) = nested(3);
        // Of no known sort.
        entries[11] = 77;
        assert_eq!(verdict((abbreviations, entries)), Err(Unused::Damaged));
    }

    fn load<'a>(sections: &[(SectionId, &'a [u8])]) -> Dwarf<EndianSlice<'a, LittleEndian>> {
        let load = |id| {
            let section = sections.iter().find(|section| section.0 == id);
            let bytes = section.map_or(&[][..], |section| section.1);
            Ok::<_, gimli::Error>(EndianSlice::new(bytes, LittleEndian))
        };
        Dwarf::load(load).unwrap()
    }

    fn judged(sections: &[(SectionId, &[u8])], addresses: &[u64]) -> Result<(), Unused> {
        let mut dwarf = load(sections);
        cache_abbreviations(&mut dwarf)?;
        is_bounded(&dwarf, addresses)
    }

    /// A unit of DWARF 4 with these entries, whose table of abbreviations is there.
    fn unit(table: u32, entries: &[u8]) -> Vec<u8> {
        let length = (7 + entries.len() as u32).to_le_bytes();
        [&length, &[4, 0][..], &table.to_le_bytes(), &[8], entries].concat()
    }

    /// A table whose first abbreviation has these attributes, and which has so many.
    fn table(attributes: &[u8], count: u8) -> Vec<u8> {
        let mut table = [&[1, 0x11, 0], attributes, &[0, 0]].concat();
        (2..=count).for_each(|number| table.extend([number, 0x34, 0, 0, 0]));
        table.push(0);
        table
    }

    #[test]
    fn units_share_one_parsed_table() {
        let (table, units) = (table(&[], 100), unit(0, &[1]).repeat(1000));
        let mut dwarf = load(&[(DebugAbbrev, &table), (DebugInfo, &units)]);
        cache_abbreviations(&mut dwarf).unwrap();
        let mut headers = dwarf.units();
        let mut next = || dwarf.abbreviations(&headers.next().unwrap().unwrap()).unwrap();
        let first = next();
        assert!((1..1000).all(|_| Arc::ptr_eq(&first, &next())));
        is_bounded(&dwarf, &[16]).unwrap();
    }

    #[test]
    fn tables_that_overlap_are_refused() {
        let one = table(&[], 100);
        let two = one.repeat(2);
        let verdict = |second: usize| {
            let units = [unit(0, &[1]), unit(second as u32, &[1])].concat();
            judged(&[(DebugAbbrev, &two), (DebugInfo, &units)], &[16])
        };
        assert_eq!(verdict(one.len()), Ok(()));
        // From the second abbreviation on.
        assert_eq!(verdict(5), Err(Unused::TooMuch));
    }

    /// A line program without rows that has so many files.
    fn line_program(files: usize) -> Vec<u8> {
        let files = [&b"a\0\0\0\0"[..]].repeat(files).concat();
        let header = [&[1, 1, 1, 0, 1, 1, 0][..], &files, &[0]].concat();
        let header_length = (header.len() as u32).to_le_bytes();
        let length = (6 + header.len() as u32).to_le_bytes();
        [&length, &[4, 0][..], &header_length, &header].concat()
    }

    #[test]
    fn a_line_program_of_many_units_counts_for_each() {
        let (table, program) = (table(&[0x10, 0x17], 1), line_program(2000));
        let verdict = |units: usize| {
            let units = unit(0, &[1, 0, 0, 0, 0]).repeat(units);
            judged(&[(DebugAbbrev, &table), (DebugInfo, &units), (DebugLine, &program)], &[16])
        };
        assert_eq!(verdict(50), Ok(()));
        assert_eq!(verdict(500), Err(Unused::TooMuch));
    }

    /// A list of so many ranges of all addresses below 4096.
    fn list(ranges: usize) -> Vec<u8> {
        let range = [0_u64.to_le_bytes(), 4096_u64.to_le_bytes()].concat();
        [range.repeat(ranges), vec![0; 16]].concat()
    }

    #[test]
    fn a_list_of_ranges_of_many_units_counts_for_each() {
        let (table, list) = (table(&[0x55, 0x17], 1), list(1000));
        let verdict = |units: usize| {
            let units = unit(0, &[1, 0, 0, 0, 0]).repeat(units);
            judged(&[(DebugAbbrev, &table), (DebugInfo, &units), (DebugRanges, &list)], &[9999])
        };
        assert_eq!(verdict(1000), Ok(()));
        assert_eq!(verdict(1100), Err(Unused::TooMuch));
    }

    #[test]
    fn ranges_count_for_each_address_in_them() {
        let (table, list) = (table(&[0x55, 0x17], 1), list(100_000));
        let unit = unit(0, &[1, 0, 0, 0, 0]);
        let verdict = |addresses: &[u64]| {
            judged(&[(DebugAbbrev, &table), (DebugInfo, &unit), (DebugRanges, &list)], addresses)
        };
        let inside: Vec<u64> = (0..1000).collect();
        assert_eq!(verdict(&inside[..600]), Ok(()));
        assert_eq!(verdict(&inside), Err(Unused::TooMuch));
        let outside: Vec<u64> = (10_000..200_000).collect();
        assert_eq!(verdict(&outside[..1000]), Ok(()));
        assert_eq!(verdict(&outside), Err(Unused::TooMuch));
    }

    #[test]
    fn attributes_without_bytes_are_few() {
        // DW_FORM_flag_present.
        let table = table(&[0x3f, 0x19].repeat(5000), 1);
        let verdict = |entries: usize| {
            let unit = unit(0, &vec![1; entries]);
            judged(&[(DebugAbbrev, &table), (DebugInfo, &unit)], &[16])
        };
        assert_eq!(verdict(200), Ok(()));
        assert_eq!(verdict(300), Err(Unused::TooMuch));
    }
}
