//! Loom models of orders that assembly keeps, where the code around it cannot be run by loom: each passes as the
//! assembly is, and fails with a weaker order in one place.
//!
//! ```text
//!   settled pair     sys/rseq.rs, `load_settled_pair!`              str, stlr    beside  ldar, ldr
//!   trace buffer     rseq/arch/aarch64/trace.rs, trace/dump.rs      str …, stlr  beside  ldar, ldr …
//!   clock's page     clock/kernel/page.rs                           the kernel's dmb ishst  beside  ldar …, dmb ishld, ldr
//! ```
//! Those of rings, queues and mutexes are beside their code: `percpu/ring/slot/loom.rs`,
//! `percpu/queue/slot/section_loom.rs`, `sync/mutex/lock/loom.rs`.

use ::loom::cell::UnsafeCell;
use ::loom::sync::Arc;
use ::loom::sync::atomic::{AtomicU64, Ordering, fence};
use ::loom::thread;
use std::vec::Vec;

/// The orders of a store that publishes and of the load that finds it.
#[derive(Clone, Copy)]
struct Orders {
    publish: Ordering,
    find: Ordering,
}

const RIGHT: Orders = Orders { publish: Ordering::Release, find: Ordering::Acquire };

/// Two words, of which the second is stored first and loaded last: a new first word never comes with an old second one.
fn explore_pair(orders: Orders) {
    crate::explore::within(3, move || {
        let words = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let reader = {
            let words = words.clone();
            thread::spawn(move || {
                let first = words[0].load(orders.find);
                (first, words[1].load(Ordering::Relaxed))
            })
        };
        words[1].store(2, Ordering::Relaxed);
        words[0].store(1, orders.publish);
        assert_ne!(reader.join().unwrap(), (1, 0), "an old second word");
    });
}

#[test]
fn loom_a_settled_pair_is_of_one_kind() {
    explore_pair(RIGHT);
}

#[test]
#[should_panic(expected = "an old second word")]
fn loom_catches_a_pair_without_release() {
    explore_pair(Orders { publish: Ordering::Relaxed, ..RIGHT });
}

#[test]
#[should_panic(expected = "an old second word")]
fn loom_catches_a_pair_without_acquire() {
    explore_pair(Orders { find: Ordering::Relaxed, ..RIGHT });
}

/// A section appends two records of a word; a reader copies what `used` covers, while a third record begins to be
/// written behind it.
fn explore_records(orders: Orders) {
    crate::explore::within(3, move || {
        let used = Arc::new(AtomicU64::new(0));
        let records: Arc<[UnsafeCell<u64>; 3]> =
            Arc::new(core::array::from_fn(|_| UnsafeCell::new(0)));
        let reader = {
            let (used, records) = (used.clone(), records.clone());
            thread::spawn(move || {
                let end = used.load(orders.find) as usize;
                // SAFETY: loom checks that they are visible, and that no thread writes to them.
                records[..end].iter().map(|it| it.with(|it| unsafe { *it })).collect::<Vec<u64>>()
            })
        };
        for nth in 0..2 {
            // SAFETY: behind what `used` covers: the section's alone, as loom checks.
            records[nth].with_mut(|it| unsafe { *it = nth as u64 + 1 });
            used.store(nth as u64 + 1, orders.publish);
        }
        // The beginning of a section that is aborted.
        // SAFETY: as above.
        records[2].with_mut(|it| unsafe { *it = 9 });
        let read = reader.join().unwrap();
        assert_eq!(read, (1..=read.len() as u64).collect::<Vec<u64>>());
    });
}

#[test]
fn loom_a_reader_of_a_trace_buffer_sees_whole_records() {
    explore_records(RIGHT);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_a_record_without_release() {
    explore_records(Orders { publish: Ordering::Relaxed, ..RIGHT });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_catches_a_record_without_acquire() {
    explore_records(Orders { find: Ordering::Relaxed, ..RIGHT });
}

/// The clock's page (`clock/kernel/page.rs`): the kernel's sequence around its words, and a reader between an Acquire
/// load of it and, behind a fence, a second one.
fn explore_clock_page(first: Ordering, has_fence: bool) {
    crate::explore::within(3, move || {
        let words = Arc::new([const { () }; 3].map(|()| AtomicU64::new(0)));
        let reader = {
            let words = words.clone();
            thread::spawn(move || {
                let head = words[0].load(first);
                let seen = [words[1].load(Ordering::Relaxed), words[2].load(Ordering::Relaxed)];
                if has_fence {
                    fence(Ordering::Acquire);
                }
                let is_still = words[0].load(Ordering::Relaxed) == head;
                assert!(
                    !is_still || head % 2 != 0 || seen == [head / 2; 2],
                    "torn: {head} {seen:?}"
                );
            })
        };
        words[0].store(1, Ordering::Relaxed);
        fence(Ordering::Release); // smp_wmb
        words[1].store(1, Ordering::Relaxed);
        words[2].store(1, Ordering::Relaxed);
        fence(Ordering::Release); // smp_wmb
        words[0].store(2, Ordering::Relaxed);
        reader.join().unwrap();
    });
}

#[test]
fn loom_a_reader_of_the_clocks_page_sees_one_update() {
    explore_clock_page(Ordering::Acquire, true);
}

#[test]
#[should_panic(expected = "torn")]
fn loom_catches_a_clocks_page_without_acquire() {
    explore_clock_page(Ordering::Relaxed, true);
}

#[test]
#[should_panic(expected = "torn")]
fn loom_catches_a_clocks_page_without_a_fence() {
    explore_clock_page(Ordering::Acquire, false);
}
