//! Model: two threads leave parts of one span, a third parts of another, while a fourth adopts, in every order. Then
//! mutants with one fault each, which the same checks must catch.

use super::*;
use ::loom::cell::UnsafeCell;
use ::loom::thread;
use std::boxed::Box;

/// The ways in which threads add parts to the list, and take it. Models replace one by a wrong one.
#[derive(Clone, Copy)]
struct Algorithm {
    leave: fn(&Model, u64, u64),
    adopt: fn(&Model, &mut dyn FnMut(u64, u64)),
}

const RIGHT: Algorithm = Algorithm {
    leave: |model, span, parts| {
        let link = |span, next| model.link(span, next);
        model.returned.leave(span, model.word(span), parts, link);
    },
    adopt: |model, each| {
        let adopted = model.returned.adopt(|span| model.next(span), |span| model.word(span));
        adopted.for_each(|(span, parts)| each(span, parts));
    },
};

struct Model {
    returned: Returned,
    words: [AtomicU64; 2],
    next: [UnsafeCell<u64>; 2],
    /// The objects of the parts, by bit: loom detects two owners at a time.
    objects: [UnsafeCell<u32>; 3],
}

impl Model {
    fn word(&self, span: u64) -> &AtomicU64 {
        &self.words[span as usize - 1]
    }

    fn link(&self, span: u64, next: u64) {
        // SAFETY: this thread changed the span's word from 0; loom checks it.
        self.next[span as usize - 1].with_mut(|it| unsafe { *it = next });
    }

    fn next(&self, span: u64) -> u64 {
        // SAFETY: this thread took the list, and the span's word is not 0; loom checks it.
        self.next[span as usize - 1].with(|it| unsafe { *it })
    }

    /// Uses the objects of these parts, which belong to the caller.
    fn use_objects(&self, parts: u64) {
        for (nth, object) in self.objects.iter().enumerate() {
            if parts & 1 << nth != 0 {
                // SAFETY: the caller's; loom checks it.
                object.with_mut(|it| unsafe { *it += 1 });
            }
        }
    }
}

fn explore(ways: Algorithm) {
    crate::explore::within(3, move || {
        // Leaked: loom panics in a drop after a fault.
        let model: &'static Model = Box::leak(Box::new(Model {
            returned: Returned::new(),
            words: core::array::from_fn(|_| AtomicU64::new(0)),
            next: core::array::from_fn(|_| UnsafeCell::new(0)),
            objects: core::array::from_fn(|_| UnsafeCell::new(0)),
        }));
        let leaves = [(1, 0b001), (1, 0b010), (2, 0b100)].map(|(span, parts)| {
            move || {
                model.use_objects(parts);
                (ways.leave)(model, span, parts);
            }
        });
        let [first, second, third] = leaves;
        let others = [thread::spawn(second), thread::spawn(third)];
        first();
        let mut all = 0;
        let mut adopt = || {
            (ways.adopt)(model, &mut |_, parts| {
                model.use_objects(parts);
                assert_eq!(all & parts, 0, "adopted twice");
                all |= parts;
            });
        };
        adopt();
        others.into_iter().for_each(|other| other.join().unwrap());
        adopt();
        assert_eq!(all, 0b111, "parts are lost");
        assert!(model.returned.is_empty());
    });
}

#[test]
fn loom_parts_are_adopted_once() {
    explore(RIGHT);
}

/// As `Returned::leave` and `Returned::adopt`.
fn leave_with(model: &Model, span: u64, parts: u64, order: Ordering) {
    if model.word(span).fetch_or(parts, order) == 0 {
        model.returned.spans.leave(span, |span, next| model.link(span, next));
    }
}

fn adopt_with(model: &Model, each: &mut dyn FnMut(u64, u64), take: fn(&AtomicU64) -> u64) {
    let spans = model.returned.spans.adopt(|span| model.next(span));
    spans.for_each(|span| each(span, take(model.word(span))));
}

/// Otherwise the mutants below would prove nothing.
#[test]
fn loom_a_twin_without_a_fault_passes() {
    explore(Algorithm {
        leave: |model, span, parts| leave_with(model, span, parts, Ordering::AcqRel),
        adopt: |model, each| adopt_with(model, each, |word| word.swap(0, Ordering::AcqRel)),
    });
}

/// The adopter does not see what the thread that did not link did to its objects.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_parts_left_without_release() {
    let leave = |model: &Model, span: u64, parts: u64| {
        leave_with(model, span, parts, Ordering::Acquire);
    };
    explore(Algorithm { leave, ..RIGHT });
}

/// A span is linked again while its link is read.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_a_span_adopted_without_release() {
    let adopt = |model: &Model, each: &mut dyn FnMut(u64, u64)| {
        adopt_with(model, each, |word| word.swap(0, Ordering::Acquire));
    };
    explore(Algorithm { adopt, ..RIGHT });
}

/// Parts that arrive between the load and the store are lost.
#[test]
#[should_panic(expected = "parts are lost")]
fn loom_catches_a_store_instead_of_an_exchange() {
    let adopt = |model: &Model, each: &mut dyn FnMut(u64, u64)| {
        adopt_with(model, each, |word| {
            let parts = word.load(Ordering::Acquire);
            word.swap(0, Ordering::Release);
            parts
        });
    };
    explore(Algorithm { adopt, ..RIGHT });
}
