//! The NUMA nodes of the machine, threads that run there, and where pages are.

use std::sync::Barrier;

use corelocal::sys::topology::{FsRoot, Topology};

/// The nodes that this process may run on, each with its cpus.
pub fn all() -> Vec<(u32, Vec<usize>)> {
    let topology = Topology::read(FsRoot::SYSTEM);
    let nodes = topology.nodes.set.iter().map(|node| {
        let cpus = FsRoot::SYSTEM
            .node_cpus(node)
            .into_iter()
            .flat_map(|cpus| cpus.iter().collect::<Vec<_>>());
        let may_run = |cpu: &usize| {
            topology.affinity.set.contains(*cpu) && topology.online.set.contains(*cpu)
        };
        (node as u32, cpus.filter(may_run).collect::<Vec<_>>())
    });
    nodes.filter(|(_, cpus)| !cpus.is_empty()).collect()
}

/// Runs `f` on each of these cpus at the same time.
pub fn on(cpus: &[usize], f: impl Fn() + Sync) {
    let start = Barrier::new(cpus.len());
    std::thread::scope(|scope| {
        for cpu in cpus {
            let (f, start) = (&f, &start);
            scope.spawn(move || {
                // SAFETY: a mask of plain bits, read by the kernel.
                unsafe {
                    let mut mask: libc::cpu_set_t = std::mem::zeroed();
                    libc::CPU_SET(*cpu, &mut mask);
                    let set = libc::sched_setaffinity(0, size_of_val(&mask), &raw const mask);
                    assert_eq!(set, 0, "cpu {cpu}");
                }
                start.wait();
                f();
            });
        }
    });
}

/// The node of the page that something lies on; `None` if it has none, or the kernel does not say.
pub fn node_of<T>(value: &T) -> Option<u32> {
    let page: *const T = value;
    let mut node = -1i32;
    // SAFETY: reads one address and writes one number; nothing is moved.
    let told = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            1usize,
            &raw const page,
            std::ptr::null::<i32>(),
            &raw mut node,
            0,
        )
    };
    if told == 0 { u32::try_from(node).ok() } else { None }
}

/// Lets the calling thread, and those it will start, take pages from all nodes in turn.
pub fn interleave(nodes: &[(u32, Vec<usize>)]) -> bool {
    const MPOL_INTERLEAVE: i32 = 3;
    let mask = nodes.iter().fold(0u64, |mask, (node, _)| mask | 1 << node);
    // SAFETY: reads a mask of 64 nodes.
    unsafe {
        libc::syscall(libc::SYS_set_mempolicy, MPOL_INTERLEAVE, &raw const mask, 64usize) == 0
    }
}
