//! The kernel as it is: what it publishes, what it can be asked, and what this machine has of it.
//!
//! No policy: this module knows the ABI, the modules above know what to do with it.
//!
//! | part | holds |
//! |---|---|
//! | [`Registration`] | the rseq area of the calling thread: whose it is and what it covers |
//! | [`membarrier`] | `membarrier(2)`: making other threads' cpus pass a barrier |
//! | [`futex`] | `futex(2)`: waiting for a word to change, private to the process or shared |
//! | [`topology`] | which cpus and NUMA nodes there are, and which this thread may use |
//! | [`vdso`] | the functions the kernel maps into the process |
//! | [`Caps`] | all of this, probed once |

mod arch;
mod caps;
mod cgroup;
mod cpulist;
mod cpuset;
mod errno;
mod file;
pub mod futex;
pub mod membarrier;
mod once;
pub(crate) mod pages;
mod possible;
pub(crate) mod rseq;
#[cfg(feature = "serde")]
mod serialize;
mod stay;
mod syscall;
pub(crate) mod thread;
pub mod topology;
pub mod vdso;

pub use caps::{Caps, Release, Vdso};
pub use errno::Errno;
pub(crate) use possible::{allowed_cpus, possible_ids};
pub use rseq::{Abi, Owner, Refusal, Registration};

/// The calling thread's cpu, asked of libc: the vDSO, or the kernel where there is none.
pub(crate) fn current_cpu() -> Option<u32> {
    // A model must take the same way each time it is replayed.
    if cfg!(loom) {
        return Some(0);
    }
    // SAFETY: no preconditions.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// The NUMA node of the calling thread's cpu, asked of the kernel.
pub(crate) fn current_node() -> Option<u32> {
    let mut node = 0u32;
    // SAFETY: the kernel writes the node to the word given and skips the null pointers.
    let asked =
        unsafe { syscall::syscall(libc::SYS_getcpu, [0, &raw mut node as usize, 0, 0, 0, 0]) };
    asked.ok().map(|_| node)
}
