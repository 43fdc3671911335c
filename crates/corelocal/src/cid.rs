//! Slots: the small numbers that index per-core data, and the kinds of id that they are assigned to.
//!
//! A kind of id is a type, chosen where a container is declared. [`Cid`], the compact concurrency id, is the default
//! everywhere. [`NodeCid`] is the same, with slots whose memory stays on one NUMA node. [`CpuId`] is the cpu number,
//! for data that belongs to a cpu.
//!
//! # Policies
//! A slot is a small number of this process. It is assigned to an id at the id's first use, and is the lowest free
//! one:
//!
//! | [`Policy`] | where | the id |
//! |---|---|---|
//! | [`MmCid`](Policy::MmCid) | Linux 6.3 and later | the kernel's concurrency id |
//! | [`CompactCpu`](Policy::CompactCpu) | Linux 4.18 to 6.2 | the cpu number; slots make it compact |
//! | [`Lease`](Policy::Lease) | no rseq | none: threads lease shared slots, and use atomics there |
//!
//! So a process confined to cpus 62 and 63 uses slots 0 and 1 on every kernel. The policy does not affect the cost of
//! a critical section: it loads an id from one address or the other, and the slot from the same table.
//!
//! Outside of a critical section a slot is a hint, as an id is: another thread may be the next to use it, and this
//! thread may run elsewhere.
//!
//! # Slots taken back
//! [`freeze`] takes a slot away from its id without blocking: the threads of that id get another slot. Drains and
//! trims use it. [`compact`] takes all slots back, so that ids in use get the lowest ones again. While it runs, ids
//! without a slot use shared slots.
//!
//! Invariant: every region of memory has a slot for each number below [`capacity_of`] the kind of its slots, which
//! never changes.

mod directory;
mod frozen;
mod gate;
#[cfg(not(loom))]
mod high_water;
#[cfg(not(loom))]
mod node;

#[cfg(not(loom))]
pub(crate) use frozen::freeze_from;
pub use frozen::{Busy, Frozen, compact, compact_of, freeze, freeze_of};
pub(crate) use frozen::{is_frozen_here, spare};

use crate::primitive::global::{AtomicU32, Ordering};
use crate::rseq::{Index, Slots, is_offset, slot_at};
use crate::sys;
#[cfg(not(loom))]
use crate::sys::rseq::NO_ID;
use crate::sys::rseq::field;

/// The maximum number of cpus for which x86-64 and arm64 kernels can be built.
const IDS: usize = 8192;

/// The length of a table of slots, in whole cache lines: an entry for each id, and one that stays empty for
/// [`NO_ID`]. A section reads that as its id if the offset that it was given is out of date (`sys/rseq.rs`, invariant
/// 2).
#[cfg(not(loom))]
const ROW: usize = IDS + 8;

#[cfg(not(loom))]
const _: () = assert!(NO_ID as usize == IDS);

/// The maximum number of slots of a kind.
const MOST_SLOTS: usize = 2 * IDS;

/// The compact concurrency id: see [`Policy`].
///
/// For data whose memory should follow the cores in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cid {}

/// The cpu number.
///
/// For data about a cpu, and for memory shared by several processes. See [`crate::rseq::cpu_id`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuId {}

/// The compact concurrency id, with a separate slot on each NUMA node.
///
/// For data that is large or heavily used, on a machine with several nodes. A slot belongs to a node, and only
/// threads that run on this node use it. So its memory lies there, whatever the memory policy of the process, and
/// also after [`compact_of`] and [`trim`](crate::percpu::trim). [`home`] returns the node. An operation reads one
/// word more than with [`Cid`].
///
/// The price is memory: an id that runs on two nodes has a slot on each, so there may be as many slots as threads
/// times nodes, and walks over all slots are longer. On a machine with one node it is like [`Cid`], with slots of its
/// own.
///
/// Kernels: 6.3 and later for ids that move between nodes. Before, ids are cpu numbers, which do not move. Without
/// /sys all slots count as those of node 0, and their placement is not guaranteed. The same holds for nodes beyond
/// 16, and for nodes that got their first cpu after the first use. If a thread is migrated to another node between
/// the read of its node and its first write to a page, a few instructions later, that page is on the wrong node.
///
/// ```
/// use corelocal::cid::NodeCid;
/// use corelocal::percpu::Stack;
///
/// static FREE: Stack<u64, 64, NodeCid> = Stack::new();
///
/// FREE.push(1).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeCid {}

/// A kind of id that can index per-core data: [`Cid`], [`CpuId`] or [`NodeCid`].
#[allow(private_bounds, reason = "a caller with such a bound must not reach the methods")]
pub trait SlotIndex: private::Sealed + Send + Sync + 'static {}

/// A kind whose slots can be taken away from their ids: [`Cid`] and [`NodeCid`].
pub trait Revocable: SlotIndex {}

impl SlotIndex for Cid {}
impl SlotIndex for CpuId {}
impl SlotIndex for NodeCid {}
impl Revocable for Cid {}
impl Revocable for NodeCid {}

pub(crate) mod private {
    use super::*;

    /// The requirements on a kind of id. Sealed, since critical sections rely on it.
    pub(crate) trait Sealed {
        /// Its ids can be assigned other slots.
        #[doc(hidden)]
        const COMPACT: bool;
        /// Its slots have regions of their own, by node.
        #[doc(hidden)]
        const BY_NODE: bool = false;

        #[doc(hidden)]
        fn index() -> Index;
        /// Does what [`index`](Sealed::index) does in fewer instructions, for sections that are not repeated in a loop.
        /// `None` until the thread's registration is known.
        #[doc(hidden)]
        #[inline(always)]
        fn settled_index() -> Option<Index> {
            Some(Self::index())
        }
        /// Assigns a slot to an id.
        #[doc(hidden)]
        fn assign(id: u32) -> Option<u32>;
        /// Returns the number of slots.
        #[doc(hidden)]
        fn capacity() -> u32 {
            super::capacity()
        }
        /// Returns the distance to the next slot that the same id may get.
        #[doc(hidden)]
        fn stride() -> u32 {
            1
        }
        #[cfg(not(loom))]
        #[doc(hidden)]
        fn directory() -> &'static dyn super::directory::Revoke;
    }
}

#[cfg(not(loom))]
mod kinds;

/// Critical sections are never available in a model, so no id gets a slot.
#[cfg(loom)]
mod kinds {
    use super::*;

    macro_rules! nothing {
        ($kind:ty) => {
            impl private::Sealed for $kind {
                const COMPACT: bool = true;

                fn index() -> Index {
                    Index { area: 0, id: 0, offsets: core::ptr::null() }
                }

                fn assign(_id: u32) -> Option<u32> {
                    None
                }
            }
        };
    }

    nothing!(Cid);
    nothing!(CpuId);
    nothing!(NodeCid);
}

/// Returns the upper bound of ids, and of slots of all kinds except [`NodeCid`] (see [`capacity_of`]). At least 1.
///
/// It is the highest possible cpu number plus one. Ids of all kinds stay below it, also on machines with sparse cpu
/// numbers. Read from the kernel once.
pub fn capacity() -> u32 {
    static CAPACITY: AtomicU32 = AtomicU32::new(0);
    match CAPACITY.load(Ordering::Relaxed) {
        0 => {
            // Relaxed: the number is all that is published, and concurrent threads store the same one. If they differ
            // (because /sys was mounted meanwhile), the first one stays.
            let found = sys::possible_ids();
            match CAPACITY.compare_exchange(0, found, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => found,
                Err(first) => first,
            }
        }
        known => known,
    }
}

/// Returns the upper bound of slots of kind `I`: [`capacity`], or for slots by node that of all nodes.
///
/// Arrays that are indexed by [`current`] have this length.
///
/// ```
/// use corelocal::cid::{self, Cid, NodeCid};
///
/// assert_eq!(cid::capacity_of::<Cid>(), cid::capacity());
/// assert!(cid::capacity_of::<NodeCid>() >= cid::capacity());
/// ```
pub fn capacity_of<I: SlotIndex>() -> u32 {
    <I as private::Sealed>::capacity()
}

/// Returns the NUMA node that a slot of kind `I` belongs to. `None` if slots of this kind belong to no node, or there
/// is no such slot.
///
/// On a machine with more than 16 nodes: the node's number modulo 16.
///
/// ```
/// use corelocal::cid::{self, Cid, NodeCid};
///
/// assert_eq!(cid::home::<Cid>(0), None);
/// assert_eq!(cid::home::<NodeCid>(0), Some(0));
/// ```
pub fn home<I: SlotIndex>(slot: u32) -> Option<u32> {
    (I::BY_NODE && slot < capacity_of::<I>()).then(|| slot % <I as private::Sealed>::stride())
}

/// Returns the number of shared slots of every region: enough to keep contention among threads without an id low.
pub(crate) fn shared_capacity() -> u32 {
    capacity().min(sys::thread::LEASES)
}

/// The way in which the calling thread gets its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Policy {
    /// A slot for each of the kernel's concurrency ids (Linux 6.3).
    MmCid,
    /// A slot for each cpu that this process has run on, numbered from 0 (before Linux 6.3).
    CompactCpu,
    /// A shared slot for several threads, with atomic operations (no rseq for this thread).
    Lease,
}

/// Returns the calling thread's policy.
///
/// Registers the thread with rseq if it is not registered yet. Constant time.
///
/// ```
/// println!("slots by {:?}", corelocal::cid::policy());
/// ```
pub fn policy() -> Policy {
    let registered = sys::rseq::register_this_thread();
    let (area, cid) = sys::rseq::area_and_cid();
    match registered {
        Err(_) => Policy::Lease,
        Ok(()) if cid == area + field::MM_CID => Policy::MmCid,
        Ok(()) => Policy::CompactCpu,
    }
}

/// Returns the calling thread's slot for kind `I`, a number below [`capacity_of`]. If its id has no slot yet, one is
/// assigned. A thread that leases gets the number of its shared slot.
///
/// It is a hint (see the module documentation): useful to distribute work, not to own data. A few nanoseconds;
/// microseconds the first time. Async-signal-safe.
///
/// ```
/// use corelocal::cid::{self, Cid};
///
/// assert!(cid::current::<Cid>() < cid::capacity());
/// ```
pub fn current<I: SlotIndex>() -> u32 {
    match offset_of_this_thread::<I>() {
        Some(offset) => slot_at(offset),
        None => current_cold::<I>(),
    }
}

#[cold]
fn current_cold<I: SlotIndex>() -> u32 {
    id_of_this_thread::<I>()
        .and_then(<I as private::Sealed>::assign)
        .unwrap_or_else(|| sys::thread::lease(shared_capacity()))
}

/// Returns one more than the largest slot that was ever assigned to an id of kind `I`; 0 before any use. Walks over
/// all slots of a container walk at most this many. At most [`capacity_of`].
///
/// ```
/// use corelocal::cid::{self, Cid};
/// use corelocal::percpu::Counter;
///
/// static HITS: Counter = Counter::new();
/// HITS.add(1);
/// assert!(cid::high_water::<Cid>() <= cid::capacity());
/// ```
pub fn high_water<I: SlotIndex>() -> u32 {
    #[cfg(not(loom))]
    let high_water = <I as private::Sealed>::directory().high_water();
    #[cfg(loom)]
    let high_water = 0;
    high_water
}

/// Returns the number of slots that are assigned to ids of kind `I` now. Linear in the high-water mark.
///
/// ```
/// use corelocal::cid::{self, Cid};
///
/// let slot = cid::current::<Cid>();
/// println!("{slot:?} of {} in use, {:?}", cid::in_use::<Cid>(), cid::policy());
/// assert!(cid::in_use::<Cid>() <= cid::high_water::<Cid>());
/// ```
pub fn in_use<I: SlotIndex>() -> u32 {
    #[cfg(not(loom))]
    let in_use = <I as private::Sealed>::directory().in_use();
    #[cfg(loom)]
    let in_use = 0;
    in_use
}

/// Returns the first of the slots that were never used, by objects whose slots go by node or by other objects.
pub(crate) fn highest_water(by_node: bool) -> u32 {
    #[cfg(not(loom))]
    let highest_water = match by_node {
        true => node::GIVEN.end(),
        false => kinds::GIVEN.end().max(kinds::GIVEN_TO_CPUS.end()),
    };
    #[cfg(loom)]
    let highest_water = if by_node { high_water::<NodeCid>() } else { high_water::<Cid>() };
    highest_water
}

/// Sets a function that is called before an id of kind [`Cid`] gets a slot. If it returns false the id does not get
/// the slot, and uses a shared one, as if no slot were left. Returns the slots that ids may have got before; the
/// caller opens those.
#[cfg(not(any(loom, miri)))]
pub(crate) fn open_slots_with(open: fn(u32) -> bool) -> core::ops::Range<u32> {
    kinds::GIVEN.set_opener(open);
    0..kinds::GIVEN.end()
}

fn id_of_this_thread<I: SlotIndex>() -> Option<u32> {
    sys::rseq::register_this_thread().ok()?;
    // SAFETY: an index names a field of the area in use.
    let id = unsafe { sys::rseq::read(I::index().id) };
    (id < capacity()).then_some(id)
}

/// Returns the offset of the slot that the calling thread's id has, if it has one. A hint, like [`current`].
#[inline]
pub(crate) fn offset_of_this_thread<I: SlotIndex>() -> Option<u64> {
    let index = I::index();
    // SAFETY: a field of the area in use.
    if (unsafe { sys::rseq::read(index.area + field::CPU_ID) } as i32) < 0 {
        return None;
    }
    // SAFETY: an index names a field of the area in use.
    let id = unsafe { sys::rseq::read(index.id) };
    // SAFETY: a registered thread's id; the directory has a word for each. Relaxed: the slot's memory is always
    // mapped, and its content is up to the caller.
    let entry = unsafe { &*index.offsets.add(id as usize) }.load(Ordering::Relaxed);
    is_offset(entry).then_some(entry)
}

/// Takes the cold path of an unavailable section: registers the thread and assigns its id a slot.
///
/// True if another attempt may succeed. The id may change right afterwards; then the next attempt prepares the new
/// one.
#[cold]
pub(crate) fn prepare<I: SlotIndex>() -> bool {
    id_of_this_thread::<I>().and_then(<I as private::Sealed>::assign).is_some()
}

/// Returns the shared slot of a thread that will never run critical sections, and that has used shared slots before.
/// Found without checking for sections again.
#[inline(always)]
pub(crate) fn shared_slot_for_good(object: &Slots) -> Option<u32> {
    if !sys::rseq::is_off_here() {
        return None;
    }
    let slot = sys::thread::known_lease(shared_capacity())?;
    crate::rseq::count_fallback_of_many();
    object.open_shared(slot);
    Some(slot)
}

/// Returns the shared slot for an operation that uses atomics because critical sections are unavailable.
pub(crate) fn shared_slot(object: &Slots) -> u32 {
    let slot = sys::thread::lease(shared_capacity());
    object.open_shared(slot);
    slot
}

#[cfg(all(test, not(loom)))]
mod early_tests;
