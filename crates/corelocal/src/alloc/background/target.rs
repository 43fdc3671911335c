//! The target for the size of the heap.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::alloc::layout::range::Range;
use crate::alloc::{config, page_heap};

/// The target in bytes, [`NO_TARGET`], or [`AS_ASKED`] until the program sets one.
pub(in crate::alloc) static TARGET: AtomicUsize = AtomicUsize::new(AS_ASKED);
pub(in crate::alloc) const NO_TARGET: usize = usize::MAX;
/// Stands for the target that the environment sets.
pub(in crate::alloc) const AS_ASKED: usize = usize::MAX - 1;

/// Sets a target for the size of spans, large objects and idle memory together. Below it,
/// [`release_idle`](crate::alloc::release_idle) gives nothing back, however long memory is idle; above it, all idle
/// memory goes at once. `None`, the default, releases idle memory by time.
///
/// Spans and large objects count completely, whether their pages are resident or not. `resident:SIZE` in
/// `CORELOCAL_MALLOC` sets the target when the program starts.
///
/// ```
/// use corelocal::alloc;
///
/// alloc::set_target(Some(64 << 20));
/// # alloc::set_target(None);
/// ```
pub fn set_target(bytes: Option<usize>) {
    let target = bytes.map_or(NO_TARGET, |bytes| bytes.min(AS_ASKED - 1));
    TARGET.store(target, Ordering::Relaxed);
}

/// Returns the target; `None` if there is none.
pub(super) fn target() -> Option<usize> {
    match TARGET.load(Ordering::Relaxed) {
        AS_ASKED => config::resident(),
        NO_TARGET => None,
        target => Some(target),
    }
}

/// Returns `true` if idle memory stays because the target is not exceeded.
pub(super) fn is_kept(range: Range) -> bool {
    target().is_some_and(|target| !is_beyond(range, target))
}

/// Returns `true` if the target is exceeded.
pub(super) fn is_beyond(range: Range, target: usize) -> bool {
    page_heap::used_bytes(range) + page_heap::idle_bytes(range) > target
}
