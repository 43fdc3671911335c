//! Every order in which owners and revokers may meet. A section, which is one step on its slot, is a step
//! under a mutex that freezing takes too; a barrier in all threads is a fence on both sides.

use super::*;
use crate::percpu::lock::mutex::Mutex;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

struct Part {
    bias: Bias,
    mutex: Mutex,
    frozen: loom::sync::Mutex<bool>,
    value: UnsafeCell<u32>,
}

struct Frozen<'a>(&'a Part);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        *self.0.frozen.lock().unwrap() = false;
    }
}

impl Part {
    fn new() -> Self {
        Part {
            bias: Bias::new(),
            mutex: Mutex::new(),
            frozen: loom::sync::Mutex::new(false),
            value: UnsafeCell::new(0),
        }
    }

    fn section(&self) -> bool {
        let frozen = self.frozen.lock().unwrap();
        if *frozen || self.bias.word.load(Ordering::Acquire) != FREE {
            return false;
        }
        self.bias.word.store(HELD, Ordering::Relaxed);
        true
    }

    fn freeze(&self) -> Result<Frozen<'_>, ()> {
        *self.frozen.lock().unwrap() = true;
        Ok(Frozen(self))
    }

    fn add(&self) {
        // SAFETY: called by the lock's holder alone; loom checks it.
        self.value.with_mut(|value| unsafe { *value += 1 });
    }

    /// How often the lock was had.
    fn own(&self, times: u32) -> u32 {
        let mut had = 0;
        for _ in 0..times {
            if self.section() {
                self.bias.taken();
                self.add();
                self.bias.unlock();
                had += 1;
            }
        }
        had
    }

    fn revoke(&self) {
        self.mutex.lock();
        assert_eq!(self.bias.revoke(|| self.freeze()), Ok(()));
        self.mutex.unlock();
        self.add();
        self.bias.unlock();
    }
}

fn check(revokers: u32, owned: u32, preemptions: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let part = Arc::new(Part::new());
        let others: std::vec::Vec<_> = (0..revokers)
            .map(|_| {
                let part = part.clone();
                thread::spawn(move || part.revoke())
            })
            .collect();
        let had = part.own(owned);
        for other in others {
            other.join().unwrap();
        }
        // SAFETY: alone again.
        assert_eq!(part.value.with(|value| unsafe { *value }), had + revokers);
        assert_eq!(part.bias.word.load(Ordering::Relaxed), FREE);
        // Nothing is left behind that keeps the next one out.
        assert_eq!(part.own(1), 1);
    });
}

#[test]
fn loom_an_owner_meets_a_revoker() {
    check(1, 2, 4);
}

#[test]
fn loom_an_owner_meets_two_revokers() {
    check(2, 1, 2);
}

/// Holders come one after another, on different threads, while the lock is being revoked.
#[test]
fn loom_owners_on_two_threads_meet_a_revoker() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let part = Arc::new(Part::new());
        let (owner, revoker) = (part.clone(), part.clone());
        let owner = thread::spawn(move || owner.own(1));
        let revoker = thread::spawn(move || revoker.revoke());
        let had = part.own(1) + owner.join().unwrap();
        revoker.join().unwrap();
        // SAFETY: alone again.
        assert_eq!(part.value.with(|value| unsafe { *value }), had + 1);
        assert_eq!(part.own(1), 1);
    });
}
