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

pub(crate) mod arch;
mod caps;
pub(crate) mod cpu;
mod errno;
pub(crate) mod file;
pub(crate) mod forks;
pub mod futex;
pub(crate) mod kernel_clock;
pub mod membarrier;
pub(crate) mod memory;
pub(crate) mod once;
pub(crate) mod process;
pub(crate) mod rseq;
pub(crate) mod sequence;
#[cfg(feature = "serde")]
mod serialize;
pub(crate) mod sleep;
mod syscall;
pub(crate) mod thread;
pub mod topology;
pub(crate) mod try_lock;
pub mod vdso;

use crate::primitive::global::{AtomicUsize, Ordering};
pub use caps::{Caps, Release, Vdso};
pub(crate) use cpu::possible_cpus::{allowed_cpus, possible_ids};
#[cfg(not(loom))]
pub(crate) use cpu::possible_cpus::{nodes_with_cpus, nodes_with_cpus_and_memory};
pub use errno::Errno;
#[doc(hidden)]
pub use file::size::without_sigxfsz;
#[doc(hidden)]
pub use file::trust::{is_trusted_file, is_trusted_folder};
#[doc(hidden)]
pub use forks::wipe_on_fork::WipeOnFork;
pub use rseq::{Abi, Owner, Refusal, Registration};
#[cfg(not(any(loom, miri)))]
#[doc(hidden)]
pub use rseq::{in_vfork_child, vfork};

/// Facts about the process that the malloc's own crate reads without libc, whose functions a preloaded library may
/// replace.
#[cfg(not(any(loom, miri)))]
#[doc(hidden)]
pub mod without_libc {
    pub use super::kernel_clock::nanoseconds;
    pub use super::process::environment::{auxiliary, is_foreign, variable};
    pub use super::process::words::signal;
    pub use super::process_id;
    pub use super::syscall::syscall;
}

/// Calls `getpid()`, see getpid(2).
///
/// The process id; 0 where the kernel does not say.
#[doc(alias = "getpid")]
#[doc(hidden)]
pub fn process_id() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall::syscall(libc::SYS_getpid, [0; 6]) }.map_or(0, |id| id as u32)
}

/// Returns the calling thread's cpu, asked of the vDSO, or of the kernel where there is none.
pub(crate) fn current_cpu() -> Option<u32> {
    // A model must take the same way each time it is replayed, and Miri's machine has no cpus.
    if cfg!(any(loom, miri)) {
        return Some(0);
    }
    current_cpu_and_node().map(|(cpu, _)| cpu)
}

/// Returns the NUMA node of the calling thread's cpu, asked of the kernel.
pub(crate) fn current_node() -> Option<u32> {
    current_cpu_and_node().map(|(_, node)| node)
}

/// Calls `getcpu(&cpu, &node)`, see getcpu(2).
///
/// The calling thread's cpu and that cpu's NUMA node, asked of the vDSO at once, or of the kernel.
#[doc(alias = "getcpu")]
pub(crate) fn current_cpu_and_node() -> Option<(u32, u32)> {
    /// The signature of `__vdso_getcpu`, by vdso(7).
    type Getcpu = unsafe extern "C" fn(*mut u32, *mut u32, *mut u8) -> core::ffi::c_int;
    const NOT_LOOKED_UP: usize = 0;
    const NONE: usize = 1;
    /// The result of the look-up: one of these constants, or the address of the vDSO's function, which stays mapped.
    static FUNCTION: AtomicUsize = AtomicUsize::new(NOT_LOOKED_UP);
    let (mut cpu, mut node) = (0u32, 0u32);
    // Relaxed: every thread finds the same.
    let mut function = FUNCTION.load(Ordering::Relaxed);
    if function == NOT_LOOKED_UP {
        function = vdso::symbol("__vdso_getcpu").map_or(NONE, |function| function as usize);
        FUNCTION.store(function, Ordering::Relaxed);
    }
    if function != NONE {
        // SAFETY: the vDSO's function of this type.
        let function = unsafe { core::mem::transmute::<*const (), Getcpu>(function as *const ()) };
        // SAFETY: it writes to the two words given and skips the null pointer.
        let failed = unsafe { function(&mut cpu, &mut node, core::ptr::null_mut()) };
        return (failed == 0).then_some((cpu, node));
    }
    let args = [&raw mut cpu as usize, &raw mut node as usize, 0, 0, 0, 0];
    // SAFETY: the kernel writes to the two words given and skips the null pointer.
    let asked = unsafe { syscall::syscall(libc::SYS_getcpu, args) };
    asked.ok().map(|_| (cpu, node))
}

/// Calls `sigaltstack(NULL, &old)`, see sigaltstack(2).
///
/// Whether the calling thread runs on the stack that it has for signals (`sigaltstack(2)`), which may be short.
#[doc(alias = "sigaltstack")]
#[cfg(not(any(loom, miri)))]
pub(crate) fn is_on_signal_stack() -> bool {
    let mut stack = core::mem::MaybeUninit::<libc::stack_t>::zeroed();
    let args = [0, stack.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: asks for the calling thread's; the kernel writes the one struct.
    let asked = unsafe { syscall::syscall(libc::SYS_sigaltstack, args) };
    // SAFETY: all bytes 0 is a `stack_t`.
    asked.is_ok() && unsafe { stack.assume_init() }.ss_flags & libc::SS_ONSTACK != 0
}
