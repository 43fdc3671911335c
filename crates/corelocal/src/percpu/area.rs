//! Areas: allocators of cells of a few words for each core, with memory of their own.
//!
//! A container takes its memory from regions that all containers share and that are never unmapped. An area is for
//! cells that come and go by the thousand, such as a set for each tenant or connection: its cells lie together, and
//! its memory is unmapped with it.
//!
//! # Data flow
//! ```text
//!   take ──► a free block of the area's regions (machinery/region.rs), or of a new one ──► Cell
//!   Cell ──► an operation on one of its words (cell_operations.rs): a critical section on this core's (machinery/word_operations.rs)
//!   drop ──► its words become 0, where any core has changed them ──► free
//! ```
//!
//! # Memory
//! ```text
//!   region: header │ … │ slot 1         │ slot 0         ┃ shared 0       │ shared 1 …
//!                      │ a b c d ······ │ a b c d ······ ┃ a b c d ······ │ a b c d ······
//!                        └─ cells ─────── 1 MiB each ────╂─ by atomics ───
//!                                                        ┃
//!                                                       base of cell a; + 8, of cell b; …
//! ```
//!
//! # The initial image
//! It is not in memory. A word is stored as its difference from its initial value (`machinery/word_operations.rs`,
//! invariant 3), so untouched pages hold any image. No page is filled, and a core that comes for the first time needs
//! no initialisation that could race.
//!
//! # Invariants
//! 1. A cell's block belongs to it until it is dropped, and a cell borrows its area. So when an area is dropped none
//!    of its cells exists, and its regions can be unmapped. An operation holds `&Cell`, also in a preempted thread.
//!    The kernel's pointer to a section (`rseq_cs`) points to code, never to a slot. Leases and frozen slots are
//!    numbers.
//! 2. The words of a free block are 0, or what `poison.rs` left there; the latter only where `may_hold_pattern`.
//! 3. `cells` counts cells in use and those about to be; it never exceeds `limit`.

mod cell;
mod cell_operations;
mod poison;

pub use cell::Cell;
pub use cell_operations::CellWord;

use core::fmt;
use core::marker::PhantomData;

use super::machinery::block::Block;
use super::machinery::region::{self, List};
use super::machinery::slot::Kind;
use super::trim;
use crate::cid::{self, Busy, Cid, SlotIndex};
use crate::primitive::atomic::{AtomicU64, Ordering};

/// The data of a cell on each core.
type Words<const WORDS: usize> = [AtomicU64; WORDS];

/// An allocator of [`Cell`]s: `WORDS` words of 64 bits for each core.
///
/// ```
/// use corelocal::percpu::Area;
///
/// /// Requests and bytes of each tenant.
/// static TENANTS: Area<2> = Area::new();
///
/// let tenant = TENANTS.take()?;
/// tenant.at::<0>().add(1); // one restartable sequence on this core's words
/// tenant.at::<1>().add(512);
/// let [requests, bytes] = tenant.fold([0, 0], |sum, words| [sum[0] + words[0], sum[1] + words[1]]);
/// assert_eq!((requests, bytes), (1, 512));
/// drop(tenant); // another one gets its cell
/// # Ok::<(), corelocal::percpu::area::Error>(())
/// ```
///
/// It is a typed form of librseq's memory pool:
///
/// | librseq | here |
/// |---|---|
/// | `item_len` | `WORDS` |
/// | `percpu_zmalloc`, `percpu_malloc_init` | [`new`](Area::new), [`with_image`](Area::with_image) |
/// | `max_nr_cpus`, `stride` | every possible id; 1 MiB |
/// | `max_nr_ranges` | [`limit`](Area::limit) |
/// | robust, poison | double and foreign frees do not compile; [`poison`](Area::poison) |
/// | NUMA node of a cpu's range | `I`, and the kernel's first touch |
/// | `rseq_mempool_destroy` | drop, when no cell is left |
///
/// # A cell must not outlive its area
/// It borrows the area, so this does not compile:
///
/// ```compile_fail,E0597
/// use corelocal::percpu::Area;
///
/// let cell = {
///     let area: Area<1> = Area::new();
///     area.take().unwrap()
/// };
/// cell.at::<0>().add(1);
/// ```
///
/// ```compile_fail,E0505
/// use corelocal::percpu::Area;
///
/// let area: Area<1> = Area::new();
/// let cell = area.take().unwrap();
/// drop(area);
/// cell.at::<0>().add(1);
/// ```
///
/// A cell of an area in a static can go anywhere. A cell that is forgotten (`mem::forget`) is lost until the area is
/// dropped.
///
/// # Where it may be used
/// In statics, from any thread. [`take`](Area::take) and the drop of a cell are lock-free and async-signal-safe. A
/// child of `fork` has its own copy of everything. A cell that another thread was taking or dropping at that moment
/// is lost to the child.
///
/// # Memory
/// Cells lie next to each other, with 8 `WORDS` bytes rounded up to a power of two on each core that used them. Pages
/// are resident where a core has changed a word. A region holds as many cells as fit in 1 MiB, and takes 1 MiB of
/// address space for each possible id and up to 64 more. The next one is made when it is full. A cell is at most 1
/// MiB on each core, so `WORDS` is at most 131072 (more does not compile).
pub struct Area<const WORDS: usize, I: SlotIndex = Cid> {
    regions: List,
    image: [u64; WORDS],
    limit: u64,
    is_poisoned: bool,
    /// Free cells may hold the poison pattern: poisoning was switched on at some time.
    may_hold_pattern: bool,
    cells: AtomicU64,
    peak: AtomicU64,
    corrupted: AtomicU64,
    index: PhantomData<I>,
}

/// The reason why no cell could be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The area's limit is reached.
    Full {
        /// The limit.
        limit: u64,
    },
    /// The kernel provides no address space for another region.
    NoMemory {
        /// The number of bytes that were requested.
        bytes: usize,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Full { limit } => {
                write!(f, "all {limit} cells of the area are taken: drop some, or raise its limit")
            }
            Error::NoMemory { bytes } => write!(
                f,
                "the kernel gives no {bytes} bytes of address space for more cells: drop some, or raise \
                 RLIMIT_AS (ulimit -v) or vm.max_map_count"
            ),
        }
    }
}

impl core::error::Error for Error {}

/// The use of an area, and its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Memory {
    /// Cells in use now, including forgotten ones.
    pub cells: u64,
    /// The maximum in use at one time.
    pub peak: u64,
    /// Cells that were found changed after they were dropped, and are no longer used: see [`Area::poison`].
    pub corrupted: u64,
    /// Bytes of a cell on each core.
    pub per_cell: usize,
    /// The number of mappings.
    pub regions: usize,
    /// Bytes of address space. Pages are resident only where a core has written.
    pub reserved: usize,
    /// Resident bytes.
    pub resident: usize,
}

impl<const WORDS: usize, I: SlotIndex> Area<WORDS, I> {
    /// Creates an area whose cells start as zeros. It takes no memory until the first cell is taken.
    pub const fn new() -> Self {
        Self::with_image([0; WORDS])
    }

    /// Creates an area whose cells start with these words on every core.
    ///
    /// The image costs no memory and no time: see the module documentation.
    ///
    /// ```
    /// use corelocal::percpu::Area;
    ///
    /// /// The smallest value seen so far, and how many.
    /// static SMALLEST: Area<2> = Area::with_image([u64::MAX, 0]);
    ///
    /// let cell = SMALLEST.take()?;
    /// let _ = cell.at::<0>().fetch_update(|least| (7 < least).then_some(7));
    /// assert_eq!(cell.fold(u64::MAX, |least, [word, _]| least.min(word)), 7);
    /// # Ok::<(), corelocal::percpu::area::Error>(())
    /// ```
    pub const fn with_image(image: [u64; WORDS]) -> Self {
        Area {
            regions: List::new(),
            image,
            limit: u64::MAX,
            is_poisoned: false,
            may_hold_pattern: false,
            cells: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            corrupted: AtomicU64::new(0),
            index: PhantomData,
        }
    }

    /// Limits the number of cells in use at one time.
    pub const fn limit(mut self, cells: u64) -> Self {
        self.limit = cells;
        self
    }

    /// Says whether to detect writes to cells after they are dropped, such as unsafe code elsewhere may make.
    ///
    /// A dropped cell is filled with a pattern, as far as it was used, and checked when it is taken again. A cell
    /// that has changed is no longer used: [`memory`](Area::memory) counts it, and the next free one is taken. This
    /// makes [`take`](Area::take) linear in the slots in use, and [`trim`](Area::trim) gives no memory back. Both
    /// remain so after poisoning is switched off: cells dropped before hold the pattern, and are still checked when
    /// they are taken.
    ///
    /// ```
    /// use corelocal::percpu::Area;
    ///
    /// static CELLS: Area<4> = Area::new().poison(cfg!(debug_assertions));
    /// # assert_eq!(CELLS.memory().corrupted, 0);
    /// ```
    pub const fn poison(mut self, is_poisoned: bool) -> Self {
        self.is_poisoned = is_poisoned;
        // Stays set: cells dropped before hold the pattern until they are taken.
        self.may_hold_pattern |= is_poisoned;
        self
    }

    /// Takes a cell, whose words are those of the image on every core.
    ///
    /// Lock-free, async-signal-safe. Constant time while the region has free cells near the one taken or dropped
    /// last; at worst linear in the cells. One or two system calls for a new region.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::NoMemory`]. The area is unchanged.
    pub fn take(&self) -> Result<Cell<'_, WORDS, I>, Error> {
        let full = Error::Full { limit: self.limit };
        // Relaxed: it only counts.
        let one_more = |cells: u64| (cells < self.limit).then(|| cells + 1);
        let before = self.cells.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        let before = before.map_err(|_| full)?;
        loop {
            let Some(block) = Block::<Words<WORDS>>::allocate_in::<I>(&self.regions) else {
                self.cells.fetch_sub(1, Ordering::Relaxed);
                return Err(Error::NoMemory { bytes: Block::<Words<WORDS>>::region_len::<I>() });
            };
            let used = cid::highest_water(I::BY_NODE);
            // SAFETY: just allocated; free blocks are in the state in which this area's `wipe` leaves them.
            let clear = || unsafe { poison::clear(block.base(), Self::CELL_LEN, used) };
            if !self.may_hold_pattern || clear() {
                self.peak.fetch_max(before + 1, Ordering::Relaxed);
                // SAFETY: a block of this area's regions, allocated for this cell.
                return Ok(unsafe { Cell::new(self, block) });
            }
            self.corrupted.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The length of a cell in each slot, in bytes.
    const CELL_LEN: usize = Block::<Words<WORDS>>::len();

    /// Takes a cell's block back, of which the shared slots below `shared` were used.
    ///
    /// # Safety
    /// - The block was allocated for a cell that is no longer used.
    unsafe fn give_back(&self, block: Block<Words<WORDS>>, shared: u32) {
        let wipe = if self.is_poisoned { poison::fill } else { clear };
        // SAFETY: allocated here; the caller guarantees that the cell is no longer used.
        unsafe { block.free_in::<I>(&self.regions, shared, wipe) };
        self.cells.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the use of the area and its memory. Asks the kernel about each page of the address space
    /// (`mincore(2)`, milliseconds on a large machine). Does not allocate.
    ///
    /// For all other containers there is [`percpu::memory`](crate::percpu::memory()).
    pub fn memory(&self) -> Memory {
        let memory = trim::of_regions(self.regions.regions());
        Memory {
            cells: self.cells.load(Ordering::Relaxed),
            peak: self.peak.load(Ordering::Relaxed),
            corrupted: self.corrupted.load(Ordering::Relaxed),
            per_cell: Self::CELL_LEN,
            regions: memory.regions,
            reserved: memory.reserved,
            resident: memory.resident,
        }
    }

    /// Gives back the pages of cores that this process no longer uses, where all words are those of the image.
    /// Returns the number of bytes. Other pages stay: only the owner of a cell knows what its words mean, and
    /// [`drain`](Cell::drain) empties them.
    ///
    /// Like [`percpu::trim`](crate::percpu::trim()), which leaves areas alone, it takes away all slots beyond the
    /// number of cpus that the calling thread may use. No operation waits meanwhile. It does nothing for an area by
    /// cpu number, or one that was ever [poisoned](Area::poison). Linear in the slots and the pages in use. Not for
    /// signal handlers.
    ///
    /// # Errors
    /// [`Busy`]: `membarrier(2)` is refused.
    pub fn trim(&self) -> Result<usize, Busy> {
        self.trim_from(cid::spare::<I>())
    }

    /// Trims the slots from `first` on.
    fn trim_from(&self, first: u32) -> Result<usize, Busy> {
        // A poisoned cell is not a page of zeros, and might become one while the page is given back.
        if self.may_hold_pattern || !I::COMPACT {
            return Ok(0);
        }
        let frozen = cid::freeze_from::<I>(first)?;
        let slots = |region| frozen.slots().map(move |slot| (region, slot));
        let bytes = self.regions.regions().flat_map(slots).map(|(region, slot)| {
            // SAFETY: this thread has the slot frozen.
            unsafe { trim::give_back_clear(region, slot) }
        });
        Ok(bytes.sum())
    }
}

/// Sets a cell's words in a slot to 0, without making pages resident.
///
/// # Safety
/// - The bytes are those of a cell in one slot, and no other thread uses them.
unsafe fn clear(at: *mut u8, len: usize, _: Kind) {
    // Its words may be read, like those of sums. SAFETY: the caller guarantees the bytes of a cell in one slot, which
    // no other thread uses.
    unsafe { region::zero(at, len, Kind::Sums) };
}

impl<const WORDS: usize, I: SlotIndex> Drop for Area<WORDS, I> {
    fn drop(&mut self) {
        // SAFETY: cells borrow the area, so none exists any more (invariant 1).
        unsafe { self.regions.unmap() };
    }
}

impl<const WORDS: usize, I: SlotIndex> Default for Area<WORDS, I> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const WORDS: usize, I: SlotIndex> fmt::Debug for Area<WORDS, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells = self.cells.load(Ordering::Relaxed);
        f.debug_struct("Area").field("cells", &cells).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
