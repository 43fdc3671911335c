//! What the sections of this test work on: objects, ids and models like the library's own, written
//! anew, since the library's sections are its secret and sound.

use std::arch::asm;
use std::array;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32, Ordering};

use corelocal::sys::Registration;
use corelocal_lab::torture::{Operands, Workload};

/// More cpus than this are not told apart; the target uses the first two it may.
const CPUS: usize = 1024;
const ATTEMPTS: usize = 32;

/// A word for each cpu, on a line of its own.
#[repr(C, align(64))]
struct Slot(AtomicI64);

/// An object like the library's: `base` and `opened` are known to the assembly. `shared` is used
/// by atomics, when no section could run.
#[repr(C)]
pub struct Object {
    base: AtomicPtr<Slot>,
    opened: AtomicU32,
    shared: AtomicI64,
}

impl Object {
    pub const fn new() -> Object {
        Object {
            base: AtomicPtr::new(std::ptr::null_mut()),
            opened: AtomicU32::new(0),
            shared: AtomicI64::new(0),
        }
    }

    fn words(&self) -> impl Iterator<Item = i64> {
        // Acquire: partner is the Release in `prepare`.
        let (opened, base) =
            (self.opened.load(Ordering::Acquire), self.base.load(Ordering::Acquire));
        let slots = (0..opened as usize).map(move |slot| {
            // SAFETY: `opened` leaves 0 after `base` was set to CPUS slots, and stays below that.
            unsafe { &*base.add(slot) }.0.load(Ordering::Relaxed)
        });
        slots.chain([self.shared.load(Ordering::Relaxed)])
    }

    /// Makes another attempt worthwhile; false where none is.
    fn prepare(&self, index: Index) -> bool {
        let id = index.read();
        if !index.is_registered() || id as usize >= CPUS {
            return false;
        }
        if self.base.load(Ordering::Acquire).is_null() {
            let slots: Box<[Slot; CPUS]> = Box::new(array::from_fn(|_| Slot(AtomicI64::new(0))));
            self.base.store(Box::leak(slots).as_mut_ptr(), Ordering::Release);
        }
        // Release: partner is the Acquire in `words` and the section's compare.
        self.opened.fetch_max(id + 1, Ordering::Release);
        true
    }

    pub fn run(&self, index: Index, attempt: impl Fn() -> u64, give_up: impl Fn(&AtomicI64)) {
        for _ in 0..ATTEMPTS {
            match attempt() {
                ABORTED => {}
                UNAVAILABLE if !self.prepare(index) => break,
                UNAVAILABLE => {}
                _mismatch_or_slot => return,
            }
        }
        give_up(&self.shared);
    }
}

const ABORTED: u64 = 1;
const UNAVAILABLE: u64 = 2;

/// Offsets from the thread pointer: of the rseq area, and of the id in it.
#[derive(Clone, Copy)]
pub struct Index {
    pub area: isize,
    pub id: isize,
}

impl Index {
    /// The cpu number's.
    pub fn cpu() -> Index {
        // A thread without a registration shows it in the same place.
        static AREA: AtomicI64 = AtomicI64::new(0);
        let area = match AREA.load(Ordering::Relaxed) {
            0 => {
                let found = Registration::of_this_thread().offset.unwrap_or(0);
                AREA.store(found as i64, Ordering::Relaxed);
                found
            }
            known => known as isize,
        };
        Index { area, id: area + 4 }
    }

    /// The concurrency id's.
    pub fn cid() -> Index {
        let Index { area, .. } = Index::cpu();
        Index { area, id: area + 24 }
    }

    fn read(self) -> u32 {
        let id: u32;
        // SAFETY: a field of this thread's area.
        unsafe {
            asm!("mov {:e}, dword ptr fs:[{}]", out(reg) id, in(reg) self.id, options(nostack));
        }
        id
    }

    fn is_registered(self) -> bool {
        let cpu = Index { id: self.area + 4, ..self };
        (cpu.read() as i32) >= 0
    }
}

/// An operation that adds; the state is the sum.
pub mod add {
    use super::*;

    pub fn give_up(shared: &AtomicI64, n: i64) {
        shared.fetch_add(n, Ordering::Relaxed);
    }

    pub fn read(object: &Object) -> i64 {
        object.words().sum()
    }

    pub fn workload(
        name: &'static str,
        operate: fn(i64),
        read: fn() -> i64,
        by_cpu: bool,
    ) -> Workload {
        let operands = |_| Operands { target: 1, other: 1 << 20 };
        Workload { name, operate, read, after: i64::wrapping_add, operands, by_cpu }
    }
}

/// An operation that records; the state is the largest value.
pub mod largest {
    use super::*;

    pub fn give_up(shared: &AtomicI64, n: i64) {
        shared.fetch_max(n, Ordering::Relaxed);
    }

    pub fn read(object: &Object) -> i64 {
        object.words().max().unwrap_or(0)
    }

    pub fn workload(
        name: &'static str,
        operate: fn(i64),
        read: fn() -> i64,
        by_cpu: bool,
    ) -> Workload {
        let operands = |state| Operands { target: state + 1, other: state + 2 };
        Workload { name, operate, read, after: |state, n| state.max(n), operands, by_cpu }
    }
}
