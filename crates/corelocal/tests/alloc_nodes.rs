//! The malloc on machines with several NUMA nodes: on which node memory lies, and to which it returns. On emulated
//! nodes, where each thread says where it is, and on those of the machine.
//!
//! Invariant: a core's caches belong to the threads that run there, on any emulated node. So a thread that wants
//! memory of one node only empties them first.
#![cfg(not(any(loom, miri)))]

mod forked;
mod nodes;
mod sandbox;
mod scripted;
mod storm;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::{ptr, thread};

use corelocal::alloc::{self, testing};
use forked::{End, fork};
use proptest::prelude::*;
use sandbox::{When, run_in_child, run_refusing, skip};
use storm::{Tell, scaled};

thread_local! {
    /// The node that the thread says it is on.
    static HERE: Cell<usize> = const { Cell::new(0) };
}

const SIZES: [usize; 6] = [16, 100, 3000, 70_000, 1 << 20, 5 << 20];

/// Runs `body` in a child whose machine has so many nodes.
fn on_nodes(test: &str, count: usize, body: impl FnOnce()) {
    run_in_child(
        test,
        |_| (),
        || match testing::emulate_nodes(count, || HERE.get()) {
            true => body(),
            false => skip(test, "there are too few addresses for several nodes"),
        },
    );
}

/// So many, or fewer where tests are to be brief: an emulated machine takes long to write to memory.
fn at_most(count: usize) -> usize {
    (scaled(count as u64) as usize).clamp(count / 8, count)
}

/// So many objects of a size, all written to, for a thread on a node; caches are empty to begin with.
fn fill_on(node: usize, count: usize, size: usize) -> Vec<*mut u8> {
    HERE.set(node);
    alloc::trim(0);
    fill(count, size)
}

fn fill(count: usize, size: usize) -> Vec<*mut u8> {
    let objects: Vec<_> = (0..count).map(|_| alloc::allocate(size)).collect();
    for object in &objects {
        assert!(!object.is_null());
        // SAFETY: so many bytes, ours.
        unsafe { object.write_bytes(7, size) };
    }
    objects
}

fn empty(objects: impl IntoIterator<Item = *mut u8>) {
    // SAFETY: objects of the caller's, once each.
    objects.into_iter().for_each(|object| unsafe { alloc::deallocate(object) });
}

/// Bytes in use on each node.
fn used() -> Vec<usize> {
    let stats = alloc::stats();
    stats.of_nodes[..stats.nodes].iter().map(|node| node.used).collect()
}

fn are_of(node: usize, objects: &[*mut u8]) -> bool {
    objects.iter().all(|object| testing::node_of(*object) == Some(node))
}

#[test]
fn objects_are_of_the_node_that_asks() {
    on_nodes("objects_are_of_the_node_that_asks", 4, || {
        assert_eq!(testing::node_of(ptr::null_mut()), None);
        for node in [2, 0, 3, 1] {
            for size in SIZES {
                let objects = fill_on(node, 200.min(at_most(64 << 20) / size), size);
                assert!(are_of(node, &objects), "{size} on {node}");
                empty(objects);
            }
            let aligned = alloc::allocate_aligned(8 << 20, 100);
            assert_eq!((testing::node_of(aligned), aligned as usize % (8 << 20)), (Some(node), 0));
            empty([aligned]);
        }
        // Free memory is unmapped, so each node has something in use.
        let kept: Vec<_> = (0..4).flat_map(|node| fill_on(node, 1, 1 << 20)).collect();
        let stats = alloc::stats();
        assert!(stats.nodes == 4 && stats.of_nodes[..4].iter().all(|node| node.committed > 0));
        let sum = |number: fn(&alloc::NodeStats) -> usize| -> usize {
            stats.of_nodes.iter().map(number).sum()
        };
        assert_eq!(sum(|node| node.committed), stats.committed);
        assert_eq!(sum(|node| node.used), stats.used);
        empty(kept);
        assert_eq!(stats.displaced, 0);
    });
}

/// Whichever node frees them, among objects of others: each node has its memory back, and allocates from it again.
#[test]
fn what_is_freed_goes_home() {
    on_nodes("what_is_freed_goes_home", 3, || {
        for size in SIZES {
            let count = 5000.min(at_most(48 << 20) / size);
            let before = used();
            let lists: Vec<_> = (0..3).map(|node| fill_on(node, count, size)).collect();
            let firsts: Vec<_> = lists.iter().map(|list| *list.iter().min().unwrap()).collect();
            HERE.set(1);
            (0..count).for_each(|nth| empty(lists.iter().map(|list| list[nth])));
            // What the caches had no room for is where it was: the depots' is given out to their nodes.
            for node in [2, 1, 0] {
                let objects = fill_on(node, count, size);
                assert!(are_of(node, &objects), "{size} on {node}");
                let first = *objects.iter().min().unwrap();
                assert_eq!(first, firsts[node], "{size} on {node}: the same memory");
                HERE.set((node + 1) % 3);
                empty(objects);
            }
            alloc::trim(0);
            assert_eq!(used(), before, "{size}");
        }
    });
}

/// Other nodes help out whose memory is at its end, and what is longer than that of any node is of several.
#[test]
fn a_node_without_memory_takes_that_of_others() {
    on_nodes("a_node_without_memory_takes_that_of_others", 8, || {
        const LARGE: usize = 16 << 30;
        HERE.set(6);
        let mut objects = Vec::new();
        loop {
            let object = alloc::allocate(LARGE);
            if object.is_null() {
                empty(objects);
                return skip(
                    "a_node_without_memory_takes_that_of_others",
                    "so much cannot be promised",
                );
            }
            objects.push(object);
            if testing::node_of(object) != Some(6) {
                break;
            }
        }
        assert!(objects.len() > 4, "{}", objects.len());
        assert!(
            are_of(6, &objects[..objects.len() - 1]) && are_of(7, &objects[objects.len() - 1..])
        );
        for size in SIZES {
            let small = fill_on(6, at_most(100), size);
            assert!(are_of(7, &small), "{size}");
            empty(small);
        }
        empty(objects);
        let small = fill_on(6, 100, 100);
        assert!(are_of(6, &small));
        empty(small);
        // Of two nodes, or three.
        HERE.set(2);
        let longest = alloc::allocate(LARGE * 13);
        assert!(!longest.is_null());
        // SAFETY: its first byte and its last one.
        unsafe {
            longest.write(1);
            let last = longest.add(LARGE * 13 - 1);
            last.write(2);
            assert_ne!(testing::node_of(longest), testing::node_of(last));
        }
        empty([longest]);
        assert!(alloc::allocate(1 << 41).is_null());
        assert!(alloc::trim(0) && alloc::idle_bytes() == 0);
    });
}

/// On all nodes, at once and by the time: free memory, and pages between objects.
#[test]
fn memory_of_all_nodes_goes_back() {
    fn resident() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("/proc");
        statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number")
            << 12
    }
    on_nodes("memory_of_all_nodes_goes_back", 4, || {
        for (count, size) in [(at_most(100_000), 200), (at_most(8), 4 << 20)] {
            let before = resident();
            let lists = || (0..4).flat_map(|node| fill_on(node, count, size)).collect::<Vec<_>>();
            let objects = lists();
            assert!(resident() > before + 4 * count * size / 2);
            empty(objects);
            (0..4).for_each(|_| _ = alloc::release_idle());
            assert!(alloc::idle_bytes() == 0 && resident() < before + (16 << 20), "{size}");
            let (kept, freed): (Vec<_>, Vec<_>) =
                lists().into_iter().enumerate().partition(|(nth, _)| nth % 500 == 1);
            empty(freed.into_iter().map(|(_, object)| object));
            alloc::trim(0);
            assert!(resident() < before + (32 << 20), "{size}");
            // SAFETY: ours, and written to by `fill`.
            assert!(kept.iter().all(|(_, object)| unsafe { object.add(size - 1).read() } == 7));
            empty(kept.into_iter().map(|(_, object)| object));
            alloc::trim(0);
            assert!(resident() < before + (8 << 20), "{size}");
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(scaled(20) as u32))]

    /// A thread that is on another node at each step.
    #[test]
    fn scripts(bytes in prop::collection::vec(any::<u8>(), 0..800)) {
        static EMULATED: std::sync::Once = std::sync::Once::new();
        // In this process: no other test of it allocates here.
        EMULATED.call_once(|| _ = testing::emulate_nodes(5, || HERE.get()));
        let steps = scripted::of_bytes(&bytes).enumerate();
        scripted::run(steps.map(|(nth, step)| {
            HERE.set(usize::from(bytes[4 * nth + 1]) % 5);
            step
        }));
    }
}

/// Threads that are on another node each time, and free what others allocated, while memory goes back; and children of
/// theirs.
#[test]
fn objects_change_hands_and_nodes() {
    static TABLE: [AtomicPtr<u8>; 256] = [const { AtomicPtr::new(ptr::null_mut()) }; 256];
    /// Takes an object, leaves it in the table, and frees what was there; 1 if that was not whole.
    fn exchange(random: &mut u64) -> i32 {
        *random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = (*random >> 33) as usize;
        HERE.set(number % 3);
        let size = 16 + number / 8 % if number % 64 == 0 { 3_000_000 } else { 2000 };
        let object = alloc::allocate(size);
        if object.is_null() {
            return 1;
        }
        // SAFETY: so many bytes, two words at least; what is in the table has its size in its first word.
        unsafe {
            object.cast::<usize>().write(size);
            object.add(size - 1).write(size as u8);
            let other = TABLE[number / 1024 % TABLE.len()].swap(object, Ordering::AcqRel);
            if other.is_null() {
                return 0;
            }
            let size = other.cast::<usize>().read();
            let is_whole = size == 16 || other.add(size - 1).read() == size as u8;
            alloc::deallocate(other);
            i32::from(!is_whole)
        }
    }
    on_nodes("objects_change_hands_and_nodes", 3, || {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let _at_end = Tell(&done);
            for seed in 1..=4u64 {
                let done = &done;
                scope.spawn(move || {
                    let mut random = seed;
                    while !done.load(Ordering::Relaxed) {
                        assert_eq!(exchange(&mut random), 0);
                    }
                });
            }
            for _ in 0..scaled(40).max(3) {
                alloc::trim(0);
                alloc::release_idle();
                let child = fork(|| {
                    let mut random = 99;
                    let mut wrong = 0;
                    // What a thread that is not here had in its hands it may not have finished writing.
                    for place in &TABLE {
                        place.store(ptr::null_mut(), Ordering::Relaxed);
                    }
                    (0..2000).for_each(|_| wrong += exchange(&mut random));
                    alloc::trim(0);
                    (0..200).for_each(|_| wrong += exchange(&mut random));
                    wrong
                });
                assert_eq!(child.wait(), End::Code(0));
            }
        });
        TABLE.iter().for_each(|place| {
            let object = place.swap(ptr::null_mut(), Ordering::AcqRel);
            if !object.is_null() {
                empty([object]);
            }
        });
        alloc::trim(0);
        assert_eq!(alloc::stats().classes.iter().map(|class| class.in_use).sum::<usize>(), 0);
    });
}

#[test]
fn words_of_the_environment() {
    const TEST: &str = "words_of_the_environment";
    let words = [
        "nodes:no",
        "stats,nodes:5",
        "check,nodes:5",
        "nodes:no,guard:100",
        "nodes:5,profile-rate:1M",
    ];
    let body = || {
        let of_process = std::env::var("CORELOCAL_MALLOC").unwrap_or_default();
        // Beyond what decides for nodes; nothing is written.
        empty((0..20).map(|_| alloc::allocate(4 << 20)).collect::<Vec<_>>());
        assert_eq!(alloc::stats().nodes, if of_process.contains("nodes:no") { 1 } else { 5 });
    };
    for words in words {
        run_in_child(TEST, |command| _ = command.env("CORELOCAL_MALLOC", words), body);
    }
}

/// The machine's nodes, if it has several; says so if not.
fn of_the_machine(test: &str) -> Option<Vec<(u32, Vec<usize>)>> {
    let nodes = nodes::all();
    if nodes.len() < 2 {
        skip(test, "this machine has one NUMA node");
        return None;
    }
    Some(nodes)
}

/// Where the objects lie: how many there are on each of the kernel's nodes below 64, by one page of each.
fn pages_of(objects: &[*mut u8]) -> [usize; 64] {
    let mut counts = [0; 64];
    for object in objects {
        // SAFETY: an object of ours that was written to.
        if let Some(node) = nodes::node_of(unsafe { &**object }) {
            counts[node as usize % 64] += 1;
        }
    }
    counts
}

/// Pages lie on the node of the thread that first writes to them.
#[test]
fn pages_are_on_the_node_that_asks() {
    let test = "pages_are_on_the_node_that_asks";
    let Some(nodes) = of_the_machine(test) else { return };
    run_in_child(
        test,
        |_| (),
        || {
            // So many that the malloc asks for nodes.
            empty(fill(12, 4 << 20));
            let stats = alloc::stats();
            assert!(
                stats.nodes > 1 && stats.of_nodes[..stats.nodes].iter().any(|node| node.number > 0)
            );
            for (turn, (node, cpus)) in nodes.iter().enumerate() {
                let other = &nodes[(turn + 1) % nodes.len()];
                let objects = std::sync::Mutex::new(Vec::new());
                alloc::trim(0);
                nodes::on(&cpus[..1], || {
                    let mut objects = objects.lock().unwrap();
                    objects.extend((0..2000).map(|_| alloc::allocate(10_000) as usize));
                });
                let objects: Vec<_> =
                    objects.into_inner().unwrap().into_iter().map(|at| at as *mut u8).collect();
                let nth = testing::node_of(objects[0]).unwrap();
                assert!(alloc::stats().of_nodes[nth].number == *node && are_of(nth, &objects));
                let at: Vec<usize> = objects.iter().map(|object| *object as usize).collect();
                // The allocating thread's node, unless the kernel was told where the pages are to lie.
                let writer = if stats.displaced > 0 { cpus } else { &other.1 };
                nodes::on(&writer[..1], || {
                    // SAFETY: within the objects.
                    at.iter().for_each(|at| unsafe { (*at as *mut u8).write_bytes(1, 10_000) });
                });
                let counts = pages_of(&objects);
                let told: usize = counts.iter().sum();
                assert!(counts[*node as usize] * 10 >= told * 9, "node {node}: {counts:?}");
                empty(objects);
            }
        },
    );
}

/// As in many containers: it goes on, and is told.
#[test]
fn a_kernel_that_places_nothing() {
    let test = "a_kernel_that_places_nothing";
    let Some(_) = of_the_machine(test) else { return };
    run_refusing(test, libc::SYS_mbind, When::Always, libc::EPERM, || {
        empty(fill(20_000, 10_000));
        let stats = alloc::stats();
        assert!(stats.nodes > 1 && stats.displaced > 0 && stats.displaced <= stats.committed);
    });
}

/// A program that says itself where its memory is to lie has it there.
#[test]
fn a_program_with_a_policy_is_left_alone() {
    let test = "a_program_with_a_policy_is_left_alone";
    let Some(nodes) = of_the_machine(test) else { return };
    run_in_child(
        test,
        |_| (),
        || {
            if !nodes::interleave(&nodes) {
                return skip(test, "the kernel refuses set_mempolicy");
            }
            let objects = fill(20_000, 10_000);
            let counts = pages_of(&objects);
            let told: usize = counts.iter().sum();
            let most = counts.iter().max().unwrap();
            assert!(told == 0 || *most < told * 3 / 4, "{counts:?}");
            empty(objects);
        },
    );
}
