//! NUMA nodes: memory of the calling thread's node, on machines with several nodes.
//!
//! Each node has its part of the range (`layout/node_ranges.rs`), and for each class a depot and spans. A core is
//! refilled from its node's depots and spans; what it spills goes, object by object, to the node that the object comes
//! from.
//!
//! ```text
//!   core of node 0 ─┐            ┌─► depot, spans, stripe of node 0 ─┐
//!   core of node 1 ─┼─ refill ───┤                                   ├─► other nodes', if these are exhausted
//!                   │            └─► depot, spans, stripe of node 1 ─┘
//!                   └─ spill ───────► the node of each object
//! ```
//! The decision comes late, because small programs gain nothing: when more than [`LATE`] is about to be used. On a
//! machine with one node the question is not asked again.
//!
//! # Invariants
//! 1. All state of nodes is stored before the range is divided, and visible to a thread that sees the division.
//! 2. A node is a hint about placement, never about ownership: memory of any node serves any core.

use core::ops;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::alloc::config;
use crate::alloc::layout::chunk::CHUNK;
use crate::alloc::layout::division::{LEAST, MOST_NODES};
use crate::alloc::layout::range::Range;
use crate::rseq;
use crate::sys;
use crate::sys::memory::pages;

/// Chunks that a program may use before the machine's nodes are read: 32 MiB.
const LATE: usize = 512;

const R: Ordering = Ordering::Relaxed;

/// The number of nodes that a test emulates; 0 for what the environment asks for.
static EMULATED_NODES: AtomicU32 = AtomicU32::new(0);
/// The machine's nodes that have cpus and memory, as a bit set; 0 if not read, or if nodes are emulated.
static NODES: AtomicU64 = AtomicU64::new(0);
/// Emulation: the function that returns the calling thread's node. Null to use its cpu.
static EMULATED: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// For tests: emulates this many nodes; `here` returns the calling thread's. False if the number is already decided,
/// or there is not enough address space.
pub(in crate::alloc) fn emulate(nodes: usize, here: fn() -> usize) -> bool {
    let Some(range) = Range::make().filter(|range| !range.is_divided()) else { return false };
    EMULATED.store(here as *mut (), R);
    EMULATED_NODES.store(nodes as u32, R);
    decide(range);
    range.nodes() == nodes
}

/// Decides on the number of nodes if it is time. To be called before `more` chunks are claimed.
#[inline]
pub(in crate::alloc) fn look(range: Range, more: usize) {
    if !range.is_divided() {
        look_again(range, more);
    }
}

#[cold]
fn look_again(range: Range, more: usize) {
    let used = (range.high_water() / CHUNK).saturating_add(more);
    let is_time = match config::modes() {
        Some(_) => wished() != 0 || used > LATE,
        // Programs use little memory before the environment is available; but some have no environment at all.
        None => used > LEAST / 2,
    };
    if is_time {
        decide(range);
    }
}

/// Returns how many nodes were asked for; 0 for the machine's.
fn wished() -> u32 {
    match EMULATED_NODES.load(R) {
        0 => config::nodes(),
        emulated => emulated,
    }
}

#[cold]
fn decide(range: Range) {
    let nodes = match wished() {
        // Unit tests use one node.
        0 if cfg!(any(test, miri)) => 1,
        0 => {
            let found = sys::nodes_with_cpus_and_memory();
            // Two threads may race, and one of them may be refused the files.
            NODES.fetch_or(found, R);
            found.count_ones()
        }
        wished => wished,
    };
    // Invariant 1: the Release in `divide` publishes the state above.
    range.divide(nodes as usize);
    // Chunks that were mapped before belong to the first node.
    let mut part = range.known_part(0);
    while let Some(open) = range.next_stretch(part.clone(), true) {
        part.start = open.end;
        place(range, 0, open);
    }
}

/// Returns all nodes, the calling thread's first.
pub(in crate::alloc) fn from_here(range: Range) -> impl Iterator<Item = usize> {
    let nodes = range.nodes();
    let here = if nodes == 1 { 0 } else { here() };
    (0..nodes).map(move |nth| (here + nth) % nodes)
}

/// Returns the calling thread's node; may exceed the number of nodes.
#[inline(never)]
fn here() -> usize {
    let nodes = NODES.load(R);
    if nodes != 0 {
        return rank(nodes, rseq::node_id());
    }
    let emulated = EMULATED.load(R);
    if emulated.is_null() {
        return rseq::cpu_id() as usize;
    }
    // SAFETY: `emulate` stored a function of this type.
    let emulated = unsafe { core::mem::transmute::<*mut (), fn() -> usize>(emulated) };
    emulated()
}

/// Returns the number of nodes before this one.
fn rank(nodes: u64, node: u32) -> usize {
    let before = 1u64.checked_shl(node).map_or(u64::MAX, |bit| bit - 1);
    (nodes & before).count_ones() as usize
}

/// Returns the kernel's number of a node; `None` if nodes are emulated or share a stripe.
pub(in crate::alloc) fn number(range: Range, node: usize) -> Option<u32> {
    let nodes = NODES.load(R);
    let is_its_own = nodes.count_ones() as usize == range.nodes();
    (0..u64::BITS)
        .find(|number| is_its_own && nodes >> number & 1 != 0 && rank(nodes, *number) == node)
}

/// Tells the kernel on which node chunks should lie, unless the program has set a policy itself.
pub(in crate::alloc) fn place(range: Range, node: usize, chunks: ops::Range<usize>) {
    if range.nodes() == 1 {
        return;
    }
    let Some(number) = number(range, node) else { return };
    let (at, len) = (range.address(chunks.start) as *mut u8, chunks.len() * CHUNK);
    let placed = pages::has_policy().and_then(|has_policy| match has_policy {
        true => Ok(()),
        // SAFETY: mapped chunks of the range; a policy leaves their contents alone.
        false => unsafe { pages::place_on(at, len, number) },
    });
    if placed.is_err() {
        // They will lie on the node of their first use.
        range.header().displaced.fetch_add(len, R);
    }
}

const _: () = assert!(MOST_NODES == 8, "what `config.rs` takes");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_ranks() {
        assert_eq!([0, 1, 2, 64].map(|node| rank(0b11, node)), [0, 1, 2, 2]);
        // Node 2 has no memory: its cpus use the next node's.
        assert_eq!([0, 1, 2, 8].map(|node| rank(1 | 1 << 8, node)), [0, 1, 1, 1]);
        assert_eq!(rank(u64::MAX, 63), 63);
    }

    #[test]
    fn one_node_is_anybodys() {
        let range = Range::make().unwrap();
        assert!(from_here(range).eq([0]));
        assert_eq!(number(range, 0), None);
    }
}
