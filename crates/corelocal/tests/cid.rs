//! Slots: compact whatever cpus a process is confined to, taken away and given again under load, and
//! memory that follows them.

mod sandbox;
mod storm;

use std::mem;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use corelocal::cid::{self, Busy, Cid, CpuId, Policy};
use corelocal::percpu::{self, Counter, CounterVec};
use corelocal::rseq;
use sandbox::{When, in_child, run_in_child, run_refusing, skip};
use storm::scaled;

/// The cpus that the calling thread may use.
fn allowed() -> Vec<usize> {
    // SAFETY: a mask of plain bits; the kernel writes the calling thread's.
    unsafe {
        let mut mask: libc::cpu_set_t = mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, mem::size_of_val(&mask), &raw mut mask), 0);
        (0..8 * mem::size_of_val(&mask)).filter(|cpu| libc::CPU_ISSET(*cpu, &mask)).collect()
    }
}

/// Confines the calling thread, and the threads it will start, to these cpus.
fn confine(cpus: &[usize]) {
    // SAFETY: a mask of plain bits, read by the kernel.
    unsafe {
        let mut mask: libc::cpu_set_t = mem::zeroed();
        cpus.iter().for_each(|cpu| libc::CPU_SET(*cpu, &mut mask));
        assert_eq!(libc::sched_setaffinity(0, mem::size_of_val(&mask), &raw const mask), 0);
    }
}

/// Threads that all add at the same time, for a while.
fn busy(threads: usize, counter: &Counter) {
    let start = Barrier::new(threads);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                start.wait();
                (0..scaled(200_000)).for_each(|_| counter.add(1));
            });
        }
    });
}

#[test]
fn the_last_cpus_have_the_first_slots() {
    run_in_child(
        "the_last_cpus_have_the_first_slots",
        |_| (),
        || {
            let cpus = allowed();
            let last = &cpus[cpus.len().saturating_sub(2)..];
            confine(last);
            let counter = Counter::new();
            busy(16, &counter);
            assert_eq!(counter.get(), 16 * scaled(200_000) as i64);
            let used = cid::high_water::<Cid>();
            if cid::policy() == Policy::Lease {
                assert_eq!(used, 0);
            } else {
                // One for each cpu, and as many others while these are taken back. Where the kernel gives
                // ids, a new one may come before an old one goes, and it may do so for each thread.
                let most = if cid::policy() == Policy::MmCid { 17 } else { 2 * last.len() as u32 };
                assert!((1..=most.min(cid::capacity())).contains(&used), "{used} slots");
            }
            // The other kind goes by number.
            let by_cpu: Counter<CpuId> = Counter::new();
            by_cpu.add(1);
            if cid::policy() != Policy::Lease {
                assert!(cid::high_water::<CpuId>() as usize > last[0]);
            }
        },
    );
}

#[test]
fn confined_later_slots_become_compact_again() {
    run_in_child(
        "confined_later_slots_become_compact_again",
        |_| (),
        || {
            let counter = Counter::new();
            busy(2 * allowed().len(), &counter);
            let before = counter.get();
            let cpus = allowed();
            confine(&cpus[cpus.len() - 1..]);
            match cid::compact() {
                Ok(given) => assert!(given <= cid::high_water::<Cid>()),
                Err(Busy::Fence(_)) => return,
                Err(busy) => panic!("{busy}"),
            }
            assert_eq!(cid::in_use::<Cid>(), 0);
            counter.add(1);
            if cid::policy() != Policy::Lease {
                assert_eq!((cid::in_use::<Cid>(), cid::current::<Cid>()), (1, 0));
            }
            assert_eq!(counter.get(), before + 1);
        },
    );
}

/// Additions go on while every slot in turn, and all at once, are taken away.
#[test]
fn a_storm_of_freezes_loses_nothing() {
    static COUNTER: Counter = Counter::new();
    let (each, done) = (scaled(300_000), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let freezer = scope.spawn(|| {
            let mut frozen = 0u64;
            loop {
                for slot in 0..cid::high_water::<Cid>().max(1) {
                    match cid::freeze(slot) {
                        Ok(slot) => frozen += u64::from(slot.slot() < cid::capacity()),
                        Err(Busy::Frozen | Busy::Fence(_)) => {}
                        Err(busy) => panic!("{busy}"),
                    }
                }
                let _ = cid::compact();
                let _ = percpu::trim();
                if done.load(Ordering::Relaxed) {
                    return frozen;
                }
            }
        });
        let adders: Vec<_> =
            (0..4).map(|_| scope.spawn(|| (0..each).for_each(|_| COUNTER.add(1)))).collect();
        adders.into_iter().for_each(|adder| adder.join().unwrap());
        done.store(true, Ordering::Relaxed);
        assert!(freezer.join().unwrap() > 0 || cid::freeze(0).is_err());
    });
    assert_eq!(COUNTER.get(), 4 * each as i64);
}

/// Frozen for good, every one of them: operations go on all the same.
#[test]
fn no_slot_is_left() {
    run_in_child(
        "no_slot_is_left",
        |_| (),
        || {
            let frozen: Vec<_> = (0..cid::capacity()).map_while(|n| cid::freeze(n).ok()).collect();
            let counter = Counter::new();
            busy(4, &counter);
            let sum = 4 * scaled(200_000) as i64;
            assert_eq!(counter.get(), sum);
            if frozen.len() == cid::capacity() as usize {
                assert_eq!(cid::in_use::<Cid>(), 0);
            }
            drop(frozen);
            counter.add(1);
            assert_eq!(counter.get(), sum + 1);
            if cid::policy() != Policy::Lease {
                // A thread that is migrated between the assignment and the addition gets a second slot.
                assert!((1..=2).contains(&cid::in_use::<Cid>()), "{}", cid::in_use::<Cid>());
            }
        },
    );
}

/// Without membarrier a slot in use cannot be taken away, and is told so.
#[test]
fn no_fence_no_freeze() {
    run_refusing("no_fence_no_freeze", libc::SYS_membarrier, When::Always, libc::ENOSYS, || {
        let counter: Counter = Counter::new();
        counter.add(1);
        if cid::policy() == Policy::Lease {
            return;
        }
        let (id, slot) = id_and_slot();
        assert!(matches!(cid::freeze(slot), Err(Busy::Fence(_))));
        assert!(matches!(percpu::trim(), Err(Busy::Fence(_))));
        // The kernel may give the thread another id at any time.
        let (id_now, slot_now) = id_and_slot();
        assert!(id_now != id || slot_now == slot, "{slot} was taken from {id}: it has {slot_now}");
        counter.add(1);
        assert_eq!(counter.get(), 2);
    });
}

/// The calling thread's id, and the slot that goes with it.
fn id_and_slot() -> (u32, u32) {
    loop {
        let (id, slot) = (rseq::cid(), cid::current::<Cid>());
        if rseq::cid() == id {
            return (id, slot);
        }
    }
}

/// What cores have that are used no longer comes back.
#[test]
fn memory_follows_the_cores_used() {
    run_in_child(
        "memory_follows_the_cores_used",
        |_| (),
        || {
            let mut cpus = allowed();
            cpus.truncate(16);
            if cpus.len() < 2 {
                return skip("memory_follows_the_cores_used", "this process may use one cpu only");
            }
            let vectors: Vec<CounterVec<512>> = (0..64).map(|_| CounterVec::new()).collect();
            let touch = || {
                let start = Barrier::new(cpus.len());
                std::thread::scope(|scope| {
                    for cpu in &cpus {
                        let (start, vectors) = (&start, &vectors);
                        scope.spawn(move || {
                            confine(&[*cpu]);
                            start.wait();
                            for _ in 0..scaled(100).max(2) {
                                // A vector is a page.
                                for counters in vectors {
                                    assert!(
                                        (0..512).step_by(64).all(|i| counters.add(i, 1).is_ok())
                                    );
                                }
                            }
                        });
                    }
                });
            };
            touch();
            if cid::policy() == Policy::Lease || cid::in_use::<Cid>() < 2 {
                return;
            }
            let sum = || (0..512).map(|i| vectors[7].get(i).unwrap_or(0)).sum::<i64>();
            let (before, counted) = (percpu::memory(), sum());
            confine(&cpus[..1]);
            let bytes = percpu::trim().expect("membarrier");
            let after = percpu::memory();
            // A page for each vector and core but one; the first shared slot takes what was in them.
            assert!(bytes >= 64 * 4096, "{bytes} bytes; {before:?}, then {after:?}");
            assert!(after.resident <= before.resident, "{before:?}, then {after:?}");
            assert_eq!(sum(), counted);
            vectors[7].add(3, 1).unwrap();
            assert_eq!(sum(), counted + 1);
        },
    );
}

#[test]
fn a_slot_is_below_the_capacity() {
    assert!(cid::current::<Cid>() < cid::capacity());
    assert!(cid::current::<CpuId>() < cid::capacity());
    assert_eq!(cid::freeze(cid::capacity()).err(), Some(Busy::NoSlot));
    assert_eq!(cid::freeze(u32::MAX).err(), Some(Busy::NoSlot));
    // Children run single tests of this file.
    assert!(!in_child() || cid::capacity() > 0);
}
