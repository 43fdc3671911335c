//! A hook of cold paths that allocates: it never runs inside itself, in whatever thread.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use corelocal::alloc::{self, CoreLocal, Moment};

#[global_allocator]
static MEMORY: CoreLocal = CoreLocal;

static CALLS: AtomicUsize = AtomicUsize::new(0);
static NESTED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

fn hook(moment: Moment) {
    CALLS.fetch_add(1, Ordering::Relaxed);
    if DEPTH.replace(DEPTH.get() + 1) > 0 {
        NESTED.fetch_add(1, Ordering::Relaxed);
    }
    if moment == Moment::Taken && DEPTH.get() < 10 {
        // Both of them end in a cold path: one that takes, one that gives.
        black_box(vec![1u8; 1 << 20]);
    }
    DEPTH.set(DEPTH.get() - 1);
}

#[test]
fn the_hook_never_runs_inside_itself() {
    alloc::set_cold_hook(0, hook);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..100 {
                    black_box(vec![0u8; 4 << 20]);
                    black_box((0..1000).map(|n| vec![n as u8; 100]).collect::<Vec<_>>());
                }
            });
        }
    });
    alloc::set_cold_hook(usize::MAX, |_| ());
    assert!(CALLS.load(Ordering::Relaxed) >= 300, "{CALLS:?}");
    assert_eq!(NESTED.load(Ordering::Relaxed), 0);
}
