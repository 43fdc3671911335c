//! Tests of `checked.rs`.

use std::time::Duration;

use super::*;

const PLAN: Plan =
    Plan { slice: Duration::from_millis(2), round: Duration::from_micros(100), ..Plan::QUICK };

fn add_one(n: &AtomicU64, _: usize) {
    n.fetch_add(1, Ordering::Relaxed);
}

fn exact() -> Made {
    tally(AtomicU64::new(0), 1, add_one, |n| n.load(Ordering::Relaxed))
}

fn forgetful() -> Made {
    tally(AtomicU64::new(0), 1, add_one, |n| n.load(Ordering::Relaxed).saturating_sub(1))
}

#[test]
fn exact_sums_pass() {
    let mut on_threads = checked::<Crew<'_>>(exact);
    on_threads.prepare(Some(3.0), &PLAN).unwrap();
    assert!(on_threads.round().unwrap().value > 0.0);
    let mut in_a_loop = checked::<Loop<'_>>(exact);
    in_a_loop.prepare(None, &PLAN).unwrap();
    assert!(in_a_loop.round().unwrap().value > 0.0);
}

#[test]
fn figures_are_per_operation() {
    struct Slow(AtomicU64);
    impl Subject for Slow {
        fn work(&self, _: usize, ones: u64) {
            std::thread::sleep(Duration::from_millis(1));
            self.0.fetch_add(ones, Ordering::Relaxed);
        }

        fn check(&self, asked: u64) -> anyhow::Result<()> {
            agree(asked, self.0.load(Ordering::Relaxed))
        }
    }
    let mut body = checked::<Loop<'_>>(|| Ok(Arc::new(Slow(AtomicU64::new(0)))));
    body.prepare(None, &PLAN).unwrap();
    // A sleep of 1 ms divided by 4096; undivided it would be 1,000,000.
    let ns = body.round().unwrap().value;
    assert!((244.0..1_000_000.0).contains(&ns), "{ns} ns");
}

#[test]
fn a_lost_increment_is_a_reason() {
    let mut crew = checked::<Crew<'_>>(forgetful);
    crew.prepare(Some(1.0), &PLAN).unwrap();
    let reason = crew.round().unwrap_err().to_string();
    assert!(reason.contains("should have counted to"), "{reason}");
}

#[test]
fn a_subject_that_cannot_be_made_is_a_reason() {
    let mut crew = checked::<Crew<'_>>(|| anyhow::bail!("no compiler"));
    assert_eq!(crew.prepare(None, &PLAN).unwrap_err().to_string(), "no compiler");
}
