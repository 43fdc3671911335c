//! A `vfork` whose child has ids of its own.
//!
//! The child runs in its parent's memory, on the calling thread's area, and without a registration. It would continue
//! with ids that the kernel does not update, while another thread of the parent is given the same ones. POSIX allows
//! such a child almost nothing, but users of a malloc allocate there all the same. So a library that exports a malloc
//! also exports a `vfork`, and this is its body.
//!
//! ```text
//!   parent                                child
//!   records the memory's owner, blocks signals
//!   vfork ──────────────────────────────► registers the area for itself: the kernel writes its ids
//!   waits in the kernel, which does       unblocks signals, runs critical sections like any thread
//!   not write to the area meanwhile  ◄─── exec or _exit
//!   registers the area again: it has its own ids again
//!   unblocks signals
//! ```
//!
//! # Invariants
//! 1. While the area has another task's ids, no handler runs: signals are blocked.
//! 2. A thread that was not registered is not registered by this.
//!
//! Children made by `clone` bypass this: those of `posix_spawn`, for example, which do not allocate.
//!
//! Sources: `kernel/rseq.c`, `rseq_fork` (`CLONE_VM` drops the registration in the child). Since 6.19 ids are written
//! only if they changed for the task, so a parent would not get its own back without registering again.

use super::{
    LIBC, OWN, OWN_LEN, STATE, UNREGISTER, V1_LEN, area, field, in_vfork_child, libc_area, read,
    slice,
};
use crate::primitive::global::Ordering;
use crate::sys::arch;
use crate::sys::errno::Errno;
use crate::sys::syscall::syscall;

/// The mask bit of SIGKILL, which cannot be blocked: it carries whether time slice extension was switched on.
const SLICES: u64 = 1 << (libc::SIGKILL - 1);
/// The length of the kernel's signal mask in bytes.
const MASK_BYTES: usize = size_of::<u64>();

/// Calls `vfork(2)`, as the body of a function of that name.
///
/// # Safety
/// - The caller is a function without arguments that returns a `pid_t` by C's convention, does nothing else, and has
///   no frame; its caller keeps to what `vfork` demands, except that its child may use this library.
#[inline(always)]
pub unsafe fn vfork() -> libc::pid_t {
    // SAFETY: the caller keeps the conditions of `vfork`.
    unsafe { arch::vfork!(before, after) }
}

/// Blocks all signals; what was blocked before.
extern "C" fn before() -> u64 {
    // Were the child to ask first, this process would be taken for the guest.
    in_vfork_child();
    let (all, mut mask) = (u64::MAX, 0u64);
    set_mask(&all, &mut mask);
    if slice::is_enabled() { mask | SLICES } else { mask }
}

extern "C" fn after(result: isize, mask: u64) -> libc::pid_t {
    if is_registered() {
        if result == 0 {
            // Refused, the child is as it would have been without us.
            let _ = register(V1_LEN, 0);
        } else {
            register_anew();
            if mask & SLICES != 0 {
                // If it is refused, the thread has no time slice extension.
                let _ = slice::enable();
            }
        }
    }
    set_mask(&(mask & !SLICES), core::ptr::null_mut());
    if result < 0 {
        // SAFETY: the thread's own `errno`.
        unsafe { *libc::__errno_location() = -result as i32 };
        return -1;
    }
    result as libc::pid_t
}

/// Returns `true` if the area in use is the calling thread's, or was that of the thread whose memory this is.
fn is_registered() -> bool {
    let is_known = matches!(STATE.load(Ordering::Relaxed), LIBC | OWN);
    // SAFETY: a field of the area in use.
    is_known && unsafe { read(area() + field::CPU_ID) } as i32 >= 0
}

/// Registers the ids of the calling thread into its area, whatever the kernel thinks is there.
fn register_anew() {
    let known = match STATE.load(Ordering::Relaxed) {
        OWN => OWN_LEN.load(Ordering::Relaxed),
        // glibc tells the feature size, whatever it rounded it up to.
        _ => libc_area().map_or(V1_LEN, |libc| libc.size.max(V1_LEN)),
    };
    let lens = [known, known.next_multiple_of(V1_LEN), V1_LEN];
    if let Some(len) = lens.into_iter().find(|len| register(*len, UNREGISTER).is_ok()) {
        // Refused, the thread goes on without: its area says so.
        let _ = register(len, 0);
    }
}

/// Calls `rseq(area, len, flags, signature)`, see rseq(2).
#[doc(alias = "rseq")]
fn register(len: u32, flags: u32) -> Result<(), Errno> {
    let at = arch::thread_address(area());
    let args = [at as usize, len as usize, flags as usize, arch::SIGNATURE as usize, 0, 0];
    // SAFETY: the area that this thread, or the one whose memory this is, has registered with that length, at
    // least 32 bytes long; it outlives both.
    unsafe { syscall(libc::SYS_rseq, args) }.map(|_| ())
}

/// Calls `rt_sigprocmask(SIG_SETMASK, mask, before)`, see sigprocmask(2).
#[doc(alias = "sigprocmask")]
fn set_mask(mask: &u64, before: *mut u64) {
    let args = [
        libc::SIG_SETMASK as usize,
        core::ptr::from_ref(mask) as usize,
        before as usize,
        MASK_BYTES,
        0,
        0,
    ];
    // SAFETY: the kernel reads one mask, and writes to the other unless it is null.
    let _ = unsafe { syscall(libc::SYS_rt_sigprocmask, args) };
}
