//! Frees to the calling core's stack, which spills to the middle end when it is full.
//!
//! Invariants: those of `slots.rs`.

use core::sync::atomic::Ordering;

use super::batch::pop_some;
use super::count;
use super::slots::{leased, near, push_section, slots};
use crate::alloc::central::place::Place;
use crate::alloc::fault::{self, Fault};
use crate::alloc::layout::class::MOST_BATCH;
use crate::alloc::layout::stack;
use crate::alloc::{central, hook};
use crate::cid::{self, Cid};
use crate::rseq::{self, Slots};

const R: Ordering = Ordering::Relaxed;

/// Pushes an object onto its class's stack, or spills to the middle end.
pub(in crate::alloc) fn push_or_spill(place: Place, object: u64) {
    let class = place.class;
    let Some(slots) = slots() else { return central::give(place, &[object]) };
    let attempt = || push_section(slots, stack::at(class), object);
    let first = attempt();
    if first.is_straight() {
        return;
    }
    match rseq::retry(first, cid::prepare::<Cid>, attempt) {
        Some(exit) if exit.is_committed() => {}
        Some(_) => overflow(slots, place, object),
        None => {
            let pushed = leased(|core_cache| {
                let stack = &core_cache.stacks[class];
                stack.limit.store(place.shape().most as u64, R);
                stack.push(object, place.shape().most as u64)
            });
            if pushed != Some(true) {
                spill(place, object);
            }
        }
    }
}

/// Handles a push that failed: the stack is full, has no limit yet, or has this very object on top.
fn overflow(slots: &Slots, place: Place, object: u64) {
    if let Some(core_cache) = near() {
        if core_cache.stacks[place.class].top() == object {
            fault::report(Fault::Twice, object as usize);
        }
        if core_cache.grow(place)
            && push_section(slots, stack::at(place.class), object).is_straight()
        {
            return;
        }
    }
    spill(place, object);
}

/// Moves the object, and others of its stack, to the middle end.
fn spill(place: Place, object: u64) {
    let near = near();
    if let Some(core_cache) = near {
        count(&core_cache.counts[place.class].spills);
    }
    let mut batch = [0; MOST_BATCH + 1];
    let popped = match near.map_or(place.shape().batch, |core_cache| core_cache.batch(place)) {
        1 => 0,
        most => pop_some(place.class, &mut batch[..most]),
    };
    batch[popped] = object;
    central::give(place, &batch[..=popped]);
    hook::after_giving(place.range);
}
