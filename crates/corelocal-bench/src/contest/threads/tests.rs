//! Tests of `threads.rs`.

use std::hint::black_box;
use std::sync::atomic::AtomicU64;

use super::*;

const PLAN: Plan = Plan { slice: Duration::from_millis(5), ..Plan::QUICK };

/// Work that repeats `op(thread_index)`.
fn job_of<T>(op: impl Fn(usize) -> T + Send + Sync + 'static) -> Job {
    Arc::new(move |thread, iterations| {
        for _ in 0..iterations {
            black_box(op(thread));
        }
    })
}

#[test]
fn every_thread_works_and_every_operation_counts() {
    let counts: Arc<Vec<AtomicU64>> = Arc::new((0..5).map(|_| AtomicU64::new(0)).collect());
    let shared = counts.clone();
    let mut crew = crew(move |threads| {
        assert_eq!(threads, 5);
        let shared = shared.clone();
        job_of(move |thread| shared[thread].fetch_add(1, Ordering::Relaxed))
    });
    crew.prepare(Some(5.0), &PLAN).unwrap();
    for count in counts.iter() {
        count.store(0, Ordering::Relaxed);
    }
    let done = crew.shift.as_ref().unwrap().work().unwrap();
    let told: Vec<u64> = done.iter().map(|d| d.operations).collect();
    let counted: Vec<u64> = counts.iter().map(|c| c.load(Ordering::Relaxed)).collect();
    assert_eq!(told, counted);
    assert!(counted.iter().all(|&c| c > 0), "{counted:?}");
}

#[test]
fn cpu_time_per_operation_and_throughput_agree() {
    let spin = |threads: usize| {
        assert_eq!(threads, 1);
        job_of(|_| {
            let start = Instant::now();
            while start.elapsed() < Duration::from_micros(50) {}
        })
    };
    let mut crew = crew(spin);
    crew.prepare(None, &PLAN).unwrap();
    let sample = crew.round().unwrap();
    // One operation spins for 50 us of wall time; it cannot be done faster.
    let (name, mops) = sample.extra[0];
    assert_eq!(name, "Mops/s");
    assert!(mops > 0.0 && mops <= 0.02, "{mops} Mops/s");
    assert!(sample.value > 0.0, "{} ns", sample.value);
}

#[test]
fn a_panic_is_a_reason() {
    let mut crew = crew(|_| Arc::new(|thread, _| assert_ne!(thread, 1)));
    crew.prepare(Some(2.0), &PLAN).unwrap();
    let reason = crew.round().unwrap_err().to_string();
    assert!(reason.contains("panic"), "{reason}");
}
