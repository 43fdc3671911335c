//! Which slot am I: the two kinds of id that index per-core data, and the ids in use.
//!
//! A kind is a type, chosen where a container is declared: [`Cid`], the compact concurrency id, is
//! the default everywhere; [`CpuId`] is the cpu number, for data that belongs to a cpu rather than
//! to whoever runs concurrently.
//!
//! # Opened ids
//! Memory has room for every possible id, yet only ids in use may cost any or be walked by
//! readers. An id is *opened*, for an object and for the process, when a thread first meets it
//! there; see [`crate::rseq`].
//!
//! Invariant: every region of memory has a slot for each id below [`capacity`], which never
//! changes.

use crate::primitive::global::{AtomicU32, Ordering};
use crate::rseq::{Index, Slots};
use crate::sys;
use crate::sys::rseq::field;

/// The compact concurrency id: the kernel's mm_cid, or the cpu number where there is none.
///
/// Fits everything whose memory should follow the cores used. See [`crate::rseq::cid`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cid {}

/// The cpu number.
///
/// Fits data about a cpu, and memory shared by several processes. See [`crate::rseq::cpu_id`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuId {}

/// A kind of id that can index per-core data: [`Cid`] or [`CpuId`].
pub trait SlotIndex: private::Sealed + Send + Sync + 'static {}

impl SlotIndex for Cid {}
impl SlotIndex for CpuId {}

pub(crate) mod private {
    use super::*;

    /// What the library asks of a kind of id; sealed, since sections rely on it.
    pub trait Sealed {
        #[doc(hidden)]
        fn index() -> Index;
        #[doc(hidden)]
        fn high_water() -> &'static AtomicU32;
    }

    impl Sealed for Cid {
        #[inline(always)]
        fn index() -> Index {
            Index { area: sys::rseq::area(), id: sys::rseq::cid() }
        }

        fn high_water() -> &'static AtomicU32 {
            static HIGH_WATER: AtomicU32 = AtomicU32::new(0);
            &HIGH_WATER
        }
    }

    impl Sealed for CpuId {
        #[inline(always)]
        fn index() -> Index {
            let area = sys::rseq::area();
            Index { area, id: area + field::CPU_ID }
        }

        fn high_water() -> &'static AtomicU32 {
            static HIGH_WATER: AtomicU32 = AtomicU32::new(0);
            &HIGH_WATER
        }
    }
}

/// Slots of every region: one for each possible id, at least 1.
///
/// The highest possible cpu number plus one. Both kinds of id stay below it, on machines with
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

/// One more than the largest id of kind `I` that per-core data was used with; 0 before any use.
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
    // Relaxed: a statistic.
    I::high_water().load(Ordering::Relaxed)
}

/// Cold side of an unavailable section: registers the thread and opens its id for `object`, whose
/// base must be set.
///
/// True when another attempt may succeed.
#[cold]
pub(crate) fn prepare<I: SlotIndex>(object: &Slots) -> bool {
    if sys::rseq::register_this_thread().is_err() {
        return false;
    }
    // SAFETY: an index names a field of the area in use. The id may change right after; the next
    // attempt then opens the next one.
    let id = unsafe { sys::rseq::read(I::index().id) };
    if id >= capacity() {
        return false;
    }
    object.open(id);
    // Relaxed: a statistic.
    I::high_water().fetch_max(id + 1, Ordering::Relaxed);
    true
}

/// The slot for an operation that uses atomics because sections are unavailable: by cpu number, so
/// that such threads do not all meet in one line either.
pub(crate) fn fallback_slot(object: &Slots) -> u32 {
    let slot = sys::current_cpu().map_or(0, |cpu| cpu % capacity());
    object.open(slot);
    slot
}
