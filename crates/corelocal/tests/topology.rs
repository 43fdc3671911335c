//! What is read from /sys and /proc, on made-up machines and on this one.

use corelocal::sys::topology::{CgroupCpus, CgroupVersion, CpuSet, FsRoot, Source, Topology};
use std::path::Path;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/topology/");

fn read(machine: &str) -> Topology {
    let root = format!("{FIXTURES}{machine}");
    assert!(Path::new(&root).is_dir(), "no fixture {root}");
    Topology::read(FsRoot::at(&root))
}

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

#[test]
fn dense() {
    let topology = read("dense");
    assert_eq!(topology.possible.set, cpus("0-1"));
    assert_eq!(topology.possible.source, Source::Sysfs);
    assert_eq!(topology.nr_possible_ids(), 2);
    assert!(!topology.is_sparse());
    assert_eq!(topology.nodes.source, Source::Unknown);
    assert_eq!(topology.cgroup, None);
}

#[test]
fn sparse() {
    let topology = read("sparse");
    assert_eq!(topology.possible.set, cpus("0-1,8-9,64"));
    assert_eq!(topology.online.set, cpus("0-1,8"));
    assert_eq!(topology.present.set, cpus("0-1,8-9"));
    assert_eq!(topology.nr_possible_ids(), 65);
    assert!(topology.is_sparse());
}

#[test]
fn numa() {
    let topology = read("numa");
    assert_eq!(topology.nodes.set, "0,2".parse().unwrap());
    let root = format!("{FIXTURES}numa");
    let root = FsRoot::at(&root);
    assert_eq!(root.node_cpus(0), Some(cpus("0-3")));
    assert_eq!(root.node_cpus(1), None);
    assert_eq!(root.node_cpus(2), Some(cpus("4-7")));
    assert_eq!(root.node_cpus(usize::MAX), None);
}

#[test]
fn cgroup_cpusets() {
    let cgroup = |version, list| Some(CgroupCpus { version, cpus: cpus(list) });
    // A container without a cgroup namespace: the mount shows its group only.
    assert_eq!(read("cgroup-v1").cgroup, cgroup(CgroupVersion::V1, "2-3"));
    // The controller is off in the group and its parent; the grandparent's cpus hold.
    assert_eq!(read("cgroup-v2").cgroup, cgroup(CgroupVersion::V2, "1,3"));
    // Both interfaces are mounted; the controller is v1's. An old kernel: no effective list.
    assert_eq!(read("cgroup-hybrid").cgroup, cgroup(CgroupVersion::V1, "0-5"));
    // The group is outside the namespace: what is mounted is not ours.
    assert_eq!(read("cgroup-outside").cgroup, None);
}

#[test]
fn damaged_files_count_as_missing() {
    let topology = read("damaged");
    assert_eq!(topology.possible.source, Source::Affinity);
    assert_eq!(topology.online.set, topology.affinity.set);
    assert_eq!(topology.present.source, Source::Unknown);
    assert_eq!(topology.cgroup, None);
}

#[test]
fn nothing_there() {
    let here = Topology::read(FsRoot::SYSTEM);
    for root in ["/nonexistent", &"/x".repeat(3000), "a\0b"] {
        let topology = Topology::read(FsRoot::at(root));
        assert_eq!(topology.possible.source, Source::Affinity);
        assert_eq!(topology.present.source, Source::Unknown);
        assert!(topology.nr_possible_ids() > here.affinity.set.max().unwrap());
    }
}

#[test]
fn this_machine() {
    let topology = Topology::read(FsRoot::SYSTEM);
    let within = |inner: CpuSet, outer: CpuSet| inner.iter().all(|cpu| outer.contains(cpu));
    assert!(within(topology.affinity.set, topology.possible.set));
    assert!(within(topology.online.set, topology.possible.set));
    assert!(topology.nr_possible_ids() <= CpuSet::CAPACITY);
    // std reads the affinity mask too, and then cgroup quotas, which only lower it.
    let parallelism = std::thread::available_parallelism().unwrap().get();
    assert!(parallelism <= topology.affinity.set.count());
    for node in &topology.nodes.set {
        assert!(within(FsRoot::SYSTEM.node_cpus(node).unwrap(), topology.possible.set));
    }
    if let Ok(list) = std::fs::read_to_string("/sys/devices/system/cpu/possible") {
        assert_eq!(topology.possible.set.to_string(), list.trim_end());
    }
}
