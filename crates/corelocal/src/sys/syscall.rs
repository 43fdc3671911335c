//! One way into the kernel for every call this crate makes.
//!
//! On x86-64 it is the bare instruction, inlined: a futex call in a lock's slow path then costs what
//! the kernel costs, and `errno` is never touched, which a `malloc` and a signal handler both want.
//! Elsewhere it is libc's `syscall`.
//!
//! Invariant: a result in `-4095..0` is an error number and nothing else is (the kernel's own
//! `IS_ERR_VALUE`).

use super::arch;
use super::errno::Errno;

/// Makes system call `number`; unused arguments are 0.
///
/// # Safety
/// - The arguments must be what that call expects: every address among them valid for the access the kernel makes
///   through it, for as long as the kernel makes it.
#[inline(always)]
pub unsafe fn syscall(number: libc::c_long, args: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: the caller guarantees that the call with these arguments is sound.
    let result = unsafe { arch::syscall(number, args) };
    if (-4095..0).contains(&result) { Err(Errno(-result as i32)) } else { Ok(result as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_and_error() {
        // SAFETY: getpid has no arguments.
        let pid = unsafe { syscall(libc::SYS_getpid, [0; 6]) };
        assert_eq!(pid, Ok(std::process::id() as usize));
        // SAFETY: closing a descriptor that cannot exist has no effect.
        let closed = unsafe { syscall(libc::SYS_close, [usize::MAX, 0, 0, 0, 0, 0]) };
        assert_eq!(closed, Err(Errno::EBADF));
    }

    #[test]
    fn all_six_arguments_arrive() {
        let mut memory = [0u8; 4];
        // pread64 of no byte at offset 0 from /dev/null uses four; mmap checks all six: a file
        // mapping with a misaligned offset (the sixth) is EINVAL, with an aligned one and a bad
        // descriptor (the fifth) it is EBADF.
        let map = |fd: usize, offset: usize| {
            let flags = libc::MAP_PRIVATE as usize;
            // SAFETY: both mappings are refused by the kernel; nothing is mapped.
            unsafe { syscall(libc::SYS_mmap, [0, 4096, 1, flags, fd, offset]) }
        };
        assert_eq!(map(usize::MAX, 1), Err(Errno::EINVAL));
        assert_eq!(map(usize::MAX, 0), Err(Errno::EBADF));
        // SAFETY: the buffer is four writable bytes.
        let read = unsafe {
            syscall(libc::SYS_getrandom, [memory.as_mut_ptr() as usize, memory.len(), 0, 0, 0, 0])
        };
        assert_eq!(read, Ok(4));
    }
}
