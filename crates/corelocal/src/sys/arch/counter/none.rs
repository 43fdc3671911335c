//! Processors whose counter is not read. It stands still, and nothing goes by it.

pub(crate) type Halves = (u32, u32);

pub(crate) const IS_FINE: bool = false;

pub(crate) const IN_FLIGHT: u64 = 1;

#[inline(always)]
pub(crate) fn unordered() -> Halves {
    (0, 0)
}

#[inline(always)]
pub(crate) fn fenced() -> Halves {
    (0, 0)
}

/// # Safety
/// - None: it is unsafe where a cpu must have the instruction.
#[inline(always)]
pub(crate) unsafe fn ordered() -> Halves {
    (0, 0)
}

pub(crate) fn orders_itself(_hwcap2: usize) -> bool {
    false
}
