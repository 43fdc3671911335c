//! The cpu number, the concurrency id and the node, read in place.

use crate::sys;
use crate::sys::rseq::{NO_ID, field, read, register_this_thread};

/// Returns the cpu that the calling thread runs on.
///
/// One load from the thread's rseq area. A thread without a registration is registered at its first call; where
/// registration is refused, each call asks the kernel. The result may be out of date when it is used, so outside of a
/// critical section it is a hint.
///
/// Returns 0 if `getcpu(2)` is refused, too.
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

/// Returns the concurrency id of the calling thread: a number below the count of possible cpus that no other running
/// thread of this process has.
///
/// The kernel keeps these ids close to 0: a process with few threads, or confined to few cpus, uses few of them. On
/// kernels without them (before 6.3), and in threads whose registration is refused, this is the cpu number, which has
/// the same meaning but is not compact. Like [`cpu_id`] it is a hint outside of a critical section. In a thread that
/// libc failed to register it is 0.
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
    // A cpu number is negative if there is no registration.
    if id >= NO_ID { cid_cold() } else { id }
}

/// Returns the NUMA node of the cpu that the calling thread runs on.
///
/// One load where the kernel publishes it (6.3 and later), otherwise one `getcpu(2)`; 0 if that is refused. Like
/// [`cpu_id`] it is a hint. Async-signal-safe.
#[inline]
pub fn node_id() -> u32 {
    let Some(node) = sys::rseq::node() else { return node_id_cold() };
    // SAFETY: a field of the area in use.
    if (unsafe { read(sys::rseq::area() + field::CPU_ID) } as i32) < 0 {
        return node_id_cold();
    }
    // SAFETY: a field of the area in use, which the kernel writes.
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
