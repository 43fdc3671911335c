//! Memory that a program with [`CoreLocal`] and nothing else gives back, by the few calls that it makes.
#![cfg(not(any(loom, miri)))]

mod sandbox;
mod spike;

use std::time::{Duration, Instant};

use corelocal::alloc::CoreLocal;
use sandbox::run_in_child;
use spike::{resident, spike};

/// This test binary's heap.
#[global_allocator]
static MEMORY: CoreLocal = CoreLocal;

const PAUSE: Option<Duration> = Some(Duration::from_millis(200));

/// Returns the number of this process's threads.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("/proc").count()
}

/// Waits until there are so many: one that was joined may be listed for a moment.
fn wait_for_threads(count: usize) {
    let began = Instant::now();
    while threads() != count {
        assert!(began.elapsed() < spike::SOON, "{} threads, not {count}", threads());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_is_freed_goes_back() {
    run_in_child(
        "what_is_freed_goes_back",
        |_| (),
        || {
            let before = (resident(), threads());
            let spike = spike(4, 64, |_| false, PAUSE);
            assert!(spike.peak >= before.0 + 256, "{} MiB", spike.peak);
            spike.wait_until_resident_is_at_most(before.0 + 32);
            drop(spike);
            wait_for_threads(before.1);
        },
    );
}

/// The operator's word starts a thread that the program did not ask for.
#[test]
fn the_environment_demands_a_thread() {
    run_in_child(
        "the_environment_demands_a_thread",
        |command| _ = command.env("CORELOCAL_MALLOC", "background:yes"),
        || {
            let before = (resident(), threads());
            let spike = spike(2, 64, |_| false, None);
            spike.wait_until_resident_is_at_most(before.0 + 32);
            drop(spike);
            wait_for_threads(before.1 + 1);
        },
    );
}

/// One of 16 pieces stays, so no span is empty.
#[test]
fn pages_between_objects_go_back() {
    run_in_child(
        "pages_between_objects_go_back",
        |_| (),
        || {
            let spike = spike(4, 64, |nth| nth % 16 == 0, PAUSE);
            spike.wait_until_resident_is_at_most(spike.peak / 4);
        },
    );
}

/// One thread, which calls as rarely.
#[test]
fn one_thread_gives_back() {
    run_in_child(
        "one_thread_gives_back",
        |_| (),
        || {
            let before = resident();
            drop((0..200_000).map(|nth| vec![1_u8; 64 + nth % 2000]).collect::<Vec<_>>());
            let began = Instant::now();
            while resident() > before + 32 {
                assert!(began.elapsed() < spike::SOON, "{} MiB are resident", resident());
                (0..20).for_each(|_| _ = std::hint::black_box(vec![1_u8; 100]));
                std::thread::sleep(PAUSE.unwrap());
            }
        },
    );
}
