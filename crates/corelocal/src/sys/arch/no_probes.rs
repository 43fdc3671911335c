//! Architectures without static probes.

/// Returns `true` if a tracer uses one of the probes.
#[inline]
pub(crate) fn are_consumed() -> bool {
    false
}

/// Tells tracers of a sampled object.
pub(crate) fn alloc(_object: *mut u8, _size: u64, _weight: u64) {}

/// Tells tracers that a sampled object is freed.
pub(crate) fn free(_object: *mut u8) {}
