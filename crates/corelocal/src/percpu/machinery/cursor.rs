//! The shard where consumers search next. They take many items in a row from one shard, so that producers elsewhere
//! keep their cache lines, and then go on to the next, so that no shard waits for ever.
//!
//! ```text
//!   63        32 31        0
//!   shard's number  items taken in a row
//! ```
//!
//! Only the start of a walk depends on it: consumers overwrite each other's value, and all accesses are relaxed. It
//! has a cache line of its own, since producers read the neighbouring fields with every push.

use super::lazy_block::Owned;
use super::slot::Zeroed;
use crate::cid::SlotIndex;
use crate::primitive::atomic::{AtomicU64, Ordering};

/// The number of items that a consumer takes from one shard before it goes on to the next.
const STREAK: u64 = 64;

/// The shard at which consumers begin to search.
#[repr(align(64))]
pub(in crate::percpu) struct Cursor(AtomicU64);

impl Cursor {
    const_fn! {
        pub(in crate::percpu) const fn new() -> Cursor {
            Cursor(AtomicU64::new(0))
        }
    }

    /// Calls `take` on shards until one yields something: first on the shard that yielded the last item, in constant
    /// time, then on the others.
    #[inline]
    pub(in crate::percpu) fn take<T: Zeroed, I: SlotIndex, R>(
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
        // There may be no shard with the next number: then the walk begins at the shard after it.
        let next = if is_over { (u64::from(number) + 1) << 32 } else { place + 1 };
        self.0.store(next, Ordering::Relaxed);
        Some(taken)
    }

    /// Tries the shards after this one, then those before it, and finally this one again.
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
