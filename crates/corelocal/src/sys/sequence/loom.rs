//! Loom models: writers and a reader. Then mutants with one fault each, which the same checks must catch.

use super::*;
use ::loom::sync::Arc;
use ::loom::thread;

/// Two words that are equal whenever no writer is active.
struct Pair {
    sequence: Sequence,
    words: [AtomicU64; 2],
}

/// The functions with which threads write and read, of which a mutant replaces one.
#[derive(Clone, Copy)]
struct Algorithm {
    /// Writes; returns false if another writer is active.
    write: fn(&Pair, u64) -> bool,
    read: fn(&Pair) -> Option<[u64; 2]>,
}

const RIGHT: Algorithm = Algorithm {
    write: |pair, value| {
        let Some(_writing) = pair.sequence.write() else { return false };
        pair.store(value);
        true
    },
    read: |pair| pair.sequence.read(|| pair.load()),
};

impl Pair {
    fn new() -> Arc<Pair> {
        let words = [AtomicU64::new(0), AtomicU64::new(0)];
        Arc::new(Pair { sequence: Sequence::new(), words })
    }

    fn store(&self, value: u64) {
        self.words.iter().for_each(|word| word.store(value, Ordering::Relaxed));
    }

    fn load(&self) -> [u64; 2] {
        [0, 1].map(|at: usize| self.words[at].load(Ordering::Relaxed))
    }

    fn number(&self) -> &AtomicU64 {
        &self.sequence.number
    }
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    crate::explore::within(3, model);
}

/// One thread writes again while another one reads. The reader sees both words of one write, or gives up.
fn explore_reading(ways: Algorithm) {
    check(move || {
        let pair = Pair::new();
        assert!((ways.read)(&pair).is_none());
        assert!((ways.write)(&pair, 1));
        let writer = {
            let pair = pair.clone();
            thread::spawn(move || (ways.write)(&pair, 2))
        };
        for _ in 0..2 {
            if let Some([first, second]) = (ways.read)(&pair) {
                assert!(first == second && first != 0, "torn: {first} {second}");
            }
        }
        assert!(writer.join().unwrap());
        assert_eq!((ways.read)(&pair), Some([2, 2]));
    });
}

/// Two writers at once: one of them writes, or one after the other.
fn explore_writing(ways: Algorithm) {
    check(move || {
        let pair = Pair::new();
        let other = pair.clone();
        let writer = thread::spawn(move || (ways.write)(&other, 1));
        let wrote = (ways.write)(&pair, 2);
        assert!(writer.join().unwrap() || wrote);
        let [first, second] = (ways.read)(&pair).expect("nobody writes");
        assert!(first == second && first != 0, "torn: {first} {second}");
    });
}

#[test]
fn loom_what_is_read_is_whole() {
    explore_reading(RIGHT);
}

/// The writer has a lock, so it needs no exchange.
#[test]
fn loom_what_is_written_under_a_lock_is_read_whole() {
    let write = |pair: &Pair, value| {
        let _writing = pair.sequence.write_locked();
        pair.store(value);
        true
    };
    explore_reading(Algorithm { write, ..RIGHT });
}

#[test]
fn loom_one_writes_at_a_time() {
    explore_writing(RIGHT);
}

/// A writer sees what the previous one wrote.
#[test]
fn loom_writers_follow_each_other() {
    check(|| {
        let pair = Pair::new();
        let other = pair.clone();
        let writer = thread::spawn(move || (RIGHT.write)(&other, 1));
        if let Some(_writing) = pair.sequence.write() {
            let words = pair.load();
            assert!(words == [0, 0] || words == [1, 1], "{words:?}");
        }
        writer.join().unwrap();
    });
}

/// Both find the number even, and both write.
#[test]
#[should_panic(expected = "torn")]
fn loom_catches_writers_that_do_not_exclude_each_other() {
    let write = |pair: &Pair, value| {
        let before = pair.number().load(Ordering::Relaxed);
        if before % 2 != 0 {
            return false;
        }
        pair.number().store(before + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        pair.store(value);
        pair.number().store(before + 2, Ordering::Release);
        true
    };
    explore_writing(Algorithm { write, ..RIGHT });
}

/// A word is visible before the odd number.
#[test]
#[should_panic(expected = "torn")]
fn loom_catches_a_writer_without_its_fence() {
    let write = |pair: &Pair, value| write_with(pair, value, || {}, Ordering::Release);
    explore_reading(Algorithm { write, ..RIGHT });
}

/// The even number is visible before the words.
#[test]
#[should_panic(expected = "torn")]
fn loom_catches_a_writer_that_ends_without_release() {
    let write = |pair: &Pair, value| {
        write_with(pair, value, || fence(Ordering::Release), Ordering::Relaxed)
    };
    explore_reading(Algorithm { write, ..RIGHT });
}

/// As the writer, with this step before the words and this ordering at the end.
fn write_with(pair: &Pair, value: u64, before_words: fn(), end: Ordering) -> bool {
    let before = pair.number().load(Ordering::Relaxed);
    let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
    if before % 2 != 0
        || pair.number().compare_exchange(before, before + 1, success, failure).is_err()
    {
        return false;
    }
    before_words();
    pair.store(value);
    pair.number().store(before + 2, end);
    true
}

/// A writer is active between the first read of the number and the words.
#[test]
#[should_panic(expected = "torn")]
fn loom_catches_a_reader_that_looks_once() {
    let read = |pair: &Pair| {
        let before = pair.number().load(Ordering::Acquire);
        (before != 0 && before % 2 == 0).then(|| pair.load())
    };
    explore_reading(Algorithm { read, ..RIGHT });
}

/// The second read of the number comes before the words.
#[test]
#[should_panic(expected = "torn")]
fn loom_catches_a_reader_without_its_fence() {
    let read = |pair: &Pair| {
        let before = pair.number().load(Ordering::Acquire);
        let words = (before != 0 && before % 2 == 0).then(|| pair.load())?;
        (pair.number().load(Ordering::Relaxed) == before).then_some(words)
    };
    explore_reading(Algorithm { read, ..RIGHT });
}
