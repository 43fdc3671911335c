//! Critical sections that are given offsets from before the library knew where the kernel writes. This happens in a
//! constructor that runs before the library's own, if the compiler keeps an offset over the first operation.

use super::*;
use crate::rseq;
use crate::sys::rseq::{NO_ID, initial_area_and_cid};

/// Sources of a section's index.
fn indexes() -> [Index; 2] {
    [<Cid as private::Sealed>::index(), <NodeCid as private::Sealed>::index()]
}

#[test]
fn no_id_has_an_entry_that_stays_empty() {
    crate::cid::current::<Cid>();
    crate::cid::current::<NodeCid>();
    for index in indexes() {
        // SAFETY: every table has an entry for each id, and one more.
        let entry = unsafe { &*index.offsets.add(NO_ID as usize) }.load(Ordering::Relaxed);
        assert_eq!(entry, 0);
    }
    assert!(capacity() <= NO_ID);
}

#[test]
fn an_id_that_no_kernel_wrote_has_no_slot() {
    let (_, id) = initial_area_and_cid();
    if sys::rseq::register_this_thread().is_ok() && sys::rseq::cid() == id {
        std::eprintln!(
            "skipped: cid an_id_that_no_kernel_wrote_has_no_slot: the kernel writes ids to the library's own area"
        );
        return;
    }
    let object = Slots::new();
    for index in indexes() {
        let stale = Index { id, ..index };
        // SAFETY: an object without memory, so the section accesses no word of it.
        let exit = unsafe { rseq::add(stale, &object, 1) };
        assert!(!exit.is_straight() && exit.is_committed(), "neither commits nor compares");
        // As the cold path does.
        let mut prepared = 0;
        let attempt = || {
            // SAFETY: an object without memory, so the section accesses no word of it.
            unsafe { rseq::add(stale, &object, 1) }
        };
        let prepare = || {
            prepared += 1;
            true
        };
        assert!(rseq::retry(exit, prepare, attempt).is_none());
        assert!(prepared > 0);
    }
}
