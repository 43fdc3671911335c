//! Division of the range among NUMA nodes: a part ("stripe") for each node of a machine with several.
//!
//! ```text
//!   │ stripe 0                    │ stripe 1                    │ … │ the last one, with the remainder │
//!   │ groups … known │            │ groups … known │            │   │                                  │
//! ```
//! The node of a chunk follows from its number by a shift. There is one stripe until `nodes.rs` divides the range,
//! which happens once; on most machines it stays the only one.
//!
//! # Invariants
//! 1. `Header::division` changes from 0 to its final value once. Before that no chunk beyond [`LEAST`] is claimed, so
//!    everything in use lies in the first stripe.
//! 2. Chunks of a stripe below `known` have metadata groups.
//! 3. Stripes begin at multiples of [`LEAST`].

use core::ops;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::bits::IN_A_WORD;
use super::central;
use super::chunk_metadata::IN_A_GROUP;
use super::range::Range;

/// The maximum number of stripes. Further nodes share them.
pub(super) const MOST_NODES: usize = 8;
/// Chunks in the shortest stripe: 64 GiB.
pub(super) const LEAST: usize = 1 << 20;

const _: () = assert!(LEAST % IN_A_GROUP == 0);

const R: Ordering = Ordering::Relaxed;

/// State of a stripe. All bytes 0 is an unused one.
#[repr(C)]
pub(super) struct Stripe {
    /// Chunks of the stripe below this one have metadata groups.
    known: AtomicUsize,
    /// The highest chunk that was ever used, plus one.
    high: AtomicUsize,
    /// Search hints of `store.rs`: where to begin to look for runs of up to 2^n chunks.
    pub(super) first: [AtomicUsize; 8],
}

/// The division of the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Division {
    nodes: usize,
    /// Shift from a chunk's number to that of its stripe.
    shift: u32,
}

impl Division {
    /// A single stripe.
    const WHOLE: Division = Division { nodes: 1, shift: usize::BITS - 1 };

    /// The division of `chunks` among `nodes`; a single stripe if stripes would be too short.
    fn of(chunks: usize, nodes: usize) -> Division {
        match (chunks / nodes.max(1)).checked_ilog2() {
            Some(shift) if nodes > 1 && 1 << shift >= LEAST => Division { nodes, shift },
            _ => Division::WHOLE,
        }
    }

    /// Encoded in one word other than 0.
    fn word(self) -> usize {
        self.nodes | (self.shift as usize) << 8
    }

    fn of_word(word: usize) -> Option<Division> {
        (word != 0).then_some(Division { nodes: word & 0xff, shift: (word >> 8) as u32 })
    }

    fn node_of(self, chunk: usize) -> usize {
        (chunk >> self.shift).min(self.nodes - 1)
    }

    /// The chunks of a stripe in a range of this many chunks.
    fn bounds(self, node: usize, chunks: usize) -> ops::Range<usize> {
        let end = if node + 1 < self.nodes { (node + 1) << self.shift } else { chunks };
        node << self.shift..end
    }
}

impl Range {
    /// Whether the division has been decided.
    pub(super) fn is_divided(self) -> bool {
        self.header().division.load(R) != 0
    }

    /// Divides the range among this many nodes, as far as that makes sense. Does nothing if it is divided.
    #[cold]
    pub(super) fn divide(self, nodes: usize) {
        let wanted = Division::of(self.chunks(), nodes.min(MOST_NODES));
        let division = match wanted.nodes > 1 && !central::make_room() {
            true => Division::WHOLE,
            false => wanted,
        };
        // Release: partner is the Acquire in `division`; the nodes' depots and lists have memory.
        let _ = self.header().division.compare_exchange(0, division.word(), Ordering::Release, R);
    }

    /// The division; `None` until it is decided.
    fn decided(self) -> Option<Division> {
        // Acquire: partner is the Release in `divide`. A thread that has an object from another stripe has
        // synchronised with a thread that saw the division.
        Division::of_word(self.header().division.load(Ordering::Acquire))
    }

    fn division(self) -> Division {
        self.decided().unwrap_or(Division::WHOLE)
    }

    /// The number of nodes, which is that of stripes.
    pub(super) fn nodes(self) -> usize {
        self.division().nodes
    }

    /// The node of a chunk.
    pub(super) fn node_of(self, chunk: usize) -> usize {
        self.division().node_of(chunk)
    }

    /// The chunks of a node.
    pub(super) fn bounds(self, node: usize) -> ops::Range<usize> {
        match self.decided() {
            Some(division) => division.bounds(node, self.chunks()),
            // Only chunks that the division cannot assign to another node (1).
            None => 0..self.chunks().min(LEAST),
        }
    }

    pub(super) fn stripe(self, node: usize) -> &'static Stripe {
        &self.header().stripes[node]
    }

    /// The chunks of a node that have metadata groups. No other chunk was ever used.
    pub(super) fn known_part(self, node: usize) -> ops::Range<usize> {
        let bounds = self.bounds(node);
        // Acquire: partner is the Release in `know`; the groups exist.
        let known = self.stripe(node).known.load(Ordering::Acquire);
        bounds.start..known.clamp(bounds.start, bounds.end)
    }

    /// For each node, the chunks that have metadata groups, lowest first.
    pub(super) fn known_parts(self) -> impl DoubleEndedIterator<Item = ops::Range<usize>> {
        (0..self.nodes()).map(move |node| self.known_part(node))
    }

    /// The bitmap words of these chunks.
    pub(super) fn known_words(self) -> impl DoubleEndedIterator<Item = usize> {
        let words = |part: ops::Range<usize>| part.start / IN_A_WORD..part.end.div_ceil(IN_A_WORD);
        self.known_parts().flat_map(words)
    }

    /// A run cut at stripe boundaries, with the node of each piece. Most runs are one piece.
    pub(super) fn parts_of(
        self,
        run: ops::Range<usize>,
    ) -> impl Iterator<Item = (usize, ops::Range<usize>)> {
        let mut start = run.start;
        core::iter::from_fn(move || {
            let node = self.node_of(start);
            let part = start..run.end.min(self.bounds(node).end);
            start = part.end;
            (!part.is_empty()).then_some((node, part))
        })
    }

    /// Makes metadata groups for chunks, and for those before them in their stripe; false when out of memory.
    #[inline]
    pub(super) fn know(self, run: ops::Range<usize>) -> bool {
        self.parts_of(run).all(|(node, part)| {
            part.end <= self.known_part(node).end || self.know_part(node, part.end)
        })
    }

    /// Chunks of a run for which [`know`](Self::know) would have to make groups.
    pub(super) fn unknown(self, run: ops::Range<usize>) -> usize {
        let unknown = |(node, part): (usize, ops::Range<usize>)| {
            part.end.saturating_sub(self.known_part(node).end.max(part.start))
        };
        self.parts_of(run).map(unknown).sum()
    }

    #[cold]
    fn know_part(self, node: usize, end: usize) -> bool {
        let from = self.known_part(node).end;
        let to = end.next_multiple_of(IN_A_GROUP);
        let made = (from..to).step_by(IN_A_GROUP).all(|chunk| self.make_group(chunk));
        if made {
            // Release: partner is the Acquire in `known_part`.
            self.stripe(node).known.fetch_max(to, Ordering::Release);
        }
        made
    }

    /// Raises the high-water marks to the end of a run; whether any was raised.
    pub(super) fn raise_high_water(self, run: ops::Range<usize>) -> bool {
        let mut more = 0;
        for (node, part) in self.parts_of(run) {
            let (high, start) = (&self.stripe(node).high, self.bounds(node).start);
            if high.load(R) < part.end {
                let before = high.fetch_max(part.end, R).max(start);
                more += part.end.saturating_sub(before);
            }
        }
        if more > 0 {
            self.header().high.fetch_add(more, R);
        }
        more > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 1 << 24;

    #[test]
    fn stripes_cover_the_range_and_do_not_meet() {
        for (chunks, nodes) in [(MOST, 2), (MOST, 3), (MOST, 8), (MOST - 128, 8), (5 * LEAST, 2)] {
            let division = Division::of(chunks, nodes);
            assert_eq!(Division::of_word(division.word()), Some(division));
            let mut end = 0;
            for node in 0..division.nodes {
                let bounds = division.bounds(node, chunks);
                assert!(bounds.start == end && bounds.start % LEAST == 0 && bounds.len() >= LEAST);
                let ends = [bounds.start, bounds.end - 1].map(|chunk| division.node_of(chunk));
                assert_eq!(ends, [node; 2], "{nodes} of {chunks}");
                end = bounds.end;
            }
            assert_eq!(end, chunks);
        }
    }

    #[test]
    fn a_short_range_is_one_stripe() {
        assert_eq!(Division::of(MOST, 8), Division { nodes: 8, shift: 21 });
        assert_eq!(Division::of(2 * LEAST, 2), Division { nodes: 2, shift: 20 });
        for (chunks, nodes) in
            [(2 * LEAST - 128, 2), (3 * LEAST, 4), (128, 2), (MOST, 1), (0, 8), (MOST, 0)]
        {
            assert_eq!(Division::of(chunks, nodes), Division::WHOLE);
        }
        assert_eq!(Division::WHOLE.bounds(0, 77), 0..77);
        assert_eq!(Division::WHOLE.node_of(MOST - 1), 0);
        assert_eq!(Division::of_word(0), None);
    }

    #[test]
    fn runs_of_one_stripe_are_one_part() {
        let range = Range::make().unwrap();
        let parts: std::vec::Vec<_> = range.parts_of(5..700).collect();
        assert_eq!(parts, [(0, 5..700)]);
        assert_eq!(range.parts_of(7..7).count(), 0);
        assert!(range.known_parts().count() == range.nodes());
    }
}
