#[cfg(not(loom))]
mod units {
    use super::super::*;
    use crate::cid;
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::string::String;
    use std::vec::Vec;

    #[test]
    fn a_value_stays_where_it_is() {
        let lock: Lock<String> = Lock::default();
        (0..100).for_each(|_| lock.lock().push('x'));
        let mut lock = lock;
        assert_eq!(lock.iter_mut().map(|value| value.len()).sum::<usize>(), 100);
    }

    /// A shard that is held is passed over without waiting.
    #[test]
    fn held_parts_are_passed_over() {
        let lock: Lock<u32> = Lock::default();
        let mut first = lock.lock();
        *first = 1;
        let biased = first.biased;
        let second = lock.try_lock();
        if let Some(mut second) = second {
            // Another test may have all slots frozen at the first call, and release them before the second.
            assert!(biased || second.biased, "a shared part was given twice");
            assert!(!second.biased || cid::capacity() > 1);
            *second = 2;
        }
        drop(first);
        let mut sum = 0;
        lock.for_each_locked(|_, value| sum += *value).unwrap();
        assert!(sum == 1 || sum == 3, "{sum}");
    }

    #[test]
    fn shared_parts_and_the_one_inside_are_visited() {
        let lock: Lock<u32> = Lock::default();
        *lock.lock_shared(lock.slots.share().unwrap()) += 10;
        *lock.try_lock_shared(&lock.inside).unwrap() += 100;
        let held = lock.lock_shared(&lock.inside);
        assert!(lock.try_lock_shared(&lock.inside).is_none());
        drop(held);
        *lock.lock() += 1;
        let mut seen = Vec::new();
        lock.for_each_locked(|shard, value| seen.push((shard, *value))).unwrap();
        assert_eq!(seen.iter().map(|(_, value)| value).sum::<u32>(), 111);
        assert!(seen.contains(&(Shard::Inline, 100)), "{seen:?}");
    }

    #[test]
    fn an_initialiser_may_panic() {
        std::thread_local!(static PANICS: Cell<bool> = const { Cell::new(true) });
        let lock: Lock<u32> =
            Lock::new(|| if PANICS.replace(false) { panic!("for the test") } else { 7 });
        assert!(catch_unwind(AssertUnwindSafe(|| *lock.lock())).is_err());
        assert_eq!(*lock.lock(), 7);
        assert_eq!(lock.lock_shared(&lock.inside).slot.value.get(), Some(&7));
    }

    #[test]
    fn a_panic_unlocks() {
        let lock: Lock<u32> = Lock::default();
        let failed = catch_unwind(AssertUnwindSafe(|| {
            let mut value = lock.lock();
            *value = 5;
            panic!("for the test");
        }));
        assert!(failed.is_err());
        let mut lock = lock;
        assert_eq!(lock.iter_mut().map(|value| *value).collect::<Vec<_>>(), [5]);
        drop(lock.lock());
    }

    #[test]
    fn from_afar() {
        let lock: Lock<u32> = Lock::default();
        assert!(matches!(lock.lock_slot(0), Err(Busy::NoSlot)));
        drop(lock.lock());
        assert!(matches!(lock.lock_slot(u32::MAX), Err(Busy::NoSlot)));
        for slot in 0..cid::high_water::<Cid>() {
            match lock.lock_slot(slot) {
                Ok(mut value) => *value = slot,
                // Another test may have frozen it.
                Err(busy) => assert!(matches!(busy, Busy::Fence(_) | Busy::Frozen), "{busy}"),
            }
            if let Ok(held) = lock.lock_slot(slot) {
                assert!(!matches!(lock.try_lock_slot(slot), Ok(Some(_))));
                drop(held);
            }
            assert!(matches!(
                lock.try_lock_slot(slot),
                Ok(Some(_)) | Err(Busy::Fence(_) | Busy::Frozen)
            ));
        }
    }

    #[test]
    fn types_cross_threads_as_they_may() {
        fn shares(_: impl Sync) {}
        let cells: Lock<Cell<u32>> = Lock::default();
        shares(&cells);
        let numbers: Lock<u32> = Lock::default();
        shares(numbers.lock());
    }

    #[test]
    fn sections_use_the_first_word() {
        assert_eq!(core::mem::offset_of!(Slot<[u64; 9]>, bias), 0);
    }
}

#[cfg(loom)]
mod loom_tests {
    use super::super::*;
    use loom::cell::UnsafeCell;
    use loom::thread;
    use std::boxed::Box;

    /// A number that loom checks for races.
    struct Number(UnsafeCell<u32>);

    impl Number {
        fn add(&self, n: u32) {
            // SAFETY: under a lock; loom checks it.
            self.0.with_mut(|number| unsafe { *number += n });
        }

        fn get(&self) -> u32 {
            // SAFETY: as in `add`.
            self.0.with(|number| unsafe { *number })
        }
    }

    // SAFETY: an integer.
    unsafe impl Send for Number {}

    type Numbers = Lock<Number, Cid>;

    /// Threads without critical sections: no addition is lost, whichever thread binds the block and makes the value.
    fn explore(add: fn(&'static Numbers)) {
        loom::model(move || {
            let numbers = Numbers::new(|| Number(UnsafeCell::new(10)));
            // Leaked: loom panics in a drop after a failure.
            let numbers: &'static Numbers = Box::leak(Box::new(numbers));
            let thread = thread::spawn(move || add(numbers));
            add(numbers);
            thread.join().unwrap();
            let mut seen = std::vec::Vec::new();
            numbers.for_each_locked(|_, value| seen.push(value.get())).unwrap();
            assert_eq!(seen, [12]);
        });
    }

    #[test]
    fn loom_shared_parts_exclude() {
        explore(|numbers| numbers.lock().add(1));
    }

    /// Two threads use the value at a time, or each makes one.
    #[test]
    #[should_panic(expected = "assertion")]
    fn loom_catches_a_part_that_is_not_locked() {
        explore(|numbers| {
            let Err(shard) = numbers.lock_biased() else { return };
            let guard = numbers.filled(Guard::new(shard, false));
            guard.add(1);
            core::mem::forget(guard);
        });
    }
}
