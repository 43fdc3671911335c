//! What a file says of the object in it.
//!
//! ```text
//!   0   magic, 8 bytes          24  alignment
//!   8   format                  32  layout
//!   12  offset of the object    40  zero
//!   16  size of the object      64  the object, or at the next multiple of its alignment
//! ```
//!
//! # Invariants
//! 1. An object is used only if every byte of the header is what the type asked for would have written, and
//!    the file is as long as it would have made it.
//! 2. Numbers have the machine's own byte order: the object has it too.

use super::{SharedError, SharedSafe};

/// Bytes of a header.
pub(super) const LEN: usize = 64;
const MAGIC: [u8; 8] = *b"\x7fcoreloc";
const FORMAT: u32 = 1;

/// The header of an object.
#[derive(Clone, Copy)]
pub(super) struct Header {
    offset: usize,
    size: usize,
    alignment: usize,
    layout: u64,
}

impl Header {
    pub(super) const fn of<T: SharedSafe>() -> Header {
        // Mappings begin with a page.
        const { assert!(align_of::<T>() <= 4096, "no alignment beyond a page") };
        let alignment = align_of::<T>();
        let offset = LEN.next_multiple_of(alignment);
        Header { offset, size: size_of::<T>(), alignment, layout: T::LAYOUT }
    }

    /// Returns where the object begins.
    pub(super) const fn offset(self) -> usize {
        self.offset
    }

    /// Returns the bytes of the whole file.
    pub(super) const fn file_len(self) -> usize {
        self.offset + self.size
    }

    pub(super) fn to_bytes(self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_ne_bytes());
        bytes[12..16].copy_from_slice(&(self.offset as u32).to_ne_bytes());
        bytes[16..24].copy_from_slice(&(self.size as u64).to_ne_bytes());
        bytes[24..32].copy_from_slice(&(self.alignment as u64).to_ne_bytes());
        bytes[32..40].copy_from_slice(&self.layout.to_ne_bytes());
        bytes
    }

    /// Whether a file of this length that begins with these bytes holds such an object; if not, the first
    /// reason. (1)
    pub(super) fn check(self, found: &[u8], file_len: u64) -> Result<(), SharedError> {
        if !found.starts_with(&MAGIC) {
            return Err(SharedError::Foreign);
        }
        let Ok(found) = <&[u8; LEN]>::try_from(found) else {
            return Err(SharedError::Length { found: file_len, expected: self.file_len() as u64 });
        };
        let mine = self.to_bytes();
        let number = |bytes: &[u8; LEN], at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_ne_bytes(word)
        };
        if found[8..12] != mine[8..12] {
            let version = [found[8], found[9], found[10], found[11]];
            return Err(SharedError::Version { found: u32::from_ne_bytes(version) });
        }
        let both = |at| (number(found, at), number(&mine, at));
        let (found_layout, expected) = both(32);
        if found_layout != expected {
            return Err(SharedError::Layout { found: found_layout, expected });
        }
        let (found_size, expected) = both(16);
        if found_size != expected {
            return Err(SharedError::Size { found: found_size, expected });
        }
        let (found_alignment, expected) = both(24);
        if found_alignment != expected {
            return Err(SharedError::Alignment { found: found_alignment, expected });
        }
        if *found != mine {
            return Err(SharedError::Damaged);
        }
        let expected = self.file_len() as u64;
        if file_len != expected {
            return Err(SharedError::Length { found: file_len, expected });
        }
        Ok(())
    }
}
