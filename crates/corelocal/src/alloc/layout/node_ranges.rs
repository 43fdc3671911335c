//! Division of the range among NUMA nodes: a part ("stripe") for each node of a machine with several.
//!
//! ```text
//!   │ stripe 0                    │ stripe 1                    │ … │ the last one, with the remainder │
//!   │ groups … known │            │ groups … known │            │   │                                  │
//! ```
//! The node of a chunk follows from its number by a shift. There is one stripe until `page_heap/nodes.rs` divides the
//! range, which happens once; on most machines it stays the only one.
//!
//! # Invariants
//! 1. `Header::division` changes from 0 to its final value once. Before that no chunk beyond [`LEAST`] is claimed, so
//!    everything in use lies in the first stripe.
//! 2. Chunks of a stripe below `known` have metadata groups.
//! 3. `STATES` goes from null to its final value once, before the range is divided among several nodes.

use core::ops;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::bits::IN_A_WORD;
use super::chunk::IN_A_GROUP;
use super::division::{Division, LEAST, MOST_NODES};
use super::header::Stripe;
use super::range::Range;
use crate::sys::memory::pages;

/// Bytes of state that the middle end has for each node but the first (`central/`).
pub(in crate::alloc) const STATE: usize = 8 << 10;
/// The states, one after the other; null until the range is divided among several nodes.
pub(in crate::alloc) static STATES: AtomicPtr<u8> = AtomicPtr::new(null_mut());

const R: Ordering = Ordering::Relaxed;

/// Maps the states of the maximum number of nodes; false when out of memory.
#[cold]
fn make_states() -> bool {
    if !STATES.load(R).is_null() {
        return true;
    }
    let len = (MOST_NODES - 1) * STATE;
    let Some(fresh) = pages::map(len) else { return false };
    // Relaxed: a thread that reads `STATES` has seen the range divided, which happens later.
    if STATES.compare_exchange(null_mut(), fresh, R, R).is_err() {
        // SAFETY: this mapping lost the race and was never published.
        unsafe { pages::unmap(fresh, len) };
    }
    true
}

/// Returns the state of a node other than the first: [`STATE`] bytes, zeroed at first, and never unmapped.
#[inline]
pub(in crate::alloc) fn state(node: usize) -> *const u8 {
    // Not null: the node exists (3).
    STATES.load(R).wrapping_add((node - 1) * STATE)
}

impl Range {
    /// Returns `true` if the division has been decided.
    pub(in crate::alloc) fn is_divided(self) -> bool {
        self.header().division.load(R) != 0
    }

    /// Divides the range among this many nodes, as far as that makes sense. Does nothing if it is divided.
    #[cold]
    pub(in crate::alloc) fn divide(self, nodes: usize) {
        let wanted = Division::of(self.chunks(), nodes.min(MOST_NODES));
        let division = match wanted.nodes > 1 && !make_states() {
            true => Division::WHOLE,
            false => wanted,
        };
        // Release: partner is the Acquire in `decided`; the nodes' states have memory.
        let _ = self.header().division.compare_exchange(0, division.word(), Ordering::Release, R);
    }

    /// Returns the division; `None` until it is decided.
    fn decided(self) -> Option<Division> {
        // Acquire: partner is the Release in `divide`. A thread that has an object from another stripe has
        // synchronised with a thread that saw the division.
        Division::of_word(self.header().division.load(Ordering::Acquire))
    }

    fn division(self) -> Division {
        self.decided().unwrap_or(Division::WHOLE)
    }

    /// Returns the number of nodes, which is that of stripes.
    pub(in crate::alloc) fn nodes(self) -> usize {
        self.division().nodes
    }

    /// Returns the node of a chunk.
    pub(in crate::alloc) fn node_of(self, chunk: usize) -> usize {
        self.division().node_of(chunk)
    }

    /// Returns the chunks of a node.
    pub(in crate::alloc) fn bounds(self, node: usize) -> ops::Range<usize> {
        match self.decided() {
            Some(division) => division.bounds(node, self.chunks()),
            // Only chunks that the division cannot assign to another node (1).
            None => 0..self.chunks().min(LEAST),
        }
    }

    pub(in crate::alloc) fn stripe(self, node: usize) -> &'static Stripe {
        &self.header().stripes[node]
    }

    /// Returns the chunks of a node that have metadata groups. No other chunk was ever used.
    pub(in crate::alloc) fn known_part(self, node: usize) -> ops::Range<usize> {
        let bounds = self.bounds(node);
        // Acquire: partner is the Release in `know_part`; the groups exist.
        let known = self.stripe(node).known.load(Ordering::Acquire);
        bounds.start..known.clamp(bounds.start, bounds.end)
    }

    /// For each node, the chunks that have metadata groups, lowest first.
    pub(in crate::alloc) fn known_parts(
        self,
    ) -> impl DoubleEndedIterator<Item = ops::Range<usize>> {
        (0..self.nodes()).map(move |node| self.known_part(node))
    }

    /// Returns the bitmap words of these chunks.
    pub(in crate::alloc) fn known_words(self) -> impl DoubleEndedIterator<Item = usize> {
        let words = |part: ops::Range<usize>| part.start / IN_A_WORD..part.end.div_ceil(IN_A_WORD);
        self.known_parts().flat_map(words)
    }

    /// Returns a run cut at stripe boundaries, with the node of each piece. Most runs are one piece.
    pub(in crate::alloc) fn parts_of(
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
    pub(in crate::alloc) fn know(self, run: ops::Range<usize>) -> bool {
        self.parts_of(run).all(|(node, part)| {
            part.end <= self.known_part(node).end || self.know_part(node, part.end)
        })
    }

    /// Returns the chunks of a run for which [`know`](Self::know) would have to make groups.
    pub(in crate::alloc) fn unknown(self, run: ops::Range<usize>) -> usize {
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
    pub(in crate::alloc) fn raise_high_water(self, run: ops::Range<usize>) -> bool {
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

    #[test]
    fn runs_of_one_stripe_are_one_part() {
        let range = Range::make().unwrap();
        let parts: std::vec::Vec<_> = range.parts_of(5..700).collect();
        assert_eq!(parts, [(0, 5..700)]);
        assert_eq!(range.parts_of(7..7).count(), 0);
        assert!(range.known_parts().count() == range.nodes());
    }
}
