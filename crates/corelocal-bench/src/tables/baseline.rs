//! The increment of `baseline.c` behind a safe door, or the reason why it cannot run here.
//!
//! Invariants:
//! - Counters exist only in a build that has the C code, in a process whose threads have an rseq
//!   area at one known offset, and have a slot for every possible id.
//! - The C code gives up in a thread without a registration, so each call makes sure of one first;
//!   should that fail, the total falls short, which the caller checks.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicI64, AtomicPtr, Ordering};

use anyhow::{Context as _, bail};
use corelocal::sys::Registration;

use super::cpu_number::area_offset;

/// Words that `add_in_turn` spreads over.
pub const IN_TURN: usize = 8;

/// Distance between the slots of neighbouring ids, as the C code has it.
const SLOT_LEN: usize = 1 << 16;

/// The id that indexes the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Id {
    /// The cpu number.
    Cpu,
    /// The concurrency id.
    MmCid,
}

/// Area's offset, first word, number of repetitions.
type AddFn = unsafe extern "C" fn(isize, *mut i64, u64);
/// Area's offset, first word, a pointer to a value, that value, number of repetitions. Returns how often the value was
/// there.
type ReadFn = unsafe extern "C" fn(isize, *mut i64, *const AtomicPtr<u64>, u64, u64) -> u64;

struct Functions {
    add: AddFn,
    add_in_turn: AddFn,
    read: ReadFn,
}

#[cfg(c_baseline)]
fn functions(id: Id) -> anyhow::Result<Functions> {
    unsafe extern "C" {
        fn corelocal_c_add_cpu_id(area: isize, word: *mut i64, times: u64);
        fn corelocal_c_add_mm_cid(area: isize, word: *mut i64, times: u64);
        fn corelocal_c_add_in_turn_cpu_id(area: isize, words: *mut i64, times: u64);
        fn corelocal_c_add_in_turn_mm_cid(area: isize, words: *mut i64, times: u64);
        fn corelocal_c_read_cpu_id(
            area: isize,
            words: *mut i64,
            at: *const AtomicPtr<u64>,
            expected: u64,
            times: u64,
        ) -> u64;
        fn corelocal_c_read_mm_cid(
            area: isize,
            words: *mut i64,
            at: *const AtomicPtr<u64>,
            expected: u64,
            times: u64,
        ) -> u64;
    }
    Ok(match id {
        Id::Cpu => Functions {
            add: corelocal_c_add_cpu_id,
            add_in_turn: corelocal_c_add_in_turn_cpu_id,
            read: corelocal_c_read_cpu_id,
        },
        Id::MmCid => Functions {
            add: corelocal_c_add_mm_cid,
            add_in_turn: corelocal_c_add_in_turn_mm_cid,
            read: corelocal_c_read_mm_cid,
        },
    })
}

#[cfg(not(c_baseline))]
fn functions(_: Id) -> anyhow::Result<Functions> {
    if cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        bail!("built without a C compiler: install gcc or clang, and build again")
    }
    bail!("written for x86-64 Linux only")
}

/// [`IN_TURN`] counters with a slot for each possible id.
pub struct Counters {
    functions: Functions,
    area: isize,
    slots: NonNull<i64>,
    capacity: usize,
}

impl Counters {
    /// Counters of value 0.
    ///
    /// # Errors
    ///
    /// Why C code of this kind cannot run here.
    pub fn new(id: Id) -> anyhow::Result<Self> {
        let functions = functions(id)?;
        let area = area_offset()?;
        if id == Id::MmCid && !Registration::of_this_thread().mm_cid {
            bail!("this kernel publishes no mm_cid; Linux 6.3 and later do");
        }
        let capacity = corelocal::cid::capacity() as usize;
        // SAFETY: a new private mapping, whose place the kernel chooses, disturbs nothing.
        let slots = unsafe {
            libc::mmap(
                ptr::null_mut(),
                capacity * SLOT_LEN,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if slots == libc::MAP_FAILED {
            let refused = io::Error::last_os_error();
            bail!("no memory for {capacity} slots of 64 KiB ({refused}); is there a `ulimit -v`?");
        }
        let slots = NonNull::new(slots.cast()).context("the kernel mapped memory at address 0")?;
        Ok(Self { functions, area, slots, capacity })
    }

    /// Adds 1 to the first counter, `times` times.
    pub fn add(&self, times: u64) {
        self.run(self.functions.add, times);
    }

    /// Adds 1 to each of the counters in turn, `times` times.
    pub fn add_in_turn(&self, times: u64) {
        self.run(self.functions.add_in_turn, times);
    }

    /// Reads the value that `at` points to, `times` times, each between additions of 1 to the first and the second
    /// counter. How often it was `expected`.
    ///
    /// # Safety
    /// - `at` points to a valid value until the call returns.
    pub unsafe fn read(&self, at: &AtomicPtr<u64>, expected: u64, times: u64) -> u64 {
        // As in `run`.
        corelocal::rseq::cpu_id();
        // SAFETY: as in `run`; the caller guarantees a valid value.
        unsafe { (self.functions.read)(self.area, self.slots.as_ptr(), at, expected, times) }
    }

    fn run(&self, function: AddFn, times: u64) {
        // Registers the thread if libc did not.
        corelocal::rseq::cpu_id();
        // SAFETY: `area` is where this process's threads have their rseq area, or room for it; the
        // mapping has IN_TURN words in the slot of each id the kernel can hand out, and `self`
        // keeps it alive.
        unsafe { function(self.area, self.slots.as_ptr(), times) };
    }

    /// Returns the sum of all counters. Exact if all additions happen before the call.
    pub fn total(&self) -> u64 {
        let words = (0..self.capacity)
            .flat_map(|slot| (0..IN_TURN).map(move |nth| slot * SLOT_LEN / size_of::<i64>() + nth));
        let values = words.map(|word| {
            // SAFETY: inside the mapping, aligned; zero or written by the sections alone, whole
            // words at a time.
            let word = unsafe { AtomicI64::from_ptr(self.slots.as_ptr().add(word)) };
            // Relaxed: a caller that wants an exact sum has joined the threads that added.
            word.load(Ordering::Relaxed)
        });
        values.sum::<i64>() as u64
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; all users have borrowed `self`.
        unsafe { libc::munmap(self.slots.as_ptr().cast(), self.capacity * SLOT_LEN) };
    }
}

// SAFETY: the memory is not bound to a thread, and the words are changed only by critical sections,
// in the slot of the id their thread runs under, and read as atomics.
unsafe impl Send for Counters {}
// SAFETY: only critical sections change the words, in the slot of their thread's id, and they are read as atomics.
unsafe impl Sync for Counters {}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn counters(id: Id) -> Option<Counters> {
        Counters::new(id).map_err(|why| eprintln!("skipped: baseline by {id:?}: {why:#}")).ok()
    }

    #[test]
    fn nothing_is_lost_between_threads() {
        for id in [Id::Cpu, Id::MmCid] {
            let Some(counters) = counters(id) else { continue };
            thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        for _ in 0..100 {
                            counters.add(10_000);
                            thread::yield_now();
                        }
                    });
                }
            });
            assert_eq!(counters.total(), 8_000_000, "{id:?}");
        }
    }

    #[test]
    fn each_counter_gets_its_turn() {
        for id in [Id::Cpu, Id::MmCid] {
            let Some(counters) = counters(id) else { continue };
            counters.add_in_turn(1000);
            assert_eq!(counters.total(), 8000, "{id:?}");
            counters.add(5);
            assert_eq!(counters.total(), 8005, "{id:?}");
        }
    }
}
