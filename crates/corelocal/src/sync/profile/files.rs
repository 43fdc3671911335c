//! The list of a program's code in a profile: the executable mappings of files in `/proc/PROCESS/maps`.
//!
//! Invariant: one thread adds lines, before the page is published; the length that is read may be anything.

use crate::primitive::atomic::{AtomicU64, Ordering::Relaxed};

/// The bytes that the list of mapped files may take.
pub(super) const FILES_BYTES: usize = 28 * 1024;
const WORDS: usize = FILES_BYTES / size_of::<u64>();

/// Appends a line; false if there is no room.
pub(super) fn add(len: &AtomicU64, text: &[AtomicU64; WORDS], line: &[u8]) -> bool {
    let at = len.load(Relaxed) as usize;
    let end = at + line.len() + 1;
    if end > FILES_BYTES {
        return false;
    }
    for (at, byte) in (at..end).zip(line.iter().chain(b"\n")) {
        let (word, shift) = (&text[at / 8], at % 8 * 8);
        // No other thread writes.
        word.store(word.load(Relaxed) | u64::from(*byte) << shift, Relaxed);
    }
    len.store(end as u64, Relaxed);
    true
}

/// Copies the list; returns its length in bytes.
pub(super) fn read(
    len: &AtomicU64,
    text: &[AtomicU64; WORDS],
    into: &mut [u8; FILES_BYTES],
) -> usize {
    for (at, byte) in into.iter_mut().enumerate() {
        *byte = (text[at / 8].load(Relaxed) >> (at % 8 * 8)) as u8;
    }
    (len.load(Relaxed) as usize).min(FILES_BYTES)
}
