//! Statistics of the malloc, computed on request: hot paths count nothing.
//!
//! Invariant: an object that moves during the computation may be counted twice or not at all.

use core::sync::atomic::Ordering;

use super::{guard, profile};
use crate::alloc::central::{self, spans};
use crate::alloc::config;
use crate::alloc::core_cache::all;
use crate::alloc::layout::chunk::CHUNK;
use crate::alloc::layout::class::{self, CLASSES};
use crate::alloc::layout::division::MOST_NODES;
use crate::alloc::layout::range::Range;
use crate::alloc::page_heap::{self, huge, nodes};

/// Statistics of the malloc; see [`stats`].
#[derive(Clone, Copy, Debug)]
pub struct Stats {
    /// Bytes of address space that spans and large objects may use; memory is mapped there as it is used.
    pub reserved: usize,
    /// Bytes of it that are mapped: up to a quarter more than is in use or idle, and at most 64 MiB more.
    pub committed: usize,
    /// Bytes of spans and large objects in use. Untouched pages use no memory.
    pub used: usize,
    /// Bytes that are free and have not been given back to the kernel.
    pub idle: usize,
    /// Bytes given back to the kernel so far.
    pub released: usize,
    /// Bytes of huge pages that were made of densely used memory, see [`use_huge_pages`](crate::alloc::use_huge_pages);
    /// before Linux 6.1, bytes of which the kernel may make huge pages. The kernel may have split some since.
    pub huge: usize,
    /// Number of large objects.
    pub large_objects: usize,
    /// Their bytes, without reserve.
    pub large_bytes: usize,
    /// Their reserve in bytes, into which they can grow: untouched memory, except where an object became shorter.
    pub large_reserve: usize,
    /// Number of objects on pages of their own, in a process that guards a selection.
    pub guarded: usize,
    /// The number of such objects since the program began.
    pub guarded_ever: u64,
    /// NUMA nodes among which memory is divided; 1 until the machine's nodes have been read.
    pub nodes: usize,
    /// Statistics of each node.
    pub of_nodes: [NodeStats; MOST_NODES],
    /// Bytes that the kernel refused to place on their node (`mbind(2)` behind a filter). They lie on the node of
    /// their first use.
    pub displaced: usize,
    /// Statistics of each size class, smallest first.
    pub classes: [ClassStats; CLASSES],
}

/// Statistics of a NUMA node.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeStats {
    /// The kernel's number of the node. If nodes are emulated or merged, an index.
    pub number: u32,
    /// As [`Stats::committed`].
    pub committed: usize,
    /// As [`Stats::used`].
    pub used: usize,
}

/// Statistics of a size class.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClassStats {
    /// Object size in bytes.
    pub size: usize,
    /// Number of spans.
    pub spans: usize,
    /// Bytes of these spans.
    pub span_bytes: usize,
    /// Objects in use by the program.
    pub in_use: usize,
    /// Objects in the caches of cores.
    pub on_cores: usize,
    /// Objects in the depots.
    pub in_depot: usize,
    /// Objects allocated so far; 0 unless the process counts them (`stats`, `guard` or `profile` in
    /// `CORELOCAL_MALLOC`). Without [guarded](Stats::guarded) objects.
    ///
    /// An object is counted twice if its thread is interrupted at one particular instruction: less than once in a
    /// million.
    pub allocated: u64,
    /// Objects freed so far.
    pub freed: u64,
    /// Batches that cores fetched from depots or spans, each for an allocation that found its stack empty.
    pub refills: u64,
    /// Batches that cores moved to depots or spans because a stack was full.
    pub spills: u64,
}

/// Returns the current statistics. Linear in the memory in use. Allocates nothing.
///
/// ```
/// use corelocal::alloc;
///
/// let object = alloc::allocate(100);
/// let stats = alloc::stats();
/// assert!(stats.used > 0 && stats.used <= stats.committed);
/// assert!(stats.classes.iter().any(|class| class.size >= 100 && class.in_use > 0));
/// // SAFETY: allocated above.
/// unsafe { alloc::deallocate(object) };
/// ```
pub fn stats() -> Stats {
    let mut stats = none();
    let Some(range) = Range::get() else { return stats };
    let header = range.header();
    stats.reserved = range.chunks() * CHUNK;
    stats.nodes = range.nodes();
    for (node, of_node) in stats.of_nodes.iter_mut().enumerate().take(stats.nodes) {
        of_node.number = nodes::number(range, node).unwrap_or(node as u32);
        of_node.committed = page_heap::opened(range, node) * CHUNK;
        of_node.used = page_heap::used(range, node) * CHUNK;
        stats.committed += of_node.committed;
        stats.used += of_node.used;
    }
    stats.displaced = header.displaced.load(Ordering::Relaxed);
    stats.idle = page_heap::idle_bytes(range);
    stats.released = header.released.load(Ordering::Relaxed);
    stats.huge = huge::bytes(range);
    (stats.guarded, stats.guarded_ever) = guard::counts();
    stats.large_objects = header.large_objects.load(Ordering::Relaxed);
    let reserve = header.reserve_chunks.load(Ordering::Relaxed);
    let chunks = header.large_chunks.load(Ordering::Relaxed);
    stats.large_reserve = reserve * CHUNK;
    // Counts that change meanwhile may make the reserve seem too large.
    stats.large_bytes = chunks.saturating_sub(reserve) * CHUNK;
    for (class, of_class) in (1..).zip(&mut stats.classes) {
        let mut out = 0;
        for place in central::places_of(range, class) {
            let (spans, out_of_spans) = spans::count(place);
            of_class.spans += spans;
            of_class.in_depot += central::waiting(place);
            out += out_of_spans;
        }
        of_class.span_bytes = of_class.spans * class::shape(class).chunks * CHUNK;
        of_class.on_cores = all::cached_of(class);
        let [allocated, freed, refills, spills] = all::counts_of(class);
        (of_class.refills, of_class.spills) = (refills, spills);
        let in_spans = out.saturating_sub(of_class.on_cores + of_class.in_depot);
        of_class.in_use = in_spans + profile::sampled_of(class);
        if let Some(modes) = config::modes().filter(|modes| modes.counts_allocations()) {
            // Counts that change meanwhile may make the result negative.
            let allocated = (allocated as i64).max(0) as u64;
            let gone = allocated.saturating_sub(of_class.in_use as u64);
            of_class.allocated = allocated;
            of_class.freed = if modes.checks() { freed } else { gone };
        }
    }
    stats
}

/// Returns the statistics of a malloc that has not been used.
pub(in crate::alloc) fn none() -> Stats {
    let mut stats = Stats {
        reserved: 0,
        committed: 0,
        used: 0,
        idle: 0,
        released: 0,
        huge: 0,
        large_objects: 0,
        large_bytes: 0,
        large_reserve: 0,
        guarded: 0,
        guarded_ever: 0,
        nodes: 1,
        of_nodes: [NodeStats::default(); MOST_NODES],
        displaced: 0,
        classes: [ClassStats::default(); CLASSES],
    };
    for (nth, of_class) in stats.classes.iter_mut().enumerate() {
        of_class.size = class::shape(nth + 1).size;
    }
    stats
}

/// Returns the bytes in the cache of each core, in the order of their slots.
pub fn cores() -> impl Iterator<Item = usize> {
    all::cached()
}
