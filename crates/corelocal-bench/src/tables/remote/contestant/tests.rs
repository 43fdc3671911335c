//! Tests of `contestant.rs`.

use std::sync::atomic::AtomicU64;

use super::*;

const PLAN: Plan = Plan { slice: Duration::from_millis(4), ..Plan::QUICK };

/// Takes everything out, and forgets so many of it.
struct Leaky(AtomicU64, u64);

impl Subject for Leaky {
    fn step(&self) -> u64 {
        self.0.fetch_add(2, Ordering::Relaxed);
        2
    }

    fn act(&self, _: u32) -> anyhow::Result<Option<u64>> {
        Ok(Some(self.0.swap(0, Ordering::Relaxed).saturating_sub(self.1)))
    }

    fn left(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

fn round(busy: usize, build: fn() -> Made) -> anyhow::Result<Sample> {
    let mut body = afar(build);
    body.prepare(Some(busy as f64), &PLAN)?;
    body.round()?;
    body.round()
}

#[test]
fn a_sound_container_has_figures() {
    for busy in [0, 3] {
        let sample = round(busy, || Ok(Arc::new(Leaky(AtomicU64::new(0), 0)))).unwrap();
        let [(name, longest)] = sample.extra[..] else { panic!("{sample:?}") };
        assert!(name == "longest us" && longest >= sample.value, "{sample:?}");
    }
}

#[test]
fn a_lost_item_is_a_reason() {
    for busy in [0, 3] {
        let leaky: fn() -> Made = || Ok(Arc::new(Leaky(AtomicU64::new(0), 1)));
        let reason = round(busy, leaky).unwrap_err().to_string();
        assert!(reason.contains("means nothing"), "{reason}");
    }
}

#[test]
fn a_refusal_and_a_panic_are_reasons() {
    struct Refuses;
    impl Subject for Refuses {
        fn step(&self) -> u64 {
            0
        }

        fn act(&self, _: u32) -> anyhow::Result<Option<u64>> {
            Err(anyhow!("not today"))
        }

        fn left(&self) -> u64 {
            0
        }
    }
    assert_eq!(round(1, || Ok(Arc::new(Refuses))).unwrap_err().to_string(), "not today");

    struct Panics;
    impl Subject for Panics {
        fn step(&self) -> u64 {
            panic!("on purpose")
        }

        fn act(&self, _: u32) -> anyhow::Result<Option<u64>> {
            Ok(None)
        }

        fn left(&self) -> u64 {
            0
        }
    }
    let reason = round(2, || Ok(Arc::new(Panics))).unwrap_err().to_string();
    assert!(reason.contains("panic"), "{reason}");
}
