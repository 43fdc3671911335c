//! A cell: some words for each core, allocated from an area.
//!
//! # Data flow
//! A cell finds its block like every container (`machinery/lazy_block.rs`), but the block belongs to the area.
//! Operations on a single word are those of [`CellWord`]; this file has the operations on all words at once.
//!
//! # Invariants
//! 1. `words` has its block from the beginning and does not free it: `drop` gives it back to the area.
//! 2. No reference to a slot leaves this module or `cell_operations.rs`, because the area's memory may be unmapped.

use core::fmt;
use core::mem::ManuallyDrop;

use super::{Area, CellWord, Words};
use crate::cid::{Busy, Cid, Revocable, SlotIndex};
use crate::percpu::machinery::block::Block;
use crate::percpu::machinery::lazy_block::Owned;
use crate::percpu::remote::{self, Walk};
use crate::percpu::shard::Shard;
use crate::primitive::atomic::{AtomicU64, Ordering};

/// `WORDS` words for each core, allocated from an [`Area`], and freed when the cell is dropped.
///
/// Each of its words is like a [`Word`](crate::percpu::Word), with the operations of [`CellWord`]. Words of one cell
/// lie next to each other, so operations on several of them touch one cache line of this core.
///
/// ```
/// use corelocal::percpu::Area;
///
/// let area: Area<3> = Area::with_image([10, 20, 30]);
/// let cell = area.take()?;
/// assert_eq!(cell.at::<1>().add_fetch(5), 25);
/// for index in 0..3 {
///     println!("word {index}: {:?}", cell.word(index));
/// }
/// # Ok::<(), corelocal::percpu::area::Error>(())
/// ```
///
/// # Where it may be used
/// Like [`Word`](crate::percpu::Word): in any thread, in signal handlers, during thread exit, in the child after
/// `fork`. The memory ordering and the exception for `vfork` are the same.
#[repr(C)]
pub struct Cell<'area, const WORDS: usize, I: SlotIndex = Cid> {
    words: ManuallyDrop<Owned<Words<WORDS>, I>>,
    area: &'area Area<WORDS, I>,
}

impl<'area, const WORDS: usize, I: SlotIndex> Cell<'area, WORDS, I> {
    /// # Safety
    /// - The block was allocated from this area's regions for this cell.
    pub(super) unsafe fn new(area: &'area Area<WORDS, I>, block: Block<Words<WORDS>>) -> Self {
        // SAFETY: the block is freed when this cell is dropped, and no reference to a slot leaves it (invariant 2).
        Cell { words: unsafe { Owned::lent(block) }, area }
    }

    pub(super) fn words(&self) -> &Owned<Words<WORDS>, I> {
        &self.words
    }

    pub(super) fn image(&self) -> &[u64; WORDS] {
        &self.area.image
    }

    /// Returns the first of the shared slots, which threads without critical sections use.
    pub(super) fn first_shared(&self) -> &Words<WORDS> {
        // SAFETY: the cell has its block from the beginning (invariant 1).
        let (block, _) = unsafe { self.words.used().unwrap_unchecked() };
        block.shared(0)
    }

    /// Returns the address of the words under the calling thread's slot. `None` if there is no memory. A hint.
    pub(crate) fn here(&self) -> Option<*const AtomicU64> {
        self.words.near().map(|words| words.as_ptr())
    }

    /// Returns the word at `INDEX`.
    ///
    /// An index out of range does not compile:
    ///
    /// ```compile_fail,E0080
    /// use corelocal::percpu::Area;
    ///
    /// let area: Area<2> = Area::new();
    /// area.take().unwrap().at::<2>().add(1);
    /// ```
    #[inline(always)]
    pub fn at<const INDEX: usize>(&self) -> CellWord<'_, WORDS, I> {
        const { assert!(INDEX < WORDS, "a cell has WORDS words, numbered from 0") };
        CellWord::new(self, INDEX)
    }

    /// Returns the word at `index`. `None` if it is out of range.
    #[inline(always)]
    pub fn word(&self, index: usize) -> Option<CellWord<'_, WORDS, I>> {
        (index < WORDS).then(|| CellWord::new(self, index))
    }

    /// Returns the words of all shards that may have been used, with their shards.
    ///
    /// Words that were never changed are those of the image. A word that changes meanwhile is seen before or after
    /// the change, each on its own. Linear in `WORDS` times the slots in use. The arrays are on the stack: use
    /// [`CellWord::iter`] for a large `WORDS`.
    pub fn iter(&self) -> impl Iterator<Item = (Shard, [u64; WORDS])> {
        let mut walk = Walk::new();
        core::iter::from_fn(move || {
            let (shard, words) = walk.next(self.words(), None)?;
            Some((shard, self.read(words)))
        })
    }

    /// Folds the words of all shards into one value. See [`iter`](Cell::iter).
    pub fn fold<A>(&self, init: A, mut f: impl FnMut(A, [u64; WORDS]) -> A) -> A {
        self.iter().fold(init, |sum, (_, words)| f(sum, words))
    }

    fn read(&self, words: &Words<WORDS>) -> [u64; WORDS] {
        // Acquire: partners are all operations that store (`machinery/word_operations.rs`).
        self.decode(core::array::from_fn(|index| words[index].load(Ordering::Acquire)))
    }

    /// Converts stored differences from the image into words.
    fn decode(&self, distances: [u64; WORDS]) -> [u64; WORDS] {
        core::array::from_fn(|index| distances[index].wrapping_add(self.image()[index]))
    }
}

/// Access from other cores, for slots that can be frozen.
impl<const WORDS: usize, I: Revocable> Cell<'_, WORDS, I> {
    /// Calls `f` on the words of this slot (see [`crate::cid`]). No thread uses them meanwhile, so all of them are of
    /// one moment.
    ///
    /// Like [`Word::with_frozen`](crate::percpu::Word::with_frozen). The array is on the stack, as those of
    /// [`iter`](Cell::iter) are.
    ///
    /// # Errors
    /// As [`Word::with_frozen`](crate::percpu::Word::with_frozen).
    pub fn with_frozen<R>(
        &self,
        slot: u32,
        f: impl FnOnce(&mut [u64; WORDS]) -> R,
    ) -> Result<R, Busy> {
        let kept = self.words().slot(slot).ok_or(Busy::NoSlot)?;
        let _frozen = remote::freeze::<I>(slot)?;
        let mut words = self.read(kept);
        let result = f(&mut words);
        for ((kept, word), initial) in kept.iter().zip(words).zip(self.image()) {
            // Relaxed: the freeze orders it before later sections.
            kept.store(word.wrapping_sub(*initial), Ordering::Relaxed);
        }
        Ok(result)
    }

    /// Takes the words of all shards, leaving the image, and calls `f` on those of each shard that was changed.
    ///
    /// A value that is stored meanwhile is either taken or stays: none is lost or seen twice. The words under a slot
    /// are taken at one moment; those that threads without critical sections share are taken word by word. Linear in
    /// `WORDS` times the slots in use; one `membarrier(2)` for each slot that was changed. The arrays are on the
    /// stack, as those of [`iter`](Cell::iter) are. Not for signal handlers.
    ///
    /// ```
    /// use corelocal::percpu::Area;
    ///
    /// let area: Area<2> = Area::with_image([0, 100]);
    /// let cell = area.take()?;
    /// cell.at::<0>().add(7);
    /// let mut taken = Vec::new();
    /// cell.drain(|_, words| taken.push(words))?;
    /// assert_eq!(taken, [[7, 100]]);
    /// assert!(cell.iter().all(|(_, words)| words == [0, 100]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The reason why the first slot could not be frozen: see
    /// [`Word::with_frozen`](crate::percpu::Word::with_frozen). All others have been taken.
    pub fn drain(&self, mut f: impl FnMut(Shard, [u64; WORDS])) -> Result<(), Busy> {
        let mut give = |shard, distances: [u64; WORDS]| {
            if distances != [0; WORDS] {
                f(shard, self.decode(distances));
            }
        };
        // Relaxed: a thread that sees 0 takes no data.
        let idle =
            |words: &Words<WORDS>| words.iter().all(|word| word.load(Ordering::Relaxed) == 0);
        let take = |words: &Words<WORDS>| {
            words.each_ref().map(|word| {
                // Relaxed, both: the freeze orders them.
                let distance = word.load(Ordering::Relaxed);
                word.store(0, Ordering::Relaxed);
                distance
            })
        };
        let result = remote::take_from_each(self.words(), idle, take, &mut give);
        for (shard, words) in (0..).map(Shard::Shared).zip(self.words().shared()) {
            // Do not write to a page that was never written to.
            if !idle(words) {
                // AcqRel: partners are all operations on this word.
                give(shard, words.each_ref().map(|word| word.swap(0, Ordering::AcqRel)));
            }
        }
        result
    }
}

impl<const WORDS: usize, I: SlotIndex> Drop for Cell<'_, WORDS, I> {
    fn drop(&mut self) {
        if let Some((block, shared)) = self.words.used() {
            // SAFETY: the block is from this area (invariant 1); `&mut self` excludes all other users.
            unsafe { self.area.give_back(block, shared) };
        }
    }
}

/// The shards whose words differ from the image.
impl<const WORDS: usize, I: SlotIndex> fmt::Debug for Cell<'_, WORDS, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().filter(|(_, words)| words != self.image())).finish()
    }
}
