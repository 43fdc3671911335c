//! Restartable sequences: the critical sections, and the ids read in place.
//!
//! # What a section is
//! A few instructions that end in one committing store. The thread announces them by storing a
//! descriptor's address in its rseq area; when the kernel preempts, migrates or signals the thread
//! before the commit, the thread resumes at the section's abort handler instead. So between the
//! first instruction and the commit the thread is alone on its cpu and its id, without an atomic
//! instruction. The kernel's side is `kernel/rseq.c`; the rules a section obeys are in
//! `include/uapi/linux/rseq.h`.
//!
//! # The sections
//! Each is specified here and nowhere else; `arch/` has one file per architecture with the same
//! list. `area` is the thread's rseq area, `object` the slots of a container (`operand.rs`).
//!
//! ```text
//! locate:
//!     area.rseq_cs = descriptor of what follows
//!     if area.cpu_id < 0: unavailable         nobody registered this thread
//!     id = area.<mm_cid or cpu_id>
//!     if id >= object.opened: unavailable     the object's first meeting with this id
//!     slot = object.base + (id << SLOT_SHIFT)
//!
//! add(object, n):
//!     locate
//!     *slot += n                              commit
//!
//! store_greater(object, n):
//!     locate
//!     if *slot >= n: mismatch                 signed
//!     *slot = n                               commit
//! ```
//!
//! # Invariants
//! 1. The id is read inside the section: before it, it may be stale.
//! 2. One committing store, last; nothing before it is visible to others.
//! 3. Inputs are never overwritten, so a retry runs with the same operands.
//! 4. A word that a section stores to is never the target of an atomic read-modify-write, and a
//!    slot indexed by one kind of id is never indexed by the other.
//! 5. Retries are capped (`MAX_ATTEMPTS`): single-stepping debuggers abort every attempt.

mod arch;
mod operand;
mod stats;

pub(crate) use operand::{Index, Slots};
pub use stats::{Stats, stats};

use crate::sys;
use crate::sys::rseq::{field, read, register_this_thread};

/// Distance between the slots of neighbouring ids: 64 KiB, as a power of two.
///
/// A constant, so that a section shifts by an immediate. Large enough for thousands of objects in
/// a region, small enough that a region for 8192 cpus is 512 MiB of address space.
pub(crate) const SLOT_SHIFT: u32 = 16;

/// Attempts before the cold path's own mechanism takes over.
pub(crate) const MAX_ATTEMPTS: u32 = 32;

/// How a critical section ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The committing store was made, exactly once.
    Committed,
    /// The slot's word did not compare as the section demands. Nothing was stored.
    Mismatch,
    /// The kernel aborted it: preempted, migrated or signalled. Nothing was stored.
    Aborted,
    /// It cannot run: the thread is not registered, or its id was not opened. Nothing was stored.
    Unavailable,
}

/// Adds `n` to the word at the start of the current id's slot: section `add`.
///
/// # Safety
/// That word is valid, 8-byte aligned, and written by sections indexed by the same kind of id
/// alone (invariant 4), in the slot of every id below `object`'s bound.
#[inline(always)]
pub(crate) unsafe fn add(index: Index, object: &Slots, n: i64) -> Outcome {
    // SAFETY: the caller's promise.
    unsafe { arch::add(index, object, n) }
}

/// Stores `n` to the word at the start of the current id's slot if it is greater than what is there:
/// section `store_greater`.
///
/// # Safety
/// As [`add`].
#[inline(always)]
pub(crate) unsafe fn store_greater(index: Index, object: &Slots, n: i64) -> Outcome {
    // SAFETY: the caller's promise.
    unsafe { arch::store_greater(index, object, n) }
}

/// Runs a section until it commits or mismatches, on the cold side.
///
/// `attempt` runs it once; `prepare` makes an unavailable one available if it can. `None` when the
/// caller's own mechanism must take over.
#[cold]
pub(crate) fn retry(
    first: Outcome,
    mut prepare: impl FnMut() -> bool,
    mut attempt: impl FnMut() -> Outcome,
) -> Option<Outcome> {
    let mut outcome = first;
    for _ in 0..MAX_ATTEMPTS {
        match outcome {
            Outcome::Committed | Outcome::Mismatch => return Some(outcome),
            Outcome::Aborted => stats::count_abort(),
            Outcome::Unavailable => {
                if !prepare() {
                    break;
                }
            }
        }
        outcome = attempt();
    }
    if matches!(outcome, Outcome::Committed | Outcome::Mismatch) {
        return Some(outcome);
    }
    stats::count_fallback();
    None
}

/// The cpu the calling thread runs on.
///
/// One load from the thread's rseq area. A thread without a registration gets one at its first
/// call, or asks the kernel each time where that is refused. The answer may be out of date by the
/// time it is used; it is a hint everywhere but inside a critical section.
///
/// Returns 0 if even `getcpu(2)` is refused.
///
/// Kernels: 4.18 and later for the fast path, all others by `getcpu`. Async-signal-safe.
/// Source: `rseq(2)`, field `cpu_id`.
///
/// ```
/// let cpu = corelocal::rseq::cpu_id();
/// println!("running on cpu {cpu}");
/// ```
#[inline]
pub fn cpu_id() -> u32 {
    // SAFETY: a field of the area in use.
    let id = unsafe { read(sys::rseq::area() + field::CPU_ID) };
    if (id as i32) < 0 { cpu_id_cold() } else { id }
}

/// The concurrency id of the calling thread: a number below the count of possible cpus that no
/// other running thread of this process has.
///
/// The kernel keeps these ids close to 0: a process with few threads, or confined to few cpus, uses
/// few of them, whatever cpus they are. On a kernel without them (before 6.3) this is the cpu
/// number, which has the same meaning, only not compact; likewise in a thread whose registration is
/// refused. Like [`cpu_id`] it is a hint outside of a critical section: a thread that libc failed to
/// register reads 0.
///
/// Kernels: 6.3 and later for the compact id. Async-signal-safe.
/// Source: commit af7f588d8f73, field `mm_cid`.
///
/// ```
/// let slot = corelocal::rseq::cid();
/// assert!((slot as usize) < 8192);
/// ```
#[inline]
pub fn cid() -> u32 {
    // SAFETY: the concurrency id's place.
    let id = unsafe { read(sys::rseq::cid()) };
    if (id as i32) < 0 { cid_cold() } else { id }
}

/// The NUMA node of the cpu the calling thread runs on.
///
/// One load where the kernel publishes it (6.3 and later), else one `getcpu(2)`; 0 if that is
/// refused. A hint, as [`cpu_id`] is. Async-signal-safe.
#[inline]
pub fn node_id() -> u32 {
    let Some(node) = sys::rseq::node() else { return node_id_cold() };
    // SAFETY: a field of the area in use.
    if (unsafe { read(sys::rseq::area() + field::CPU_ID) } as i32) < 0 {
        return node_id_cold();
    }
    // SAFETY: likewise.
    unsafe { read(node) }
}

#[cold]
fn cpu_id_cold() -> u32 {
    if register_this_thread().is_ok() {
        // SAFETY: a field of the area in use.
        let id = unsafe { read(sys::rseq::area() + field::CPU_ID) };
        if (id as i32) >= 0 {
            return id;
        }
    }
    sys::current_cpu().unwrap_or(0)
}

#[cold]
fn cid_cold() -> u32 {
    if register_this_thread().is_ok() {
        // SAFETY: the concurrency id's place.
        let id = unsafe { read(sys::rseq::cid()) };
        if (id as i32) >= 0 {
            return id;
        }
    }
    cpu_id_cold()
}

#[cold]
fn node_id_cold() -> u32 {
    match (register_this_thread(), sys::rseq::node()) {
        // SAFETY: a field of the area in use.
        (Ok(()), Some(node)) => unsafe { read(node) },
        _ => sys::current_node().unwrap_or(0),
    }
}
