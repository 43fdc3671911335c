//! The ids, read in place.

use crate::sys;
use crate::sys::rseq::{NO_ID, field, read, register_this_thread};

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
    // Negative, too, where it is a cpu number.
    if id >= NO_ID { cid_cold() } else { id }
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
        if id < NO_ID {
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
