//! The memory of a lock-order record, which the process and its observers both map.
//!
//! # Invariants
//! 1. All bytes 0 is an empty page, except for the magic number, which is written last. A reader that finds the
//!    number sees the rest.
//! 2. No pointers: addresses in it are numbers. What is read may be anything, since others may write to the file.
//! 3. A thread's entry is written only by the thread whose number is in `owners`. Handlers that interrupt that find
//!    it `BUSY` and write nothing.
//! 4. A mutex that is `HELD` in a thread's entry is held by that thread: it becomes so after the mutex was taken, and
//!    ceases to be so before the mutex is unlocked. A mutex that a blocking function waits for is `WANTED` there from
//!    before it waits. So threads that each want what the next one holds are in a deadlock, at whatever moment they
//!    are examined.
//! 5. A pair is written once, by the thread that made its state `WRITTEN_NOW`; its counts change later. Two threads
//!    that arrive at once may write the same pair in two places.
//! 6. Nothing waits, and nothing is allocated: async-signal-safe.

use super::stack_top::{Piece, Registers};
use crate::primitive::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::sync::profile::files::{self, FILES_BYTES};
use crate::sync::profile::record::Key;
use crate::sys::thread::stack;

/// "CLORDER", and the layout's version.
const MAGIC: u64 = u64::from_le_bytes(*b"CLORDER\x01");

/// Capacity for pairs.
pub(super) const PAIRS: usize = 1024;
/// The number of entries that are probed for a pair.
const REACH: usize = 64;
/// Capacity for threads that hold or wait at the same time.
pub(super) const THREADS: usize = 256;
/// Capacity for mutexes that one thread holds or waits for.
pub(super) const DEPTH: usize = 16;
/// Capacity for mutexes that are always held beside a pair.
pub(super) const GATES: usize = 4;

const NAME_WORDS: usize = stack::NAME_BYTES / size_of::<u64>();

/// A process's record of its lock order.
#[repr(C)]
pub(super) struct Page {
    magic: AtomicU64,
    /// The process's own number.
    pub(super) process: AtomicU64,
    /// The fork generation of the process that made it: a forked child has another one (`sys/forks.rs`).
    pub(super) generation: AtomicU64,
    /// The time at which it was made, on the monotonic clock.
    pub(super) began: AtomicU64,
    /// Locks by threads for which there was no room, or that were recording another lock.
    pub(super) threads_missed: AtomicU64,
    /// Locks by threads that held too many mutexes.
    pub(super) depth_missed: AtomicU64,
    /// Pairs for which there was no room, each time they occurred.
    pub(super) pairs_missed: AtomicU64,
    files_len: AtomicU64,
    unused: [u64; 376],
    /// The number of the thread that an entry belongs to; 0 for none.
    owners: [AtomicU32; THREADS],
    files: [AtomicU64; FILES_BYTES / 8],
    pairs: [Pair; PAIRS],
    threads: [Thread; THREADS],
}

/// The length of a file with a page.
pub(super) const LEN: usize = size_of::<Page>();
const _: () = assert!(LEN == 32 * 1024 + PAIRS * size_of::<Pair>() + THREADS * size_of::<Thread>());

/// A thread that holds mutexes, or waits for one. All bytes 0 is one that does neither.
#[repr(C)]
pub(super) struct Thread {
    name: [AtomicU64; NAME_WORDS],
    /// The thread that `name` belongs to.
    named: AtomicU64,
    /// Set while the thread writes; a handler that finds it set does not write.
    busy: AtomicU64,
    unused: [u64; 4],
    /// The state of each place: [`FREE`], [`WANTED`] or [`HELD`].
    states: [AtomicU64; DEPTH],
    keys: [AtomicU64; DEPTH],
    /// The times of the changes, in nanoseconds of the monotonic clock.
    since: [AtomicU64; DEPTH],
    pieces: [Piece; DEPTH],
}

pub(super) const FREE: u64 = 0;
/// The thread waits for the mutex.
pub(super) const WANTED: u64 = 1;
pub(super) const HELD: u64 = 2;

const BUSY: u64 = 1;

/// A mutex that was held while another one was locked. All bytes 0 is none.
#[repr(C)]
pub(super) struct Pair {
    /// The entry's state: 0, [`WRITTEN_NOW`] or [`WRITTEN`].
    state: AtomicU64,
    held: AtomicU64,
    taken: AtomicU64,
    /// The number of times.
    pub(super) times: AtomicU64,
    /// Other mutexes held each time; 0 for none.
    gates: [AtomicU64; GATES],
    /// The first thread that did so, with its name below.
    pub(super) thread: AtomicU64,
    name: [AtomicU64; NAME_WORDS],
    /// Not 0 if other threads did the same later.
    pub(super) others: AtomicU64,
    unused: [u64; 4],
    /// The stacks from which `held` and `taken` were locked.
    pub(super) pieces: [Piece; 2],
}

const WRITTEN_NOW: u64 = 1;
const WRITTEN: u64 = 2;

impl Page {
    /// Publishes the page (1).
    pub(super) fn complete(&self) {
        // Release: partner is the Acquire in `is_complete`.
        self.magic.store(MAGIC, Release);
    }

    pub(super) fn is_complete(&self) -> bool {
        // Acquire: partner is the Release in `complete`.
        self.magic.load(Acquire) == MAGIC
    }

    pub(super) fn add_file(&self, line: &[u8]) -> bool {
        files::add(&self.files_len, &self.files, line)
    }

    pub(super) fn read_files(&self, into: &mut [u8; FILES_BYTES]) -> usize {
        files::read(&self.files_len, &self.files, into)
    }

    /// Returns the entry of the thread with this number.
    pub(super) fn known_thread(&self, number: u32) -> Option<&Thread> {
        self.places(number).find(|(owner, _)| owner.load(Relaxed) == number).map(|(_, at)| at)
    }

    /// Returns the entry of the thread, made from a free one if necessary. `None` if all belong to others.
    pub(super) fn thread(&self, number: u32) -> Option<&Thread> {
        // No other thread makes an entry for the calling thread.
        self.known_thread(number).or_else(|| {
            let mut free = self.places(number).filter(|(owner, _)| owner.load(Relaxed) == 0);
            // Acquire: partner is the Release in `leave`: what the former thread wrote comes first (3).
            free.find(|(owner, _)| owner.compare_exchange(0, number, Acquire, Relaxed).is_ok())
                .map(|(_, thread)| thread)
        })
    }

    /// Frees the entry of the thread with this number.
    pub(super) fn leave(&self, number: u32) {
        if let Some((owner, _)) = self.places(number).find(|it| it.0.load(Relaxed) == number) {
            // Release: partner is the Acquire in `thread`.
            owner.store(0, Release);
        }
    }

    /// Returns all entries, beginning with the one that the thread most likely had.
    fn places(&self, number: u32) -> impl Iterator<Item = (&AtomicU32, &Thread)> {
        let first = number as usize % THREADS;
        (first..first + THREADS).map(|at| (&self.owners[at % THREADS], &self.threads[at % THREADS]))
    }

    /// Returns the entries that belong to threads, with the threads' numbers.
    pub(super) fn threads(&self) -> impl Iterator<Item = (usize, u32)> {
        let all = self.owners.iter().map(|owner| owner.load(Relaxed)).enumerate();
        all.filter(|(_, owner)| *owner != 0)
    }

    pub(super) fn place(&self, at: usize) -> Option<&Thread> {
        self.threads.get(at)
    }

    /// Returns the pair of these two mutexes; `write` fills in the rest if it is new. `None` if there is no room.
    pub(super) fn pair(
        &self,
        held: u64,
        taken: u64,
        write: impl FnOnce(&Pair),
    ) -> Option<(&Pair, bool)> {
        let hash = Key::of_word(held).hash() ^ Key::of_word(taken).hash().rotate_left(17);
        let first = (hash >> (u64::BITS - PAIRS.ilog2())) as usize;
        for at in first..first + REACH {
            let pair = &self.pairs[at % PAIRS];
            // Acquire: partner is the Release below.
            let mut state = pair.state.load(Acquire);
            if state == 0 {
                // Relaxed: nothing was written before.
                match pair.state.compare_exchange(0, WRITTEN_NOW, Relaxed, Acquire) {
                    Ok(_) => {
                        pair.held.store(held, Relaxed);
                        pair.taken.store(taken, Relaxed);
                        write(pair);
                        // Release: partners are the Acquires above, here and in `pairs`.
                        pair.state.store(WRITTEN, Release);
                        return Some((pair, true));
                    }
                    Err(now) => state = now,
                }
            }
            if state == WRITTEN && pair.locks() == [held, taken] {
                return Some((pair, false));
            }
        }
        None
    }

    /// Returns all complete pairs, with their indices.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (usize, &Pair)> {
        // Acquire: partner is the Release in `pair`.
        let all = self.pairs.iter().enumerate();
        all.filter(|(_, pair)| pair.state.load(Acquire) == WRITTEN)
    }

    pub(super) fn pair_at(&self, at: usize) -> Option<&Pair> {
        self.pairs.get(at)
    }
}

impl Thread {
    /// Returns the right to write, for the calling thread, whose entry it is; `None` if this interrupts such a write.
    pub(super) fn write(&self) -> Option<Writing<'_>> {
        // Relaxed: a handler runs in this thread.
        (self.busy.swap(BUSY, Relaxed) == 0).then_some(Writing(self))
    }

    /// Stores the thread's name, once.
    pub(super) fn name_after(&self, number: u32) {
        if self.named.load(Relaxed) != u64::from(number) {
            set_name(&self.name, stack::this_thread().1);
            self.named.store(number.into(), Relaxed);
        }
    }

    pub(super) fn name(&self) -> [u8; stack::NAME_BYTES] {
        name(&self.name)
    }

    /// Uses a free slot of the entry for the mutex, which a function with these registers locks. Returns the slot.
    ///
    /// # Safety
    /// - The conditions of [`Piece::take`] hold.
    pub(super) unsafe fn enter(
        &self,
        (key, registers): (Key, &Registers),
        state: u64,
        now: u64,
    ) -> Option<usize> {
        let at = self.states.iter().position(|state| state.load(Relaxed) == FREE)?;
        // SAFETY: the function with these registers has called this one.
        unsafe { self.pieces[at].take(registers) };
        self.since[at].store(now, Relaxed);
        self.keys[at].store(key.word(), Relaxed);
        self.set(at, state);
        Some(at)
    }

    pub(super) fn set(&self, at: usize, state: u64) {
        // Release: partner is the Acquire in `state`.
        self.states[at].store(state, Release);
    }

    pub(super) fn state(&self, at: usize) -> u64 {
        // Acquire: partner is the Release in `set`.
        self.states[at].load(Acquire)
    }

    /// Returns the slots in this state, with their mutexes.
    pub(super) fn all(&self, state: u64) -> impl DoubleEndedIterator<Item = (usize, u64)> {
        let all = (0..DEPTH).filter(move |at| self.state(*at) == state);
        all.map(|at| (at, self.key(at)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.states.iter().all(|state| state.load(Relaxed) == FREE)
    }

    pub(super) fn since(&self, at: usize) -> u64 {
        self.since[at].load(Relaxed)
    }

    pub(super) fn key(&self, at: usize) -> u64 {
        self.keys[at].load(Relaxed)
    }

    pub(super) fn piece(&self, at: usize) -> Option<&Piece> {
        self.pieces.get(at)
    }
}

/// The right to write to a thread's entry, until dropped.
pub(super) struct Writing<'a>(&'a Thread);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.busy.store(0, Relaxed);
    }
}

impl Pair {
    /// Returns the mutex that was held, and the one that was locked.
    pub(super) fn locks(&self) -> [u64; 2] {
        [&self.held, &self.taken].map(|word| word.load(Relaxed))
    }

    pub(super) fn set_name(&self, name: [u8; stack::NAME_BYTES]) {
        set_name(&self.name, name);
    }

    pub(super) fn name(&self) -> [u8; stack::NAME_BYTES] {
        name(&self.name)
    }

    /// Records the other mutexes held the first time.
    pub(super) fn set_gates(&self, gates: impl Iterator<Item = u64>) {
        self.gates.iter().zip(gates).for_each(|(gate, key)| gate.store(key, Relaxed));
    }

    /// Keeps those of them that are held this time, too.
    pub(super) fn keep_gates(&self, is_held: impl Fn(u64) -> bool) {
        for gate in &self.gates {
            let key = gate.load(Relaxed);
            if key != 0 && !is_held(key) {
                gate.store(0, Relaxed);
            }
        }
    }

    pub(super) fn gates(&self) -> [u64; GATES] {
        core::array::from_fn(|at| self.gates[at].load(Relaxed))
    }
}

fn set_name(words: &[AtomicU64; NAME_WORDS], name: [u8; stack::NAME_BYTES]) {
    for (word, bytes) in words.iter().zip(name.chunks_exact(8)) {
        word.store(u64::from_ne_bytes(bytes.try_into().unwrap_or_default()), Relaxed);
    }
}

fn name(words: &[AtomicU64; NAME_WORDS]) -> [u8; stack::NAME_BYTES] {
    let mut name = [0; stack::NAME_BYTES];
    for (bytes, word) in name.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
    }
    name
}
