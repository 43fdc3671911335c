//! The guest's memory: mapped in this process, seen by the guest at address 0.
//!
//! ```text
//! 0x1000  the program
//! 0x2000  clock pages, one every 64 bytes, as Linux has them
//! 0x3000  mailboxes, one every 64 bytes, up to 0x4000
//! ```
//!
//! Invariants:
//! 1. There are [`CPUS`] of each, so none reaches into what follows.
//! 2. KVM, the guest and this process change the memory at the same time. So nothing in it is
//!    ever borrowed as plain data: the clock page is made of atomics, and everything else is read and
//!    written by volatile access to bytes that no thread changes meanwhile, since the guest runs only within
//!    [`Vcpu::step`](crate::Vcpu::step).

use std::io;
use std::ptr::{self, NonNull};

use corelocal::clock::page::pvclock::Page;

use crate::payload;

pub const BYTES: usize = 0x10000;
pub const CODE_AT: usize = 0x1000;
const PAGES_AT: usize = 0x2000;
const MAILBOXES_AT: usize = 0x3000;
const STRIDE: usize = 64;
/// Cpus that there are pages and mailboxes for.
pub const CPUS: usize = (MAILBOXES_AT - PAGES_AT) / STRIDE;
const _: () = assert!(MAILBOXES_AT + CPUS * STRIDE <= BYTES); // (1)

#[derive(Debug)]
pub struct Memory(NonNull<u8>);

// SAFETY: the mapping belongs to no thread; concurrent use is as (2) says.
unsafe impl Send for Memory {}
// SAFETY: the mapping belongs to no thread; concurrent use is as (2) says.
unsafe impl Sync for Memory {}

impl Memory {
    /// Creates zeroed memory with the program in it.
    pub fn new() -> io::Result<Memory> {
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping where the kernel likes.
        let at = unsafe { libc::mmap(ptr::null_mut(), BYTES, access, kind, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = Memory(NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?);
        // SAFETY: the program fits; no other thread knows the memory yet.
        unsafe { memory.at(CODE_AT).copy_from(payload::CODE.as_ptr(), payload::CODE.len()) };
        Ok(memory)
    }

    pub fn address(&self) -> u64 {
        self.0.as_ptr() as u64
    }

    pub fn page_at(vcpu: usize) -> usize {
        PAGES_AT + vcpu * STRIDE
    }

    pub fn mailbox_at(vcpu: usize) -> usize {
        MAILBOXES_AT + vcpu * STRIDE
    }

    /// Returns the clock page of a cpu, if there can be such a cpu.
    pub fn page(&self, vcpu: usize) -> Option<&Page> {
        let at = (vcpu < CPUS).then(|| self.at(Memory::page_at(vcpu)))?;
        // SAFETY: the place is in the memory (1) and a multiple of 64, any bytes are a page, and it is made of
        // atomics.
        Some(unsafe { &*at.cast::<Page>() })
    }

    /// Returns the counter of the cpu's last step. The cpu is not in guest mode.
    pub fn counter(&self, vcpu: usize) -> u64 {
        let at = self.at(Memory::mailbox_at(vcpu) + payload::COUNTER_AT);
        // SAFETY: in the memory (1) and aligned; the guest is not running (2).
        unsafe { at.cast::<u64>().read_volatile() }
    }

    /// Tells what the guest does after this step. The cpu is not in guest mode.
    pub fn request(&self, vcpu: usize, request: payload::Request) {
        // SAFETY: in the memory (1); the guest is not running (2).
        unsafe {
            self.at(Memory::mailbox_at(vcpu) + payload::REQUEST_AT).write_volatile(request as u8)
        };
    }

    fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < BYTES);
        self.0.as_ptr().wrapping_add(offset)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing borrows from it any more. A machine that still ran would
        // lose its memory, not ours.
        unsafe { libc::munmap(self.0.as_ptr().cast(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cpu_has_a_page() {
        let memory = Memory::new().unwrap();
        let at = |cpu| memory.page(cpu).map(|page| ptr::from_ref(page).addr());
        let first = at(0).unwrap();
        assert_eq!(at(CPUS - 1), Some(first + (CPUS - 1) * STRIDE));
        for cpu in [CPUS, 5000, usize::MAX / STRIDE, usize::MAX] {
            assert_eq!(at(cpu), None, "{cpu}");
        }
    }
}
