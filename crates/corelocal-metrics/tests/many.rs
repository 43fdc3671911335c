//! Many values at once, and many label sets.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use corelocal_metrics::Recorder;

/// The system's allocator, and what is in use of it.
struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's, unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Relaxed);
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller passes a layout of non-zero size, as `GlobalAlloc` requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller passes an object of this allocator with its layout, as `GlobalAlloc` requires.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static MEMORY: Counting = Counting;

/// A number of values that no loop would get through.
#[test]
fn record_many_takes_constant_time() {
    let recorder = Recorder::builder().build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        let histogram = metrics::histogram!("sizes");
        histogram.record_many(2.0, 1 << 60);
        metrics::histogram!("sizes").record_many(3.0, 1);
    });
    let text = recorder.handle().render();
    let count = format!("sizes_count {}\n", (1u64 << 60) + 1);
    assert!(text.contains(&count), "{text}");
}

/// The 100,000th label set costs what the first ones do, in memory and in calls of the allocator.
#[test]
fn label_sets_cost_the_same_however_many_there_are() {
    let recorder = Recorder::builder().build().unwrap();
    let add = |sets: std::ops::Range<usize>| {
        for n in sets {
            metrics::counter!("requests", "user" => n.to_string()).increment(1);
        }
    };
    metrics::with_local_recorder(&recorder, || {
        let before = (BYTES.load(Relaxed), ALLOCATIONS.load(Relaxed));
        add(0..25_000);
        let first = (BYTES.load(Relaxed) - before.0, ALLOCATIONS.load(Relaxed) - before.1);
        add(25_000..100_000);
        let all = (BYTES.load(Relaxed) - before.0, ALLOCATIONS.load(Relaxed) - before.1);
        // Four times as many; tables that double hold up to twice what is in them.
        assert!(all.0 < 4 * first.0 * 3 / 2, "bytes: {first:?} {all:?}");
        assert!(all.1 < 4 * first.1 * 5 / 4, "calls: {first:?} {all:?}");
    });
    assert_eq!(recorder.handle().render().lines().count(), 100_001);
}
