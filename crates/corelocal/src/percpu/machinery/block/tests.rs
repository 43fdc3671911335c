//! Tests of `block.rs`.

use super::*;
use crate::cid::Cid;
use crate::primitive::atomic::{AtomicI64, Ordering};
use std::collections::HashSet;
use std::vec::Vec;

type Line = [AtomicI64; 8];

#[test]
fn blocks_are_distinct_and_come_back_zeroed() {
    let blocks: Vec<Block<Line>> = (0..20_000).map(|_| Block::allocate::<Cid>().unwrap()).collect();
    let distinct: HashSet<usize> = blocks.iter().map(|block| block.base() as usize).collect();
    assert_eq!(distinct.len(), blocks.len());
    // Makes a slot used: only used slots are cleared.
    cid::current::<cid::CpuId>();
    let used = cid::highest_water(false) > 0;
    for block in &blocks {
        if used {
            block.slot(0)[3].store(7, Ordering::Relaxed);
        }
        block.shared(0)[7].store(9, Ordering::Relaxed);
    }
    for block in blocks {
        // SAFETY: allocated above, used by this thread alone.
        unsafe { block.free::<Cid>(1) };
    }
    for _ in 0..64 {
        let block = Block::<Line>::allocate::<Cid>().unwrap();
        let words = block.slot(0).iter().chain(block.shared(0));
        assert!(words.into_iter().all(|word| word.load(Ordering::Relaxed) == 0));
        // SAFETY: allocated above, used by this thread alone.
        unsafe { block.free::<Cid>(1) };
    }
}

#[test]
fn long_blocks() {
    type Long = [[AtomicI64; 1 << 10]; 100];
    for _ in 0..5 {
        let block = Block::<Long>::allocate::<Cid>().unwrap();
        assert_eq!(block.base() as usize % SHORTEST_PAGE, 0);
        assert_eq!(block.shared(0)[99][1000].load(Ordering::Relaxed), 0);
        block.shared(0)[99][1000].store(1, Ordering::Relaxed);
        // SAFETY: allocated above, used by this thread alone.
        unsafe { block.free::<Cid>(1) };
    }
}

#[test]
fn slots_do_not_share_lines() {
    let block = Block::<Line>::allocate::<Cid>().unwrap();
    let (first, shared) = (block.slot(0).as_ptr() as usize, block.shared(0).as_ptr() as usize);
    assert_eq!(shared - first, SLOT_LEN);
    if cid::capacity() > 1 {
        assert_eq!(first - block.slot(1).as_ptr() as usize, SLOT_LEN);
    }
    assert_eq!(block.base() as usize % size_of::<Line>(), 0);
    // SAFETY: allocated above, used by this thread alone.
    unsafe { block.free::<Cid>(0) };
}
