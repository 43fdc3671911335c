//! Who sleeps until there is something to give back to the kernel wakes up when there is.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use corelocal::alloc::{self, CoreLocal};

/// A machine may do other things for long.
const SOON: Duration = Duration::from_secs(20);
const OBJECTS: usize = 100_000;
const LAYOUT: Layout = Layout::new::<[u64; 8]>();
/// Of these neighbours one stays, so that no span is given back whole.
const NEIGHBOURS: usize = 4096;

#[test]
fn pages_between_objects_are_worth_to_wake_up_for() {
    // SAFETY: a layout with a size.
    let mut objects: Vec<usize> =
        (0..OBJECTS).map(|_| unsafe { CoreLocal.alloc(LAYOUT) } as usize).collect();
    objects.sort_unstable();
    assert_ne!(objects[0], 0, "no memory");
    // Nothing is left to give.
    let began = Instant::now();
    while alloc::release_idle() != 0 || alloc::idle_bytes() != 0 {
        assert!(began.elapsed() < SOON, "{} bytes are idle", alloc::idle_bytes());
    }
    let (woken, wakes) = mpsc::channel();
    thread::spawn(move || {
        alloc::wait_for_idle();
        woken.send(()).unwrap();
    });
    // One that has been thinned by the way may wake it early, so little that it does not come to that.
    assert!(wakes.recv_timeout(Duration::from_millis(100)).is_err());
    let mut place = 0;
    for object in objects {
        if object / NEIGHBOURS != place {
            place = object / NEIGHBOURS;
            continue;
        }
        // SAFETY: of the same layout, once.
        unsafe { CoreLocal.dealloc(object as *mut u8, LAYOUT) };
    }
    wakes.recv_timeout(SOON).expect("it sleeps while there is something to give back");
}
