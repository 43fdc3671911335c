//! Model: two threads claim chunks of one word, write to them and free them, and one gives memory to the kernel, in
//! every order. Then mutants with one fault each, which the same checks must catch.

use super::*;
use ::loom::cell::UnsafeCell;
use ::loom::thread;
use std::boxed::Box;

/// Chunks of the model; all others of the word are used.
const CHUNKS: usize = 2;
const ALL: u64 = (1 << CHUNKS) - 1;

/// The ways in which chunks are claimed and freed. Models replace one by a wrong one.
#[derive(Clone, Copy)]
struct Algorithm {
    claim: fn(Words<'_>, usize) -> Option<usize>,
    take_dirt: fn(Words<'_>, u64) -> usize,
    release: fn(&Model, u64),
    purge: fn(&Model),
}

const RIGHT: Algorithm = Algorithm {
    claim: |words, count| words.claim(count, 1),
    take_dirt: |words, mask| words.take_dirt(mask),
    release: |model, mask| model.release(mask),
    purge: |model| model.purge(),
};

struct Model {
    ways: Algorithm,
    used: AtomicU64,
    kept: AtomicU64,
    dirty: AtomicU64,
    aged: AtomicU64,
    /// As in the header: the number of dirty free chunks.
    dirt: AtomicU64,
    chunks: [UnsafeCell<u64>; CHUNKS],
}

impl Model {
    /// All chunks are free and the first one is dirty. Leaked: loom panics in a drop after a fault.
    fn leaked(ways: Algorithm) -> &'static Model {
        Box::leak(Box::new(Model {
            ways,
            used: AtomicU64::new(!ALL),
            kept: AtomicU64::new(0),
            dirty: AtomicU64::new(1),
            aged: AtomicU64::new(0),
            dirt: AtomicU64::new(1),
            chunks: core::array::from_fn(|nth| UnsafeCell::new(if nth == 0 { 5 } else { 0 })),
        }))
    }

    fn words(&self) -> Words<'_> {
        Words { used: &self.used, dirty: &self.dirty, aged: &self.aged, kept: &self.kept }
    }

    fn take_dirt(&self, mask: u64) -> usize {
        let dirt = (self.ways.take_dirt)(self.words(), mask);
        self.dirt.fetch_sub(dirt as u64, R);
        dirt
    }

    /// Writes to each of these chunks; loom checks that no other thread does.
    fn write(&self, mask: u64, value: u64, check: impl Fn(u64)) {
        for (nth, chunk) in self.chunks.iter().enumerate().filter(|(nth, _)| mask >> nth & 1 == 1) {
            chunk.with_mut(|chunk| {
                // SAFETY: claimed; loom checks it.
                let was = unsafe { core::mem::replace(&mut *chunk, value + nth as u64) };
                check(was);
            });
        }
    }

    /// As `store::claim`, `store::release`, and a program in between.
    fn use_some(&self, count: usize) {
        let Some(bit) = (self.ways.claim)(self.words(), count) else { return };
        let mask = mask(bit, count);
        let is_zero = self.take_dirt(mask) == 0;
        self.write(mask, 100, |was| assert!(!is_zero || was == 0, "not zero"));
        (self.ways.release)(self, mask);
    }

    fn release(&self, mask: u64) {
        self.soil(mask);
        self.words().free(mask);
    }

    fn soil(&self, mask: u64) {
        self.words().soil(mask);
        self.dirt.fetch_add(u64::from(mask.count_ones()), R);
    }

    /// As `store::purge`, for each chunk.
    fn purge(&self) {
        let wanted = self.dirty.load(R);
        for mask in (0..CHUNKS).map(|nth| 1 << nth).filter(|mask| wanted & mask != 0) {
            if self.words().take(mask) {
                self.take_dirt(mask);
                self.clear(mask);
                self.words().free(mask);
            }
        }
    }

    /// As the kernel does.
    fn clear(&self, mask: u64) {
        self.chunks.iter().enumerate().filter(|(nth, _)| mask >> nth & 1 == 1).for_each(
            |(_, chunk)| {
                // SAFETY: claimed; loom checks it.
                chunk.with_mut(|chunk| unsafe { *chunk = 0 });
            },
        );
    }

    /// No chunk is lost, chunks that are not dirty are zero, and the count of dirty ones is right.
    fn check(&self) {
        assert_eq!(self.used.load(R), !ALL, "lost");
        let dirty = self.dirty.load(R);
        assert_eq!(self.dirt.load(R), u64::from(dirty.count_ones()), "counted");
        self.write(ALL & !dirty, 0, |was| assert_eq!(was, 0, "not zero"));
    }
}

fn explore(ways: Algorithm) {
    crate::explore::within(3, move || {
        let model = Model::leaked(ways);
        let one = thread::spawn(|| model.use_some(1));
        let two = thread::spawn(|| model.use_some(2));
        (model.ways.purge)(model);
        one.join().unwrap();
        two.join().unwrap();
        model.check();
    });
}

#[test]
fn loom_chunks_have_one_owner() {
    explore(RIGHT);
}

/// As `Words::claim` of one or two chunks.
fn claim_with(words: Words<'_>, count: usize, order: Ordering) -> Option<usize> {
    let mut seen = words.used.load(R);
    loop {
        let bit = (0..=CHUNKS - count).find(|bit| seen & mask(*bit, count) == 0)?;
        match words.used.compare_exchange(seen, seen | mask(bit, count), order, R) {
            Ok(_) => return Some(bit),
            Err(now) => seen = now,
        }
    }
}

/// Otherwise the mutants below would prove nothing.
#[test]
fn loom_twins_without_a_fault_pass() {
    let claim = |words: Words<'_>, count| claim_with(words, count, Ordering::Acquire);
    explore(Algorithm { claim, ..RIGHT });
}

/// The next owner does not see what the last one did.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_a_claim_without_acquire() {
    let claim = |words: Words<'_>, count| claim_with(words, count, R);
    explore(Algorithm { claim, ..RIGHT });
}

/// The next owner does not see what the last one did.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_chunks_freed_without_release() {
    let release = |model: &Model, mask: u64| {
        model.soil(mask);
        model.used.fetch_and(!mask, R);
    };
    explore(Algorithm { release, ..RIGHT });
}

/// Two threads claim what both have seen free.
#[test]
#[should_panic]
fn loom_catches_a_claim_without_a_compare() {
    let claim = |words: Words<'_>, count| {
        let seen = words.used.load(R);
        let bit = (0..=CHUNKS - count).find(|bit| seen & mask(*bit, count) == 0)?;
        words.used.fetch_or(mask(bit, count), Ordering::Acquire);
        Some(bit)
    };
    explore(Algorithm { claim, ..RIGHT });
}

/// The next owner takes a dirty chunk for a zeroed one.
#[test]
#[should_panic]
fn loom_catches_chunks_that_are_free_before_they_are_dirty() {
    let release = |model: &Model, mask: u64| {
        model.words().free(mask);
        model.soil(mask);
    };
    explore(Algorithm { release, ..RIGHT });
}

/// The dirt of other chunks of the word is forgotten.
#[test]
#[should_panic]
fn loom_catches_dirt_that_is_taken_in_two_steps() {
    let take_dirt = |words: Words<'_>, mask: u64| {
        let dirty = words.dirty.load(R);
        words.dirty.store(dirty & !mask, R);
        (dirty & mask).count_ones() as usize
    };
    explore(Algorithm { take_dirt, ..RIGHT });
}

/// The purge erases what was written since, or what is being written.
#[test]
#[should_panic]
fn loom_catches_a_purge_that_claims_nothing() {
    let purge = |model: &Model| {
        let dirty = model.dirty.load(R) & ALL & !model.used.load(Ordering::Acquire);
        model.clear(dirty);
        model.take_dirt(dirty);
    };
    explore(Algorithm { purge, ..RIGHT });
}
