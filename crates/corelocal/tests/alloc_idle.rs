//! A thread that sleeps until memory can be returned to the kernel wakes up for that, and until all is returned.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use corelocal::alloc::{self, CoreLocal};

/// A machine may do other things for long.
const SOON: Duration = Duration::from_secs(20);
/// What a thread that sleeps is not woken in.
const A_WHILE: Duration = Duration::from_millis(100);
/// From one look to the next.
const PERIOD: Duration = Duration::from_millis(10);
/// Some hundreds of spans, each of one chunk.
const OBJECTS: usize = 300_000;
const LAYOUT: Layout = Layout::new::<[u64; 8]>();
/// Of a chunk one object stays: no span is given back whole, and most of its pages can be.
const CHUNK: usize = 64 << 10;

/// One test at a time: each looks at all that the process has.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Many objects, by address, while nothing else is left to give.
fn many() -> Vec<usize> {
    // SAFETY: a layout with a size.
    let mut objects: Vec<usize> =
        (0..OBJECTS).map(|_| unsafe { CoreLocal.alloc(LAYOUT) } as usize).collect();
    objects.sort_unstable();
    assert_ne!(objects[0], 0, "no memory");
    let began = Instant::now();
    while alloc::release_idle() != 0 || alloc::idle_bytes() != 0 {
        assert!(began.elapsed() < SOON, "{} bytes are idle", alloc::idle_bytes());
    }
    objects
}

/// Frees all but one of each chunk; those.
fn thin(objects: &[usize]) -> Vec<usize> {
    let mut kept = Vec::new();
    for object in objects {
        if kept.last().is_none_or(|last| last / CHUNK != object / CHUNK) {
            kept.push(*object);
        } else {
            free(&[*object]);
        }
    }
    kept
}

fn free(objects: &[usize]) {
    for object in objects {
        // SAFETY: of `many`, once.
        unsafe { CoreLocal.dealloc(*object as *mut u8, LAYOUT) };
    }
}

/// Tells when it was woken.
fn sleeper() -> Receiver<()> {
    let (woken, wakes) = mpsc::channel();
    thread::spawn(move || {
        alloc::wait_for_idle();
        // If it was too late the receiver is gone.
        _ = woken.send(());
    });
    wakes
}

#[test]
fn pages_between_objects_are_worth_to_wake_up_for() {
    let _alone = alone();
    let objects = many();
    let wakes = sleeper();
    // One that has been thinned by the way may wake it early, so little that it does not come to that.
    assert!(wakes.recv_timeout(A_WHILE).is_err());
    let kept = thin(&objects);
    wakes.recv_timeout(SOON).expect("it sleeps while there is something to give back");
    // All is freed before the first look, which sees that nothing rests: it must not sleep then.
    let most = kept.len() / 2 * CHUNK;
    let (gave, given) = mpsc::channel();
    thread::spawn(move || {
        let mut released = 0;
        loop {
            thread::sleep(PERIOD);
            released += alloc::release_idle();
            if released >= most {
                break;
            }
            alloc::wait_for_idle();
        }
        _ = gave.send(());
    });
    given.recv_timeout(SOON).expect("it sleeps while there is more to give back");
    // It does sleep when all is given.
    let began = Instant::now();
    let last = loop {
        let wakes = sleeper();
        if wakes.recv_timeout(A_WHILE).is_err() {
            break wakes;
        }
        assert!(began.elapsed() < SOON, "it never sleeps");
        alloc::release_idle();
    };
    // Once more: the thread does not sleep on.
    let more = thin(&many());
    last.recv_timeout(SOON).expect("it sleeps while there is something to give back again");
    free(&kept);
    free(&more);
}

/// Memory that is kept because of a target is returned after the program has grown beyond the target.
#[test]
fn who_slept_below_the_target_wakes_up_beyond_it() {
    let _alone = alone();
    let objects = many();
    let (first, second) = objects.split_at(OBJECTS / 2);
    alloc::set_target(Some(usize::MAX / 2));
    let mut kept = thin(first);
    let wakes = sleeper();
    assert!(wakes.recv_timeout(A_WHILE).is_err(), "it does not sleep below the target");
    alloc::set_target(Some(CHUNK));
    kept.extend(thin(second));
    assert_eq!(alloc::idle_bytes(), 0, "that would wake it, too");
    wakes.recv_timeout(SOON).expect("it sleeps beyond the target");
    alloc::set_target(None);
    free(&kept);
}
