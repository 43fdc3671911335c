//! Loom models of sums: threads without critical sections add, take, set and read. Then mutants with one fault each,
//! which the same check must catch.

use super::*;
use crate::cid::Cid;
use ::loom::sync::Arc;
use ::loom::thread;

/// Two threads add for the first time while a third one takes: no addition is lost or taken twice, whichever thread
/// allocates the block.
#[test]
fn loom_takes_and_value_add_up() {
    ::loom::model(|| {
        let sum = Arc::new(Sum::<Cid>::new());
        let adders: std::vec::Vec<_> = [1, 2]
            .into_iter()
            .map(|n| {
                let sum = sum.clone();
                thread::spawn(move || sum.add(n))
            })
            .collect();
        let taken = sum.exchange(0, 0);
        for adder in adders {
            adder.join().unwrap();
        }
        assert_eq!(taken + sum.get(0), 3);
    });
}

/// Two threads take at once: each addition goes to one of them.
#[test]
fn loom_two_takers_share() {
    ::loom::model(|| {
        let sum = Arc::new(Sum::<Cid>::new());
        sum.add(5);
        let other = sum.clone();
        let taker = thread::spawn(move || other.exchange(0, 0));
        let mine = sum.exchange(0, 0);
        assert_eq!(mine + taker.join().unwrap(), 5);
        assert_eq!(sum.get(0), 0);
    });
}

/// One thread adds, one sets, one reads. The setter gets what was there when it set, and later additions are there
/// afterwards.
#[test]
fn loom_a_set_and_an_addition() {
    ::loom::model(|| {
        let sum = Arc::new(Sum::<Cid>::new());
        let other = sum.clone();
        let adder = thread::spawn(move || other.add(1));
        let old = sum.exchange(0, 10);
        adder.join().unwrap();
        assert_eq!(old + sum.get(0), 11);
    });
}

/// Invariant 3: concurrent readers never see a negative value.
#[test]
fn loom_no_count_is_negative() {
    ::loom::model(|| {
        let sum = Arc::new(Sum::<Cid>::new());
        let (adding, taking) = (sum.clone(), sum.clone());
        let adder = thread::spawn(move || adding.add(1));
        let taker = thread::spawn(move || taking.exchange(0, 0));
        assert!((0..=1).contains(&sum.get(0)));
        adder.join().unwrap();
        let taken = taker.join().unwrap();
        assert!((0..=1).contains(&taken));
        assert_eq!(taken + sum.get(0), 1);
    });
}
/// One thread adds while two take by `exchange`: their results and the rest add up.
fn explore(exchange: fn(&Sum<Cid>) -> i64) {
    ::loom::model(move || {
        let sum = Arc::new(Sum::<Cid>::new());
        sum.add(5);
        let (adding, taking) = (sum.clone(), sum.clone());
        let adder = thread::spawn(move || adding.add(1));
        let taker = thread::spawn(move || exchange(&taking));
        let mine = exchange(&sum);
        adder.join().unwrap();
        let theirs = taker.join().unwrap();
        assert!(mine >= 0 && theirs >= 0 && sum.get(0) >= 0, "negative");
        assert_eq!(mine + theirs + sum.get(0), 6);
    });
}

#[test]
fn loom_two_takers_and_an_addition() {
    explore(|sum| sum.exchange(0, 0));
}

/// Two takers get the same value.
#[test]
#[should_panic(expected = "assertion")]
fn loom_catches_a_bias_that_is_stored() {
    explore(|sum| {
        let old = sum.get(0);
        let [total] = sum.totals(0);
        sum.bias.words()[0].store(total.wrapping_neg(), Ordering::Release);
        old
    });
}

/// An addition between the read and the reset is lost.
#[test]
#[should_panic(expected = "assertion")]
fn loom_catches_words_that_are_reset() {
    explore(|sum| {
        let words: std::vec::Vec<_> = sum.slots.shared().collect();
        words
            .into_iter()
            .map(|shard| {
                let word = &shard.words()[0];
                let old = word.load(Ordering::Acquire);
                word.store(0, Ordering::Release);
                old
            })
            .sum()
    });
}

/// A thread that sees a bias may see older words.
#[test]
#[should_panic(expected = "negative")]
fn loom_catches_a_bias_replaced_without_release() {
    explore(|sum| {
        loop {
            let ([bias], [total]): ([i64; 1], [i64; 1]) = (sum.biases(0), sum.totals(0));
            let (word, order) = (&sum.bias.words()[0], Ordering::Relaxed);
            if word.compare_exchange(bias, total.wrapping_neg(), order, order).is_ok() {
                return total.wrapping_add(bias);
            }
        }
    });
}
