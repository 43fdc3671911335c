//! Model: three threads free one object; one of them succeeds and allocates another object in its place, in every
//! order. Then mutants with one fault each, which the same checks must catch.

use super::*;
use ::loom::cell::UnsafeCell;
use ::loom::thread;
use std::boxed::Box;

const OUT: u8 = 2;
const NOTHING: u8 = 0;

#[derive(Clone, Copy)]
struct Algorithm {
    give: fn(&AtomicU8),
    take_back: fn(&AtomicU8) -> bool,
}

const RIGHT: Algorithm =
    Algorithm { give: |byte| give(byte, OUT), take_back: |byte| take_back(byte, OUT, NOTHING) };

struct Model {
    ways: Algorithm,
    byte: AtomicU8,
    /// The object's record, used by its owner: loom detects two at a time.
    chunks: UnsafeCell<u32>,
}

impl Model {
    fn set(&self, chunks: u32) {
        // SAFETY: the object belongs to the caller; loom checks it.
        self.chunks.with_mut(|it| unsafe { *it = chunks });
        (self.ways.give)(&self.byte);
    }

    /// The chunks of the object that was freed, or 0.
    fn free(&self) -> u32 {
        if !(self.ways.take_back)(&self.byte) {
            return 0;
        }
        // SAFETY: the object belongs to the caller; loom checks it.
        self.chunks.with_mut(|it| unsafe { core::mem::replace(&mut *it, 0) })
    }
}

fn explore(ways: Algorithm) {
    ::loom::model(move || {
        // Leaked: loom panics in a drop after a fault.
        let model: &'static Model = Box::leak(Box::new(Model {
            ways,
            byte: AtomicU8::new(NOTHING),
            chunks: UnsafeCell::new(0),
        }));
        model.set(1);
        let wrong = [(); 2].map(|()| thread::spawn(|| model.free()));
        let first = model.free();
        // The memory is allocated again if this thread was the first.
        let given = if first > 0 {
            model.set(10);
            11
        } else {
            1
        };
        let freed: u32 = wrong.into_iter().map(|wrong| wrong.join().unwrap()).sum();
        // Each object was freed once, or is still allocated.
        assert_eq!(first + freed + model.free(), given);
    });
}

#[test]
fn loom_one_of_those_who_free_is_right() {
    explore(RIGHT);
}

/// Two threads succeed.
#[test]
#[should_panic]
fn loom_catches_a_look_instead_of_an_exchange() {
    let take_back = |byte: &AtomicU8| {
        let is_out = byte.load(Ordering::Acquire) == OUT;
        byte.store(NOTHING, Ordering::Relaxed);
        is_out
    };
    explore(Algorithm { take_back, ..RIGHT });
}

/// The record of the next object is not visible yet.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_an_object_given_without_release() {
    explore(Algorithm { give: |byte| byte.store(OUT, Ordering::Relaxed), ..RIGHT });
}

/// The record of the next object is not visible yet.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_an_object_taken_without_acquire() {
    let take_back = |byte: &AtomicU8| {
        byte.compare_exchange(OUT, NOTHING, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    };
    explore(Algorithm { take_back, ..RIGHT });
}
