//! Model: two threads leave objects, and one adopts them, uses them and leaves one again, in every order. Then
//! mutants with one fault each, which the same checks must catch.

use super::*;
use ::loom::cell::UnsafeCell;
use ::loom::thread;
use std::boxed::Box;
use std::vec::Vec;

const OBJECTS: usize = 3;

/// The ways in which threads add objects to the list, and take it. Models replace one by a wrong one.
#[derive(Clone, Copy)]
struct Algorithm {
    leave: fn(&Model, u64),
    adopt: fn(&Model, &mut dyn FnMut(u64)),
}

const RIGHT: Algorithm = Algorithm {
    leave: |model, object| model.orphans.leave(object, |object, next| model.link(object, next)),
    adopt: |model, each| model.orphans.adopt(|object| model.next(object)).for_each(each),
};

struct Model {
    ways: Algorithm,
    orphans: Orphans,
    /// The first words of objects 1, 2, …
    words: [UnsafeCell<u64>; OBJECTS],
}

impl Model {
    fn link(&self, object: u64, next: u64) {
        // SAFETY: the object belongs to this thread; loom checks it.
        self.words[object as usize - 1].with_mut(|word| unsafe { *word = next });
    }

    fn next(&self, object: u64) -> u64 {
        // SAFETY: the object belongs to this thread; loom checks it.
        self.words[object as usize - 1].with(|word| unsafe { *word })
    }

    /// Takes all objects on the list, and uses them.
    fn adopt(&self) -> Vec<u64> {
        let mut adopted = Vec::new();
        (self.ways.adopt)(self, &mut |object| {
            // The program writes to the object.
            self.link(object, 77);
            adopted.push(object);
        });
        adopted
    }
}

fn explore(ways: Algorithm) {
    crate::explore::within(3, move || {
        // Leaked: loom panics in a drop after a fault.
        let words = core::array::from_fn(|_| UnsafeCell::new(0));
        let model: &'static Model =
            Box::leak(Box::new(Model { ways, orphans: Orphans::new(), words }));
        (ways.leave)(model, 1);
        let others = [2, 3].map(|object| thread::spawn(move || (ways.leave)(model, object)));
        let mut adopted = model.adopt();
        // The head may become what another thread has seen before.
        if let Some(again) = adopted.pop() {
            (ways.leave)(model, again);
        }
        others.into_iter().for_each(|other| other.join().unwrap());
        adopted.extend(model.adopt());
        adopted.sort_unstable();
        assert_eq!(adopted, [1, 2, 3]);
        assert!(model.orphans.is_empty());
    });
}

#[test]
fn loom_orphans_are_adopted_once() {
    explore(RIGHT);
}

/// As `Orphans::leave`.
fn leave_with(model: &Model, object: u64, order: Ordering) {
    let head = &model.orphans.head;
    let mut seen = head.load(Ordering::Relaxed);
    loop {
        model.link(object, seen);
        match head.compare_exchange(seen, object, order, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}

/// As `Orphans::adopt`, of a list that was taken.
fn walk(model: &Model, first: u64, each: &mut dyn FnMut(u64)) {
    let mut object = first;
    while object != 0 {
        let next = model.next(object);
        each(object);
        object = next;
    }
}

/// Otherwise the mutants below would prove nothing.
#[test]
fn loom_twins_without_a_fault_pass() {
    explore(Algorithm {
        leave: |model, object| leave_with(model, object, Ordering::Release),
        adopt: |model, each| walk(model, model.orphans.head.swap(0, Ordering::Acquire), each),
    });
}

/// The link is not visible yet.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_objects_left_without_release() {
    let leave = |model: &Model, object| leave_with(model, object, Ordering::Relaxed);
    explore(Algorithm { leave, ..RIGHT });
}

/// The link is not visible yet.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_a_list_taken_without_acquire() {
    explore(Algorithm {
        adopt: |model, each| walk(model, model.orphans.head.swap(0, Ordering::Relaxed), each),
        ..RIGHT
    });
}

/// An object that was left in between is lost.
#[test]
#[should_panic]
fn loom_catches_a_list_taken_in_two_steps() {
    explore(Algorithm {
        adopt: |model, each| {
            let first = model.orphans.head.load(Ordering::Acquire);
            model.orphans.head.swap(0, Ordering::Relaxed);
            walk(model, first, each);
        },
        ..RIGHT
    });
}

/// Another thread's object is lost.
#[test]
#[should_panic]
fn loom_catches_an_object_left_without_a_compare() {
    explore(Algorithm {
        leave: |model, object| {
            model.link(object, model.orphans.head.load(Ordering::Relaxed));
            model.orphans.head.swap(object, Ordering::Release);
        },
        ..RIGHT
    });
}

/// The object belongs to the program when its first word is read.
#[test]
#[should_panic]
fn loom_catches_a_link_read_too_late() {
    explore(Algorithm {
        adopt: |model, each| {
            let mut object = model.orphans.head.swap(0, Ordering::Acquire);
            while object != 0 && object != 77 {
                each(object);
                object = model.next(object);
            }
        },
        ..RIGHT
    });
}
