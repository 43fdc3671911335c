//! Where an object of a name lies: a file in /dev/shm, as `shm_open(3)` has it.
//!
//! Invariant: a path is within its buffer, and ends with NUL; it names a file in that directory and in no
//! other.

use core::ffi::CStr;
use core::fmt::{self, Write};

use super::SharedError;

pub(super) const DIRECTORY: &CStr = c"/dev/shm";
const LONGEST: usize = 200;

/// The path of an object's file, with a zero byte at its end.
pub(super) struct Path {
    bytes: [u8; 256],
    len: usize,
}

impl Path {
    /// Returns the path of the object of a name.
    pub(super) fn of(name: &str) -> Result<Path, SharedError> {
        let good = (1..=LONGEST).contains(&name.len())
            && !name.starts_with('.')
            && !name.contains(['/', '\0']);
        if good {
            Path::written(format_args!("/dev/shm/{name}"))
        } else {
            Err(SharedError::BadName)
        }
    }

    /// Returns the path of an object that a thread is making; it is that thread's `attempt`-th path.
    pub(super) fn of_draft(name: &str, thread: u32, attempt: u32) -> Result<Path, SharedError> {
        Path::written(format_args!("/dev/shm/.{name}.{thread}.{attempt}"))
    }

    fn written(text: fmt::Arguments<'_>) -> Result<Path, SharedError> {
        let mut path = Path { bytes: [0; 256], len: 0 };
        path.write_fmt(text).map_err(|_| SharedError::BadName)?;
        Ok(path)
    }

    pub(super) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }
}

impl Write for Path {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        // The last byte stays 0.
        if end >= self.bytes.len() {
            return Err(fmt::Error);
        }
        self.bytes[self.len..end].copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;

    #[test]
    fn names() {
        assert_eq!(Path::of("a b").unwrap().as_c_str(), c"/dev/shm/a b");
        assert_eq!(Path::of_draft("a", 7, 3).unwrap().as_c_str(), c"/dev/shm/.a.7.3");
        let long: String = core::iter::repeat_n('x', LONGEST).collect();
        assert!(Path::of(&long).is_ok());
        assert!(Path::of_draft(&long, u32::MAX, u32::MAX).is_ok());
        for bad in ["", ".", "..", ".a", "a/b", "/a", "a\0b", &(long + "x")] {
            assert!(matches!(Path::of(bad), Err(SharedError::BadName)), "{bad}");
        }
    }
}
