//! Copying memory that may not be there.
//!
//! A load from an address without memory ends the program, and a handler that caught the signal would be
//! the program's and not a library's. The kernel copies without such ado: writing from a bad address into a
//! pipe fails with EFAULT. (`process_vm_readv` and /proc/self/mem refuse the kernel's own special mappings.)
//!
//! Invariants: both ends are open descriptors, closed once; between calls the pipe is empty, and what is
//! written to it is shorter than the smallest buffer that a pipe can have, one page.

use crate::sys::errno::Errno;
use crate::sys::syscall::syscall;

/// A pipe of our own.
pub(crate) struct Pipe {
    read: usize,
    write: usize,
}

impl Pipe {
    /// Calls `pipe2(ends, O_CLOEXEC | O_NONBLOCK)`, see pipe2(2).
    ///
    /// Opens one.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`; whatever a seccomp filter says.
    #[doc(alias = "pipe2")]
    pub(crate) fn new() -> Result<Pipe, Errno> {
        let mut ends = [0i32; 2];
        let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK) as usize;
        let args = [ends.as_mut_ptr() as usize, flags, 0, 0, 0, 0];
        // SAFETY: a place for two descriptors.
        unsafe { syscall(libc::SYS_pipe2, args) }?;
        Ok(Pipe { read: ends[0] as usize, write: ends[1] as usize })
    }

    /// Calls `write(pipe, from, N)` and `read(pipe, to, N)`, see pipe(7).
    ///
    /// Copies the memory at `from`, which may be any address; whether all of it was there.
    ///
    /// Others may write to that memory meanwhile: then the copy is of any mixture.
    #[doc(alias = "write")]
    pub(crate) fn copy<const N: usize>(&self, from: *const u8, to: &mut [u8; N]) -> bool {
        const { assert!(N <= 4096) };
        // SAFETY: the kernel only reads from the address, and says if it cannot.
        let written = unsafe { syscall(libc::SYS_write, [self.write, from as usize, N, 0, 0, 0]) };
        let Ok(written) = written else { return false };
        let args = [self.read, to.as_mut_ptr() as usize, written.min(N), 0, 0, 0];
        // SAFETY: the kernel writes at most N bytes to the exclusively borrowed array. The read does not block: this
        // thread has written the bytes, and no other thread has the pipe.
        let read = unsafe { syscall(libc::SYS_read, args) };
        read == Ok(N)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        for end in [self.read, self.write] {
            // SAFETY: the descriptor is ours (invariant).
            let _ = unsafe { syscall(libc::SYS_close, [end, 0, 0, 0, 0, 0]) };
        }
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;
    use crate::sys::memory::page_size::page_size;
    use crate::sys::memory::pages;

    /// Makes a page inaccessible. If it were unmapped, another thread of the tests might map it again.
    fn close(page: *mut u8) {
        // SAFETY: a page of the test's own, to which no reference exists.
        assert_eq!(unsafe { libc::mprotect(page.cast(), page_size(), libc::PROT_NONE) }, 0);
    }

    #[test]
    fn what_is_there_is_copied_and_what_is_not_is_told() {
        let pipe = Pipe::new().unwrap();
        let mut to = [0; 300];
        let from: [u8; 300] = core::array::from_fn(|at| at as u8);
        assert!(pipe.copy(from.as_ptr(), &mut to));
        assert_eq!(to, from);
        assert!(!pipe.copy(core::ptr::null(), &mut to));
        assert!(!pipe.copy(usize::MAX as *const u8, &mut to));
        let gone = pages::map(page_size()).unwrap();
        assert!(pipe.copy(gone, &mut to));
        close(gone);
        assert!(!pipe.copy(gone, &mut to));
        // A failure leaves the pipe empty.
        assert!(pipe.copy(from.as_ptr(), &mut to));
        assert_eq!(to, from);
    }

    #[test]
    fn the_end_of_memory_is_told() {
        let pipe = Pipe::new().unwrap();
        let pages = pages::map(2 * page_size()).unwrap();
        close(pages.wrapping_add(page_size()));
        let mut to = [1; 64];
        assert!(!pipe.copy(pages.wrapping_add(page_size() - 32), &mut to));
        assert!(pipe.copy(pages.wrapping_add(page_size() - 64), &mut to));
        assert_eq!(to, [0; 64]);
        // SAFETY: mapped above; no reference to it is left.
        unsafe { pages::unmap(pages, 2 * page_size()) };
    }
}
