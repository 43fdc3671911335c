//! Parser for lines of /proc/PROCESS/maps.
//!
//! Invariant: lines that are not about a file's code yield `None`.

use std::path::PathBuf;

/// A part of a file in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Map {
    /// Its first address.
    pub start: u64,
    /// The address after its last byte.
    pub end: u64,
    /// The offset in the file.
    pub offset: u64,
}

impl Map {
    /// Parses `START-END PERMISSIONS OFFSET DEVICE INODE PATH`, for code in a file that still exists under this name.
    pub fn parse(line: &str) -> Option<(Map, PathBuf)> {
        let mut rest = line;
        let mut field = || {
            let (field, after) = rest.split_once(' ')?;
            rest = after.trim_start_matches(' ');
            Some(field)
        };
        let (start, end) = field()?.split_once('-')?;
        let permissions = field()?;
        let offset = field()?;
        let (_device, _inode) = (field()?, field()?);
        let number = |text| u64::from_str_radix(text, 16).ok();
        let map = Map { start: number(start)?, end: number(end)?, offset: number(offset)? };
        let is_code = permissions.as_bytes().get(2) == Some(&b'x');
        let is_there = rest.starts_with('/') && !rest.ends_with(" (deleted)");
        (is_code && is_there && map.start < map.end).then(|| (map, PathBuf::from(rest)))
    }

    /// Returns whether it contains the address.
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let line = "7f00-8f00 r-xp 00001000 fe:00 1234                       /usr/bin/a b";
        let (map, path) = Map::parse(line).expect("code of a file");
        assert_eq!(map, Map { start: 0x7f00, end: 0x8f00, offset: 0x1000 });
        assert!(
            path.as_os_str() == "/usr/bin/a b" && map.contains(0x7f00) && !map.contains(0x8f00)
        );
        let others = [
            "7f00-8f00 rw-p 00001000 fe:00 1234 /usr/bin/a",
            "7f00-8f00 r-xp 00001000 fe:00 1234 /usr/bin/a (deleted)",
            "7f00-8f00 r-xp 00000000 00:00 0 [vdso]",
            "8f00-7f00 r-xp 00000000 00:00 0 /usr/bin/a",
            "7f00-8f00 r-xp",
            "7f00 r-xp 0 0 0 /usr/bin/a",
            "",
        ];
        for line in others {
            assert_eq!(Map::parse(line), None, "{line}");
        }
    }
}
