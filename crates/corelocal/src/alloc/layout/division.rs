//! How the range is divided among nodes: a number of parts ("stripes") of a power of two of chunks; the last has the
//! remainder as well.
//!
//! Invariant: stripes begin at multiples of [`LEAST`].

use core::ops;

use super::chunk::IN_A_GROUP;

/// The maximum number of stripes. Further nodes share them.
pub(in crate::alloc) const MOST_NODES: usize = 8;
/// Chunks in the shortest stripe: 64 GiB.
pub(in crate::alloc) const LEAST: usize = 1 << 20;

const _: () = assert!(LEAST % IN_A_GROUP == 0);

/// The division of the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::alloc) struct Division {
    pub(in crate::alloc) nodes: usize,
    /// Shift from a chunk's number to that of its stripe.
    shift: u32,
}

impl Division {
    /// A single stripe.
    pub(in crate::alloc) const WHOLE: Division = Division { nodes: 1, shift: usize::BITS - 1 };

    /// Returns the division of `chunks` among `nodes`; a single stripe if stripes would be too short.
    pub(super) fn of(chunks: usize, nodes: usize) -> Division {
        match (chunks / nodes.max(1)).checked_ilog2() {
            Some(shift) if nodes > 1 && 1 << shift >= LEAST => Division { nodes, shift },
            _ => Division::WHOLE,
        }
    }

    /// Returns `true` if a range of this many chunks is too short for two stripes.
    pub(super) fn is_whole(chunks: usize) -> bool {
        chunks < 2 * LEAST
    }

    /// Encoded in one word other than 0.
    pub(super) fn word(self) -> usize {
        self.nodes | (self.shift as usize) << 8
    }

    pub(in crate::alloc) fn of_word(word: usize) -> Option<Division> {
        (word != 0).then_some(Division { nodes: word & 0xff, shift: (word >> 8) as u32 })
    }

    /// Returns `true` if `divide` can have made it, of a range of this many chunks.
    pub(in crate::alloc) fn is_possible(self, chunks: usize) -> bool {
        self == Division::WHOLE || self == Division::of(chunks, self.nodes.min(MOST_NODES))
    }

    pub(super) fn node_of(self, chunk: usize) -> usize {
        (chunk >> self.shift).min(self.nodes - 1)
    }

    /// Returns the chunks of a stripe in a range of this many chunks.
    pub(in crate::alloc) fn bounds(self, node: usize, chunks: usize) -> ops::Range<usize> {
        let end = if node + 1 < self.nodes { (node + 1) << self.shift } else { chunks };
        node << self.shift..end
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
}
