//! Tests of `guard.rs`.

use super::*;
use crate::alloc::layout::range::kind_of;
use std::collections::HashSet;
use std::vec::Vec;

/// One test, since the pool belongs to the process.
#[test]
fn objects_in_the_pool() {
    if most_bytes() == 0 {
        std::eprintln!("skipped: guard objects_in_the_pool: a page is as long as a chunk");
        return;
    }
    let range = Range::make().unwrap();
    let allocate = |align, size| super::allocate(range, align, size);
    let free = |object| deallocate(object as *mut u8, UNKNOWN);
    for size in [0, 1, 16, 100, page_size(), page_size() + 1, most_bytes()] {
        for align in [1, 16, 256, page_size()] {
            let object = allocate(align, size).unwrap();
            assert!(object % align.max(16) == 0 && usable_size(object as *mut u8) == size);
            assert_eq!(kind_of(object as *mut u8), Some(GUARDED.into()));
            let bytes = core::ptr::with_exposed_provenance_mut::<u8>(object);
            // SAFETY: within the object.
            unsafe { bytes.write_bytes(7, size) };
            free(object);
        }
    }
    assert!(allocate(16, most_bytes() + 1).is_none() && allocate(2 * page_size(), 1).is_none());
    // Objects freed last are not reused soon.
    let freed: Vec<usize> = (0..100)
        .map(|_| {
            let object = allocate(16, 32).unwrap();
            free(object);
            object & !(CHUNK - 1)
        })
        .collect();
    assert_eq!(freed.iter().collect::<HashSet<_>>().len(), 100);
    let live: Vec<usize> = core::iter::from_fn(|| allocate(16, 32)).collect();
    assert_eq!((live.len(), counts().0), (MOST_LIVE, MOST_LIVE));
    // Bytes beside an object are checked, and a fault says on which side.
    let slot = Pool::get().unwrap().slot(live[0]).unwrap();
    assert_eq!(slot.find_fault(), None);
    slot.for_each_slack(|from, len| {
        if len > 0 {
            let byte = core::ptr::with_exposed_provenance_mut::<u8>(from + len / 2);
            // SAFETY: on an open page.
            unsafe { byte.write(0) };
            assert!(slot.find_fault().is_some());
            // SAFETY: on an open page.
            unsafe { byte.write(SLACK) };
        }
    });
    assert_eq!(slot.touch(live[0] - page_size()), Touch::Before);
    assert_eq!(slot.touch(live[0] + page_size()), Touch::Behind);
    live.iter().for_each(|object| free(*object));
    assert_eq!((slot.touch(live[0]), counts().0), (Touch::Freed, 0));
}
