//! Containers in a process whose memory is locked as it is mapped (`mlockall(MCL_FUTURE)`), with as little of it allowed
//! as is usual.

mod sandbox;

use corelocal::percpu::{Area, Counter, CounterVec, PerCpu, Queue, Ring, Stack, Word};
use sandbox::{run_in_child, skip};

/// Usual since Linux 5.16.
const LIMIT: u64 = 8 << 20;

/// Kilobytes that the kernel says in a line of the process's status.
fn status(line: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("the kernel's word on it");
    let found = text.lines().find(|found| found.starts_with(line)).expect("a line of each status");
    found.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}

/// Locks all that is mapped from here on, as a process without privileges; false where that is refused.
fn lock_all() -> bool {
    let limit = libc::rlimit { rlim_cur: LIMIT, rlim_max: LIMIT };
    // SAFETY: numbers, and one struct that the kernel reads; this process is a child of the test's own.
    unsafe {
        libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit);
        if libc::geteuid() == 0 && libc::setuid(65534) != 0 {
            return false;
        }
        libc::mlockall(libc::MCL_FUTURE) == 0
    }
}

#[test]
fn every_container_works() {
    run_in_child(
        "every_container_works",
        |_| (),
        || {
            if !lock_all() {
                return skip("every_container_works", "mlockall is refused");
            }
            static COUNTER: Counter = Counter::new();
            static STACK: Stack<u64, 8> = Stack::new();
            static RING: Ring<u64, 8> = Ring::new();
            static QUEUE: Queue<u64> = Queue::new();
            static WORD: Word = Word::new();
            static AREA: Area<2> = Area::new();
            let (locked, resident) = (status("VmLck:"), status("VmRSS:"));
            COUNTER.add(1);
            assert_eq!((COUNTER.get(), WORD.add_fetch(1)), (1, 1));
            assert_eq!((STACK.push(1), RING.push(1), QUEUE.push(1)), (Ok(()), Ok(()), Ok(())));
            let many: Box<CounterVec<64>> = Box::default();
            assert_eq!(many.add(3, 1), Ok(()));
            assert!(AREA.take().is_ok());
            let each = PerCpu::<u64>::new(|| 7);
            assert_eq!(*each.get(), 7);
            let (locked, resident) = (status("VmLck:") - locked, status("VmRSS:") - resident);
            assert!(locked < 1024 && resident < 2048, "{locked} kB locked, {resident} kB resident");
        },
    );
}
