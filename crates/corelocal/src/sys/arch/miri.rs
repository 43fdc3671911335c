//! The kernel's interface under Miri, which supports libc's functions and two system calls. Supported calls are
//! translated to these; others are refused, as by a kernel or a filter without them.
//!
//! Invariant: each result is one that the kernel could have returned. Mappings are real, and exposed, so that the
//! library's address arithmetic yields valid pointers. No process forks, and no page is swapped out.

use core::ptr::{null_mut, with_exposed_provenance, with_exposed_provenance_mut};

/// Makes a system call, as that of the other architectures.
///
/// # Safety
/// - The conditions of [`crate::sys::syscall::syscall`] hold.
pub(crate) unsafe fn syscall(number: libc::c_long, args: [usize; 6]) -> isize {
    let [a, b, c, d, _, f] = args;
    // SAFETY: the caller vouches for the arguments of each call.
    let result = unsafe {
        match number {
            libc::SYS_mmap => {
                // No other flags and no files are known.
                let (access, flags) =
                    (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
                match libc::mmap(null_mut(), b, access, flags, -1, 0) {
                    libc::MAP_FAILED => return -(libc::ENOMEM as isize),
                    at => return at.expose_provenance() as isize,
                }
            }
            libc::SYS_munmap => libc::munmap(with_exposed_provenance_mut(a), b) as isize,
            libc::SYS_madvise => {
                if c == libc::MADV_DONTNEED as usize {
                    with_exposed_provenance_mut::<u8>(a).write_bytes(0, b);
                }
                0
            }
            libc::SYS_mincore => {
                with_exposed_provenance_mut::<u8>(c).write_bytes(1, b.div_ceil(4096));
                0
            }
            libc::SYS_getpid => libc::getpid() as isize,
            libc::SYS_gettid => libc::gettid() as isize,
            libc::SYS_futex => {
                let (word, time) = (
                    with_exposed_provenance::<u32>(a),
                    with_exposed_provenance::<libc::timespec>(d),
                );
                let operation = b as libc::c_int & !libc::FUTEX_PRIVATE_FLAG;
                match operation & !libc::FUTEX_CLOCK_REALTIME {
                    libc::FUTEX_WAIT_BITSET => {
                        let none = null_mut::<u32>();
                        libc::syscall(number, word, b as i32, c as u32, time, none, f as u32)
                            as isize
                    }
                    libc::FUTEX_WAKE => libc::syscall(number, word, b as i32, c as u32) as isize,
                    _ => return -(libc::ENOSYS as isize),
                }
            }
            _ => return -(libc::ENOSYS as isize),
        }
    };
    if result == -1 {
        // SAFETY: libc keeps errno per thread and valid for the thread's life.
        return -(unsafe { *libc::__errno_location() } as isize);
    }
    result
}
