//! Slots by node: an id has a slot on each NUMA node that it runs on, so that memory stays local.
//!
//! # Data flow
//! The table has a row of ids for each node. A thread reads its node from its rseq area (`node_id`, Linux 6.3) right
//! before a critical section and passes that node's row to the section. The sections are the same as for other kinds.
//!
//! ```text
//!   rseq area ── node_id  1 ─────┐
//!             └─ mm_cid   3      ▼
//!               row of node 0    row of node 1    …          slot  home
//!               … [ 2 ] …        … [ 3 ] …                      0    node 0
//!                                  │                          1    node 1
//!                                  └────────────────────────► 3    node 1
//! ```
//!
//! The home of slot `s` is node `s % nodes`, and it is assigned to ids of that node only. So the first thread that
//! writes to it, which determines where its pages are, runs there, and so do all later ones, also after a freeze or a
//! compaction. There are as many slots for each node as there are ids, so every id gets one (except on machines with
//! more than 16384 ids times nodes).
//!
//! Before Linux 6.3 no node is published, and none is needed: ids are cpu numbers, and a cpu stays on its node. All
//! use the same row. When a cpu gets its slot, the kernel is asked for its node.
//!
//! # Invariants
//! 1. At any instant one thread of the process runs under an id. So a slot of (row, id) has one user, whichever row a
//!    section was given: the node is a hint about placement and does not affect exclusion.
//! 2. A slot is assigned to (row, id) by a thread that knows a node. The slot's home is that node modulo the number
//!    of nodes with cpus. So it is the row's own, except on machines with more than [`ROWS`] nodes, or with nodes
//!    that got their first cpu later.

use super::directory::{Directory, Revoke};
use super::high_water::Noted;
use super::private::Sealed;
use super::{MOST_SLOTS, NodeCid, ROW, capacity, frozen};
use crate::primitive::global::{AtomicU32, Ordering};
use crate::rseq::Index;
use crate::sys;
use crate::sys::rseq::field;

/// Rows of the table. Nodes with the same remainder share one.
const ROWS: usize = 16;

/// A row of a node that this process does not use is never touched, and takes no memory.
static DIRECTORY: Directory<{ ROWS * ROW }, MOST_SLOTS> = Directory::new();
pub(super) static GIVEN: Noted = Noted::new();

impl Sealed for NodeCid {
    const COMPACT: bool = true;
    const BY_NODE: bool = true;

    #[inline(always)]
    fn index() -> Index {
        // The node last: the compiler does not hoist what comes after it out of loops.
        let (area, id) = sys::rseq::area_and_cid();
        let offsets = DIRECTORY.offsets().wrapping_add(row(published_node(area)) * ROW);
        Index { area, id, offsets }
    }

    fn assign(id: u32) -> Option<u32> {
        let node = published_node(sys::rseq::area());
        let entry = |id| (row(node) * ROW) as u32 + id;
        if let Some(slot) = DIRECTORY.slot_of(entry(id)) {
            return Some(slot);
        }
        frozen::free_left_slots::<NodeCid>();
        let (id, node) = match sys::rseq::node() {
            Some(_) => (id, node),
            // The id is the cpu's number. The thread may be on another cpu by now: then that one gets its slot.
            None => {
                sys::current_cpu_and_node().filter(|(cpu, _)| *cpu < capacity()).unwrap_or((id, 0))
            }
        };
        let slots = slots_of(node, nodes(), capacity());
        DIRECTORY.assign_if(entry(id), slots, GIVEN.opener())
    }

    fn capacity() -> u32 {
        slots(nodes(), capacity())
    }

    fn stride() -> u32 {
        nodes()
    }

    fn directory() -> &'static dyn Revoke {
        &DIRECTORY
    }
}

/// Returns the node that the kernel publishes for the calling thread. Where it publishes none, some number that is the
/// same for all threads, most likely 0. `area` is the offset of the thread's area.
#[inline(always)]
fn published_node(area: isize) -> u32 {
    // SAFETY: a field of the area in use, or of the library's own area, which always exists.
    unsafe { sys::rseq::read(area + field::NODE_ID) }
}

/// Returns the row of a node in the table.
#[inline(always)]
fn row(node: u32) -> usize {
    node as usize % ROWS
}

/// Returns the number of slots on a machine with this many nodes and ids.
fn slots(nodes: u32, ids: u32) -> u32 {
    (ids * nodes).min(MOST_SLOTS as u32 / nodes * nodes)
}

/// Returns the slots whose home is this node.
fn slots_of(node: u32, nodes: u32, ids: u32) -> impl Iterator<Item = u32> + Clone {
    (node % nodes..slots(nodes, ids)).step_by(nodes as usize)
}

/// Returns the number of nodes that are homes of slots: those that have cpus, at most [`ROWS`]. Read from the kernel
/// once.
fn nodes() -> u32 {
    static NODES: AtomicU32 = AtomicU32::new(0);
    match NODES.load(Ordering::Relaxed) {
        0 => {
            let found = sys::nodes_with_cpus().min(ROWS as u32);
            // Relaxed: as in `capacity`.
            match NODES.compare_exchange(0, found, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => found,
                Err(first) => first,
            }
        }
        known => known,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cid;
    use std::vec::Vec;

    #[test]
    fn nodes_share_no_slot_and_leave_none() {
        for (nodes, ids) in [(1, 2), (2, 64), (3, 7), (16, 1024), (16, 8192), (7, 8192), (1, 8192)]
        {
            let slots = slots(nodes, ids);
            assert!(slots as usize <= MOST_SLOTS && slots % nodes == 0, "{nodes} nodes, {ids} ids");
            assert!(slots == nodes * ids || slots as usize > MOST_SLOTS - ROWS);
            let mut all: Vec<u32> =
                (0..nodes).flat_map(|node| slots_of(node, nodes, ids)).collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..slots), "{nodes} nodes, {ids} ids");
            // The lowest ones first, and equally many for each node, once all ids have theirs.
            assert!(slots_of(nodes, nodes, ids).eq(slots_of(0, nodes, ids)));
        }
    }

    #[test]
    fn every_row_is_in_the_table() {
        let table = DIRECTORY.offsets().addr()..DIRECTORY.offsets().wrapping_add(ROWS * ROW).addr();
        for node in [0, 1, 15, 16, 1023, u32::MAX] {
            let row = DIRECTORY.offsets().wrapping_add(row(node) * ROW).addr();
            assert!(row >= table.start && row + 8 * ROW <= table.end);
        }
        assert!(table.contains(&NodeCid::index().offsets.addr()));
    }

    #[test]
    fn a_slot_has_a_home() {
        let slot = cid::current::<NodeCid>();
        if cid::policy() != cid::Policy::Lease {
            assert!(slot < cid::high_water::<NodeCid>());
        }
        assert_eq!(cid::home::<NodeCid>(slot), Some(slot % nodes()));
        assert_eq!(cid::spare::<NodeCid>() % nodes(), 0);
    }
}
