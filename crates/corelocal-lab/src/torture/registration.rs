//! Takes the calling thread's rseq registration away, and gives it back.
//!
//! A thread may be without one because libc could not register it, or because it was made by a bare `clone`. Its
//! critical sections must not run, since the kernel does not abort them.
//!
//! Invariant: the registered area is the original one, with its length and signature. So the code that registered it
//! finds it unchanged.

use std::io;

use corelocal::sys::Registration;

use super::machine::{SIGNATURE, thread_pointer};

/// `RSEQ_FLAG_UNREGISTER`.
const UNREGISTER: i32 = 1;

/// The registration of the calling thread. Only that thread may use it.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    address: usize,
    length: u32,
}

impl Area {
    /// Returns the calling thread's registration. `None` if it has none, or the architecture has no critical sections.
    pub fn of_this_thread() -> Option<Area> {
        let registration = Registration::of_this_thread();
        let address = thread_pointer().wrapping_add_signed(registration.offset?);
        Some(Area { address, length: registration.len })
    }

    /// Returns the address of the area.
    #[cfg(all(
        any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"),
        target_os = "linux"
    ))]
    pub fn address(self) -> usize {
        self.address
    }

    /// Takes the registration away. Async-signal-safe.
    ///
    /// # Errors
    /// Those of `rseq(2)`.
    pub fn unregister(self) -> io::Result<()> {
        self.call(UNREGISTER)
    }

    /// Gives the registration back. Async-signal-safe.
    ///
    /// # Errors
    /// Those of `rseq(2)`; EBUSY if the thread is registered.
    pub fn register(self) -> io::Result<()> {
        self.call(0)
    }

    fn call(self, flags: i32) -> io::Result<()> {
        // SAFETY: the area is this thread's own, in its TLS, which outlives the thread's last
        // instruction; length and signature are those of its first registration.
        let result =
            unsafe { libc::syscall(libc::SYS_rseq, self.address, self.length, flags, SIGNATURE) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corelocal::rseq;
    use corelocal::sys::Owner;

    #[test]
    fn taken_and_given_back() {
        let thread = std::thread::spawn(|| {
            let Some(area) = Area::of_this_thread() else {
                eprintln!("skipped: taken_and_given_back: no thread is registered here");
                return;
            };
            area.unregister().unwrap();
            assert!(area.unregister().is_err());
            if Registration::of_this_thread().owner == Owner::Nobody {
                area.register().unwrap();
            }
            assert_ne!(Registration::of_this_thread().owner, Owner::Nobody);
            rseq::cpu_id();
        });
        thread.join().unwrap();
    }
}
