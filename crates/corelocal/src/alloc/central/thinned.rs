//! Counts the chunks of spans that lost objects, and wakes the thread that gives memory back when there are many.
//!
//! Invariant: the count is raised before the thread is woken (`layout/sleeper.rs`).

use core::sync::atomic::Ordering;

use crate::alloc::layout::range::Range;

/// The chunks of changed spans that justify a scan of all spans: 4 MiB.
pub(in crate::alloc) const WORTH_A_LOOK: usize = 64;

/// Counts the chunks of spans that lost objects since the last scan, or that the scan left alone because they were not
/// idle.
pub(in crate::alloc) fn count_thinned(range: Range, chunks: usize) {
    let header = range.header();
    // Relaxed: the background thread reads the count after the fence in `wake`.
    let before = header.thinned.fetch_add(chunks, Ordering::Relaxed);
    // At each multiple: a heap that was below the target then may exceed it now.
    if before / WORTH_A_LOOK != (before + chunks) / WORTH_A_LOOK {
        header.sleeper.wake();
    }
}
