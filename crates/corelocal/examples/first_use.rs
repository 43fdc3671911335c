//! The first use of every container, lock and clock, one after the other: for tools that look at what a program reads,
//! as valgrind does. Built optimised, since only then the compiler reads ahead of a test.

use std::time::Duration;

use corelocal::clock::{self, Instant, Ticks, Timestamp};
use corelocal::percpu::{
    Area, Counter, CounterVec, Gauge, Histogram, Lock, Max, Min, PerCpu, Pool, Queue, Ring, Stack,
    Word,
};
use corelocal::sync::{
    AutoEvent, Barrier, Condvar, Latch, ManualEvent, Mutex, Once, OnceLock, Parker, PiMutex,
    ReentrantMutex, RobustMutex, RwLock, Semaphore, WaitGroup,
};
use corelocal::{cid, percpu, rseq, sys};

fn containers() {
    static COUNTER: Counter = Counter::new();
    COUNTER.add(1);
    assert!(COUNTER.get() >= 1);
    let vector: CounterVec<8> = CounterVec::new();
    vector.add(3, 1).unwrap();
    assert_eq!(vector.iter().sum::<i64>(), 1);
    let gauge: Gauge = Gauge::new();
    drop(gauge.enter());
    assert_eq!(gauge.set(2), 0);
    let (most, least): (Max, Min) = (Max::new(), Min::new());
    most.record(3);
    least.record(3);
    assert_eq!((most.get(), least.get()), (Some(3), Some(3)));
    let histogram: Histogram = Histogram::new();
    histogram.record(7);
    assert_eq!(histogram.snapshot().count(), 1);
    let stack: Stack<u64> = Stack::new();
    stack.push(1).unwrap();
    assert_eq!(stack.pop(), Some(1));
    let pool: Pool<Vec<u8>> = Pool::new(Vec::new);
    drop(pool.lend());
    let ring: Ring<u64, 8> = Ring::new();
    ring.push(1).unwrap();
    assert_eq!(ring.pop(), Some(1));
    let queue: Queue<u64> = Queue::new();
    queue.push(1).unwrap();
    assert_eq!(queue.pop(), 1);
    let values: PerCpu<u64> = PerCpu::new(|| 5);
    assert_eq!(*values.get(), 5);
    let lock: Lock<u64> = Lock::new(|| 5);
    *lock.lock() += 1;
    lock.for_each_locked(|_, value| assert_eq!(*value, 6)).unwrap();
    let word: Word = Word::new();
    word.add_fetch(1);
    let area: Area<2> = Area::new();
    area.take().unwrap().at::<0>().add(1);
    let _ = (percpu::memory(), percpu::trim(), cid::compact());
}

fn locks() {
    *Mutex::new(1).lock() += 1;
    *RwLock::new(1).write() += 1;
    assert_eq!(*RwLock::new(1).read(), 1);
    assert_eq!(*ReentrantMutex::new(1).lock(), 1);
    // SAFETY: no guard is forgotten.
    *unsafe { RobustMutex::<u32>::new(1) }.lock().unwrap() += 1;
    *PiMutex::new(1).lock().unwrap() += 1;
    let short = Duration::from_micros(1);
    assert!(Condvar::new().wait_for(&mut Mutex::new(()).lock(), short).timed_out());
    Semaphore::new(1).acquire_raw();
    AutoEvent::new(true).wait();
    ManualEvent::new(true).wait();
    assert!(Parker::new().park_for(short).timed_out());
    Latch::new(0).wait();
    WaitGroup::new().wait();
    Barrier::new(1).wait();
    Once::new().call_once(|| ());
    assert_eq!(OnceLock::new().get_or_init(|| 1), &1);
}

fn clocks() {
    let start = Instant::now();
    let (_, _, _) = (Timestamp::now(), Ticks::now(), clock::now_bounded());
    for _ in 0..10_000 {
        assert!(Instant::now() >= start);
    }
    let _ = (clock::settle(), clock::status(), clock::epoch(), Timestamp::now().to_string());
    let _ = (clock::monotonic_unordered(), clock::coarse(), clock::realtime_coarse());
}

fn main() {
    let _ = (sys::Caps::probe(), rseq::cpu_id(), rseq::cid(), rseq::node_id());
    clocks();
    containers();
    locks();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (containers(), locks(), clocks()));
        }
    });
}
