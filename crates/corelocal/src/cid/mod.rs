//! Which slot am I: the kinds of id that index per-core data, the slots that go with them, and the
//! slots in use.
//!
//! A kind is a type, chosen where a container is declared: [`Cid`], the compact concurrency id, is
//! the default everywhere; [`NodeCid`] is the same, with slots whose memory stays on one NUMA node;
//! [`CpuId`] is the cpu number, for data that belongs to a cpu rather than to whoever runs concurrently.
//!
//! # The ladder
//! A slot is a small number of this process's own, given to an id at its first use and the lowest
//! that is free:
//!
//! | [`Policy`] | where | the id |
//! |---|---|---|
//! | [`MmCid`](Policy::MmCid) | Linux 6.3 and later | the kernel's concurrency id |
//! | [`CompactCpu`](Policy::CompactCpu) | Linux 4.18 to 6.2 | the cpu number; the slot makes it compact |
//! | [`Lease`](Policy::Lease) | no rseq | none: threads lease shared slots, and use atomics there |
//!
//! So a process confined to cpus 62 and 63 uses slots 0 and 1 on every kernel. Which rung it is
//! costs nothing where it matters: a section loads an id from one place or the other, and the slot
//! from the same table.
//!
//! A slot outside of a critical section is a hint, as an id is: the next one to use it may be
//! another thread, and this thread may be somewhere else.
//!
//! # Slots taken back
//! [`freeze`] takes a slot away from whoever uses it, without making anybody wait: they get another
//! one. Drains and trims rest on it. [`compact`] takes all of them back, so that ids in use get the
//! lowest ones again; while it is at it they get none, and use shared slots.
//!
//! Invariant: every region of memory has a slot for each number below [`capacity_of`] the kind of its
//! slots, which never changes.

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

/// As many cpus as an x86-64 or arm64 kernel can be built for.
const IDS: usize = 8192;

/// Entries of a table of slots, whole cache lines: one for each id, and one that stays empty for [`NO_ID`], which a
/// section reads as its id while the offset that it has been handed is out of date (`sys/rseq.rs`, invariant 2).
#[cfg(not(loom))]
const ROW: usize = IDS + 8;

#[cfg(not(loom))]
const _: () = assert!(NO_ID as usize == IDS);

/// No kind has more slots.
const MOST_SLOTS: usize = 2 * IDS;

/// The compact concurrency id: see [`Policy`].
///
/// Fits everything whose memory should follow the cores used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cid {}

/// The cpu number.
///
/// Fits data about a cpu, and memory shared by several processes. See [`crate::rseq::cpu_id`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuId {}

/// The compact concurrency id, on each NUMA node another one.
///
/// Fits data that is large or used a lot, on a machine with several nodes: a slot belongs to a node, and
/// only threads that run there use it, so its memory lies there, whoever came before, whatever the memory
/// policy of the process is, and after [`compact_of`] and [`trim`](crate::percpu::trim) as well. [`home`]
/// tells which node. An operation reads one word more than with [`Cid`].
///
/// What it costs is memory: an id that runs on two nodes has a slot on each, so there may be as many slots
/// as threads times nodes; and what walks all slots walks them all. On a machine of one node it is
/// [`Cid`], with slots of its own.
///
/// Kernels: 6.3 and later for ids that move between nodes; before, ids are cpu numbers, which do not.
/// Without /sys all slots are taken for those of node 0, and nothing is promised of their place; so are
/// nodes beyond 16, and nodes that got their first cpu after the first use. A thread that is moved to
/// another node between the read of its node and its first write to a page, a few instructions later,
/// leaves that page on the wrong one.
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

/// A kind whose slots can be taken back from their ids: [`Cid`] and [`NodeCid`].
pub trait Revocable: SlotIndex {}

impl SlotIndex for Cid {}
impl SlotIndex for CpuId {}
impl SlotIndex for NodeCid {}
impl Revocable for Cid {}
impl Revocable for NodeCid {}

pub(crate) mod private {
    use super::*;

    /// What the library asks of a kind of id; sealed, since sections rely on it.
    pub(crate) trait Sealed {
        /// Its ids can be given other slots.
        #[doc(hidden)]
        const COMPACT: bool;
        /// Its slots have regions of their own, and nodes.
        #[doc(hidden)]
        const BY_NODE: bool = false;

        #[doc(hidden)]
        fn index() -> Index;
        /// [`index`](Sealed::index) in fewer instructions, for sections that nobody repeats in a loop; `None` until
        /// the thread's world is known.
        #[doc(hidden)]
        #[inline(always)]
        fn settled_index() -> Option<Index> {
            Some(Self::index())
        }
        /// Gives an id its slot.
        #[doc(hidden)]
        fn assign(id: u32) -> Option<u32>;
        /// How many slots there are.
        #[doc(hidden)]
        fn capacity() -> u32 {
            super::capacity()
        }
        /// How far the next slot is that the same id may get.
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
mod kinds {
    use super::directory::{Directory, Revoke};
    use super::high_water::Noted;
    use super::*;

    static CIDS: Directory<ROW, IDS> = Directory::new();
    static CPUS: Directory<ROW, IDS> = Directory::new();
    pub(super) static GIVEN: Noted = Noted::new();
    pub(super) static GIVEN_TO_CPUS: Noted = Noted::new();

    impl private::Sealed for Cid {
        const COMPACT: bool = true;

        #[inline(always)]
        fn index() -> Index {
            let (area, id) = sys::rseq::area_and_cid();
            Index { area, id, offsets: CIDS.offsets() }
        }

        #[inline(always)]
        fn settled_index() -> Option<Index> {
            let (area, id) = sys::rseq::settled()?;
            Some(Index { area, id, offsets: CIDS.offsets() })
        }

        fn assign(id: u32) -> Option<u32> {
            // What `make_room` asks the kernel is for those without a slot alone.
            CIDS.slot_of(id).or_else(|| {
                frozen::make_room::<Cid>();
                CIDS.assign_if(id, 0..capacity(), GIVEN.opener())
            })
        }

        fn directory() -> &'static dyn Revoke {
            &CIDS
        }
    }

    impl private::Sealed for CpuId {
        const COMPACT: bool = false;

        #[inline(always)]
        fn index() -> Index {
            let area = sys::rseq::area();
            Index { area, id: area + field::CPU_ID, offsets: CPUS.offsets() }
        }

        fn assign(id: u32) -> Option<u32> {
            CPUS.assign_if(id, [id], GIVEN_TO_CPUS.opener())
        }

        fn directory() -> &'static dyn Revoke {
            &CPUS
        }
    }
}

/// Sections are never available in a model, so no id gets a slot.
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

/// How many ids there can be, and slots of all kinds but [`NodeCid`] (see [`capacity_of`]); at least 1.
///
/// The highest possible cpu number plus one. Ids of all kinds stay below it, on machines with
/// sparse cpu numbers too. Read from the kernel once.
pub fn capacity() -> u32 {
    static CAPACITY: AtomicU32 = AtomicU32::new(0);
    match CAPACITY.load(Ordering::Relaxed) {
        0 => {
            // Relaxed, and racers store the same: a number that stands for nothing else. Should
            // they differ all the same (a /sys mounted meanwhile), the first one stays.
            let found = sys::possible_ids();
            match CAPACITY.compare_exchange(0, found, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => found,
                Err(first) => first,
            }
        }
        known => known,
    }
}

/// Slots of kind `I`: [`capacity`], for each node where slots go by node.
///
/// What is indexed by [`current`] is as long as this.
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

/// The NUMA node that a slot of kind `I` belongs to; `None` where slots belong to no node, or there is no
/// such slot.
///
/// Of a machine with more than 16 nodes: the node's number modulo 16.
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

/// Shared slots of every region: enough for threads without an id to keep out of each other's way.
pub(crate) fn shared_capacity() -> u32 {
    capacity().min(sys::thread::LEASES)
}

/// How the calling thread's slot comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Policy {
    /// A slot for each of the kernel's concurrency ids (Linux 6.3).
    MmCid,
    /// A slot for each cpu that this process has met, numbered from 0 (before Linux 6.3).
    CompactCpu,
    /// A shared slot for a few threads; operations are atomic (no rseq for this thread).
    Lease,
}

/// The calling thread's policy.
///
/// Registers the thread if nobody has. Constant time.
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

/// The calling thread's slot for kind `I`, given now if its id has none: a number below
/// [`capacity_of`]. A thread that leases gets the number of its shared slot.
///
/// A hint (see the module's text): useful to spread work, not to own anything. A few nanoseconds;
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

/// One more than the largest slot that was ever given to an id of kind `I`; 0 before any use. What
/// walks all slots of a container walks at most so many. At most [`capacity_of`].
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

/// How many slots ids of kind `I` have now. Linear in the high water.
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

/// Slots from this one on were never used, by any object whose slots go by node or by any other.
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

/// Has `open` called before an id of kind [`Cid`] gets a slot, which it does not get where that is false: it then uses
/// a shared one, as one does for which no slot is left. The result are slots that ids may have got before; the caller
/// opens them.
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

/// The offset of the slot that the calling thread's id has, if it has one. A hint, as [`current`] is.
#[inline]
pub(crate) fn offset_of_this_thread<I: SlotIndex>() -> Option<u64> {
    let index = I::index();
    // SAFETY: a field of the area in use.
    if (unsafe { sys::rseq::read(index.area + field::CPU_ID) } as i32) < 0 {
        return None;
    }
    // SAFETY: an index names a field of the area in use.
    let id = unsafe { sys::rseq::read(index.id) };
    // SAFETY: a registered thread's id; the directory has a word for each.
    // Relaxed: the slot's memory is there whatever else happens; what it holds is up to the caller.
    let entry = unsafe { &*index.offsets.add(id as usize) }.load(Ordering::Relaxed);
    is_offset(entry).then_some(entry)
}

/// Cold side of an unavailable section: registers the thread and gives its id a slot.
///
/// True when another attempt may succeed. The id may change right after; the next attempt then
/// prepares the next one.
#[cold]
pub(crate) fn prepare<I: SlotIndex>() -> bool {
    id_of_this_thread::<I>().and_then(<I as private::Sealed>::assign).is_some()
}

/// The shared slot of a thread that will never have sections, and that has used shared slots before: found without
/// another look for sections.
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

/// The shared slot for an operation that uses atomics because sections are unavailable.
pub(crate) fn shared_slot(object: &Slots) -> u32 {
    let slot = sys::thread::lease(shared_capacity());
    object.open_shared(slot);
    slot
}

#[cfg(all(test, not(loom)))]
#[path = "early_tests.rs"]
mod early_tests;
