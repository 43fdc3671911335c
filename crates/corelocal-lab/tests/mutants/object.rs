//! What the sections of this test work on: objects, slots and models like the library's own, written
//! anew, since the library's sections are its secret and sound.

use std::arch::asm;
use std::array;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, Ordering};

use corelocal::sys::Registration;
use corelocal_lab::torture::{Content, Model, Operands};

/// More cpus than this are not told apart; the target uses the first two it may.
const CPUS: usize = 1024;
const ATTEMPTS: usize = 32;

/// The words of a slot: a value, or a count and items.
const WORDS: usize = 8;

/// Items that a stack holds; the slot has room for more, so that a broken one breaks nothing else.
pub const CAPACITY: usize = 4;

/// A core's part, on a line of its own.
#[repr(C, align(64))]
pub struct Slot([AtomicI64; WORDS]);

/// Where the slot of each id is, from an object's base; 0 if it has none. Slots lie below the base, so
/// that the sum of both carries.
pub static OFFSETS: [AtomicU64; CPUS] = [const { AtomicU64::new(0) }; CPUS];

/// An object like the library's: `base` is known to the assembly. `shared` is used when no section
/// could run.
#[repr(C)]
pub struct Object {
    base: AtomicPtr<Slot>,
    shared: Slot,
}

/// How a section ended: as in the library.
const ABORTED: u64 = 1;
const UNAVAILABLE: u64 = 2;
const MISMATCH: u64 = 3;

/// How a section ended, and what it yields.
pub type Ended = (u64, i64);

impl Object {
    pub const fn new() -> Object {
        Object { base: AtomicPtr::new(std::ptr::null_mut()), shared: Slot::new() }
    }

    /// All parts that were used.
    fn slots(&self) -> impl Iterator<Item = &Slot> {
        // Acquire: partner is the Release in `prepare`.
        let base = self.base.load(Ordering::Acquire);
        let used = OFFSETS.iter().map(|offset| offset.load(Ordering::Acquire));
        let used = used.filter(move |offset| *offset != 0 && !base.is_null());
        let slots = used.map(move |offset| {
            // SAFETY: the base has a slot below it for each offset that stands in the table.
            unsafe { &*base.byte_offset(offset as isize) }
        });
        slots.chain([&self.shared])
    }

    /// Makes another attempt worthwhile; the slot it will use, if no one moves the thread.
    fn prepare(&self, index: Index) -> Option<&Slot> {
        let id = index.read() as usize;
        if !index.is_registered() || id >= CPUS {
            return None;
        }
        if self.base.load(Ordering::Acquire).is_null() {
            let slots: Box<[Slot; CPUS]> = Box::new(array::from_fn(|_| Slot::new()));
            // SAFETY: the end of the allocation.
            let end = unsafe { Box::leak(slots).as_mut_ptr().add(CPUS) };
            self.base.store(end, Ordering::Release);
        }
        let offset = ((id as u64 + 1) * size_of::<Slot>() as u64).wrapping_neg();
        // Release: partner is the Acquire in `slots` and the section's load.
        OFFSETS[id].store(offset, Ordering::Release);
        // SAFETY: as in `slots`.
        Some(unsafe { &*self.base.load(Ordering::Acquire).byte_offset(offset as isize) })
    }

    /// What the section yielded, `None` if it mismatched; without sections, what `give_up` says.
    // A section's function is that of its mutant, also in an optimised build.
    #[inline(always)]
    pub fn run(
        &self,
        index: Index,
        attempt: impl Fn() -> Ended,
        give_up: impl Fn(&Slot) -> Option<i64>,
    ) -> Option<i64> {
        for _ in 0..ATTEMPTS {
            match attempt() {
                (ABORTED, _) => {}
                (UNAVAILABLE, _) if self.prepare(index).is_none() => break,
                (UNAVAILABLE, _) => {}
                (MISMATCH, _) => return None,
                (_slot, yielded) => return Some(yielded),
            }
        }
        give_up(&self.shared)
    }
}

impl Slot {
    const fn new() -> Slot {
        Slot([const { AtomicI64::new(0) }; WORDS])
    }

    fn word(&self) -> i64 {
        self.0[0].load(Ordering::Relaxed)
    }

    /// Of a stack, from the top down.
    fn items(&self) -> impl Iterator<Item = i64> {
        let count = self.word().clamp(0, WORDS as i64 - 1) as usize;
        self.0[1..=count].iter().rev().map(|item| item.load(Ordering::Relaxed))
    }

    /// The places above the items hold what no item is.
    fn fill(&self, items: i64) {
        for (place, item) in self.0[1..].iter().zip(1..) {
            place.store(if item <= items { item } else { i64::MIN }, Ordering::Relaxed);
        }
        self.0[0].store(items, Ordering::Relaxed);
    }
}

/// Offsets from the thread pointer, of the rseq area and of the id in it; and the table.
#[derive(Clone, Copy)]
pub struct Index {
    pub area: isize,
    pub id: isize,
    pub offsets: *const AtomicU64,
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
        Index { area, id: area + 4, offsets: OFFSETS.as_ptr() }
    }

    /// The concurrency id's.
    pub fn cid() -> Index {
        let Index { area, offsets, .. } = Index::cpu();
        Index { area, id: area + 24, offsets }
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

/// An operation that adds; the object holds the sum.
pub mod add {
    use super::*;

    pub const MODEL: Model = Model {
        operands: |_| Operands { target: 1, other: 1 << 20 },
        step: |sum, n, _| {
            sum[0] = sum[0].wrapping_add(n);
            true
        },
        look: |all| all[0],
        parted: false,
    };

    pub fn give_up(shared: &Slot, n: i64) -> Option<i64> {
        Some(shared.0[0].fetch_add(n, Ordering::Relaxed))
    }

    pub fn look(object: &Object) -> i64 {
        object.slots().map(Slot::word).sum()
    }
}

/// An operation that records; the object holds the largest value.
pub mod largest {
    use super::*;

    pub const MODEL: Model = Model {
        operands: |all| Operands { target: all[0] + 1, other: all[0] + 2 },
        step: |largest, n, _| {
            largest[0] = largest[0].max(n);
            true
        },
        ..add::MODEL
    };

    pub fn give_up(shared: &Slot, n: i64) -> Option<i64> {
        Some(shared.0[0].fetch_max(n, Ordering::Relaxed))
    }

    pub fn look(object: &Object) -> i64 {
        object.slots().map(Slot::word).max().unwrap_or(0)
    }
}

/// Operations that push, or take if the operand says so.
pub mod stack {
    use super::*;

    pub const TAKE: i64 = -2;
    pub const NONE: i64 = -1;
    pub const DONE: i64 = 0;

    /// Pushes disturbed by pushes.
    pub const PUSH: Model = Model {
        operands: |_| Operands { target: 101, other: 102 },
        step: |part, n, result| match n {
            TAKE if part.is_empty() => result == NONE,
            TAKE => result == part.remove(0),
            _ if part.len() == CAPACITY => result == NONE,
            _ => {
                part.insert(0, n);
                result == DONE
            }
        },
        look: |all| all.len() as i64,
        parted: true,
    };

    /// Pushes disturbed by pops.
    pub const PUSH_TAKEN: Model =
        Model { operands: |_| Operands { target: 101, other: TAKE }, ..PUSH };

    /// Pops disturbed by pops.
    pub const POP: Model = Model { operands: |_| Operands { target: TAKE, other: TAKE }, ..PUSH };

    pub fn begin(object: &Object, start: u64) -> Content {
        object.slots().for_each(|slot| slot.fill(0));
        if let Some(slot) = object.prepare(Index::cpu()) {
            slot.fill(start as i64);
        }
        content(object)
    }

    pub fn push_given_up(shared: &Slot, item: i64) -> Option<i64> {
        let count = shared.word() as usize;
        if count == CAPACITY {
            return None;
        }
        shared.0[1 + count].store(item, Ordering::Relaxed);
        shared.0[0].store(count as i64 + 1, Ordering::Relaxed);
        Some(DONE)
    }

    pub fn pop_given_up(shared: &Slot) -> Option<i64> {
        let item = shared.items().next()?;
        shared.0[0].store(shared.word() - 1, Ordering::Relaxed);
        Some(item)
    }

    pub fn look(object: &Object) -> i64 {
        object.slots().map(Slot::word).sum()
    }

    pub fn content(object: &Object) -> Content {
        Content::of(object.slots().flat_map(Slot::items))
    }
}
