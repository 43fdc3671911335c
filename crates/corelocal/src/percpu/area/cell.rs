//! A cell: some words for each core, taken from an area.
//!
//! # Data's way
//! A cell knows where its block lies, as every container does (`lazy_block.rs`), but the block is the area's.
//! Operations on a single word are those of [`CellWord`]; here is what concerns all words at once.
//!
//! # Invariants
//! 1. `words` has its block from the beginning and does not free it: `drop` gives it back to the area.
//! 2. No reference to a slot leaves this module or `cell_operations.rs`: the area's memory does not stay.

use core::fmt;
use core::mem::ManuallyDrop;

use super::{Area, CellWord, Words};
use crate::cid::{Busy, Cid, Revocable, SlotIndex};
use crate::percpu::block::Block;
use crate::percpu::lazy_block::Owned;
use crate::percpu::remote::{self, Walk};
use crate::percpu::shard::Shard;
use crate::primitive::atomic::Ordering;

/// `WORDS` words for each core, taken from an [`Area`], and given back by its drop.
///
/// Each of its words is what a [`Word`](crate::percpu::Word) is, and its operations are those of
/// [`CellWord`]. Words of one cell lie side by side, so that an operation on several of them touches one
/// line of this core's.
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
/// As [`Word`](crate::percpu::Word): in any thread, in signal handlers, during thread exit, in the child
/// after `fork`; the memory ordering and the exception for `vfork` are the same.
pub struct Cell<'area, const WORDS: usize, I: SlotIndex = Cid> {
    words: ManuallyDrop<Owned<Words<WORDS>, I>>,
    area: &'area Area<WORDS, I>,
}

impl<'area, const WORDS: usize, I: SlotIndex> Cell<'area, WORDS, I> {
    /// # Safety
    /// The block was taken from this area's regions for this cell.
    pub(super) unsafe fn new(area: &'area Area<WORDS, I>, block: Block<Words<WORDS>>) -> Self {
        // SAFETY: the block goes back when this is dropped; invariant 2.
        Cell { words: unsafe { Owned::lent(block) }, area }
    }

    pub(super) fn words(&self) -> &Owned<Words<WORDS>, I> {
        &self.words
    }

    pub(super) fn image(&self) -> &[u64; WORDS] {
        &self.area.image
    }

    /// What the first of the threads without critical sections share.
    pub(super) fn first_shared(&self) -> &Words<WORDS> {
        // SAFETY: invariant 1.
        let (block, _) = unsafe { self.words.used().unwrap_unchecked() };
        block.shared(0)
    }

    /// The word at `INDEX`.
    ///
    /// One that is not there does not compile:
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

    /// The word at `index`; `None` if there is none.
    #[inline(always)]
    pub fn word(&self, index: usize) -> Option<CellWord<'_, WORDS, I>> {
        (index < WORDS).then(|| CellWord::new(self, index))
    }

    /// The words of all parts that may have been used, with whose they are.
    ///
    /// Words never changed are the image's. A word that changes meanwhile is seen before or after the
    /// change, each on its own. Linear in `WORDS` times the slots in use. The arrays are on the stack: use
    /// [`CellWord::iter`] for a large `WORDS`.
    pub fn iter(&self) -> impl Iterator<Item = (Shard, [u64; WORDS])> {
        let mut walk = Walk::new();
        core::iter::from_fn(move || {
            let (shard, words) = walk.next(self.words(), None)?;
            Some((shard, self.read(words)))
        })
    }

    /// What `f` makes of the words of all parts, one after the other; as [`iter`](Cell::iter).
    pub fn fold<A>(&self, init: A, mut f: impl FnMut(A, [u64; WORDS]) -> A) -> A {
        self.iter().fold(init, |sum, (_, words)| f(sum, words))
    }

    fn read(&self, words: &Words<WORDS>) -> [u64; WORDS] {
        // Acquire: partners are all operations that store (`word_operations.rs`).
        self.decode(core::array::from_fn(|index| words[index].load(Ordering::Acquire)))
    }

    /// Words of their distances from the image.
    fn decode(&self, distances: [u64; WORDS]) -> [u64; WORDS] {
        core::array::from_fn(|index| distances[index].wrapping_add(self.image()[index]))
    }
}

/// From afar: for slots that can be frozen.
impl<const WORDS: usize, I: Revocable> Cell<'_, WORDS, I> {
    /// Calls `f` on the words of a certain slot (see [`crate::cid`]), which no thread uses meanwhile: all of
    /// them are of one moment.
    ///
    /// As [`Word::with_frozen`](crate::percpu::Word::with_frozen), and so are the errors. The array is on the stack, as
    /// those of [`iter`](Cell::iter) are.
    ///
    /// # Errors
    /// See there.
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
            // Relaxed: the freeze orders it before the sections to come.
            kept.store(word.wrapping_sub(*initial), Ordering::Relaxed);
        }
        Ok(result)
    }

    /// Takes the words of all parts, leaving the image, and calls `f` on those of each that were changed.
    ///
    /// Whatever is stored meanwhile is either taken or stays: nothing is lost or seen twice. What is under a
    /// slot is taken at one moment; what threads without critical sections share, word by word. Linear in
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
    /// Why the first slot that could not be frozen could not: see
    /// [`Word::with_frozen`](crate::percpu::Word::with_frozen). All others have been taken.
    pub fn drain(&self, mut f: impl FnMut(Shard, [u64; WORDS])) -> Result<(), Busy> {
        let mut give = |shard, distances: [u64; WORDS]| {
            if distances != [0; WORDS] {
                f(shard, self.decode(distances));
            }
        };
        // Relaxed: whoever sees 0 takes nothing.
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
            // A page that nobody has written to is not to be written to now.
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
            // SAFETY: invariant 1; `&mut self` proves that all users are done.
            unsafe { self.area.give_back(block, shared) };
        }
    }
}

/// The parts whose words are not the image's.
impl<const WORDS: usize, I: SlotIndex> fmt::Debug for Cell<'_, WORDS, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().filter(|(_, words)| words != self.image())).finish()
    }
}
