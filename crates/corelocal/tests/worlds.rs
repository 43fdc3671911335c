//! The environments in which a program may run, each as a child process: the owner of its threads' registrations, the
//! ids, and that nothing is lost in any of them.

mod forked;
mod sandbox;
mod storm;

use corelocal::percpu::Counter;
use corelocal::sync::Mutex;
use corelocal::sys::{Caps, Errno, Owner, Refusal, Registration};
use corelocal::{cid, rseq};
use sandbox::{When, in_child, refuse, run_born_refusing, run_in_child, run_refusing, skip};
use std::time::Duration;

const THREADS: usize = 8;
const EACH: u64 = 100_000;

/// What holds in every world.
fn everything_works() {
    let caps = Caps::probe();
    assert!((rseq::cpu_id() as usize) < caps.topology.nr_possible_ids());
    assert!(rseq::cid() < cid::capacity());
    assert!((rseq::node_id() as usize) < 1024);
    let before = storm::COUNTER.get();
    let added = storm::rage(THREADS, EACH);
    assert_eq!(storm::COUNTER.get() - before, added);
    assert_eq!(storm::COUNTER.take() - before, added);
    a_mutex_is_passed_on();
}

/// Among threads of which some sleep for it.
fn a_mutex_is_passed_on() {
    let (mutex, each) = (Mutex::new(0), storm::scaled(2_000));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for turn in 0..each {
                    let mut turns = mutex.lock();
                    *turns += 1;
                    if turn % 64 == 0 {
                        std::thread::sleep(Duration::from_micros(50));
                    }
                }
            });
        }
    });
    assert_eq!(*mutex.lock(), THREADS as u64 * each);
}

/// Critical sections are used, with two exceptions: a thread whose section was aborted 32 times, and one that had to
/// use the slot of an interrupted thread, which may not run for many milliseconds if other threads want the cpu. In
/// that time a thread does a good part of its work. Not in each of many storms, though.
fn sections_are_used() {
    let mut fallbacks = rseq::stats().fallbacks;
    for _ in 0..20 {
        if fallbacks < THREADS as u64 * EACH / 20 {
            return;
        }
        let before = rseq::stats().fallbacks;
        storm::rage(THREADS, EACH);
        fallbacks = rseq::stats().fallbacks - before;
    }
    panic!("{fallbacks} in the last one: {:?}", rseq::stats());
}

/// Nothing but the atomics is used.
fn sections_are_not_used() {
    let stats = rseq::stats();
    assert!(stats.fallbacks >= THREADS as u64 * EACH, "{stats:?}");
    assert_eq!((stats.aborts, stats.registrations), (0, 0));
}

/// Whether this build and kernel can register threads at all; says so if not. A child was started
/// since they can.
fn can_register(test: &str) -> bool {
    if in_child() {
        return true;
    }
    let refusal = Registration::of_this_thread().refusal;
    if let Some(refusal) = refusal {
        skip(test, &format!("threads cannot be registered here: {refusal}"));
    }
    refusal.is_none()
}

#[test]
fn as_it_is() {
    everything_works();
    match Registration::of_this_thread().refusal {
        None => sections_are_used(),
        Some(_) => sections_are_not_used(),
    }
}

#[test]
fn libc_does_not_register() {
    const TEST: &str = "libc_does_not_register";
    if !can_register(TEST) {
        return;
    }
    run_in_child(TEST, tunable_off, || {
        let registration = Registration::of_this_thread();
        assert_eq!(registration.owner, Owner::Corelocal, "{registration:?}");
        assert!(registration.len >= 32, "{registration:?}");
        everything_works();
        sections_are_used();
        // Each thread of the storm registered itself, and this one.
        assert!(rseq::stats().registrations > THREADS as u64);
        a_thread_registers_again_after_its_end();
        a_forked_child_keeps_its_registration();
        a_vfork_child_does_not_register();
    });
}

fn tunable_off(command: &mut std::process::Command) {
    command.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
}

/// Threads come and go; each gets a registration of its own, and gives it back.
fn a_thread_registers_again_after_its_end() {
    let before = rseq::stats().registrations;
    for _ in 0..100 {
        std::thread::spawn(|| {
            assert_eq!(Registration::of_this_thread().owner, Owner::Corelocal);
        })
        .join()
        .unwrap();
    }
    assert_eq!(rseq::stats().registrations, before + 100);
}

/// After fork the kernel goes on updating the child's copy of the area.
fn a_forked_child_keeps_its_registration() {
    static COUNTER: Counter = Counter::new();
    COUNTER.add(1);
    let before = rseq::stats();
    let child = forked::judge(|| {
        (0..1000).for_each(|_| COUNTER.add(1));
        let stats = rseq::stats();
        let same =
            (stats.fallbacks, stats.registrations) == (before.fallbacks, before.registrations);
        same && COUNTER.get() == 1001
    });
    child.succeeds();
}

/// In a thread that was never registered, the child must not register the memory it borrows.
fn a_vfork_child_does_not_register() {
    std::thread::spawn(|| {
        let child = vfork_and(|| match Registration::of_this_thread().refusal {
            Some(Refusal::Vfork) => 0,
            _ => 1,
        });
        assert_eq!(child, 0, "the vfork child registered");
        // And the parent can, afterwards.
        assert_eq!(Registration::of_this_thread().owner, Owner::Corelocal);
    })
    .join()
    .unwrap();
}

/// What `body` returns in a child that shares this process's memory, as vfork's does, on a stack
/// of its own.
fn vfork_and(body: fn() -> i32) -> i32 {
    extern "C" fn entry(body: *mut libc::c_void) -> i32 {
        // SAFETY: the pointer is the one that `vfork_and` passed.
        let body = unsafe { std::mem::transmute::<*mut libc::c_void, fn() -> i32>(body) };
        body()
    }
    let mut stack = vec![0u128; 32 * 1024];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the child runs `entry` on `stack`, which outlives it, since CLONE_VFORK suspends this
    // thread until it has ended.
    let child = unsafe {
        let top = stack.as_mut_ptr().add(stack.len());
        libc::clone(entry, top.cast(), flags, body as *mut libc::c_void)
    };
    assert!(child > 0);
    let mut status = -1;
    // SAFETY: the child is ours and `status` is writable.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "{status}");
    libc::WEXITSTATUS(status)
}

#[test]
fn a_vfork_child_counts_and_the_parent_goes_on() {
    static COUNTER: Counter = Counter::new();
    COUNTER.add(1);
    let code = vfork_and(|| {
        (0..1000).for_each(|_| COUNTER.add(1));
        0
    });
    assert_eq!(code, 0);
    COUNTER.add(1);
    // No other thread ran in this process with this counter: nothing could be lost.
    assert_eq!(COUNTER.get(), 1002);
}

fn born_without(errno: i32) {
    let registration = Registration::of_this_thread();
    assert_eq!(registration.owner, Owner::Nobody, "{registration:?}");
    assert_eq!(registration.refusal, Some(Refusal::Kernel(Errno(errno))));
    everything_works();
    sections_are_not_used();
}

#[test]
fn refused_with_enosys() {
    const TEST: &str = "refused_with_enosys";
    if can_register(TEST) {
        run_born_refusing(TEST, libc::SYS_rseq, When::Always, libc::ENOSYS, || {
            born_without(libc::ENOSYS);
        });
    }
}

/// Slots are not taken from their ids then, and a thread that waits for a mutex has no fence.
#[test]
fn without_membarrier() {
    run_refusing("without_membarrier", libc::SYS_membarrier, When::Always, libc::EPERM, || {
        everything_works();
        assert!(cid::freeze(0).is_err() || rseq::stats().fallbacks > 0);
    });
}

#[test]
fn refused_with_eperm() {
    const TEST: &str = "refused_with_eperm";
    if can_register(TEST) {
        run_born_refusing(TEST, libc::SYS_rseq, When::Always, libc::EPERM, || {
            born_without(libc::EPERM);
        });
    }
}

/// A sandbox that closes after start: threads from before are registered, later ones are not. Both
/// count, in the same counter. (Where glibc registers threads it ends the process when a later one
/// cannot be, so this is about threads that we register.)
#[test]
fn refused_from_now_on() {
    const TEST: &str = "refused_from_now_on";
    if !can_register(TEST) {
        return;
    }
    run_in_child(TEST, tunable_off, || {
        assert_eq!(Registration::of_this_thread().owner, Owner::Corelocal);
        refuse(libc::SYS_rseq, When::Always, libc::EPERM);
        let later = || Registration::of_this_thread().refusal;
        let refusal = std::thread::spawn(later).join().unwrap();
        assert_eq!(refusal, Some(Refusal::Kernel(Errno::EPERM)));
        assert_eq!(Registration::of_this_thread().owner, Owner::Corelocal);
        let fallbacks = rseq::stats().fallbacks;
        everything_works();
        assert!(rseq::stats().fallbacks >= fallbacks + THREADS as u64 * EACH);
    });
}

#[test]
fn switched_off() {
    run_in_child(
        "switched_off",
        |command| {
            command.env("CORELOCAL_RSEQ", "off");
        },
        || {
            let registration = Registration::of_this_thread();
            assert_eq!(registration.refusal, Some(Refusal::Disabled), "{registration:?}");
            everything_works();
            sections_are_not_used();
        },
    );
}

/// No memory for a cell: the counter counts in itself.
#[test]
fn out_of_memory() {
    run_in_child(
        "out_of_memory",
        |_| (),
        || {
            // Nothing has been counted yet, so the first addition would map a region.
            let none = libc::rlimit { rlim_cur: 0, rlim_max: libc::RLIM_INFINITY };
            // SAFETY: a valid limit.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &none) }, 0);
            static COUNTER: Counter = Counter::new();
            (0..1000).for_each(|_| COUNTER.add(2));
            let plenty = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, ..none };
            // SAFETY: a valid limit.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &plenty) }, 0);
            assert_eq!(COUNTER.get(), 2000);
            // And once there is memory again, it goes on there.
            (0..1000).for_each(|_| COUNTER.add(2));
            assert_eq!(COUNTER.take(), 4000);
        },
    );
}
