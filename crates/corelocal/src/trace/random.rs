//! Random numbers for ids that differ between processes.

use crate::clock::Ticks;
use crate::sys::without_libc::syscall;

/// Returns a random number; on a kernel that refuses, one that differs from call to call.
pub(super) fn random() -> u64 {
    let mut number = [0; 8];
    let args = [number.as_mut_ptr() as usize, number.len(), libc::GRND_NONBLOCK as usize, 0, 0, 0];
    // SAFETY: room for so many bytes.
    match unsafe { syscall(libc::SYS_getrandom, args) } {
        Ok(8) => u64::from_le_bytes(number),
        _ => Ticks::now().as_raw().wrapping_mul(0x9e37_79b9_7f4a_7c15),
    }
}
