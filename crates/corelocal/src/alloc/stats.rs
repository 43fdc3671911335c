//! What the malloc has, counted when somebody asks: nothing is counted on the hot paths.
//!
//! Invariant: what is moved while it is counted may be counted twice or not at all.

use core::sync::atomic::Ordering;

use super::class::{self, CLASSES};
use super::node_ranges::MOST_NODES;
use super::range::{CHUNK, Range};
use super::{central, core_caches, debug, guard, huge, nodes, profile, spans, store};

/// What the malloc has; see [`stats`].
#[derive(Clone, Copy, Debug)]
pub struct Stats {
    /// Bytes that spans and large objects may take together: addresses that memory is mapped at as it is used.
    pub reserved: usize,
    /// Of these, bytes that are mapped: up to a quarter more than are in use or idle, and 64 MiB at most.
    pub committed: usize,
    /// Bytes that spans and large objects take now. Pages that nobody wrote to are no memory.
    pub used: usize,
    /// Bytes that nothing uses, and that the kernel has not got back.
    pub idle: usize,
    /// Bytes that the kernel got back so far.
    pub released: usize,
    /// Bytes of huge pages that were made of densely used memory, see
    /// [`use_huge_pages`](super::use_huge_pages); before Linux 6.1 bytes of which the kernel may make some. It may
    /// have split some since.
    pub huge: usize,
    /// Large objects.
    pub large_objects: usize,
    /// Bytes that they take, without those in reserve.
    pub large_bytes: usize,
    /// Bytes that they have in reserve, to grow into: addresses that nothing has been written to, but for what an object
    /// had before it became shorter.
    pub large_reserve: usize,
    /// Objects on pages of their own, of those that are guarded.
    pub guarded: usize,
    /// How many there ever were.
    pub guarded_ever: u64,
    /// NUMA nodes that memory is divided among; 1 as long as nobody has asked how many the machine has.
    pub nodes: usize,
    /// What each of these has.
    pub of_nodes: [NodeStats; MOST_NODES],
    /// Bytes that the kernel would not place on their node (`mbind(2)`, behind a filter): they lie where they were
    /// written to first.
    pub displaced: usize,
    /// Each class of sizes, the smallest first.
    pub classes: [ClassStats; CLASSES],
}

/// What there is of a NUMA node.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeStats {
    /// The kernel's number of it; where nodes are emulated, or several are one here, merely a number.
    pub number: u32,
    /// As [`Stats::committed`].
    pub committed: usize,
    /// As [`Stats::used`].
    pub used: usize,
}

/// What there is of a class of sizes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClassStats {
    /// The size of its objects.
    pub size: usize,
    /// Spans of it.
    pub spans: usize,
    /// Bytes that these take.
    pub span_bytes: usize,
    /// Objects in a program's hands.
    pub in_use: usize,
    /// Objects that wait on cores.
    pub on_cores: usize,
    /// Objects that wait in the depot.
    pub in_depot: usize,
    /// Objects that were asked for; 0 unless the process counts them, which `stats`, `guard` and `profile` in
    /// `CORELOCAL_MALLOC` make it do. Without the [guarded](Stats::guarded) ones.
    ///
    /// A thread that is interrupted at a certain instruction counts an object twice: once in a million times, or less.
    pub allocated: u64,
    /// Of these, objects that were given back.
    pub freed: u64,
    /// Batches that cores took from the depot or from spans, each for an object that was asked for and not there.
    pub refills: u64,
    /// Batches that cores gave away, since they had no room.
    pub spills: u64,
}

/// What the malloc has at the moment. Linear in the memory in use; allocates nothing.
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
    let Some(range) = Range::get() else { return stats };
    let header = range.header();
    stats.reserved = range.chunks() * CHUNK;
    stats.nodes = range.nodes();
    for (node, of_node) in stats.of_nodes.iter_mut().enumerate().take(stats.nodes) {
        of_node.number = nodes::number(range, node).unwrap_or(node as u32);
        of_node.committed = store::opened(range, node) * CHUNK;
        of_node.used = store::used(range, node) * CHUNK;
        stats.committed += of_node.committed;
        stats.used += of_node.used;
    }
    stats.displaced = header.displaced.load(Ordering::Relaxed);
    stats.idle = idle_bytes(range);
    stats.released = header.released.load(Ordering::Relaxed);
    stats.huge = huge::bytes(range);
    (stats.guarded, stats.guarded_ever) = guard::counts();
    stats.large_objects = header.large_objects.load(Ordering::Relaxed);
    let reserve = header.reserve_chunks.load(Ordering::Relaxed);
    let chunks = header.large_chunks.load(Ordering::Relaxed);
    stats.large_reserve = reserve * CHUNK;
    // Of what changes meanwhile there may seem to be more in reserve than there is.
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
        of_class.on_cores = core_caches::cached_of(class);
        let [allocated, freed, refills, spills] = core_caches::counts_of(class);
        (of_class.refills, of_class.spills) = (refills, spills);
        let in_spans = out.saturating_sub(of_class.on_cores + of_class.in_depot);
        of_class.in_use = in_spans + profile::sampled_of(class);
        if let (true, is_each_counted) = debug::counts() {
            // What is counted meanwhile may seem to be less than nothing.
            let allocated = (allocated as i64).max(0) as u64;
            let gone = allocated.saturating_sub(of_class.in_use as u64);
            of_class.allocated = allocated;
            of_class.freed = if is_each_counted { freed } else { gone };
        }
    }
    stats
}

/// Bytes that wait on each core, in the order of their slots.
pub fn cores() -> impl Iterator<Item = usize> {
    core_caches::cached()
}

/// Bytes of spans and large objects.
pub(super) fn used_bytes(range: Range) -> usize {
    (0..range.nodes()).map(|node| store::used(range, node) * CHUNK).sum()
}

pub(super) fn idle_bytes(range: Range) -> usize {
    range.header().dirty.load(Ordering::Relaxed) * CHUNK
}
