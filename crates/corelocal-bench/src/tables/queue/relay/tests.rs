//! Tests of `relay.rs`.

use std::collections::VecDeque;

use super::*;

const PLAN: Plan = Plan { slice: Duration::from_millis(5), ..Plan::QUICK };

/// Loses, or gives twice, each item that `fault` says.
struct Faulty(Mutex<VecDeque<u64>>, fn(u64) -> usize);

impl Queue for Faulty {
    fn push(&self, item: u64) {
        let copies = std::iter::repeat_n(item, (self.1)(item));
        self.0.lock().unwrap().extend(copies);
    }

    fn drain(&self, most: u64, mut each: impl FnMut(u64)) {
        let mut items = self.0.lock().unwrap();
        let most = items.len().min(most as usize);
        items.drain(..most).for_each(&mut each);
    }
}

fn run(build: fn() -> Made) -> anyhow::Result<Sample> {
    let mut relay = relay(build);
    relay.prepare(Some(3.0), &PLAN)?;
    relay.round()
}

#[test]
fn a_sound_queue_has_figures() {
    let sample = run(|| Ok(Arc::new(Faulty(Mutex::default(), |_| 1)))).unwrap();
    let [(_, mops), (_, both)] = sample.extra[..] else { panic!("{sample:?}") };
    assert!(sample.value > 0.0 && mops > 0.0 && both >= sample.value, "{sample:?}");
}

#[test]
fn a_lost_or_doubled_item_is_a_reason() {
    let losing: fn() -> Made =
        || Ok(Arc::new(Faulty(Mutex::default(), |item| usize::from(item != 7))));
    let doubling: fn() -> Made =
        || Ok(Arc::new(Faulty(Mutex::default(), |item| 1 + usize::from(item == 7))));
    // The count stays the same.
    let swapping: fn() -> Made = || {
        Ok(Arc::new(Faulty(Mutex::default(), |item| match item {
            7 => 0,
            8 => 2,
            _ => 1,
        })))
    };
    for faulty in [losing, doubling, swapping] {
        let reason = run(faulty).unwrap_err().to_string();
        assert!(reason.contains("meaningless"), "{reason}");
    }
}

#[test]
fn a_panic_is_a_reason() {
    let panics: fn() -> Made =
        || Ok(Arc::new(Faulty(Mutex::default(), |item| [1, 1][item as usize])));
    let reason = run(panics).unwrap_err().to_string();
    assert!(reason.contains("panic"), "{reason}");
}
