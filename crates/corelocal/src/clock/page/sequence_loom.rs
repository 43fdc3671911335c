//! The protocol under loom, and the mistakes that were made with it elsewhere: each a twin with one
//! difference, which the same check must catch.
//!
//! A content is right if both of its words are of one publication. Publication `n` stores `n` in both.

use loom::sync::Arc;
use loom::thread;

use super::ReadError;
use super::clockbound::Generation;
use super::pvclock;
use super::sequence::{self, Sequence};
use crate::primitive::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

struct Small {
    sequence: AtomicU32,
    words: [AtomicU64; 2],
}

impl Small {
    fn new() -> Arc<Small> {
        let words = [AtomicU64::new(0), AtomicU64::new(0)];
        Arc::new(Small { sequence: AtomicU32::new(0), words })
    }

    fn put(&self, n: u64) {
        self.words[0].store(n, Ordering::Relaxed);
        self.words[1].store(n, Ordering::Relaxed);
    }

    fn copy(&self) -> [u64; 2] {
        [self.words[0].load(Ordering::Relaxed), self.words[1].load(Ordering::Relaxed)]
    }

    fn write(&self, n: u64) {
        sequence::write(&self.sequence, || self.put(n));
    }

    fn read(&self) -> Result<u64, ReadError> {
        let (mark, [first, second]) = sequence::read(&self.sequence, || self.copy())?;
        assert_eq!(first, second, "a torn content");
        assert_eq!(u64::from(mark.number), 2 * first, "a content of another number");
        Ok(first)
    }
}

/// A publication by `write` after another one, against two readings by `read`.
fn explore(
    write: impl Fn(&Small, u64) + Copy + Send + Sync + 'static,
    read: impl Fn(&Small) -> Result<u64, ReadError> + Copy + Send + Sync + 'static,
) {
    loom::model(move || {
        let small = Small::new();
        write(&small, 1);
        let of_writer = small.clone();
        let writer = thread::spawn(move || write(&of_writer, 2));
        let first = read(&small).unwrap_or(0);
        let second = read(&small).unwrap_or(first);
        assert!(second >= first, "{first}, then {second}");
        writer.join().unwrap();
        assert_eq!(read(&small), Ok(2));
    });
}

#[test]
fn loom_readers_see_whole_contents() {
    explore(Small::write, Small::read);
}

/// KVM before 2016: the number never was odd, it only grew at the end.
#[test]
#[should_panic(expected = "content")]
fn loom_catches_no_odd_number_first() {
    explore(
        |small, n| {
            small.put(n);
            small.sequence.store(2 * n as u32, Ordering::Release);
        },
        Small::read,
    );
}

/// A release store of the odd number orders what comes before it, not the content that follows.
#[test]
#[should_panic(expected = "content")]
fn loom_catches_a_release_store_instead_of_the_fence() {
    explore(
        |small, n| {
            small.sequence.store(2 * n as u32 - 1, Ordering::Release);
            small.put(n);
            small.sequence.store(2 * n as u32, Ordering::Release);
        },
        Small::read,
    );
}

/// An acquire load at the second look orders what comes after it, not the copy before.
#[test]
#[should_panic(expected = "content")]
fn loom_catches_an_acquire_load_instead_of_the_fence() {
    explore(Small::write, |small| {
        let number = small.sequence.load(Ordering::Acquire);
        let [first, second] = small.copy();
        if number & 1 != 0 || small.sequence.load(Ordering::Acquire) != number {
            return Err(ReadError::Changing);
        }
        assert_eq!(first, second, "a torn content");
        Ok(first)
    });
}

#[test]
#[should_panic(expected = "content")]
fn loom_catches_an_even_number_without_release() {
    explore(
        |small, n| {
            small.sequence.store(2 * n as u32 - 1, Ordering::Relaxed);
            fence(Ordering::Release);
            small.put(n);
            small.sequence.store(2 * n as u32, Ordering::Relaxed);
        },
        Small::read,
    );
}

#[test]
#[should_panic(expected = "content")]
fn loom_catches_a_first_look_without_acquire() {
    explore(Small::write, |small| {
        let number = small.sequence.load(Ordering::Relaxed);
        let [first, second] = small.copy();
        fence(Ordering::Acquire);
        if number & 1 != 0 || small.sequence.load(Ordering::Relaxed) != number {
            return Err(ReadError::Changing);
        }
        assert_eq!(first, second, "a torn content");
        assert_eq!(u64::from(number), 2 * first, "a content of another number");
        Ok(first)
    });
}

/// A page of time 1 that is stable, then one of time 2 that is not. A reader that accepts 2 is wrong.
fn explore_stability(read: fn(&pvclock::Page) -> Result<u64, ReadError>) {
    loom::model(move || {
        let content = |nanoseconds, flags| pvclock::Content {
            counter: 5,
            nanoseconds,
            multiplier: 1,
            shift: 0,
            flags,
        };
        let page = Arc::new(pvclock::Page::new());
        page.write(&content(1, pvclock::STABLE));
        let of_writer = page.clone();
        let writer = thread::spawn(move || of_writer.write(&content(2, 0)));
        if let Ok(time) = read(&page) {
            assert_eq!(time, 1, "an unstable time was believed");
        }
        writer.join().unwrap();
        assert_eq!(page.read(|| 5), Err(ReadError::Unstable));
    });
}

#[test]
fn loom_stability_is_part_of_the_copy() {
    explore_stability(|page| page.read(|| 5).map(|reading| reading.nanoseconds));
}

#[test]
#[should_panic(expected = "unstable")]
fn loom_catches_stability_checked_before_the_copy() {
    explore_stability(|page| {
        let (_, before) = page.content()?;
        if !before.is_stable() {
            return Err(ReadError::Unstable);
        }
        let (_, content) = page.content()?;
        content.nanoseconds_at(5)
    });
}

/// A writer dies after its first store of content: readers have the old one or none, until the next
/// writer, which takes the number over.
#[test]
fn loom_a_dead_writer_leaves_nothing() {
    loom::model(|| {
        let small = Small::new();
        small.write(1);
        let of_writers = small.clone();
        let writers = thread::spawn(move || {
            of_writers.sequence.store(3, Ordering::Relaxed);
            fence(Ordering::Release);
            of_writers.words[0].store(99, Ordering::Relaxed);
            // The next writer: `write` counts on from 3 to 5 and 6.
            of_writers.write(3);
        });
        match small.read() {
            Ok(content) => assert!(content == 1 || content == 3),
            Err(doubt) => assert!(matches!(doubt, ReadError::Odd | ReadError::Changing)),
        }
        writers.join().unwrap();
        assert_eq!(small.read(), Ok(3));
    });
}

/// The two numbers of ClockBound's page, where the narrow one comes around.
#[test]
fn loom_both_generations() {
    loom::model(|| {
        let small = Small::new();
        let numbers = Arc::new((AtomicU16::new(0xfffe), AtomicU64::new(0)));
        let (of_writer, numbers_of_writer) = (small.clone(), numbers.clone());
        let writer = thread::spawn(move || {
            let (narrow, wide) = &*numbers_of_writer;
            sequence::write(&Generation { narrow, wide: Some(wide) }, || of_writer.put(7));
        });
        let generation = Generation { narrow: &numbers.0, wide: Some(&numbers.1) };
        if let Ok((_, [first, second])) = sequence::read(&generation, || small.copy()) {
            assert_eq!(first, second, "a torn content");
        }
        writer.join().unwrap();
        let (mark, content) = sequence::read(&generation, || small.copy()).unwrap();
        assert_eq!((mark.number, mark.wide, content), (2, 2, [7, 7]));
        assert!(sequence::is_current(&generation, mark));
    });
}

/// A number that came around is told from the one it was: the narrow one is the same again, two
/// publications later, for a counter of one bit beside the odd one.
#[test]
fn loom_a_narrow_number_that_comes_around() {
    explore_narrow(true);
}

#[test]
#[should_panic(expected = "content")]
fn loom_catches_a_narrow_number_alone() {
    explore_narrow(false);
}

/// A sequence number of one bit: any two even numbers are equal.
struct Narrow {
    number: AtomicU32,
    wide: Option<AtomicU64>,
}

impl Sequence for Narrow {
    fn load(&self, order: Ordering) -> sequence::Mark {
        let number = self.number.load(Ordering::Acquire);
        sequence::Mark { number, wide: self.wide.as_ref().map_or(0, |wide| wide.load(order)) }
    }

    fn store(&self, mark: sequence::Mark, order: Ordering) {
        if let Some(wide) = &self.wide {
            wide.store(mark.wide, order);
        }
        self.number.store(mark.number, order);
    }

    fn next(mark: sequence::Mark) -> sequence::Mark {
        sequence::Mark { number: mark.number ^ 1, wide: mark.wide + 1 }
    }
}

fn explore_narrow(is_wide: bool) {
    loom::model(move || {
        let narrow = Narrow { number: AtomicU32::new(0), wide: is_wide.then(|| AtomicU64::new(0)) };
        let shared = Arc::new((narrow, [AtomicU64::new(0), AtomicU64::new(0)]));
        let of_writer = shared.clone();
        let writer = thread::spawn(move || {
            let (narrow, words) = &*of_writer;
            sequence::write(narrow, || words.iter().for_each(|word| sequence::put(word, 1)));
        });
        let (narrow, words) = &*shared;
        let read = sequence::read(narrow, || [sequence::get(&words[0]), sequence::get(&words[1])]);
        if let Ok((_, [first, second])) = read {
            assert_eq!(first, second, "a torn content");
        }
        writer.join().unwrap();
    });
}
