//! Loads on several threads after those that mallocs are known by, written from their published
//! descriptions: larson (Larson and Krishnan, 1998), xmalloc (Lever and Boreham, 2000), mstress (Leijen),
//! sh6bench and sh8bench (MicroQuill), and a plain relay from producers to consumers.
//!
//! Invariants:
//! 1. Each piece has one owner at a time; it is handed on through an atomic word or a lock.
//! 2. Each load gives back all that it took.

use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::thread::{self, Scope};
use std::time::Instant;

use super::did::Did;
use super::heap::{Piece, Random, give, take, together};

/// Servers that come and go: each thread replaces random ones of its pieces, then leaves them to its
/// successor, a new thread.
pub fn larson(threads: usize, times: u64) -> Did {
    const LIVE: usize = 5000;
    const GENERATIONS: u64 = 5;
    let each = times / (threads as u64 * GENERATIONS);
    let size = |random: &mut Random| 8 + random.below(993);
    fn generation<'scope>(
        scope: &'scope Scope<'scope, '_>,
        mut pieces: Vec<Piece>,
        mut random: Random,
        each: u64,
        left: u64,
    ) {
        for _ in 0..each {
            let slot = &mut pieces[random.below(LIVE)];
            // SAFETY: taken before, and replaced; handed on with the vector (1).
            unsafe { give(*slot) };
            *slot = take(8 + random.below(993));
        }
        if left > 1 {
            scope.spawn(move || generation(scope, pieces, random, each, left - 1));
        } else {
            // SAFETY: allocated before, and freed once: the vector is consumed (1).
            pieces.into_iter().for_each(|piece| unsafe { give(piece) });
        }
    }
    let begin = Instant::now();
    thread::scope(|scope| {
        for nth in 0..threads {
            let mut random = Random::new(nth as u64);
            let pieces: Vec<Piece> = (0..LIVE).map(|_| take(size(&mut random))).collect();
            scope.spawn(move || generation(scope, pieces, random, each, GENERATIONS));
        }
    });
    Did::on(threads, each * GENERATIONS * threads as u64, begin.elapsed())
}

/// Lets half of the threads take batches, the other half gives them back; the batches too are pieces.
pub fn xmalloc(threads: usize, times: u64) -> Did {
    const BATCH: usize = 120;
    const MOST: usize = 256;
    let makers = threads / 2;
    let batches = times / (makers * BATCH) as u64;
    let waiting: Mutex<Vec<Piece>> = Mutex::new(Vec::with_capacity(MOST + makers));
    let left = AtomicUsize::new(batches as usize * makers);
    let lock = || waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let wall = together(makers * 2, |nth| {
        if nth < makers {
            let mut random = Random::new(nth as u64);
            for _ in 0..batches {
                let batch = take(BATCH * size_of::<Piece>());
                for at in 0..BATCH {
                    let piece = take(random.size(16, 4));
                    // SAFETY: the batch has room for so many, and is this thread's (1).
                    unsafe { batch.into_word().cast::<Piece>().add(at).write(piece) };
                }
                while lock().len() >= MOST {
                    thread::yield_now();
                }
                lock().push(batch);
            }
            return;
        }
        // Relaxed: it counts, and nothing else.
        while left.load(Ordering::Relaxed) > 0 {
            let Some(batch) = lock().pop() else {
                thread::yield_now();
                continue;
            };
            for at in 0..BATCH {
                // SAFETY: written by the maker before it was handed on by the lock (1).
                unsafe { give(batch.into_word().cast::<Piece>().add(at).read()) };
            }
            // SAFETY: allocated by the maker, and freed once, after its last piece.
            unsafe { give(batch) };
            left.fetch_sub(1, Ordering::Relaxed);
        }
    });
    Did::on(threads, batches * (makers * BATCH) as u64, wall)
}

/// Returns the rounds of threads that take pieces of all sizes, keep some, give back some and swap some with others.
/// Every piece says how large it is; that is looked at when it is given back.
pub fn mstress(threads: usize, times: u64) -> Did {
    const ROUNDS: u64 = 4;
    const SHARED: usize = 1000;
    let shared: Vec<AtomicPtr<u8>> = (0..SHARED).map(|_| AtomicPtr::default()).collect();
    let each = times / (ROUNDS * threads as u64);
    let drop_checked = |piece: Piece| {
        if piece.is_some() {
            // SAFETY: `made` has marked it, and it is this thread's (1).
            unsafe {
                assert_eq!(piece.marked() % 1021, 77, "an object was overwritten");
                give(piece);
            }
        }
    };
    let made = |random: &mut Random| {
        // One in a hundred is large.
        let size = if random.below(100) == 0 { random.size(4096, 4) } else { random.size(16, 5) };
        let piece = take(size);
        // SAFETY: new, and of 16 bytes at least.
        unsafe { piece.mark(size as u64 * 1021 + 77) };
        piece
    };
    let begin = Instant::now();
    for round in 0..ROUNDS {
        together(threads, |nth| {
            let mut random = Random::new(round * 1000 + nth as u64);
            let mut kept = Vec::new();
            for _ in 0..each {
                match random.below(8) {
                    0..=3 => kept.push(made(&mut random)),
                    4..=6 if !kept.is_empty() => {
                        drop_checked(kept.swap_remove(random.below(kept.len())));
                    }
                    _ => {
                        let mine = made(&mut random);
                        let slot = &shared[random.below(SHARED)];
                        // Release: partner is the Acquire of the thread that swaps it out, which then sees the
                        // content (invariant 1).
                        let other = slot.swap(mine.into_word(), Ordering::AcqRel);
                        drop_checked(Piece::from_word(other));
                    }
                }
            }
            kept.into_iter().for_each(drop_checked);
        });
    }
    let wall = begin.elapsed();
    for slot in shared {
        drop_checked(Piece::from_word(slot.into_inner()));
    }
    Did::on(threads, each * ROUNDS * threads as u64, wall)
}

/// Batches of small pieces, given back in their order, in the opposite one, or half of them a batch
/// later. With `hand_on`, what is left goes to another thread.
pub fn shelves(threads: usize, times: u64, hand_on: bool) -> Did {
    const BATCH: usize = 500;
    let passes = times / (threads * BATCH) as u64;
    let desks: Vec<Mutex<Vec<Piece>>> = (0..threads).map(|_| Mutex::default()).collect();
    let wall = together(threads, |nth| {
        let mut random = Random::new(nth as u64);
        let mut batch: Vec<Piece> = Vec::with_capacity(BATCH);
        let mut kept: Vec<Piece> = Vec::with_capacity(BATCH);
        for pass in 0..passes {
            batch.extend((0..BATCH).map(|_| take(random.size(8, 7))));
            // SAFETY: taken above, or by the thread that handed them on (1); each is given back once,
            // since it leaves its vector.
            unsafe {
                match pass % 3 {
                    0 => batch.drain(..).for_each(|piece| give(piece)),
                    1 => batch.drain(..).rev().for_each(|piece| give(piece)),
                    _ => {
                        kept.drain(..).for_each(|piece| give(piece));
                        for (at, piece) in batch.drain(..).enumerate() {
                            if at % 2 == 0 { give(piece) } else { kept.push(piece) }
                        }
                        if hand_on {
                            let desk = &desks[(nth + 1) % threads];
                            let mut desk = desk.lock().unwrap_or_else(|p| p.into_inner());
                            std::mem::swap(&mut *desk, &mut kept);
                        }
                    }
                }
            }
        }
        // SAFETY: allocated above, or by the thread that handed them on (1); freed once, since the vector is
        // consumed.
        kept.into_iter().for_each(|piece| unsafe { give(piece) });
    });
    for piece in desks.into_iter().flat_map(|desk| desk.into_inner().unwrap_or_default()) {
        // SAFETY: allocated by a thread that has ended (1); freed once, since the vector is consumed.
        unsafe { give(piece) };
    }
    Did::on(threads, passes * (threads * BATCH) as u64, wall)
}

/// Pieces in a block that goes from a producer to its consumer and back.
struct Block {
    is_full: AtomicBool,
    pieces: UnsafeCell<[Piece; Block::SIZE]>,
}

// SAFETY: the producer has the pieces while the block is not full, the consumer while it is (1).
unsafe impl Sync for Block {}

impl Block {
    const SIZE: usize = 256;

    /// Waits until the block is as wished; acquires what its last owner did.
    fn wait_until(&self, is_full: bool) {
        let mut turns = 0;
        // Acquire, to the release of `hand_over`.
        while self.is_full.load(Ordering::Acquire) != is_full {
            turns += 1;
            if turns < 100 { spin_loop() } else { thread::yield_now() }
        }
    }

    fn hand_over(&self, is_full: bool) {
        // Release, to the acquire of `wait_until`.
        self.is_full.store(is_full, Ordering::Release);
    }
}

/// Pairs of threads: one takes, the other gives back.
pub fn relay(pairs: usize, times: u64) -> Did {
    const BLOCKS: usize = 16;
    let rounds = times / (pairs * Block::SIZE) as u64;
    let block = || Block {
        is_full: AtomicBool::new(false),
        pieces: UnsafeCell::new([Piece::NONE; Block::SIZE]),
    };
    let lanes: Vec<Vec<Block>> =
        (0..pairs).map(|_| (0..BLOCKS).map(|_| block()).collect()).collect();
    let wall = together(pairs * 2, |nth| {
        let (lane, consumes) = (&lanes[nth / 2], nth % 2 == 1);
        for round in 0..rounds {
            let block = &lane[round as usize % BLOCKS];
            block.wait_until(consumes);
            // SAFETY: this thread's until it hands the block over (1).
            let pieces = unsafe { &mut *block.pieces.get() };
            for piece in pieces {
                if consumes {
                    // SAFETY: taken by the producer, for this one consumer.
                    unsafe { give(*piece) };
                } else {
                    *piece = take(64);
                }
            }
            block.hand_over(!consumes);
        }
    });
    Did::pairs(pairs, rounds * (pairs * Block::SIZE) as u64, wall)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_loads_come_to_an_end() {
        assert_eq!(larson(2, 1000).ops, 1000);
        assert_eq!(xmalloc(4, 2400).ops, 2400);
        assert_eq!(mstress(3, 12_000).ops, 12_000);
        for hand_on in [false, true] {
            assert_eq!(shelves(4, 12_000, hand_on).ops, 12_000);
        }
        let did = relay(3, 3 * 256 * 40);
        assert_eq!((did.ops, did.threads), (3 * 256 * 40, 6));
    }
}
