//! Anonymous pages straight from the kernel: the only memory the library takes for itself.
//!
//! No heap: these pages are needed inside signal handlers and by the malloc.

use super::errno::Errno;
use super::syscall::syscall;

/// Maps `len` bytes of zeroed, lazily populated, private memory; `None` when the kernel refuses.
///
/// Huge pages are refused for the range: a region is sized for every possible id and only the
/// pages of ids in use may become resident.
pub(crate) fn map(len: usize) -> Option<*mut u8> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize;
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches nothing.
    let at = unsafe { syscall(libc::SYS_mmap, [0, len, protection, flags, usize::MAX, 0]) }.ok()?;
    let at = at as *mut u8;
    // A kernel without transparent huge pages refuses the advice, which is just as well.
    // SAFETY: the mapping just made.
    let _ = unsafe { advise(at, len, libc::MADV_NOHUGEPAGE) };
    Some(at)
}

/// Gives the kernel advice about pages.
///
/// # Safety
/// The range lies in one `map`, and the advice's effect on its contents is wanted.
pub(crate) unsafe fn advise(at: *mut u8, len: usize, advice: i32) -> Result<(), Errno> {
    let args = [at as usize, len, advice as usize, 0, 0, 0];
    // SAFETY: the caller's promise.
    unsafe { syscall(libc::SYS_madvise, args) }.map(|_| ())
}

/// Gives pages back.
///
/// # Safety
/// `at` and `len` are those of one `map`, and nobody refers to the memory.
pub(crate) unsafe fn unmap(at: *mut u8, len: usize) {
    // The only errors are those of wrong arguments.
    // SAFETY: the caller's promise.
    let _ = unsafe { syscall(libc::SYS_munmap, [at as usize, len, 0, 0, 0, 0]) };
}
