//! What may be used on both sides of `catch_unwind`: as with std's types of the same names.

use std::cell::Cell;
use std::panic::{RefUnwindSafe, UnwindSafe, catch_unwind};

use corelocal::percpu;
use corelocal::sync::{
    AutoEvent, Barrier, Condvar, Latch, LazyLock, ManualEvent, MappedMutexGuard,
    MappedRwLockWriteGuard, Mutex, MutexGuard, Once, OnceLock, OnceState, Orphaned, Parker, Permit,
    PiCondvar, PiMutex, PiMutexGuard, Private, Recovered, ReentrantMutex, RobustMutex,
    RobustMutexGuard, RobustPiMutex, RwLock, RwLockReadGuard, RwLockUpgradableGuard,
    RwLockWriteGuard, Scope, Semaphore, Shared, Task, WaitGroup,
};

fn is_unwind_safe<T: UnwindSafe + RefUnwindSafe>() {}

/// Locks and guards, whatever the value: a panic unlocks, and `Poison` is a value that remembers it.
fn locks<T: 'static, S: Scope>() {
    is_unwind_safe::<Mutex<T, S>>();
    is_unwind_safe::<MutexGuard<'static, T, S>>();
    is_unwind_safe::<MappedMutexGuard<'static, T, S>>();
    is_unwind_safe::<Orphaned<MutexGuard<'static, T, S>>>();
    is_unwind_safe::<RwLock<T, S>>();
    is_unwind_safe::<RwLockReadGuard<'static, T, S>>();
    is_unwind_safe::<RwLockWriteGuard<'static, T, S>>();
    is_unwind_safe::<MappedRwLockWriteGuard<'static, T, S>>();
    is_unwind_safe::<RwLockUpgradableGuard<'static, T, S>>();
    is_unwind_safe::<Orphaned<RwLockWriteGuard<'static, T, S>>>();
    is_unwind_safe::<RobustMutex<T, S>>();
    is_unwind_safe::<RobustMutexGuard<'static, T, S>>();
    is_unwind_safe::<Recovered<'static, T, S>>();
    is_unwind_safe::<RobustPiMutex<T, S>>();
    is_unwind_safe::<PiMutex<T, S>>();
    is_unwind_safe::<PiMutexGuard<'static, T, S>>();
}

#[cfg(feature = "std")]
fn locks_in_an_arc<T, S: Scope>() {
    use corelocal::sync::{
        ArcMutexGuard, ArcRwLockReadGuard, ArcRwLockUpgradableGuard, ArcRwLockWriteGuard,
    };
    is_unwind_safe::<ArcMutexGuard<T, S>>();
    is_unwind_safe::<ArcRwLockReadGuard<T, S>>();
    is_unwind_safe::<ArcRwLockWriteGuard<T, S>>();
    is_unwind_safe::<ArcRwLockUpgradableGuard<T, S>>();
}

#[cfg(feature = "lock_api")]
fn raw_locks<S: Scope>() {
    is_unwind_safe::<corelocal::sync::RawMutex<S>>();
    is_unwind_safe::<corelocal::sync::RawRwLock<S>>();
}

fn without_values<S: Scope>() {
    is_unwind_safe::<Condvar<S>>();
    is_unwind_safe::<PiCondvar<S>>();
    is_unwind_safe::<Semaphore<S>>();
    is_unwind_safe::<Barrier<S>>();
    is_unwind_safe::<Latch<S>>();
    is_unwind_safe::<WaitGroup<S>>();
    is_unwind_safe::<Task<'static, S>>();
    is_unwind_safe::<Permit<'static, S>>();
    #[cfg(feature = "std")]
    is_unwind_safe::<corelocal::sync::ArcPermit<S>>();
    is_unwind_safe::<AutoEvent<S>>();
    is_unwind_safe::<ManualEvent<S>>();
    is_unwind_safe::<Parker<S>>();
}

/// Values that are written once, and those behind a lock that its owner can take again: as far as the value is, since a
/// thread sees it without waiting for the end of what a panic cut short.
fn written_once<T: UnwindSafe + RefUnwindSafe>() {
    is_unwind_safe::<OnceLock<T>>();
    is_unwind_safe::<LazyLock<T>>();
    is_unwind_safe::<LazyLock<T, T>>();
    is_unwind_safe::<ReentrantMutex<T>>();
    fn moved<T: UnwindSafe>() {
        fn is_unwind_safe<T: UnwindSafe>() {}
        is_unwind_safe::<OnceLock<T>>();
        is_unwind_safe::<LazyLock<T>>();
    }
    moved::<Cell<u8>>();
}

/// Containers, as far as their values are: after a panic the next thread may find a value half changed.
fn per_core<T: UnwindSafe + RefUnwindSafe + Send + Sync + 'static>() {
    use corelocal::percpu::*;
    is_unwind_safe::<Stack<T>>();
    is_unwind_safe::<Batch<T, 4>>();
    is_unwind_safe::<Pool<T>>();
    is_unwind_safe::<Pooled<'static, T>>();
    is_unwind_safe::<Ring<T, 8>>();
    is_unwind_safe::<Queue<T>>();
    is_unwind_safe::<PerCpu<T>>();
    is_unwind_safe::<Iter<'static, T>>();
    is_unwind_safe::<IntoIter<T>>();
    is_unwind_safe::<Lock<T>>();
    is_unwind_safe::<Guard<'static, T>>();
    is_unwind_safe::<percpu::Orphaned<Guard<'static, T>>>();
}

/// Numbers, and what is known of the machine, of memory and of locks: values that no panic leaves half done.
fn numbers_and_facts() {
    use corelocal::{alloc, cid, rseq, sync, sys};
    macro_rules! are_unwind_safe {
        ($($type:ty),* $(,)?) => { $(is_unwind_safe::<$type>();)* };
    }
    are_unwind_safe!(
        percpu::Counter, percpu::CounterVec<8>, percpu::OutOfRange, percpu::Gauge, percpu::Max, percpu::Min,
        percpu::Word, percpu::Mismatch, percpu::Histogram, percpu::histogram::Snapshot, percpu::histogram::Bucket,
        percpu::Area<2>, percpu::area::Cell<'static, 2>, percpu::area::CellWord<'static, 2>, percpu::area::Memory,
        percpu::area::Error, percpu::Memory, percpu::Shard, percpu::Unavailable,
        percpu::Counter<cid::CpuId>, percpu::Counter<cid::NodeCid>,
        cid::Cid, cid::CpuId, cid::NodeCid, cid::Policy, cid::Busy, cid::Frozen,
        rseq::Stats, rseq::slice::Extension, rseq::slice::SliceError,
        sys::Caps, sys::Vdso, sys::Release, sys::Registration, sys::Owner, sys::Refusal, sys::Abi, sys::Errno,
        sys::futex::Scope, sys::futex::Wake, sys::futex::Requeue, sys::futex::Features, sys::membarrier::Commands, sys::topology::Topology, sys::topology::Source,
        sys::topology::FsRoot<'static>,
        alloc::CoreLocal, alloc::Moment, alloc::Stats, alloc::ClassStats, alloc::NodeStats, alloc::profile::Summary,
        alloc::profile::Sample,
        sync::Deadline, sync::BarrierWaitResult, sync::WaitError, sync::LockError, sync::RobustError<(), ()>,

        sync::shared::SharedBox<u8>, sync::shared::SharedError,
        sync::profile::Profile, sync::profile::LockProfile, sync::profile::WaitTimes, sync::profile::ProfileError,
        sync::profile::Kind, sync::profile::order::LockOrder, sync::profile::order::LockPair,
        sync::profile::order::LockThread, sync::profile::order::Holding, sync::profile::order::Missed,
    );
    #[cfg(feature = "std")]
    are_unwind_safe!(
        sync::Poison<u8>,
        sync::Poisoned<u8>,
        sync::PoisonGuard<'static, u8>,
        corelocal::clock::OutOfRange,
    );
    use corelocal::clock::*;
    are_unwind_safe!(
        Instant,
        Timestamp,
        Ticks,
        Stamp,
        Bounded,
        Unbounded,
        Leap,
        MockClocks,
        SystemClocks,
        Converter,
        NoTime,
        Unknown,
        Epoch,
        Change,
        Watcher,
        Status,
        Fallbacks,
        Backend,
        Cause,
        Source,
        page::Subscriber<page::vmclock::Page>,
        page::Publisher<page::clockbound::Page>,
        page::State,
        page::Bounds,
        page::ReadError,
        page::Refusal,
        page::PublishError,
        page::Status,
        page::Scale,
        page::Leap,
        page::Smearing,
    );
}

/// Of RCU: pointers, copies and maps as far as what they share is.
#[cfg(feature = "std")]
fn of_rcu<T: UnwindSafe + RefUnwindSafe + Copy + 'static>() {
    use corelocal::rcu::*;
    use std::sync::Arc;
    is_unwind_safe::<Domain>();
    is_unwind_safe::<Guard>();
    is_unwind_safe::<QuiescentReader>();
    is_unwind_safe::<Ticket>();
    is_unwind_safe::<Error>();
    is_unwind_safe::<Stall>();
    is_unwind_safe::<Reader>();
    is_unwind_safe::<Rcu<Box<T>>>();
    is_unwind_safe::<Rcu<Option<Arc<T>>>>();
    is_unwind_safe::<LazyRcu<Arc<T>>>();
    is_unwind_safe::<NotCurrent<'static, Box<T>>>();
    is_unwind_safe::<Cache<&'static Rcu<Arc<T>>, Arc<T>>>();
    is_unwind_safe::<RcuCopy<T>>();
    is_unwind_safe::<RcuHashMap<T, T>>();
    is_unwind_safe::<Iter<'static, T, T>>();
    is_unwind_safe::<Keys<'static, T, T>>();
    is_unwind_safe::<Values<'static, T, T>>();
    is_unwind_safe::<Occupied<'static, T>>();
    is_unwind_safe::<Compute<'static, T, T>>();
}

/// It compiles.
#[test]
fn they_are_unwind_safe() {
    locks::<Cell<u8>, Private>();
    locks::<&mut u8, Shared>();
    #[cfg(feature = "std")]
    locks_in_an_arc::<Cell<&mut u8>, Private>();
    #[cfg(feature = "lock_api")]
    raw_locks::<Private>();
    without_values::<Private>();
    without_values::<Shared>();
    written_once::<u8>();
    per_core::<u8>();
    numbers_and_facts();
    #[cfg(feature = "std")]
    of_rcu::<u8>();
    is_unwind_safe::<Once>();
    is_unwind_safe::<OnceState>();
}

/// What it is for: no `AssertUnwindSafe`.
#[test]
fn a_panic_is_caught_where_locks_are_used() {
    let (mutex, lock, once) = (Mutex::new(Cell::new(1)), RwLock::new(1), Once::new());
    let changed = Condvar::new();
    let caught = catch_unwind(|| {
        let guard = mutex.lock();
        *lock.write() += 1;
        guard.set(2);
        changed.notify_all();
        once.call_once(|| std::panic::resume_unwind(Box::new(())));
    });
    assert!(caught.is_err() && !once.is_completed());
    assert_eq!((mutex.lock().get(), *lock.read()), (2, 2));
    let guard = mutex.lock();
    assert!(catch_unwind(|| guard.set(3)).is_ok());
    assert_eq!(guard.get(), 3);
}
