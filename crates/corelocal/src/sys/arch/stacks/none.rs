//! Processors whose registers are not read: no stack is copied.

use core::ffi::c_void;

use super::REGISTERS;

pub(crate) const LINK: Option<usize> = None;

#[inline(always)]
pub(crate) fn registers() -> Option<[u64; REGISTERS]> {
    None
}

/// # Safety
/// - None is needed.
pub(crate) unsafe fn interrupted(_: *const c_void) -> (Option<[u64; REGISTERS]>, &'static str) {
    (None, "an access")
}

pub(crate) fn ends_with_a_call(_: [u8; 7]) -> bool {
    false
}

pub(crate) fn return_address(word: u64) -> usize {
    word as usize
}
