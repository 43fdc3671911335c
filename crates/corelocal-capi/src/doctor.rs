//! Which fast paths are active, and why others are not.

use core::ffi::c_int;
use std::io::Write;

use corelocal::sys::Caps;

/// Writes to a file descriptor, one line for each, what this kernel and libc offer to the process: restartable sequences and
/// what registered them, concurrency ids, membarrier, futexes, the vDSO. Where a fast path is not active it says why.
///
/// Returns 0, or the negative error number of write(2). Allocates; not for signal handlers. The command `corelocal doctor`
/// says more.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_doctor(fd: c_int) -> c_int {
    let text = format!("{}\n", Caps::get());
    match (Out(fd)).write_all(text.as_bytes()) {
        Ok(()) => 0,
        Err(error) => -error.raw_os_error().unwrap_or(libc::EIO),
    }
}

/// Returns 1 if critical sections run in the calling thread, else 0. Registers the thread if it is not registered yet.
#[unsafe(no_mangle)]
pub extern "C" fn corelocal_is_fast() -> c_int {
    c_int::from(corelocal::cid::policy() != corelocal::cid::Policy::Lease)
}

/// A file descriptor of the caller's, which stays open.
struct Out(c_int);

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        // SAFETY: bytes that can be read; the kernel refuses what is no descriptor.
        let written = unsafe { libc::write(self.0, bytes.as_ptr().cast(), bytes.len()) };
        usize::try_from(written).map_err(|_| std::io::Error::last_os_error())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
