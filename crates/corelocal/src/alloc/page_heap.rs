//! The page heap: runs of chunks, claimed and released, and the return of free memory to the kernel.
//!
//! One bit for each chunk says whether it has an owner. Runs are claimed by compare-exchange, first fit from the
//! lowest address on. So memory in use stays dense: low huge pages are full and high ones empty. No lock exists that
//! a fork could leave held or that a signal handler could wait for. Filling the fullest huge page first is no better
//! (docs/design/malloc.md has the
//! experiment). With several NUMA nodes, each has its own part of the range (`layout/node_ranges.rs`).
//!
//! ```text
//!   used:  0 ── claim ──► 1 ── release ──► 0
//!   dirty: 0              0                1 ── claim: the new owner clears it and knows ──► 0
//!                                          └─── purge: claimed, given to the kernel, freed ──► 0
//! ```
//!
//! ```text
//!   large.rs ─► claim.rs ─► search.rs ─► runs.rs          huge.rs: huge pages of dense memory
//!           └─► release.rs ─► mapped_chunks.rs            nodes.rs: on which node a thread runs
//!   purge.rs ─► give_back.rs                              pressure.rs: whether memory is short
//! ```
//!
//! # Invariants
//! 1. A chunk whose `used` bit is set belongs to the thread that set it. All that was done to it before its release
//!    happens before all that its next owner does (`layout/bits.rs`).
//! 2. A chunk that is neither used nor dirty is all zero.
//! 3. Runs of fewer than 16 chunks lie within one word of the bitmap, runs of up to 64 in one or two words, and
//!    longer ones begin at a word. The exception is a run cut out of a longer one for an alignment of more than a
//!    word. A run lies in one node's part unless it is longer than that, or has grown.
//! 4. Nothing here blocks. A fork leaves at worst chunks that no thread owns.
mod claim;
mod give_back;
pub(in crate::alloc) mod huge;
pub(in crate::alloc) mod large;
mod large_state;
mod mapped_chunks;
pub(in crate::alloc) mod nodes;
pub(in crate::alloc) mod pressure;
mod purge;
mod release;
mod runs;
mod search;
#[cfg(test)]
mod tests;

pub(super) use claim::{Run, claim, claim_on};
pub(super) use give_back::give_back;
pub(super) use purge::{age, purge, retry_kept};
pub(super) use release::release;

use core::ops;
use core::sync::atomic::Ordering;

use super::layout::bits::IN_A_WORD;
use super::layout::chunk::CHUNK;
use super::layout::range::Range;
use runs::open;

const R: Ordering = Ordering::Relaxed;

/// Returns the chunks of a node that are in use.
pub(super) fn used(range: Range, node: usize) -> usize {
    let words = words_of(range, node);
    // Chunks that are used but not mapped belong to a foreign mapping.
    let used = |word| range.words(word).used.load(R) & open(range, word);
    words.map(|word| used(word).count_ones() as usize).sum()
}

/// Returns the chunks of a node that are mapped.
pub(super) fn opened(range: Range, node: usize) -> usize {
    let words = words_of(range, node);
    words.map(|word| open(range, word).count_ones() as usize).sum()
}

/// Returns the bitmap words of a node.
fn words_of(range: Range, node: usize) -> ops::Range<usize> {
    let known = range.known_part(node);
    known.start / IN_A_WORD..known.end / IN_A_WORD
}

/// Returns the bytes of spans and large objects.
pub(super) fn used_bytes(range: Range) -> usize {
    (0..range.nodes()).map(|node| used(range, node) * CHUNK).sum()
}

/// Returns the bytes that are free and not given back.
pub(super) fn idle_bytes(range: Range) -> usize {
    range.header().dirty.load(R) * CHUNK
}
