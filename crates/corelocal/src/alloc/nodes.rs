//! Memory by NUMA nodes, on machines with several: who is where, and whose memory is whose.
//!
//! Each node has a stripe of the range (`node_ranges.rs`), and a depot and spans of its own for each class. A core is
//! filled from those of its node; what it gives away goes, object by object, to the node whose stripe it lies in.
//!
//! ```text
//!   core of node 0 ─┐            ┌─► depot, spans, stripe of node 0 ─┐
//!   core of node 1 ─┼─ refill ───┤                                   ├─► when they have nothing left: of the others
//!                   │            └─► depot, spans, stripe of node 1 ─┘
//!                   └─ spill ───────► where each object is from
//! ```
//! It is decided late, since small programs gain nothing: before more than [`LATE`] is used. A machine with one node
//! is not asked again after that.
//!
//! # Invariants
//! 1. What is known of nodes is stored before the range is divided. Who sees it divided sees that.
//! 2. A node is a hint about place, never about who owns something: any stripe serves any core.

use core::ops;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::debug;
use super::node_ranges::{LEAST, MOST_NODES};
use super::range::{CHUNK, Range};
use crate::rseq;
use crate::sys::{self, pages};

/// Chunks that a program may use before its machine's nodes are asked for: 32 MiB.
const LATE: usize = 512;

const R: Ordering = Ordering::Relaxed;

/// How many nodes there are to be, by who said so; 0 if it is for the machine to say.
static WISH: AtomicU32 = AtomicU32::new(0);
/// The nodes of the machine that have cpus and memory; none where they are emulated, or nobody asked.
static NODES: AtomicU64 = AtomicU64::new(0);
/// Where they are emulated: the node of the calling thread. Null for one by its cpu.
static EMULATED: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Takes a word of `CORELOCAL_MALLOC`: `nodes:no`, and for tests `nodes:N`, as if there were so many.
pub(super) fn configure(word: &[u8]) {
    if let Some(nodes) = wish_of(word) {
        WISH.store(nodes, R);
    }
}

fn wish_of(word: &[u8]) -> Option<u32> {
    match word.strip_prefix(b"nodes:")? {
        b"no" => Some(1),
        [digit @ b'2'..=b'8'] => Some(u32::from(digit - b'0')),
        _ => None,
    }
}

/// For tests: as if there were so many nodes, and `here` told which one the calling thread is on. False if it was
/// decided already how many there are, or there is no room.
pub(super) fn emulate(nodes: usize, here: fn() -> usize) -> bool {
    let Some(range) = Range::make().filter(|range| !range.is_divided()) else { return false };
    EMULATED.store(here as *mut (), R);
    WISH.store(nodes as u32, R);
    decide(range);
    range.nodes() == nodes
}

/// Before so many more chunks are taken: decides how many nodes there are, if it is time.
#[inline]
pub(super) fn look(range: Range, more: usize) {
    if !range.is_divided() {
        look_again(range, more);
    }
}

#[cold]
fn look_again(range: Range, more: usize) {
    let used = (range.high_water() / CHUNK).saturating_add(more);
    let is_time = match debug::wishes() {
        Some(_) => WISH.load(R) != 0 || used > LATE,
        // Before the environment is known nobody uses much; but some have none at all.
        None => used > LEAST / 2,
    };
    if is_time {
        decide(range);
    }
}

#[cold]
fn decide(range: Range) {
    let nodes = match WISH.load(R) {
        // Unit tests look at one.
        0 if cfg!(any(test, miri)) => 1,
        0 => {
            let found = sys::nodes_with_cpus_and_memory();
            // Of two at once one may be refused the files.
            NODES.fetch_or(found, R);
            found.count_ones()
        }
        wished => wished,
    };
    // Release, in there: invariant 1.
    range.divide(nodes as usize);
    // What was opened before is the first one's.
    let mut part = range.known_part(0);
    while let Some(open) = range.next_stretch(part.clone(), true) {
        part.start = open.end;
        place(range, 0, open);
    }
}

/// All nodes, the calling thread's first.
pub(super) fn from_here(range: Range) -> impl Iterator<Item = usize> {
    let nodes = range.nodes();
    let here = if nodes == 1 { 0 } else { here() };
    (0..nodes).map(move |nth| (here + nth) % nodes)
}

/// The node of the calling thread, among those that there are, or beyond.
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
    // SAFETY: set in `emulate`, to such a function.
    let emulated = unsafe { core::mem::transmute::<*mut (), fn() -> usize>(emulated) };
    emulated()
}

/// How many of the nodes are before this one.
fn rank(nodes: u64, node: u32) -> usize {
    let before = 1u64.checked_shl(node).map_or(u64::MAX, |bit| bit - 1);
    (nodes & before).count_ones() as usize
}

/// The kernel's number of a node; `None` where they are emulated, or several share a stripe.
pub(super) fn number(range: Range, node: usize) -> Option<u32> {
    let nodes = NODES.load(R);
    let is_its_own = nodes.count_ones() as usize == range.nodes();
    (0..u64::BITS)
        .find(|number| is_its_own && nodes >> number & 1 != 0 && rank(nodes, *number) == node)
}

/// Tells the kernel on which node chunks of a stripe are to lie, unless the program has told it something itself.
pub(super) fn place(range: Range, node: usize, chunks: ops::Range<usize>) {
    if range.nodes() == 1 {
        return;
    }
    let Some(number) = number(range, node) else { return };
    let (at, len) = (range.address(chunks.start) as *mut u8, chunks.len() * CHUNK);
    let placed = pages::has_policy().and_then(|has_policy| match has_policy {
        true => Ok(()),
        // SAFETY: chunks of the range.
        false => unsafe { pages::place_on(at, len, number) },
    });
    if placed.is_err() {
        // Then they lie where they are written to first.
        range.header().displaced.fetch_add(len, R);
    }
}

const _: () = assert!(MOST_NODES == 8, "what `wish_of` takes");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_ranks() {
        assert_eq!([0, 1, 2, 64].map(|node| rank(0b11, node)), [0, 1, 2, 2]);
        // Node 2 is one without memory: its cpus go on with the next one's.
        assert_eq!([0, 1, 2, 8].map(|node| rank(1 | 1 << 8, node)), [0, 1, 1, 1]);
        assert_eq!(rank(u64::MAX, 63), 63);
    }

    #[test]
    fn words() {
        assert_eq!(wish_of(b"nodes:no"), Some(1));
        assert_eq!((wish_of(b"nodes:2"), wish_of(b"nodes:8")), (Some(2), Some(8)));
        for word in [&b"nodes:1"[..], b"nodes:9", b"nodes:22", b"nodes:", b"nodes", b"node:2", b""]
        {
            assert_eq!(wish_of(word), None, "{}", word.escape_ascii());
        }
    }

    #[test]
    fn one_node_is_anybodys() {
        let range = Range::make().unwrap();
        assert!(from_here(range).eq([0]));
        assert_eq!(number(range, 0), None);
    }
}
