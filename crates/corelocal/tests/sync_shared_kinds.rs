//! Each kind of lock by its name in `sync::shared`, in a box that two processes map at two addresses.

mod forked;
mod storm;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use corelocal::sync::shared::{self, SharedBox, SharedError, SharedSafe, layout};
use forked::{End, fork};

/// Longer than anything here lasts.
const LONG: Duration = Duration::from_secs(50);

#[repr(C)]
struct All {
    mutex: shared::SharedMutex<u64>,
    lock: shared::SharedRwLock<u64>,
    changed: shared::SharedCondvar,
    permits: shared::SharedSemaphore,
    barrier: shared::SharedBarrier,
    auto: shared::SharedAutoEvent,
    manual: shared::SharedManualEvent,
    parker: shared::SharedParker,
    latch: shared::SharedLatch,
    group: shared::SharedWaitGroup,
    robust: shared::SharedRobustMutex<u64>,
    inherits: shared::SharedPiMutex<u64>,
    both: shared::SharedRobustPiMutex<u64>,
    notified: shared::SharedPiCondvar,
}

const LAYOUTS: [u64; 14] = [
    shared::SharedMutex::<u64>::LAYOUT,
    shared::SharedRwLock::<u64>::LAYOUT,
    shared::SharedCondvar::LAYOUT,
    shared::SharedSemaphore::LAYOUT,
    shared::SharedBarrier::LAYOUT,
    shared::SharedAutoEvent::LAYOUT,
    shared::SharedManualEvent::LAYOUT,
    shared::SharedParker::LAYOUT,
    shared::SharedLatch::LAYOUT,
    shared::SharedWaitGroup::LAYOUT,
    shared::SharedRobustMutex::<u64>::LAYOUT,
    shared::SharedPiMutex::<u64>::LAYOUT,
    shared::SharedRobustPiMutex::<u64>::LAYOUT,
    shared::SharedPiCondvar::LAYOUT,
];

// SAFETY: `repr(C)` and made of such types.
unsafe impl SharedSafe for All {
    const LAYOUT: u64 = layout("All 1", &LAYOUTS);
}

impl All {
    fn new() -> All {
        // SAFETY: in these tests no guard is forgotten, and the object stays where it is.
        unsafe {
            All {
                mutex: shared::SharedMutex::with_scope(0),
                lock: shared::SharedRwLock::with_scope(0),
                changed: shared::SharedCondvar::with_scope(),
                permits: shared::SharedSemaphore::with_scope(0),
                barrier: shared::SharedBarrier::with_scope(2),
                auto: shared::SharedAutoEvent::with_scope(false),
                manual: shared::SharedManualEvent::with_scope(false),
                parker: shared::SharedParker::with_scope(),
                latch: shared::SharedLatch::with_scope(2),
                group: shared::SharedWaitGroup::with_scope(),
                robust: shared::SharedRobustMutex::with_scope(0),
                inherits: shared::SharedPiMutex::with_scope(0),
                both: shared::SharedRobustPiMutex::with_scope(0),
                notified: shared::SharedPiCondvar::with_scope(),
            }
        }
    }

    /// Adds to all the numbers, each under its lock; false if a lock is not as it should be.
    fn add(&self) -> bool {
        *self.mutex.lock() += 1;
        *self.lock.write() += 1;
        let (Ok(mut robust), Ok(mut both)) = (self.robust.lock(), self.both.lock()) else {
            return false;
        };
        *robust += 1;
        *both += 1;
        drop((robust, both));
        let Ok(mut count) = self.inherits.lock() else { return false };
        *count += 1;
        self.notified.notify_all(&count);
        drop(count);
        self.changed.notify_all();
        true
    }

    fn sums(&self) -> [u64; 5] {
        let robust = *self.robust.lock().unwrap();
        let (inherits, both) = (*self.inherits.lock().unwrap(), *self.both.lock().unwrap());
        [*self.mutex.lock(), *self.lock.read(), robust, inherits, both]
    }
}

/// What the child does; what is wrong, if anything.
fn other_side(all: &All, each: u64) -> i32 {
    if all.barrier.wait_for(LONG).is_none() {
        return 2;
    }
    for _ in 0..each {
        if !all.add() {
            return 3;
        }
    }
    for _ in 0..each {
        if !all.permits.try_acquire_raw_for(LONG) {
            return 4;
        }
        all.auto.set();
    }
    all.parker.unpark();
    all.latch.count_down();
    if all.latch.wait_for(LONG).timed_out() {
        return 5;
    }
    all.group.done();
    i32::from(all.manual.wait_for(LONG).timed_out()) * 6
}

#[test]
fn each_kind_works_between_two_processes() {
    let each = storm::scaled(2_000);
    // SAFETY: only the child inherits its descriptor, and uses this type.
    let all = unsafe { SharedBox::create_nameless(All::new()) }.unwrap();
    all.group.add(1);
    let child = fork(|| {
        // SAFETY: only this child inherits the descriptor, and it uses this type.
        match unsafe { SharedBox::<All>::from_descriptor(all.descriptor()) } {
            Ok(mine) if !std::ptr::eq(&*mine, &*all) => other_side(&mine, each),
            _ => 1,
        }
    });
    assert!(all.barrier.wait_for(LONG).is_some());
    for _ in 0..each {
        assert!(all.add());
    }
    // Until the other one is through, by either kind of condition.
    let mut sum = all.mutex.lock();
    while *sum < 2 * each {
        assert!(!all.changed.wait_for(&mut sum, LONG).timed_out());
    }
    drop(sum);
    let mut count = all.inherits.lock().unwrap();
    while *count < 2 * each {
        let (again, result) = all.notified.wait_for(count, LONG).unwrap();
        assert!(!result.timed_out());
        count = again;
    }
    drop(count);
    for _ in 0..each {
        all.permits.release();
        assert!(!all.auto.wait_for(LONG).timed_out());
    }
    assert!(!all.parker.park_for(LONG).timed_out());
    all.latch.count_down();
    assert!(!all.group.wait_for(LONG).timed_out());
    all.manual.set();
    assert_eq!(child.wait(), End::Code(0));
    assert_eq!(all.sums(), [2 * each; 5]);
}

/// No kind is taken for another, nor for the same with another value.
#[test]
fn each_kind_has_a_layout_of_its_own() {
    let mut layouts = LAYOUTS.to_vec();
    layouts.extend([
        shared::SharedMutex::<u32>::LAYOUT,
        shared::SharedRwLock::<u32>::LAYOUT,
        u64::LAYOUT,
    ]);
    let count = layouts.len();
    layouts.sort_unstable();
    layouts.dedup();
    assert_eq!(layouts.len(), count);
    // SAFETY: only this process has its descriptor.
    let number = unsafe { SharedBox::create_nameless(AtomicU64::new(0)) }.unwrap();
    // SAFETY: only this process has the descriptor; the wrong type is refused.
    let refused =
        unsafe { SharedBox::<shared::SharedMutex<()>>::from_descriptor(number.descriptor()) };
    assert!(matches!(refused.err(), Some(SharedError::Layout { .. })));
    assert_eq!(number.load(Ordering::Relaxed), 0);
}
