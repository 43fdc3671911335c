//! What areas take and give back: memory that follows the cores used and goes with the area, and address
//! space that runs out.

mod cpus;
mod sandbox;

use std::fs;

use corelocal::cid::{self, CpuId, Policy};
use corelocal::percpu::area::Error;
use corelocal::percpu::{Area, Shard};
use sandbox::{run_in_child, skip};

/// Pages of address space and of memory that this process has.
fn pages() -> [usize; 2] {
    let statm = fs::read_to_string("/proc/self/statm").expect("/proc");
    // The sums in there are not exact; those of the page tables are.
    let smaps = fs::read_to_string("/proc/self/smaps_rollup").expect("/proc, Linux 4.14");
    let anonymous = smaps.lines().find_map(|line| line.strip_prefix("Anonymous:")).expect("a line");
    let first = |text: &str| text.split_whitespace().next().and_then(|n| n.parse::<usize>().ok());
    [first(&statm).expect("a number"), first(anonymous).expect("a number") / 4]
}

/// Lets the process have this many bytes of address space more than it has.
fn confine(more: u64) {
    let len = pages()[0] as u64 * 4096 + more;
    let limit = libc::rlimit { rlim_cur: len, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a valid limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

/// 8 cells of a region each, until there is no address space left.
#[test]
fn address_space_runs_out() {
    run_in_child(
        "address_space_runs_out",
        |_| (),
        || {
            const LAST: usize = (1 << 14) - 1;
            let area: Area<{ LAST + 1 }> = Area::new();
            let mut cells = vec![area.take().unwrap()];
            cells.reserve(100);
            let region = area.memory().reserved as u64;
            confine(2 * region + (1 << 20));
            let error = loop {
                match area.take() {
                    Ok(cell) => cells.push(cell),
                    Err(error) => break error,
                }
                assert!(cells.len() < 100);
            };
            assert_eq!(error, Error::NoMemory { bytes: region as usize });
            assert_eq!((cells.len(), area.memory().cells), (24, 24));
            cells.iter().for_each(|cell| cell.at::<LAST>().add(2));
            assert_eq!(area.take().err(), Some(error));
            cells.truncate(23);
            cells.push(area.take().unwrap());
            assert!(cells[..23].iter().all(|cell| cell.at::<LAST>().added() == 2));
            assert_eq!(cells[23].at::<LAST>().added(), 0);
            confine(1 << 40);
            cells.push(area.take().unwrap());
            assert_eq!(
                (area.memory().cells, area.memory().peak, area.memory().regions),
                (25, 25, 4)
            );
        },
    );
}

#[test]
fn memory_follows_the_cores_and_goes_with_the_area() {
    run_in_child(
        "memory_follows_the_cores_and_goes_with_the_area",
        |_| (),
        || {
            const MIB: usize = 256;
            cpus::stay();
            cid::current::<CpuId>();
            let before = pages();
            {
                // A page of each cell on each core that uses it.
                let area: Area<512, CpuId> = Area::with_image([7; 512]);
                let cells: Vec<_> = (0..1024).map(|_| area.take().unwrap()).collect();
                assert_eq!(area.memory().regions, 4);
                let idle = pages();
                assert!(idle[1] - before[1] < MIB, "{idle:?} after {before:?}");
                assert!((idle[0] - before[0]).abs_diff(area.memory().reserved / 4096) < MIB);

                assert!(cells.iter().all(|cell| cell.at::<300>().load() == 7));
                cells.iter().for_each(|cell| cell.at::<300>().add(1));
                let used = pages();
                // One core has used them, so 4 MiB of the 4 MiB times slots are there.
                let more = used[1] - before[1];
                assert!((1024..1024 + MIB).contains(&more), "{used:?} after {before:?}");
                assert!(area.memory().resident >= 1024 * 4096);

                // Of long cells pages go back at once, and come back as the image.
                drop(cells);
                let dropped = pages();
                assert!(dropped[1] - before[1] < MIB, "{dropped:?} after {before:?}");
                assert_eq!(area.take().unwrap().at::<300>().load(), 7);
                std::mem::forget(area.take());
            }
            let after = pages();
            assert!(after[0].abs_diff(before[0]) < MIB, "{after:?} after {before:?}");
        },
    );
}

/// An unused core's pages go while its cells live on.
#[test]
fn a_trim_gives_back_what_was_drained() {
    run_in_child(
        "a_trim_gives_back_what_was_drained",
        |_| (),
        || {
            if cid::policy() == Policy::Lease || cid::capacity() < 2 {
                return skip("a_trim_gives_back_what_was_drained", "there is one slot at most");
            }
            let area: Area<512> = Area::new();
            let cells: Vec<_> = (0..100).map(|_| area.take().unwrap()).collect();
            // The other slot's, then.
            let frozen = cid::freeze(0).expect("membarrier");
            cells.iter().for_each(|cell| cell.at::<0>().add(1));
            assert!(cells[0].at::<0>().iter().any(|seen| seen == (Shard::Slot(1), 1)));
            drop(frozen);
            cpus::stay();
            let (mut taken, before) = (0, pages()[1]);
            cells.iter().for_each(|cell| {
                cell.drain(|_, words| taken += words[0]).expect("membarrier");
            });
            assert_eq!(taken, 100);
            assert!(area.trim().expect("membarrier") >= 100 * 4096);
            assert!(before - pages()[1] > 80);
            cells.iter().for_each(|cell| cell.at::<0>().add(1));
            assert!(cells.iter().all(|cell| cell.at::<0>().added() == 1));
        },
    );
}
