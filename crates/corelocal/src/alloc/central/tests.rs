//! Tests of `central.rs`.

use super::*;
use crate::alloc::layout::class::shape;
use crate::scaled::scaled;
use crate::sys::forks::Identity;
use std::collections::HashSet;
use std::vec;
use std::vec::Vec;

fn place(class: usize) -> Place {
    Place::new(Range::make().unwrap(), class)
}

/// A signal handler that interrupted the holder of the lock gets objects and loses none.
#[test]
fn whoever_interrupts_the_holder_goes_another_way() {
    let place = place(11);
    let central = central(place);
    let (mut first, mut second) = ([0; 8], [0; 8]);
    let taken = {
        let _held = central.lock(place).expect("not for long");
        assert_eq!(take(place, &mut first), 8);
        let taken = take(place, &mut second);
        give(place, &first[..4]);
        taken
    };
    assert!(!central.orphans.is_empty());
    let all: HashSet<u64> = first.iter().chain(&second[..taken]).copied().collect();
    assert_eq!(all.len(), 8 + taken);
    give(place, &first[4..]);
    give(place, &second[..taken]);
    assert!(central.orphans.is_empty());
}

/// While another thread holds the lock and does not run, objects that were held return with the next holder.
#[test]
fn a_thinning_does_not_wait_for_the_lock() {
    if crate::sys::memory::page_size::page_size() >= crate::alloc::layout::chunk::CHUNK {
        std::eprintln!("skipped: a_thinning_does_not_wait_for_the_lock: a chunk is one page");
        return;
    }
    // A class that no other test of this process uses.
    let place = place(26);
    let central = central(place);
    let mut objects = vec![0; place.shape().capacity];
    let locked = central.lock(place).expect("not for long");
    assert_eq!(central.spans.take(place, &mut objects), objects.len());
    let (kept, freed) = objects.split_last().expect("one at least");
    central.spans.give(place, freed);
    let chunk = place.range.chunk_of(*kept as usize) & !(place.shape().chunks - 1);
    let parts = thinning::begin(&central.spans, place, chunk, false).expect("it need not rest");
    assert!(parts.count_ones() > 1, "{parts:x}");
    drop(locked);
    let record = place.range.record(chunk);
    let another = Identity::of_this_thread().number() ^ (1 << (Identity::BITS - 1));
    let held = central.lock.lock_as(Identity::of_number(another));
    // In two steps, as if by two threads that released different parts.
    let one = parts & parts.wrapping_neg();
    [one, parts & !one].into_iter().for_each(|parts| central.put_back(place, chunk, parts));
    assert!(record.out.load(R) > 1 && !central.returned.is_empty());
    drop(held);
    drop(central.lock(place).expect("not for long"));
    assert!(record.out.load(R) == 1 && central.returned.is_empty());
    assert_eq!((record.clean.load(R), record.returned.load(R)), (parts, 0));
    give(place, &[*kept]);
    flush(place, false);
}

#[test]
fn objects_are_with_one_thread_at_a_time() {
    let rounds = scaled(200).max(60) as usize;
    for class in [3, 30, CLASSES - 10] {
        let place = place(class);
        std::thread::scope(|scope| {
            for name in 1..=4u64 {
                scope.spawn(move || {
                    let mut held: Vec<u64> = Vec::new();
                    for round in 0..rounds {
                        let mut to = [0; 64];
                        let taken = take(place, &mut to[..1 + round % shape(class).batch]);
                        assert!(taken > 0);
                        for object in &to[..taken] {
                            // SAFETY: just allocated, so an object that this thread owns.
                            unsafe { (*object as *mut u64).write(name) };
                        }
                        held.extend(&to[..taken]);
                        if round % 3 == 0 {
                            for object in &held {
                                // SAFETY: just allocated, so an object that this thread owns.
                                assert_eq!(unsafe { (*object as *mut u64).read() }, name);
                            }
                            held.chunks(64).for_each(|objects| give(place, objects));
                            held.clear();
                        }
                        if round % 50 == 0 {
                            flush(place, false);
                        }
                    }
                    held.chunks(64).for_each(|objects| give(place, objects));
                });
            }
        });
    }
}

#[test]
fn a_depot_that_rests_is_flushed() {
    // A class that no other test of this process uses.
    let place = place(27);
    let mut to = [0; 16];
    assert_eq!(take(place, &mut to), 16);
    give(place, &to);
    assert_eq!(waiting(place), 16);
    assert_eq!(flush(place, true), 0);
    assert_eq!(flush(place, true), 16);
    assert_eq!((waiting(place), flush(place, false)), (0, 0));
}
