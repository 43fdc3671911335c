//! Locks that are biased to a cpu, sound and broken: what a section takes there, a visitor takes from afar.
//!
//! A fault of the visitor is in no section, so `check` cannot see it and no thread that is stopped in a
//! section can show it: `torture::storm::visits` must.
//!
//! Invariant: the broken lock differs from the sound one in that its visitor keeps no section out.

use std::arch::asm;
use std::cell::UnsafeCell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicPtr, Ordering};
use std::time::Duration;

use corelocal::sys::membarrier;
use corelocal_lab::torture::storm::{Biased, Pair, visits};

use crate::object::{Index, OFFSETS};

const FREE: i64 = 0;
const HELD: i64 = 1;

/// How the section ended: as in the library; else the slot's address.
const MISMATCH: u64 = 3;

/// Cpus whose parts are locked; a thread on another one goes away empty-handed.
const CPUS: usize = 64;

/// A cpu's part, on a line of its own and as long as the slots of this program's other objects.
#[repr(C, align(64))]
#[derive(Default)]
struct Shard {
    word: AtomicI64,
    pair: UnsafeCell<Pair>,
}

/// `end` is known to the assembly: what the parts lie below.
#[repr(C)]
struct Lock {
    end: AtomicPtr<Shard>,
    parts: Box<[Shard; CPUS]>,
    /// Held while a cpu has no part, or is given one.
    offsets: Mutex<()>,
    freezes: bool,
}

// SAFETY: a part's pair belongs to the lock's owner; this is what the test checks.
unsafe impl Sync for Lock {}

impl Lock {
    fn new(freezes: bool) -> Lock {
        let mut parts: Box<[Shard; CPUS]> = Box::new(std::array::from_fn(|_| Shard::default()));
        let end = AtomicPtr::new(parts.as_mut_ptr_range().end);
        Lock { end, parts, offsets: Mutex::new(()), freezes }
    }

    fn offset(cpu: usize) -> u64 {
        ((cpu as u64 + 1) * size_of::<Shard>() as u64).wrapping_neg()
    }

    fn part(&self, cpu: usize) -> Option<&Shard> {
        self.parts.iter().nth_back(cpu)
    }

    /// The library's `store_if_equal`, once.
    fn attempt(&self) -> u64 {
        let index = Index::cpu();
        let scratch: u64;
        // SAFETY: stores to the part of the thread's cpu, whose word sections alone move from FREE.
        unsafe {
            asm!(
                descriptor!(),
                arm!(),
                "31:",
                locate!(),
                "cmp qword ptr [{scratch}], {free}\n",
                "jne 36f\n",
                "mov qword ptr [{scratch}], {held}\n",
                "32:",
                exits!(),
                area = in(reg) index.area,
                id = in(reg) index.id,
                offsets = in(reg) index.offsets,
                object = in(reg) self,
                free = in(reg) FREE,
                held = in(reg) HELD,
                scratch = out(reg) scratch,
                options(nostack),
            );
        }
        scratch
    }

    /// Runs `f` on a part that the caller holds, and lets go of it.
    fn with(part: &Shard, f: impl FnOnce(&mut Pair)) {
        // SAFETY: the caller holds the part, if the lock is sound.
        f(unsafe { &mut *part.pair.get() });
        part.word.store(FREE, Ordering::Release);
    }

    /// What a visitor does: takes the part if it is free.
    fn take(part: &Shard) -> bool {
        let is_free = part.word.load(Ordering::Acquire) == FREE;
        if is_free {
            part.word.store(HELD, Ordering::Relaxed);
        }
        is_free
    }
}

impl Biased for Lock {
    fn own(&self, f: impl FnOnce(&mut Pair)) -> bool {
        match self.attempt() {
            slot if slot > MISMATCH => {
                let part = std::ptr::with_exposed_provenance::<Shard>(slot as usize);
                // SAFETY: the section's slot is a part of this lock, which it holds now.
                Lock::with(unsafe { &*part }, f);
                true
            }
            MISMATCH => false,
            _ => {
                let _free = self.offsets.lock();
                // SAFETY: no arguments.
                let cpu = unsafe { libc::sched_getcpu() }.max(0) as usize;
                if cpu < CPUS {
                    OFFSETS[cpu].store(Lock::offset(cpu), Ordering::Release);
                }
                false
            }
        }
    }

    fn visit(&self, slot: u32, f: impl FnOnce(&mut Pair)) -> bool {
        let cpu = slot as usize;
        let Some(part) = self.part(cpu) else { return false };
        if !self.freezes {
            return Lock::take(part) && {
                Lock::with(part, f);
                true
            };
        }
        let frozen = self.offsets.lock();
        let offset = OFFSETS[cpu].swap(0, Ordering::AcqRel);
        let is_ours = membarrier::private_expedited_rseq().is_ok() && Lock::take(part);
        OFFSETS[cpu].store(offset, Ordering::Release);
        drop(frozen);
        if is_ours {
            Lock::with(part, f);
        }
        is_ours
    }

    fn slots(&self) -> u32 {
        let given = |cpu: &usize| OFFSETS[*cpu].load(Ordering::Relaxed) != 0;
        (0..CPUS).rev().find(given).map_or(0, |cpu| cpu as u32 + 1)
    }

    fn each(&mut self, mut f: impl FnMut(&Pair)) {
        self.parts.iter_mut().for_each(|part| f(part.pair.get_mut()));
    }
}

/// A fight, and what it showed that must not be.
fn fight(mut lock: impl Biased) -> Option<String> {
    visits(&mut lock, Duration::from_millis(100)).err()
}

/// What is wrong with this test: a sound lock that is blamed, or a broken one that is not.
pub fn faults() -> Vec<&'static str> {
    OFFSETS.iter().for_each(|offset| offset.store(0, Ordering::Relaxed));
    let mut faults = Vec::new();
    if membarrier::private_expedited_rseq().is_err() {
        eprintln!("skipped: locks: membarrier is refused");
        return faults;
    }
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let sound = (0..5).find_map(|_| fight(Lock::new(true)));
    let library = (0..5).find_map(|_| fight(corelocal::percpu::Lock::<Pair>::default()));
    for (name, said) in [("sound_lock", sound), ("lock of the library", library)] {
        println!("{name:34}{:26}{}", "", said.as_deref().unwrap_or("–"));
        faults.extend(said.map(|_| name));
    }
    // It takes two cpus at the same moment: on a busy machine they are long in coming.
    let name = "visit_without_freezing";
    let said = (0..200).find_map(|_| fight(Lock::new(false)));
    println!("{name:34}{:26}{}", "", said.as_deref().unwrap_or("–"));
    match said {
        None if cpus < 2 => eprintln!("skipped: {name}: this process may use only one cpu"),
        None => faults.push(name),
        Some(_) => {}
    }
    faults
}
