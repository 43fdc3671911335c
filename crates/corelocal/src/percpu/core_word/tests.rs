#[cfg(not(loom))]
mod units {
    use super::super::*;
    use crate::cid::CpuId;
    use std::format;
    use std::vec::Vec;

    fn sum<I: SlotIndex>(word: &Word<I>) -> u64 {
        word.iter().fold(0, |sum, (_, word)| sum.wrapping_add(word))
    }

    #[test]
    fn operations() {
        let word: Word<CpuId> = Word::default();
        assert_eq!(word.load(), 0);
        word.add_fetch(5);
        word.add_fetch(5u64.wrapping_neg());
        assert_eq!(sum(&word), 0);
        while word.store_if_equal(0, 9).is_err() {}
        assert_eq!(sum(&word), 9);
        assert_eq!(word.store_if_equal(77, 1), Err(Mismatch));
        assert_eq!(sum(&word), 9);
    }

    /// What threads without a slot do, and all threads without memory.
    #[test]
    fn other_parts_do_the_same() {
        let word: Word = Word::new();
        let shared = word.words.share().expect("memory");
        for fallback in [|w| Fallback::Shared(w), |_| Fallback::Unbound] {
            let (shard, new) = word_operations::add_fetch_cold(&word, 5, fallback(shared));
            assert_eq!(new, 5);
            assert_eq!(
                word_operations::store_if_equal_cold(&word, 4, 6, fallback(shared)),
                Err(Mismatch)
            );
            assert_eq!(
                word_operations::store_if_equal_cold(&word, 5, 6, fallback(shared)),
                Ok(shard)
            );
            assert_eq!(word_operations::exchange_cold(&word, 7, fallback(shared)), 6);
            assert!(word.iter().any(|seen| seen == (shard, 7)), "{shard:?}");
        }
        assert!(format!("{word:?}").contains("Inline: 7"), "{word:?}");
        let mut taken = Vec::new();
        word.drain(|shard, value| taken.push((shard, value))).unwrap();
        assert_eq!(taken.len(), 2);
        assert!(taken.iter().all(|(shard, value)| *value == 7 && !matches!(shard, Shard::Slot(_))));
        assert_eq!(sum(&word), 0);
    }

    #[test]
    fn parts_are_told_apart() {
        let word: Word = Word::new();
        for n in 1..=100 {
            let (shard, new) = word.add_fetch_at(1);
            assert!(new <= n);
            assert!(word.iter().any(|seen| seen == (shard, new)), "{shard:?}");
        }
    }

    #[test]
    fn a_panic_leaves_the_word() {
        let word: Word = Word::new();
        let (Shard::Slot(slot), _) = word.add_fetch_at(3) else { return };
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            word.with_frozen(slot, |value| {
                *value = 9;
                panic!("for the test");
            })
        }));
        assert!(failed.is_err());
        assert_eq!(sum(&word), 3);
        assert_eq!(word.with_frozen(u32::MAX, |_| ()), Err(Busy::NoSlot));
    }
}

#[cfg(loom)]
mod loom_tests {
    use super::super::*;
    use crate::primitive::atomic::Ordering;
    use loom::sync::Arc;
    use loom::thread;

    /// Threads without critical sections add while a third one takes: nothing is lost or seen twice.
    fn explore(drain: fn(&Word, &mut u64)) {
        loom::model(move || {
            let word = Arc::new(Word::<Cid>::new());
            let other = word.clone();
            let thread = thread::spawn(move || other.add_fetch(1));
            let mut taken = 0;
            word.add_fetch(2);
            drain(&word, &mut taken);
            thread.join().unwrap();
            assert_eq!(word.iter().fold(taken, |sum, (_, word)| sum + word), 3);
        });
    }

    #[test]
    fn loom_drains_and_words_add_up() {
        explore(|word, taken| word.drain(|_, value| *taken += value).unwrap());
    }

    /// An addition between the read and the store is lost.
    #[test]
    #[should_panic(expected = "assertion")]
    fn loom_catches_a_drain_in_two_steps() {
        explore(|word, taken| {
            for shared in word.words.shared() {
                *taken += shared.load(Ordering::Acquire);
                shared.store(0, Ordering::Release);
            }
        });
    }
}
