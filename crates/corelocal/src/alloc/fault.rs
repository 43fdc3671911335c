//! Reaction to misuse: a line on stderr, and the process ends.
//!
//! The program's memory cannot be trusted any more. Nothing here allocates or locks.

use core::fmt;

use crate::sys::file::stderr::Line;

/// Kinds of misuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A double free.
    Twice,
    /// A pointer that is not from this malloc.
    Foreign,
    /// A pointer into an object, or behind the last object of a span.
    Misaligned,
    /// A free with another size than that of the allocation.
    Size,
    /// The same, with both sizes.
    Sizes { given: usize, size: usize },
    /// A byte behind the end of an object of this size was overwritten.
    Behind { at: usize, size: usize },
    /// So much was overwritten behind the end that the object's size is lost; it is at most this.
    FarBehind { most: usize },
    /// Bytes before an object were overwritten.
    Before { by: usize, size: usize },
    /// A byte of an object of this size was written to after the object was freed.
    Stale { at: usize, size: usize },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Fault::Twice => f.write_str("freed, but it is free already"),
            Fault::Foreign => f.write_str("freed, but never allocated here"),
            Fault::Misaligned => f.write_str("freed, but not the beginning of an object"),
            Fault::Size => f.write_str("freed, but allocated with another size"),
            Fault::Sizes { given, size } => {
                write!(f, "freed as {given} bytes, but allocated with another size: {size} bytes")
            }
            Fault::Behind { at, size } => {
                write!(f, "written to behind its end: byte {at} of an object of {size} bytes")
            }
            Fault::FarBehind { most } => {
                write!(f, "written to behind its end, over its size, too: {most} bytes at most")
            }
            Fault::Before { by, size } => {
                write!(f, "written to {by} bytes before its beginning: an object of {size} bytes")
            }
            Fault::Stale { at, size } => {
                write!(f, "written to after it was freed: byte {at} of an object of {size} bytes")
            }
        }
    }
}

/// Prints a fault and aborts.
#[cold]
#[inline(never)]
pub(super) fn report(fault: Fault, address: usize) -> ! {
    say(fault, address);
    abort()
}

/// Prints a fault.
pub(super) fn say(fault: impl fmt::Display, address: usize) {
    Line::print(format_args!("corelocal malloc: {address:#x} {fault}\n"));
}

/// Ends the process.
pub(super) fn abort() -> ! {
    // SAFETY: no preconditions.
    unsafe { libc::abort() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::fmt::Write as _;

    #[test]
    fn lines() {
        let mut line = Line { bytes: [0; 384], len: 0 };
        let (most, size) = (usize::MAX, usize::MAX);
        for fault in [
            Fault::Twice,
            Fault::Foreign,
            Fault::Misaligned,
            Fault::Size,
            Fault::Sizes { given: most, size },
            Fault::Behind { at: most, size },
            Fault::FarBehind { most },
            Fault::Before { by: most, size },
            Fault::Stale { at: most, size },
        ] {
            line.len = 0;
            assert!(writeln!(line, "corelocal malloc: {most:#x} {fault}").is_ok());
            assert_eq!(line.bytes[line.len - 1], b'\n');
        }
        line.len = 0;
        assert!((0..100).try_for_each(|_| line.write_str("much")).is_err());
    }
}
