//! Tells whether debug information can be given to a reader that recurses.

use gimli::{DW_TAG_inlined_subroutine, Dwarf, Reader};

/// How deep inlined functions may be nested. addr2line recurses for each.
const MOST_NESTED: usize = 128;

/// Whether all entries can be read, and no inlined function is nested deeper than [`MOST_NESTED`].
pub(crate) fn is_shallow<R: Reader>(dwarf: &Dwarf<R>) -> bool {
    check(dwarf).unwrap_or(false)
}

fn check<R: Reader>(dwarf: &Dwarf<R>) -> gimli::Result<bool> {
    let mut units = dwarf.units();
    while let Some(unit) = units.next()? {
        let abbreviations = dwarf.abbreviations(&unit)?;
        let mut entries = unit.entries_raw(&abbreviations, None)?;
        // The depths of those inlined functions that the next entry is in.
        let mut nested = Vec::new();
        while !entries.is_empty() {
            let depth = entries.next_depth();
            while nested.last().is_some_and(|inlined| *inlined >= depth) {
                nested.pop();
            }
            let Some(entry) = entries.read_abbreviation()? else { continue };
            if entry.tag() == DW_TAG_inlined_subroutine {
                nested.push(depth);
                if nested.len() > MOST_NESTED {
                    return Ok(false);
                }
            }
            entries.skip_attributes(entry.attributes())?;
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use gimli::{EndianSlice, LittleEndian, SectionId};

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
        let is_shallow = |(abbreviations, entries): (Vec<u8>, Vec<u8>)| {
            let load = |id| {
                let bytes: &[u8] = match id {
                    SectionId::DebugAbbrev => &abbreviations,
                    SectionId::DebugInfo => &entries,
                    _ => &[],
                };
                Ok::<_, gimli::Error>(EndianSlice::new(bytes, LittleEndian))
            };
            is_shallow(&Dwarf::load(load).unwrap())
        };
        assert!(is_shallow(nested(0)) && is_shallow(nested(MOST_NESTED)));
        assert!(!is_shallow(nested(MOST_NESTED + 1)) && !is_shallow(nested(1_000_000)));
        let (abbreviations, mut entries) = nested(3);
        // Of no known sort.
        entries[11] = 77;
        assert!(!is_shallow((abbreviations, entries)));
    }
}
