//! The program's own limit for its heap, and the hook that runs when memory is missing.
#![cfg(not(any(loom, miri)))]

mod sandbox;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use corelocal::alloc;
use sandbox::run_in_child;

const MIB: usize = 1 << 20;

fn give(object: *mut u8) {
    // SAFETY: null, or the caller's, given up here.
    unsafe { alloc::deallocate(object) };
}

/// Threads that fill the heap to its limit and empty it again, small and large objects, while one looks.
#[test]
fn no_more_is_ever_mapped() {
    run_in_child(
        "no_more_is_ever_mapped",
        |_| (),
        || {
            const LIMIT: usize = 48 * MIB;
            alloc::set_limit(Some(LIMIT));
            assert_eq!(alloc::limit(), Some(LIMIT));
            let (done, missed) = (AtomicBool::new(false), AtomicUsize::new(0));
            thread::scope(|scope| {
                for nth in 1..=3_usize {
                    let (done, missed) = (&done, &missed);
                    scope.spawn(move || {
                        let size = [900, 70_000, 3 * MIB][nth - 1];
                        while !done.load(Ordering::Relaxed) {
                            let mut held = Vec::new();
                            loop {
                                let object = alloc::allocate(size);
                                if object.is_null() || held.len() * size > LIMIT {
                                    give(object);
                                    break;
                                }
                                // SAFETY: just allocated.
                                unsafe { object.write_bytes(nth as u8, size) };
                                held.push(object);
                            }
                            missed.fetch_add(1, Ordering::Relaxed);
                            for object in held {
                                // SAFETY: of `size` bytes, written above.
                                assert_eq!(unsafe { object.add(size - 1).read() }, nth as u8);
                                give(object);
                            }
                        }
                    });
                }
                let began = Instant::now();
                while began.elapsed() < Duration::from_secs(2) {
                    let mapped = alloc::stats().committed;
                    assert!(mapped <= LIMIT, "{mapped}");
                    thread::yield_now();
                }
                done.store(true, Ordering::Relaxed);
            });
            assert!(missed.load(Ordering::Relaxed) > 0);
            // Raised, and gone.
            alloc::set_limit(Some(2 * LIMIT));
            let object = alloc::allocate(LIMIT);
            assert!(!object.is_null() && alloc::allocate(2 * LIMIT).is_null());
            give(object);
            alloc::set_limit(None);
            let object = alloc::allocate(4 * LIMIT);
            assert!(!object.is_null() && alloc::limit().is_none());
            give(object);
        },
    );
}

/// What the hook frees is given out; inside it, it is not called again.
#[test]
fn the_hook_makes_room() {
    static RESERVE: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    fn hook(size: usize) -> bool {
        CALLS.fetch_add(1, Ordering::Relaxed);
        assert!(alloc::allocate(200 * MIB).is_null(), "beyond the limit");
        assert!(size >= 10 * MIB);
        let one = RESERVE.lock().unwrap().pop();
        one.is_some_and(|object| {
            give(object as *mut u8);
            true
        })
    }
    run_in_child(
        "the_hook_makes_room",
        |_| (),
        || {
            alloc::set_limit(Some(100 * MIB));
            let reserve = (0..4).map(|_| alloc::allocate(20 * MIB) as usize);
            RESERVE.lock().unwrap().extend(reserve);
            alloc::set_out_of_memory_hook(Some(hook));
            // Two of 20 MiB have to go for it.
            let object = alloc::allocate(50 * MIB);
            assert!(!object.is_null());
            assert_eq!(CALLS.load(Ordering::Relaxed), 2);
            assert_eq!(RESERVE.lock().unwrap().len(), 2);
            assert!(alloc::allocate(90 * MIB).is_null(), "all of the reserve is too little");
            assert!(RESERVE.lock().unwrap().is_empty());
            // A size that no heap has is not worth a call.
            let calls = CALLS.load(Ordering::Relaxed);
            assert!(alloc::allocate(usize::MAX / 4).is_null());
            assert_eq!(CALLS.load(Ordering::Relaxed), calls);
            alloc::set_out_of_memory_hook(None);
            assert!(alloc::allocate(90 * MIB).is_null());
            assert_eq!(CALLS.load(Ordering::Relaxed), calls);
            give(object);
        },
    );
}
