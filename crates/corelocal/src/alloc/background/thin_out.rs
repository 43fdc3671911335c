//! The scan of spans for pages without objects, of all spans or of some at a time.
//!
//! Invariant: a span that changes during a scan is counted again (`central/thinned.rs`), so it is looked at in the
//! next.

use core::ops;
use core::sync::atomic::Ordering;

use crate::alloc::central;
use crate::alloc::central::place::Place;
use crate::alloc::central::thinned::count_thinned;
use crate::alloc::central::thinning::Look;
use crate::alloc::layout::class::CLASSES;
use crate::alloc::layout::range::Range;

/// Gives pages without objects of all spans back to the kernel. Returns how many bytes.
pub(super) fn thin_out(range: Range, only_resting: bool) -> usize {
    let header = range.header();
    // Before the scan: spans that change during it are counted again.
    header.thinned.store(0, Ordering::Relaxed);
    let mut all = Look::default();
    range.known_parts().for_each(|part| thin_out_part(range, part, only_resting, &mut all));
    // Spans that are idle at the next scan are released then.
    count_thinned(range, all.left);
    header.released.fetch_add(all.bytes, Ordering::Relaxed);
    all.bytes
}

/// Does what [`thin_out`] does, for `most` chunks from `from` on. Returns the bytes given back, and the chunk to
/// continue with if there are more.
pub(super) fn thin_out_some(
    range: Range,
    from: usize,
    most: usize,
    only_resting: bool,
) -> (usize, Option<usize>) {
    let mut all = Look::default();
    let (mut left, mut next) = (most, None);
    for part in range.known_parts() {
        let start = part.start.max(from);
        let end = part.end.min(start.saturating_add(left));
        if start >= part.end {
            continue;
        }
        if left == 0 {
            next = Some(start);
            break;
        }
        thin_out_part(range, start..end, only_resting, &mut all);
        left -= end - start;
        if end < part.end {
            next = Some(end);
            break;
        }
    }
    count_thinned(range, all.left);
    range.header().released.fetch_add(all.bytes, Ordering::Relaxed);
    (all.bytes, next)
}

/// The chunks are those that spans begin with, or others of these.
fn thin_out_part(range: Range, part: ops::Range<usize>, only_resting: bool, all: &mut Look) {
    let mut chunk = part.start;
    while chunk < part.end {
        // Acquire: partner is the Release in `central/spans.rs`; the record is initialised.
        let class = usize::from(range.kind(chunk).load(Ordering::Acquire));
        if !(1..=CLASSES).contains(&class) {
            chunk += 1;
            continue;
        }
        let place = Place::of_chunk(range, class, chunk);
        let start = chunk & !(place.shape().chunks - 1);
        let one = central::thin_out(place, start, only_resting);
        *all = Look { bytes: all.bytes + one.bytes, left: all.left + one.left };
        chunk = start + place.shape().chunks;
    }
}
