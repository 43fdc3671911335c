//! Bytes that nothing but a faulty program changes: filled, and looked at later.

/// Fills bytes.
///
/// # Safety
/// - `len` bytes at `at` may be written to.
pub(super) unsafe fn fill(at: usize, len: usize, byte: u8) {
    // SAFETY: the function's contract.
    unsafe { core::ptr::with_exposed_provenance_mut::<u8>(at).write_bytes(byte, len) };
}

/// Returns the first of the bytes that is not `byte`.
///
/// # Safety
/// - `len` bytes at `at` may be read.
pub(super) unsafe fn find_other(at: usize, len: usize, byte: u8) -> Option<usize> {
    // SAFETY: the function's contract. A faulty program may write to them at the same time; either value will do.
    let bytes =
        unsafe { core::slice::from_raw_parts(core::ptr::with_exposed_provenance::<u8>(at), len) };
    let (first, others) = bytes.split_first()?;
    // Compare each byte with the one before it: libc's memcmp is faster than a loop that looks for a different byte.
    if *first == byte && others == &bytes[..len - 1] {
        return None;
    }
    bytes.iter().position(|one| *one != byte)
}
