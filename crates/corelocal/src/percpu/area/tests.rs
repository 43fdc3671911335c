use super::*;
use crate::cid::{CpuId, NodeCid};
use crate::percpu::machinery::region::SLOT_LEN;
use crate::rseq::{SLOT_SHIFT, offset};
use crate::scaled::scaled;
use std::vec::Vec;
use std::{format, mem};

/// The address of a cell's word under the first slot, or in its first shared slot if no slot is in use.
fn place<const WORDS: usize, I: SlotIndex>(cell: &Cell<'_, WORDS, I>) -> *mut u64 {
    cid::current::<CpuId>();
    let (block, _) = cell.words().used().unwrap();
    let distance = if cid::highest_water(false) > 0 { offset(0) as usize } else { 0 };
    block.base().wrapping_add(distance).cast()
}

fn cells_start_out_as_the_image_by<I: SlotIndex>() {
    let area: Area<3, I> = Area::with_image([5, u64::MAX, 0]);
    for _ in 0..10 {
        let cell = area.take().unwrap();
        assert!(cell.iter().all(|(_, words)| words == [5, u64::MAX, 0]));
        assert_eq!(cell.at::<0>().load(), 5);
        assert_eq!(cell.at::<1>().add_fetch(3), 2);
        assert_eq!(cell.at::<2>().store_if_equal(1, 7), Err(crate::percpu::Mismatch));
        while cell.at::<2>().store_if_equal(0, 7).is_err() {}
        cell.at::<0>().add(1);
        assert_eq!(cell.at::<0>().added(), 1);
        let sum = cell.fold(0u64, |sum, words| sum.wrapping_add(words[2]));
        assert_eq!(sum, 7);
        assert!(cell.word(2).is_some() && cell.word(3).is_none());
    }
    let memory = area.memory();
    assert_eq!((memory.cells, memory.peak), (0, 1));
    assert!(memory.reserved >= (cid::capacity_of::<I>() as usize) << SLOT_SHIFT);
}

#[test]
fn cells_start_out_as_the_image() {
    cells_start_out_as_the_image_by::<Cid>();
    cells_start_out_as_the_image_by::<CpuId>();
    cells_start_out_as_the_image_by::<NodeCid>();
}

#[test]
fn exchanges_and_updates() {
    let area: Area<1, CpuId> = Area::with_image([10]);
    let cell = area.take().unwrap();
    let word = cell.at::<0>();
    let old = word.exchange(4);
    assert_eq!((old, word.added()), (10, 4u64.wrapping_sub(10)));
    assert!(word.fetch_update(|_| None).is_err());
    while word.fetch_update(|word| (word == 4).then_some(10)).is_err() {}
    assert_eq!(word.added(), 0);
    assert_eq!((format!("{cell:?}"), format!("{word:?}")), ("{}".into(), "{}".into()));
}

#[test]
fn cells_lie_side_by_side() {
    let area: Area<2> = Area::new();
    let cells: Vec<_> = (0..256).map(|_| area.take().unwrap()).collect();
    let places: Vec<usize> = cells.iter().map(|cell| place(cell) as usize).collect();
    assert!(places.windows(2).all(|pair| pair[1] - pair[0] == 16));
    assert_eq!((area.memory().per_cell, area.memory().regions), (16, 1));
    drop(cells);
    assert_eq!(place(&area.take().unwrap()) as usize, places[0]);
}

#[test]
fn an_area_grows() {
    type Long = Area<{ SLOT_LEN / 64 }>;
    let area: Long = Area::new();
    assert_eq!(area.memory().reserved, 0);
    let mut cells: Vec<_> = (0..20).map(|_| area.take().unwrap()).collect();
    for (n, cell) in (1..).zip(&cells) {
        cell.word(SLOT_LEN / 64 - 1).unwrap().add(n);
    }
    for (n, cell) in (1..).zip(&cells) {
        assert_eq!(cell.word(SLOT_LEN / 64 - 1).unwrap().added(), n);
    }
    let memory = area.memory();
    assert_eq!((memory.cells, memory.peak, memory.regions), (20, 20, 3));
    assert!(memory.resident > 0 && memory.reserved > 3 * SLOT_LEN);
    // All cells are taken, from any region.
    for _ in 0..100 {
        let cell = cells.remove(cells.len() / 2);
        drop(cell);
        cells.push(area.take().unwrap());
    }
    assert_eq!(area.memory().regions, 3);
}

#[test]
fn an_area_is_full() {
    let area: Area<1> = Area::new().limit(2);
    let (first, _second) = (area.take().unwrap(), area.take().unwrap());
    let full = Error::Full { limit: 2 };
    assert_eq!(area.take().err(), Some(full));
    assert!(format!("{full}").contains("all 2 cells"));
    drop(first);
    let third = area.take().unwrap();
    mem::forget(third);
    assert_eq!(area.take().err(), Some(full));
    assert_eq!(area.memory().cells, 2);
    assert!(Area::<1>::new().limit(0).take().is_err());
}

#[test]
fn cells_of_nothing() {
    let area: Area<0> = Area::default();
    let cell = area.take().unwrap();
    assert!(cell.word(0).is_none());
    assert_eq!(cell.fold(0, |n, []| n), 0);
    assert!(format!("{area:?}").contains("cells: 1"));
}

#[test]
fn a_write_after_the_drop_is_found() {
    let area: Area<3> = Area::with_image([1, 2, 3]).poison(true);
    for touched in [false, true] {
        for at in 0..4 {
            let cell = area.take().unwrap();
            let corrupted = area.memory().corrupted;
            if touched {
                cell.iter().for_each(drop);
                // SAFETY: the cell's own word, used by this test only.
                unsafe { place(&cell).write(9) };
            }
            let address = place(&cell);
            drop(cell);
            // SAFETY: unsound in general, which is the purpose of the test: mapped memory that is unused. Word 3 is
            // past the end, where a write is detected as well.
            unsafe { address.add(at).write(7) };
            let next = area.take().unwrap();
            assert_ne!(place(&next), address);
            assert_eq!(area.memory().corrupted, corrupted + 1);
            assert!(next.iter().all(|(_, words)| words == [1, 2, 3]));
        }
    }
    assert_eq!((area.memory().cells, area.memory().corrupted), (0, 8));
}

#[test]
fn the_pattern_is_never_data() {
    let area: Area<2> = Area::with_image([10, 20]).poison(true);
    let cell = area.take().unwrap();
    cell.iter().for_each(drop);
    // In two shards: under this thread's slot, and in a shared one.
    cell.at::<0>().add(1);
    cell.words().share().unwrap()[1].store(1, Ordering::Relaxed);
    let address = place(&cell);
    drop(cell);
    let area = area.poison(false);
    for _ in 0..2 {
        let cell = area.take().unwrap();
        assert_eq!(place(&cell), address);
        assert_eq!((cell.at::<0>().load(), cell.at::<1>().load()), (10, 20));
        assert!(cell.iter().all(|(_, words)| words == [10, 20]));
        cell.at::<0>().add(1);
    }
    // Cells dropped before are still checked; those dropped from now on are not.
    assert_eq!((area.memory().corrupted, area.trim()), (0, Ok(0)));
    let area = area.poison(true);
    drop(area.take().unwrap());
    let area = area.poison(false);
    // SAFETY: as in `a_write_after_the_drop_is_found`.
    unsafe { address.write(7) };
    assert_ne!(place(&area.take().unwrap()), address);
    assert_eq!(area.memory().corrupted, 1);
}

#[test]
fn what_nobody_wrote_to_is_intact() {
    let area: Area<1024> = Area::new().poison(true);
    for n in 0..scaled(20) as usize {
        let cells: Vec<_> = (0..5).map(|_| area.take().unwrap()).collect();
        for cell in &cells {
            assert!(cell.iter().all(|(_, words)| words == [0; 1024]));
            cell.word(n * 50).unwrap().add(1);
            // As threads without a slot do.
            cell.words().share().unwrap()[n * 7].fetch_add(1, Ordering::Relaxed);
        }
        let poisoned = place(&cells[0]);
        drop(cells);
        // SAFETY: mapped as long as the area exists, and otherwise unused.
        let left = unsafe { poisoned.add(n * 50).read() };
        assert!(left == 0x5555_5555_5555_5555 || left == 0, "{left:#x}");
    }
    assert_eq!(area.memory().corrupted, 0);
    assert_eq!(area.trim(), Ok(0));
}

#[test]
fn pages_come_back() {
    let area: Area<512> = Area::with_image([3; 512]);
    let cells: Vec<_> = (0..50).map(|_| area.take().unwrap()).collect();
    cells.iter().for_each(|cell| cell.at::<100>().add(1));
    assert!(area.memory().resident >= 50 * 4096);
    // Refused where membarrier is.
    let Ok(()) = cells.iter().try_for_each(|cell| cell.drain(|_, _| ())) else { return };
    assert!(cells.iter().all(|cell| cell.at::<100>().added() == 0));
    // Slots that other tests have frozen, and shared slots, stay.
    let mut bytes = 0;
    for _ in 0..100 {
        bytes += area.trim_from(0).unwrap();
        std::thread::yield_now();
    }
    assert!(bytes >= 40 * 4096 || cid::policy() == cid::Policy::Lease, "{bytes}");
    cells.iter().for_each(|cell| cell.at::<100>().add(1));
    assert!(cells.iter().all(|cell| cell.at::<100>().added() == 1));
}

#[test]
fn threads_take_and_drop() {
    for is_poisoned in [false, true] {
        let area: Area<4> = Area::with_image([1, 0, 0, 0]).poison(is_poisoned);
        std::thread::scope(|scope| {
            for thread in 1..=4u64 {
                let area = &area;
                scope.spawn(move || {
                    for _ in 0..100 {
                        let cells: Vec<_> = (0..40).map(|_| area.take().unwrap()).collect();
                        for cell in &cells {
                            assert!(cell.iter().all(|(_, words)| words == [1, 0, 0, 0]));
                            cell.at::<3>().add(thread);
                        }
                        assert!(cells.iter().all(|cell| cell.at::<3>().added() == thread));
                    }
                });
            }
        });
        let memory = area.memory();
        assert_eq!((memory.cells, memory.corrupted, memory.regions), (0, 0, 1));
        assert!((40..=160).contains(&memory.peak));
    }
}

#[test]
fn threads_may_share_them() {
    fn shared<T: Send + Sync>() {}
    shared::<Area<1>>();
    shared::<Cell<'static, 1>>();
    shared::<CellWord<'static, 1, CpuId>>();
    assert_eq!(size_of::<Cell<'static, 1>>(), 24);
    assert_eq!(1 << SLOT_SHIFT, SLOT_LEN);
}
