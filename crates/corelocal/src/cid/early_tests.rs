//! Sections that are handed offsets from before the library knew where the kernel writes: what a constructor that runs
//! before the library's own does, when the compiler keeps an offset over the first operation.

use super::*;
use crate::rseq;
use crate::sys::rseq::{NO_ID, initial_area_and_cid};

/// Where the index of a section comes from.
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
        // SAFETY: an object without memory, of which a section uses no word.
        let exit = unsafe { rseq::add(stale, &object, 1) };
        assert!(!exit.is_straight() && exit.is_committed(), "neither commits nor compares");
        // As the cold path does.
        let mut prepared = 0;
        let attempt = || {
            // SAFETY: as above.
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
