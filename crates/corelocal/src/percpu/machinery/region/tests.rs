//! Blocks are allocated and freed, pinned and by many threads.

use super::*;
use crate::scaled::scaled;
use std::vec::Vec;

const OPAQUE: Class = Class { kind: Kind::Opaque, by_node: false };

#[test]
fn a_pinned_block_outlives_its_release() {
    let shift = 12;
    let base = allocate(OPAQUE, shift).unwrap();
    let region = regions(OPAQUE, shift).find(|r| r.number_of(base).is_some()).unwrap();
    let number = region.number_of(base).unwrap();
    assert!(region.pin(number) && !region.pin(number));
    // SAFETY: allocated above, used by this test alone.
    unsafe { base.cast::<u64>().write(7) };
    // SAFETY: allocated above, used by this test alone.
    unsafe { release(base, OPAQUE, shift, 1) };
    assert_eq!(region.state(number).now(), block_state::FREEING);
    assert!(!region.pin(number));
    region.unpin(number);
    assert_eq!(region.state(number).now(), block_state::FREE);
    // SAFETY: a region's memory, which stays mapped. Other tests of this process that allocate blocks of this kind
    // and length leave free blocks alone.
    assert_eq!(unsafe { base.cast::<u64>().read() }, 0);
}

#[test]
fn threads_share_a_region() {
    std::thread::scope(|scope| {
        for thread in 1..=4u64 {
            scope.spawn(move || {
                for _ in 0..scaled(200) {
                    let blocks: Vec<_> = (0..40).map(|_| allocate(OPAQUE, 6).unwrap()).collect();
                    for base in &blocks {
                        let word = base.cast::<u64>();
                        // SAFETY: a block of this thread's own, in its first shared slot.
                        unsafe {
                            assert_eq!(word.read(), 0);
                            word.write(thread);
                        }
                    }
                    for base in blocks {
                        // SAFETY: allocated above.
                        unsafe {
                            assert_eq!(base.cast::<u64>().read(), thread);
                            release(base, OPAQUE, 6, 1);
                        }
                    }
                }
            });
        }
    });
}

/// Blocks shorter than the kernel's pages, but not than the smallest pages: the kernel discards whole pages.
#[test]
fn neighbours_survive() {
    // A length other than that of the pinned block, which must stay free.
    let shift = 13;
    let blocks: Vec<_> = (0..64).map(|_| allocate(OPAQUE, shift).unwrap()).collect();
    // SAFETY: a block of this test's own, in its first shared slot.
    let word = |nth: usize| unsafe { AtomicU64::from_ptr(blocks[nth].cast()) };
    for nth in 0..64 {
        word(nth).store(1000 + nth as u64, Ordering::Relaxed);
    }
    for nth in (0..64).step_by(3) {
        // SAFETY: allocated above, and no longer used.
        unsafe { release(blocks[nth], OPAQUE, shift, 1) };
    }
    let left: Vec<_> = (0..64).filter(|nth| nth % 3 != 0).collect();
    for nth in &left {
        assert_eq!(word(*nth).load(Ordering::Relaxed), 1000 + *nth as u64, "block {nth}");
    }
    for nth in left {
        // SAFETY: allocated above, and no longer used.
        unsafe { release(blocks[nth], OPAQUE, shift, 1) };
    }
}

/// Thousands of objects cost the same the second time, in whatever order they were freed.
#[test]
fn the_second_time_looks_at_few_words() {
    let (list, shift) = (List::new(), 12);
    let blocks_of_three_regions = 3 * Region::blocks_of(shift);
    let round = |order: fn(&mut Vec<*mut u8>)| {
        block_state::LOOKS.set(0);
        let allocate = |_| list.allocate(OPAQUE, shift).unwrap();
        let mut blocks: Vec<_> = (0..blocks_of_three_regions).map(allocate).collect();
        let looks = block_state::LOOKS.get();
        order(&mut blocks);
        for base in blocks {
            // SAFETY: allocated above with this class and length, never used.
            unsafe { list.release(base, (OPAQUE, shift), 1, zero) };
        }
        (looks, list.regions().count())
    };
    let regions = round(|_| ()).1;
    let orders: [fn(&mut Vec<*mut u8>); 3] =
        [|_| (), |blocks| blocks.reverse(), |blocks| blocks.rotate_left(300)];
    for order in orders {
        let (looks, now) = round(order);
        // One word for each block, and what it takes to go from word to word and from region to region.
        assert!(
            looks < 3 * blocks_of_three_regions,
            "{looks} words for {blocks_of_three_regions} blocks"
        );
        assert_eq!(now, regions, "a region was made while blocks were free");
    }
    let mut list = list;
    // SAFETY: all blocks are free.
    unsafe { list.unmap() };
}

/// A hint that misses a free block costs time, but no additional region.
#[test]
fn a_missed_block_is_found_before_a_region_is_made() {
    let (mut list, shift) = (List::new(), 16);
    let blocks: Vec<_> =
        (0..2 * Region::blocks_of(shift)).map(|_| list.allocate(OPAQUE, shift).unwrap()).collect();
    // SAFETY: allocated above with this class and length, never used.
    unsafe { list.release(blocks[0], (OPAQUE, shift), 1, zero) };
    list.search_from(list.regions().last().unwrap());
    list.regions().for_each(|region| region.first.store(u32::MAX, Ordering::Relaxed));
    assert_eq!(list.allocate(OPAQUE, shift), Some(blocks[0]));
    assert_eq!(list.regions().count(), 2);
    // SAFETY: this test allocated the blocks, and no longer uses them.
    unsafe { list.unmap() };
}
