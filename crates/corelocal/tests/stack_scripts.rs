//! Random scripts of stack operations, compared with naive models: a bag, whichever slots the thread is given, and a
//! `Vec` for each core where slots are not taken away.

mod sandbox;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;

use corelocal::cid::{self, Cid, CpuId};
use corelocal::percpu::{Batch, PushError, Stack};
use proptest::prelude::*;
use sandbox::{in_child, run_in_child};

/// One step of a script; the number is what to push, or how many.
#[derive(Clone, Debug)]
enum Op {
    Push(u32),
    Pop,
    PushSome(Vec<u32>),
    PopSome(usize),
    Drain,
    Spill(u32),
    Refill(u32),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => any::<u32>().prop_map(Op::Push),
        4 => Just(Op::Pop),
        2 => proptest::collection::vec(any::<u32>(), 0..9).prop_map(Op::PushSome),
        2 => (0..9usize).prop_map(Op::PopSome),
        1 => Just(Op::Drain),
        1 => any::<u32>().prop_map(Op::Spill),
        1 => any::<u32>().prop_map(Op::Refill),
    ]
}

const ROOM: usize = 8;

/// What a script leaves is what a bag leaves, whichever slots its thread is given.
fn behaves_like_a_bag<T, I>(script: &[Op], item: fn(u32) -> T)
where
    T: Send + Clone + Ord + Debug + 'static,
    I: cid::SlotIndex,
{
    let mut stack: Stack<T, ROOM, I> = Stack::new();
    let mut bag: BTreeMap<T, usize> = BTreeMap::new();
    fn add<T: Ord>(bag: &mut BTreeMap<T, usize>, item: T) {
        *bag.entry(item).or_default() += 1;
    }
    fn remove<T: Ord + Debug>(bag: &mut BTreeMap<T, usize>, item: T) {
        let count = bag.get_mut(&item).unwrap_or_else(|| panic!("{item:?} was not there"));
        *count -= 1;
        if *count == 0 {
            bag.remove(&item);
        }
    }
    for op in script {
        match op {
            Op::Push(n) => match stack.push(item(*n)) {
                Ok(()) => add(&mut bag, item(*n)),
                Err(PushError(refused)) => assert_eq!(refused, item(*n)),
            },
            Op::Pop => stack.pop().into_iter().for_each(|item| remove(&mut bag, item)),
            Op::PushSome(all) => {
                let mut batch: Batch<T, 8> = Batch::new();
                batch.fill(all.iter().map(|n| item(*n)));
                let pushed = stack.push_some(&mut batch);
                let (pushed, rest) = all.split_at(pushed);
                pushed.iter().for_each(|n| add(&mut bag, item(*n)));
                assert!(batch.eq(rest.iter().rev().map(|n| item(*n))));
            }
            Op::PopSome(room) => {
                let mut batch: Batch<T, 8> = Batch::new();
                batch.fill((*room as u32..8).map(item));
                let popped = stack.pop_some(&mut batch);
                batch.by_ref().take(popped).for_each(|item| remove(&mut bag, item));
                assert!(batch.eq((*room as u32..8).map(item).rev()));
            }
            Op::Drain => {
                stack.drain_mut().take(4).for_each(|item| remove(&mut bag, item));
            }
            Op::Spill(n) => {
                add(&mut bag, item(*n));
                stack.push_or_spill(item(*n), |batch: Batch<T, 4>| {
                    batch.for_each(|item| remove(&mut bag, item));
                });
            }
            Op::Refill(n) => {
                let mut surplus = Vec::new();
                let popped = stack.pop_or_refill(
                    |batch: &mut Batch<T, 2>| {
                        batch.fill([item(*n), item(n / 2)]);
                        add(&mut bag, item(*n));
                        add(&mut bag, item(n / 2));
                    },
                    |rest| surplus.extend(rest),
                );
                popped.into_iter().chain(surplus).for_each(|item| remove(&mut bag, item));
            }
        }
        assert_eq!(stack.len(), bag.values().sum::<usize>());
    }
    stack.drain_mut().for_each(|item| remove(&mut bag, item));
    assert!(bag.is_empty(), "{bag:?} is missing");
}

#[repr(align(32))]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Aligned(Box<u32>);

/// One thread, one core: what a script does is what it does to a `Vec` of that core.
fn behaves_like_vectors<T: Send + Clone + PartialEq + Debug + 'static>(
    script: &[Op],
    item: fn(u32) -> T,
) {
    let stack: Stack<T, ROOM> = Stack::new();
    let mut vectors: HashMap<u32, Vec<T>> = HashMap::new();
    for op in script {
        let slot = cid::current::<Cid>();
        let model = vectors.entry(slot).or_default();
        let before = model.clone();
        let agrees = match op {
            Op::Push(n) => {
                let fits = model.len() < ROOM;
                if fits {
                    model.push(item(*n));
                }
                stack.push(item(*n)).is_ok() == fits
            }
            Op::PushSome(all) => {
                let fits = all.len().min(ROOM - model.len());
                model.extend(all[..fits].iter().map(|n| item(*n)));
                let mut batch: Batch<T, 8> = Batch::new();
                batch.fill(all.iter().map(|n| item(*n)));
                stack.push_some(&mut batch) == fits
            }
            Op::PopSome(most) => {
                let mut batch: Batch<T, 8> = Batch::new();
                batch.fill((*most as u32..8).map(item));
                let popped = stack.pop_some(&mut batch);
                let left = model.len().saturating_sub(*most);
                let expected = model.split_off(left);
                batch.by_ref().take(popped).eq(expected.into_iter().rev())
            }
            _ => stack.pop() == model.pop(),
        };
        if cid::current::<Cid>() != slot {
            // The thread has come to another core in between, so the step was one there, perhaps.
            return;
        }
        assert!(agrees, "{op:?} on {before:?}");
    }
}

proptest! {
    // The failing script is printed; there is no file of them to keep beside a `tests/*.rs`.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_script(script in proptest::collection::vec(op(), 1..100)) {
        behaves_like_a_bag::<u64, Cid>(&script, u64::from);
        behaves_like_a_bag::<u8, CpuId>(&script, |n| n as u8);
        behaves_like_a_bag::<(), Cid>(&script, |_| ());
        behaves_like_a_bag::<Box<u32>, CpuId>(&script, Box::new);
        behaves_like_a_bag::<String, Cid>(&script, |n| n.to_string());
        behaves_like_a_bag::<[u8; 9], Cid>(&script, |n| [n as u8; 9]);
        behaves_like_a_bag::<Aligned, Cid>(&script, |n| Aligned(Box::new(n)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    // Runs in a process of its own: see `last_in_first_out`.
    #[test]
    fn last_in_first_out_script(script in proptest::collection::vec(op(), 1..100)) {
        if in_child() {
            behaves_like_vectors::<u64>(&script, u64::from);
            behaves_like_vectors::<String>(&script, |n| n.to_string());
            behaves_like_vectors::<[u16; 7]>(&script, |n| [n as u16; 7]);
        }
    }
}

/// Where no other test takes slots away, a core's stack is a stack.
#[test]
fn last_in_first_out() {
    run_in_child("last_in_first_out", |_| (), last_in_first_out_script);
}
