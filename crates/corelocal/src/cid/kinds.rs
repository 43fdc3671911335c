//! The kinds of ids: where each is read, and where its slots are.

use super::directory::{Directory, Revoke};
use super::high_water::Noted;
use super::*;

static CIDS: Directory<ROW, IDS> = Directory::new();
static CPUS: Directory<ROW, IDS> = Directory::new();
pub(super) static GIVEN: Noted = Noted::new();
pub(super) static GIVEN_TO_CPUS: Noted = Noted::new();

impl private::Sealed for Cid {
    const COMPACT: bool = true;

    // The table is at the directory's start.
    #[inline(always)]
    fn index() -> Index {
        let (area, id) = sys::rseq::area_and_cid();
        Index { area, id, offsets: sys::arch::address_here!(CIDS).cast() }
    }

    #[inline(always)]
    fn settled_index() -> Option<Index> {
        let (area, id) = sys::rseq::settled()?;
        Some(Index { area, id, offsets: sys::arch::address_here!(CIDS).cast() })
    }

    fn assign(id: u32) -> Option<u32> {
        // The kernel calls in `free_left_slots` are only for ids without a slot.
        CIDS.slot_of(id).or_else(|| {
            frozen::free_left_slots::<Cid>();
            CIDS.assign_if(id, 0..capacity(), GIVEN.opener())
        })
    }

    fn directory() -> &'static dyn Revoke {
        &CIDS
    }
}

impl private::Sealed for CpuId {
    const COMPACT: bool = false;

    #[inline(always)]
    fn index() -> Index {
        let area = sys::rseq::area();
        Index { area, id: area + field::CPU_ID, offsets: CPUS.offsets() }
    }

    fn assign(id: u32) -> Option<u32> {
        CPUS.assign_if(id, [id], GIVEN_TO_CPUS.opener())
    }

    fn directory() -> &'static dyn Revoke {
        &CPUS
    }
}
