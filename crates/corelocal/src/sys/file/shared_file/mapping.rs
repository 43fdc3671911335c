//! The memory of a file.
//!
//! Numbers in parentheses are invariants of the [module above](super).

use crate::sys::errno::Errno;

/// A file's memory.
pub(crate) struct Mapping {
    pub(super) at: *mut u8,
    pub(super) len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread. (2)
unsafe impl Send for Mapping {}
// SAFETY: `at` only gives the address away. (2)
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of zeros, of no file, to be read only.
    pub(crate) fn of_zeros(len: usize) -> Result<Mapping, Errno> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
        let at = unsafe { libc::mmap(core::ptr::null_mut(), len, libc::PROT_READ, flags, -1, 0) };
        if at == libc::MAP_FAILED { Err(Errno::last()) } else { Ok(Mapping { at: at.cast(), len }) }
    }

    /// Returns where it begins: a multiple of the page size.
    #[inline(always)]
    pub(crate) fn at(&self) -> *mut u8 {
        self.at
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: one whole mapping, to which no reference is left, since references borrow from `self` (invariant
        // 2).
        unsafe { libc::munmap(self.at.cast(), self.len) };
    }
}
