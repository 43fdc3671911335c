//! The fence of a store, on this kernel.
//!
//! A reader is in a slow section nearly all the time, on a cpu of its own. A writer replaces a version, runs a fence,
//! and poisons the old version, which stays poisoned. A reader that sees poison was not fenced.

use std::format;
use std::thread;

use super::*;
use crate::scaled::scaled;

#[test]
fn values_of_every_length_come_back() {
    fn check<const N: usize>() {
        let value = |first: u8| core::array::from_fn(|at| first.wrapping_add(at as u8));
        let copy = RcuCopy::<[u8; N]>::new(value(1));
        assert_eq!(copy.load(), value(1));
        for n in 2..10 {
            assert_eq!(copy.swap(value(n)), value(n - 1));
            assert_eq!((copy.load(), copy.load_by_guard()), (value(n), value(n)));
        }
        copy.rcu(|old| {
            assert_eq!(old, value(9));
            value(10)
        });
        assert_eq!(copy.load(), value(10));
    }
    let lengths: [fn(); 11] = [
        check::<0>,
        check::<1>,
        check::<7>,
        check::<8>,
        check::<9>,
        check::<16>,
        check::<17>,
        check::<32>,
        check::<33>,
        check::<63>,
        check::<64>,
    ];
    lengths.iter().for_each(|check| check());
}

#[test]
fn it_is_shown_with_its_value() {
    assert_eq!(format!("{:?}", RcuCopy::new(5)), "RcuCopy(5)");
}

/// A change is computed again if another thread was faster, also if the value is the same.
#[test]
fn a_change_is_of_the_current_version() {
    let copy = RcuCopy::new(1);
    copy.store(2);
    let mut calls = 0;
    copy.rcu(|old| {
        calls += 1;
        if calls == 1 {
            copy.store(7);
            copy.store(2);
        }
        old + 10
    });
    assert_eq!((copy.load(), calls), (12, 2));
}

#[test]
fn changes_are_not_lost() {
    let (copy, each) = (RcuCopy::new(0), scaled(2_000));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..each).for_each(|_| copy.rcu(|sum| sum + 1)));
        }
    });
    assert_eq!(copy.load(), 3 * each);
}

#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"),
    not(any(miri, corelocal_model))
))]
mod fences {
    use core::sync::atomic::AtomicBool;
    use std::time::Instant;
    use std::vec::Vec;

    use super::*;
    use crate::sys::Errno;

    const POISON: u64 = u64::MAX;

    /// Reads that saw poison, and reads in all.
    fn seen(fence: fn() -> Result<(), Errno>, writes: usize, until_seen: bool) -> (u64, u64) {
        let versions: Vec<AtomicU64> = (0..writes as u64).map(AtomicU64::new).collect();
        let at = AtomicPtr::new(versions[0].as_ptr().cast::<u8>());
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                sys::rseq::register_this_thread().expect("rseq");
                let (mut poisoned, mut reads) = (0, 0);
                while !is_over.load(Ordering::Relaxed) {
                    // SAFETY: the thread's area, and a pointer to one of the versions, which stay.
                    let (exit, [word]) =
                        unsafe { rseq::load_slowly(sys::rseq::area(), at.as_ptr().cast()) };
                    if exit.is_straight() {
                        reads += 1;
                        // SAFETY: a word of a version.
                        poisoned += u64::from(unsafe { word.assume_init() } == POISON);
                    }
                    is_over.fetch_or(until_seen && poisoned > 0, Ordering::Relaxed);
                }
                (poisoned, reads)
            });
            let begin = Instant::now();
            for pair in versions.windows(2) {
                at.swap(pair[1].as_ptr().cast(), Ordering::SeqCst);
                fence().expect("a fence");
                pair[0].store(POISON, Ordering::SeqCst);
                // Now and then a reader gets through.
                let pause = begin.elapsed().subsec_nanos() % 50_000;
                let begin = Instant::now();
                while begin.elapsed().as_nanos() < pause.into() {
                    core::hint::spin_loop();
                }
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
            is_over.store(true, Ordering::Relaxed);
            reader.join().expect("a reader")
        })
    }

    /// Without a fence, and with one that does not abort sections, a reader sees poison: this test can fail.
    #[test]
    fn only_the_rseq_command_fences_readers() {
        let has_rseq = sys::rseq::register_this_thread().is_ok();
        if !has_rseq || membarrier::private_expedited_rseq().is_err() {
            std::eprintln!(
                "skipped: only_the_rseq_command_fences_readers: sections or their fence are refused"
            );
            return;
        }
        if thread::available_parallelism().map_or(1, usize::from) < 2 {
            std::eprintln!("skipped: only_the_rseq_command_fences_readers: one cpu");
            return;
        }
        const MOST: usize = 1_000_000;
        let without = seen(|| Ok(()), MOST, true);
        let plain = seen(membarrier::private_expedited, MOST, true);
        assert!(
            without.0 > 0 && plain.0 > 0,
            "without a fence {without:?}, with a plain one {plain:?}"
        );
        let fenced = seen(membarrier::private_expedited_rseq, scaled(20_000) as usize + 2, false);
        assert!(fenced.0 == 0 && fenced.1 > 0, "{fenced:?}");
    }
}
