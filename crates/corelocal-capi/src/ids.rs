//! The numbers that the kernel publishes: cpu, concurrency id and node; and the slots that index per-core data.

use corelocal::cid::{self, Cid};
use corelocal::rseq;

/// Returns the cpu that the calling thread runs on: one load. A hint, as the thread may have moved since.
///
/// All functions of this header may be called by any thread, in signal handlers, before main, and in children of fork.
///
/// Kernels: 4.18 and later for the load, others by getcpu(2). Source: rseq(2), cpu_id.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_cpu() -> u32 {
    rseq::cpu_id()
}

/// Returns the concurrency id of the calling thread: a number that no other running thread of the process has, close to 0
/// if few threads run or few cpus may be used. A hint, as the thread may have got another since. corelocal/inline.h has
/// it inline.
///
/// Kernels: 6.3 and later; before, and in threads without restartable sequences, the cpu number. Source: rseq(2), mm_cid.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_cid() -> u32 {
    rseq::cid()
}

/// Returns the NUMA node of the cpu that the calling thread runs on. A hint.
///
/// Kernels: 6.3 and later by one load, others by getcpu(2).
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_node() -> u32 {
    rseq::node_id()
}

/// Returns the calling thread's slot: a number below corelocal_slot_capacity that indexes arrays with an element for each
/// core. A hint: use it to spread work, not to own data. A few nanoseconds; microseconds the first time.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_slot() -> u32 {
    cid::current::<Cid>()
}

/// Returns the upper bound of slots and of concurrency ids, at least 1: the highest cpu number that the machine may have,
/// plus one. It never changes.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_slot_capacity() -> u32 {
    cid::capacity()
}
