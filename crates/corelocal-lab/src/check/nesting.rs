//! Refuses debug information that is nested too deeply for addr2line, which recurses for inlined functions.

use gimli::{Dwarf, Reader, Unit, constants};

/// The maximum nesting of functions, and of inlined functions.
const MOST_NESTED: usize = 128;

/// The reason why debug information is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unused {
    /// It cannot be parsed.
    Damaged,
    /// Functions are nested deeper than [`MOST_NESTED`].
    TooDeep,
}

impl From<gimli::Error> for Unused {
    fn from(_: gimli::Error) -> Unused {
        Unused::Damaged
    }
}

/// Reads all entries, to find functions that are nested too deeply.
///
/// # Errors
/// Those of [`Unused`].
pub fn check<R: Reader>(dwarf: &Dwarf<R>) -> Result<(), Unused> {
    let mut units = dwarf.units();
    while let Some(header) = units.next()? {
        check_unit(&dwarf.unit(header)?)?;
    }
    Ok(())
}

fn check_unit<R: Reader>(unit: &Unit<R>) -> Result<(), Unused> {
    let mut entries = unit.header.entries_raw(&unit.abbreviations, None)?;
    // The depths of the functions, and of the inlined functions, that contain the next entry.
    let (mut functions, mut inlined) = (Vec::new(), Vec::new());
    while !entries.is_empty() {
        let depth = entries.next_depth();
        for nested in [&mut functions, &mut inlined] {
            while nested.last().is_some_and(|outer| *outer >= depth) {
                nested.pop();
            }
        }
        let Some(entry) = entries.read_abbreviation()? else { continue };
        let nested = match entry.tag() {
            constants::DW_TAG_subprogram => Some(&mut functions),
            constants::DW_TAG_inlined_subroutine => Some(&mut inlined),
            _ => None,
        };
        if let Some(nested) = nested {
            nested.push(depth);
            if nested.len() > MOST_NESTED {
                return Err(Unused::TooDeep);
            }
        }
        entries.skip_attributes(entry.attributes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use gimli::SectionId::{self, DebugAbbrev, DebugInfo};
    use gimli::{EndianSlice, LittleEndian};

    use super::*;

    /// Returns `.debug_abbrev` and `.debug_info` of a function from 0 to 4096 with this many inlined functions nested
    /// in it.
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
            let load = |id: SectionId| {
                let bytes = match id {
                    DebugAbbrev => &abbreviations,
                    DebugInfo => &entries,
                    _ => &[][..],
                };
                Ok::<_, gimli::Error>(EndianSlice::new(bytes, LittleEndian))
            };
            check(&Dwarf::load(load).unwrap())
        };
        assert_eq!([0, MOST_NESTED].map(|levels| verdict(nested(levels))), [Ok(()); 2]);
        for levels in [MOST_NESTED + 1, 1_000_000] {
            assert_eq!(verdict(nested(levels)), Err(Unused::TooDeep));
        }
        let (abbreviations, mut entries) = nested(3);
        // An unknown tag.
        entries[11] = 77;
        assert_eq!(verdict((abbreviations, entries)), Err(Unused::Damaged));
    }
}
