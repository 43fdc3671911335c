//! Where consumers of all parts look next: many items in a row from one part, so that producers elsewhere
//! keep their lines, then on to the next one, so that no part waits for ever.
//!
//! ```text
//!   63        32 31        0
//!   part's number   items it gave in a row
//! ```
//!
//! Nothing depends on it but where a walk begins: consumers overwrite each other's, all relaxed. It has a cache
//! line of its own: producers read what lies beside it at every push.

use super::lazy_block::Owned;
use super::slot::Zeroed;
use crate::cid::SlotIndex;
use crate::primitive::atomic::{AtomicU64, Ordering};

/// Items that a consumer takes from one part before it goes on to the next.
const STREAK: u64 = 64;

/// See the module's text.
#[repr(align(64))]
pub(super) struct Cursor(AtomicU64);

impl Cursor {
    #[cfg(not(loom))]
    pub(super) const fn new() -> Cursor {
        Cursor(AtomicU64::new(0))
    }

    #[cfg(loom)]
    pub(super) fn new() -> Cursor {
        Cursor(AtomicU64::new(0))
    }

    /// What `take` gets from some part: from the one that gave the last item, in constant time, else from the
    /// next one that gives something.
    #[inline]
    pub(super) fn take<T: Zeroed, I: SlotIndex, R>(
        &self,
        shards: &Owned<T, I>,
        take: impl Fn(&'static T) -> Option<R>,
    ) -> Option<R> {
        let place = self.0.load(Ordering::Relaxed);
        let number = (place >> 32) as u32;
        let Some(taken) = shards.shard(number).and_then(&take) else {
            return self.take_elsewhere(shards, number, take);
        };
        let is_over = place % (1 << 32) + 1 >= STREAK;
        // There may be no part of the next number: then the walk begins there.
        let next = if is_over { (u64::from(number) + 1) << 32 } else { place + 1 };
        self.0.store(next, Ordering::Relaxed);
        Some(taken)
    }

    /// From the parts after this one, then from those before, and once more from itself.
    #[cold]
    fn take_elsewhere<T: Zeroed, I: SlotIndex, R>(
        &self,
        shards: &Owned<T, I>,
        number: u32,
        take: impl Fn(&'static T) -> Option<R>,
    ) -> Option<R> {
        let after = shards.numbers().filter(|it| *it > number);
        let mut numbers = after.chain(shards.numbers().filter(|it| *it <= number));
        let (number, taken) =
            numbers.find_map(|number| Some((number, take(shards.shard(number)?)?)))?;
        self.0.store(u64::from(number) << 32 | 1, Ordering::Relaxed);
        Some(taken)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::cid::Cid;

    #[test]
    fn a_streak_ends() {
        let (shards, cursor) = (Owned::<AtomicU64, Cid>::new(), Cursor::new());
        let number = || cursor.0.load(Ordering::Relaxed) >> 32;
        assert_eq!(cursor.take(&shards, |_| Some(())), None);
        let shared: *const AtomicU64 = shards.share().expect("memory");
        let take = |shard: &'static AtomicU64| core::ptr::eq(shard, shared).then_some(());
        assert_eq!(cursor.take(&shards, take), Some(()));
        let first = number();
        for _ in 1..STREAK {
            assert_eq!(number(), first);
            assert_eq!(cursor.take(&shards, take), Some(()));
        }
        assert_eq!(number(), first + 1);
        assert_eq!(cursor.take(&shards, take), Some(()));
        assert_eq!(cursor.take(&shards, |_| None::<()>), None);
    }
}
