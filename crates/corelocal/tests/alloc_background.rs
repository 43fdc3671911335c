//! The thread of [`CoreLocal::with_background`]: when it is there, and what it does.
#![cfg(not(any(loom, miri)))]

mod forked;
mod sandbox;
mod spike;

use std::fs;
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use corelocal::alloc::CoreLocal;
use sandbox::run_in_child;
use spike::{MIB, SOON, resident, spike};

/// This test binary's heap.
#[global_allocator]
static MEMORY: CoreLocal = CoreLocal::with_background();

/// Returns the names of this process's threads.
fn names() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").expect("/proc").flatten();
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm"));
    tasks.filter_map(|task| name(task).ok()).map(|name| name.trim_end().to_owned()).collect()
}

fn has_thread() -> bool {
    names().iter().any(|name| name == "corelocal-idle")
}

/// Uses 64 MiB and frees them, more than the thread waits for, and goes on until it is there or some time has passed.
fn use_memory(until: Duration) -> bool {
    drop((0..64).map(|_| black_box(vec![1_u8; MIB])).collect::<Vec<_>>());
    let began = Instant::now();
    while !has_thread() && began.elapsed() < until {
        drop(black_box(vec![1_u8; 2 * MIB]));
        thread::sleep(Duration::from_millis(10));
    }
    has_thread()
}

/// Long enough for a thread that must not come.
const A_WHILE: Duration = Duration::from_millis(1500);

/// Without any call of the program's.
#[test]
fn memory_goes_back_while_the_program_does_nothing() {
    run_in_child(
        "memory_goes_back_while_the_program_does_nothing",
        |_| (),
        || {
            let before = resident();
            let spike = spike(4, 64, |_| false, None);
            spike.wait_until_resident_is_at_most(before + 32);
            assert!(has_thread(), "{:?}", names());
        },
    );
}

#[test]
fn pages_between_objects_go_back_while_it_does_nothing() {
    run_in_child(
        "pages_between_objects_go_back_while_it_does_nothing",
        |_| (),
        || {
            let spike = spike(4, 64, |nth| nth % 16 == 0, None);
            spike.wait_until_resident_is_at_most(spike.peak / 4);
        },
    );
}

/// The body of a test is run by a thread beside the harness's first one.
#[test]
fn it_comes_with_a_second_thread_and_much_memory() {
    run_in_child(
        "it_comes_with_a_second_thread_and_much_memory",
        |_| (),
        || {
            assert!(!has_thread(), "{:?}", names());
            assert!(use_memory(SOON), "{:?}", names());
        },
    );
}

#[test]
fn the_environment_refuses_it() {
    run_in_child(
        "the_environment_refuses_it",
        |command| _ = command.env("CORELOCAL_MALLOC", "background:no"),
        || assert!(!use_memory(A_WHILE), "{:?}", names()),
    );
}

/// A forked child has one thread, and its calls give memory back; with `background:children` it gets a thread, too.
#[test]
fn a_forked_child_gives_back_as_well() {
    const WORDS: [&str; 2] = ["background:yes", "background:children"];
    for words in WORDS {
        run_in_child(
            "a_forked_child_gives_back_as_well",
            |command| _ = command.env("CORELOCAL_MALLOC", words),
            || {
                let is_for_children = std::env::var("CORELOCAL_MALLOC").unwrap() == WORDS[1];
                assert!(use_memory(SOON), "{:?}", names());
                let works = move || {
                    let before = (has_thread(), resident());
                    drop((0..100_000).map(|_| vec![1_u8; 1000]).collect::<Vec<_>>());
                    let began = Instant::now();
                    while resident() > before.1 + 48 && began.elapsed() < SOON / 2 {
                        (0..20).for_each(|_| _ = black_box(vec![1_u8; 100]));
                        thread::sleep(Duration::from_millis(20));
                    }
                    let is_less = resident() <= before.1 + 48;
                    let until = if is_for_children { SOON / 3 } else { A_WHILE };
                    !before.0 && is_less && use_memory(until) == is_for_children
                };
                forked::judge(works).succeeds();
            },
        );
    }
}
