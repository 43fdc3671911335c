//! Slots by node: where the memory under them lies, on machines of several nodes.

mod nodes;
mod sandbox;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use corelocal::cid::{self, Cid, NodeCid, Policy, capacity_of, compact_of};
use corelocal::percpu::{self, Area, CounterVec, Histogram, PerCpu, Shard, Stack};
use sandbox::run_in_child;

/// A slot belongs to the node of the cpu that it was given on.
#[test]
fn slots_are_at_home() {
    assert_eq!(cid::home::<Cid>(0), None);
    assert_eq!(cid::home::<NodeCid>(capacity_of::<NodeCid>()), None);
    assert!(capacity_of::<NodeCid>() % cid::capacity() == 0);
    // Alone: while all slots are frozen, threads lease others.
    run_in_child(
        "slots_are_at_home",
        |_| (),
        || {
            for (node, cpus) in nodes::all() {
                for cpu in cpus {
                    nodes::on(&[cpu], || {
                        let slot = cid::current::<NodeCid>();
                        assert!(slot < capacity_of::<NodeCid>());
                        let home = cid::home::<NodeCid>(slot);
                        let has_slot = cid::policy() != Policy::Lease;
                        assert!(!has_slot || home == Some(node), "slot {slot} of cpu {cpu}");
                    });
                }
            }
        },
    );
}

/// What lies where, of a value for each core that is larger than a page.
type Pages = PerCpu<[AtomicU64; 1024], NodeCid>;

/// Every slot's value, written to from the given cpus, is on its slot's node.
fn used_from(cpus: &[usize], pages: &Pages) {
    nodes::on(cpus, || pages.get().iter().for_each(|word| word.store(1, Ordering::Relaxed)));
    for (part, value) in pages.shards() {
        let Shard::Slot(slot) = part else { continue };
        for word in value.iter().step_by(512) {
            let node = nodes::node_of(word);
            assert_eq!(node, cid::home::<NodeCid>(slot), "slot {slot}");
        }
    }
}

/// All kinds of memory: of sums, of items, of values. Only those of `node` grow when it alone is used.
fn stays_on(node: u32, cpus: &[usize], far: usize) {
    let before = percpu::memory();
    let vectors: Vec<CounterVec<512, NodeCid>> = (0..16).map(|_| CounterVec::new()).collect();
    let stacks: Vec<Stack<u64, 100, NodeCid>> = (0..64).map(|_| Stack::new()).collect();
    let histogram: Histogram<5, NodeCid> = Histogram::new();
    // Walks that only read bring no page into being, wherever they come from.
    let read = || vectors.iter().map(CounterVec::sum).sum::<i64>();
    assert_eq!(read(), 0);
    nodes::on(cpus, || {
        (0..512).for_each(|i| vectors.iter().for_each(|vector| vector.add(i, 1).unwrap()));
        (0..100).for_each(|i| stacks.iter().for_each(|stack| _ = stack.push(i)));
        (0..10_000).for_each(|n| histogram.record(n));
    });
    assert!(read() >= 512 * 16 * cpus.len() as i64);
    let used = percpu::memory();
    // Nor do drops, which look everywhere, on another node.
    assert!(stacks.iter().all(|stack| stack.len() >= 100));
    let all = Mutex::new(Some((vectors, stacks, histogram)));
    nodes::on(&[far], || drop(all.lock().unwrap().take()));
    let after = percpu::memory();
    assert!(used.on_nodes[node as usize] >= before.on_nodes[node as usize] + 16 * 4096);
    for other in (0..used.on_nodes.len()).filter(|other| *other != node as usize) {
        let bytes = [before, used, after].map(|memory| memory.on_nodes[other]);
        assert_eq!(bytes, [bytes[0]; 3], "node {node} used, but node {other} grew");
    }
    assert_eq!(after.displaced, 0);
}

/// On two nodes and more: memory is where its users are, in spite of the process's memory policy, and
/// after everything was taken back.
#[test]
fn memory_stays_on_its_node() {
    const NAME: &str = "memory_stays_on_its_node";
    let nodes = nodes::all();
    if nodes.len() < 2 {
        return sandbox::skip(
            NAME,
            "this machine, or what this process may use of it, has one NUMA node",
        );
    }
    if cid::policy() == Policy::Lease {
        return sandbox::skip(NAME, "there are no critical sections, so no slots by node");
    }
    if nodes::node_of(&nodes).is_none() {
        return sandbox::skip(NAME, "move_pages(2) is refused");
    }
    run_in_child(
        NAME,
        |_| (),
        || {
            for interleaved in [false, true] {
                if interleaved && !nodes::interleave(&nodes) {
                    return sandbox::skip(NAME, "set_mempolicy(2) is refused");
                }
                let pages = Pages::new(|| [const { AtomicU64::new(0) }; 1024]);
                for (node, cpus) in nodes.iter().chain(&nodes) {
                    let cpus = &cpus[..cpus.len().min(4)];
                    used_from(cpus, &pages);
                    let far = nodes.iter().find(|(other, _)| other != node).unwrap().1[0];
                    stays_on(*node, cpus, far);
                    // Those given next are at home all the same.
                    compact_of::<NodeCid>().unwrap();
                    used_from(&cpus[cpus.len() - 1..], &pages);
                    percpu::trim().unwrap();
                }
            }
        },
    );
}

/// A page of zeros is where the first page of a long object was only read.
#[test]
fn long_objects_by_node_begin_anew() {
    for _ in 0..2 {
        let vector: CounterVec<2000, NodeCid> = CounterVec::new();
        assert_eq!(vector.sum(), 0);
        vector.add(1500, 1).unwrap();
        assert_eq!((vector.get(0).unwrap(), vector.sum()), (0, 1));
    }
    for _ in 0..2 {
        let histogram: Histogram<5, NodeCid> = Histogram::new();
        histogram.record(1 << 30);
        assert_eq!(histogram.snapshot().count(), 1);
    }
    for is_poisoned in [false, true, false] {
        let area: Area<1024, NodeCid> = Area::new().poison(is_poisoned);
        for _ in 0..3 {
            let cell = area.take().unwrap();
            assert_eq!(
                (cell.at::<0>().added(), cell.at::<1000>().added()),
                (0, 0),
                "{is_poisoned}"
            );
            cell.at::<1000>().add(7);
            assert_eq!(cell.at::<0>().added(), 0);
        }
        assert_eq!(area.memory().corrupted, 0);
    }
}
