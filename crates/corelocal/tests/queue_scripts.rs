//! Items of all shapes, and random scripts of what a queue can do, beside a naive model.

mod cpus;

use std::collections::VecDeque;
use std::fmt::Debug;
use std::time::Duration;

use corelocal::cid::CpuId;
use corelocal::percpu::Queue;
use proptest::prelude::*;

#[test]
fn items_of_all_shapes() {
    #[repr(align(64))]
    #[derive(Clone, Debug, PartialEq)]
    struct Line(u8);

    fn check<T: Clone + Debug + PartialEq + Send>(item: T) {
        let queue: Queue<T> = Queue::default();
        for count in [1, 3, 700] {
            (0..count).for_each(|_| queue.push(item.clone()).expect("memory"));
            let taken: Vec<T> = queue.drain().collect();
            assert!(taken.len() == count && taken.iter().all(|taken| *taken == item));
        }
    }
    check(());
    check(7u8);
    check((7u8, 500u16));
    check(Box::new(7));
    check(String::from("more than a word"));
    check(Line(9));
    check([3u64; 200]);
    check([3u64; 508]);
    check(Some(1.5f64));
    // A queue may hold what borrows.
    let text = String::from("borrowed");
    check(text.as_str());
}

#[derive(Clone, Debug)]
enum Op {
    Push(u16, usize),
    Pop(usize),
    Timeout,
    Drain,
    Empty,
    Replace,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (any::<u16>(), 1..400usize).prop_map(|(n, count)| Op::Push(n, count)),
        8 => (1..400usize).prop_map(Op::Pop),
        1 => Just(Op::Timeout),
        1 => Just(Op::Drain),
        1 => Just(Op::Empty),
        1 => Just(Op::Replace),
    ]
}

/// On one cpu a queue of cpus is one queue.
fn behaves_like_a_deque<T>(script: Vec<Op>, item: fn(u16) -> T) -> Result<(), TestCaseError>
where
    T: Clone + Debug + PartialEq + Send,
{
    cpus::stay();
    let mut queue: Queue<T, CpuId> = Queue::new();
    let mut model = VecDeque::new();
    for op in script {
        match op {
            Op::Push(n, count) => {
                for n in (0..count).map(|i| n.wrapping_add(i as u16)) {
                    prop_assert_eq!(queue.push(item(n)), Ok(()));
                    model.push_back(item(n));
                }
            }
            Op::Pop(count) => {
                for _ in 0..count {
                    prop_assert_eq!(queue.try_pop(), model.pop_front());
                }
            }
            Op::Timeout => {
                let span = Duration::from_micros(5);
                prop_assert_eq!(queue.pop_for(span), model.pop_front());
            }
            Op::Drain => {
                prop_assert!(queue.drain().eq(std::mem::take(&mut model)));
            }
            Op::Empty => prop_assert_eq!(queue.is_empty(), model.is_empty()),
            Op::Replace => {
                queue = Queue::new();
                model.clear();
            }
        }
    }
    Ok(())
}

proptest! {
    // The failing script is printed; there is no file of them to keep beside a `tests/*.rs`.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn narrow_items(script in proptest::collection::vec(op(), 1..40)) {
        behaves_like_a_deque(script, |n| n)?;
    }

    #[test]
    fn wide_items(script in proptest::collection::vec(op(), 1..40)) {
        behaves_like_a_deque(script, |n| [u64::from(n); 5])?;
    }

    #[test]
    fn owning_items(script in proptest::collection::vec(op(), 1..40)) {
        behaves_like_a_deque(script, |n| format!("item {n}"))?;
    }
}
