//! A sample as readers see it, and the number of objects it stands for.
//!
//! An object of `size` bytes is sampled with probability `p = 1 - exp(-size / rate)`, or 1 from `rate` bytes on. A
//! sample therefore stands for `1 / p` objects, and sums over all samples are unbiased for any mix of sizes.

use super::area::STACK_WORDS;
use crate::sys::thread::stack::{NAME_BYTES, REGISTERS};

/// A sampled object, and the stack that allocated it.
///
/// The stack is a raw copy from the stack pointer on, as far as there was room. A reader that has the program's files
/// can derive the callers from it, as `corelocal heap` does.
#[derive(Clone)]
pub struct Sample {
    pub(super) size: u64,
    pub(super) rate: u64,
    pub(super) taken: u64,
    pub(super) thread: u32,
    pub(super) is_in_use: bool,
    pub(super) was_at_peak: bool,
    pub(super) name: [u8; NAME_BYTES],
    pub(super) registers: [u64; REGISTERS],
    pub(super) len: usize,
    pub(super) words: [u64; STACK_WORDS],
}

impl Sample {
    /// An empty sample, to be filled by [`for_each`](super::for_each).
    pub const EMPTY: Sample = Sample {
        size: 0,
        rate: 1,
        taken: 0,
        thread: 0,
        is_in_use: false,
        was_at_peak: false,
        name: [0; NAME_BYTES],
        registers: [0; REGISTERS],
        len: 0,
        words: [0; STACK_WORDS],
    };

    /// Returns the size asked for. An object that was reallocated in place keeps its first size.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the number of bytes that the sample stands for.
    pub fn bytes(&self) -> u64 {
        bytes_of(self.size, self.rate)
    }

    /// Returns the number of objects that it stands for: at least one.
    pub fn objects(&self) -> f64 {
        self.bytes() as f64 / self.size.max(1) as f64
    }

    /// Returns `true` if the object is in use.
    pub fn is_in_use(&self) -> bool {
        self.is_in_use
    }

    /// Returns `true` if it was in use at the peak.
    pub fn was_at_peak(&self) -> bool {
        self.was_at_peak
    }

    /// Returns when it was allocated: nanoseconds of the monotonic clock.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns the number of the thread that allocated it.
    pub fn thread(&self) -> u32 {
        self.thread
    }

    /// Returns the thread's name, padded with zeros.
    pub fn thread_name(&self) -> &[u8; 16] {
        &self.name
    }

    /// Returns the program counter, stack pointer, rbp, rbx, r12 to r15 on x86-64; on aarch64
    /// program counter, stack pointer, x29, x30, x19 to x22. All 0 if registers are not known.
    pub fn registers(&self) -> &[u64; 8] {
        &self.registers
    }

    /// Returns the stack in words, from the stack pointer on.
    pub fn words(&self) -> &[u64] {
        &self.words[..(self.len / 8).min(STACK_WORDS)]
    }
}

impl core::fmt::Debug for Sample {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut debug = f.debug_struct("Sample");
        debug.field("size", &self.size).field("bytes", &self.bytes()).field("thread", &self.thread);
        debug.field("len", &self.len).finish_non_exhaustive()
    }
}

/// Returns the number of bytes that a sample of this size stands for: `size / (1 - exp(-size / rate))`.
pub(super) fn bytes_of(size: u64, rate: u64) -> u64 {
    let (size, rate) = (size.max(1), rate.max(1));
    if size >= rate { size } else { (rate as f64 * stretch(size as f64 / rate as f64)) as u64 }
}

/// Returns the probability that an object of this size is sampled: `1 - exp(-size / rate)`, or 1; consistent with
/// [`bytes_of`].
pub(super) fn odds(size: u64, rate: u64) -> f64 {
    let (size, rate) = (size.max(1), rate.max(1));
    let x = size as f64 / rate as f64;
    if size >= rate { 1.0 } else { x / stretch(x) }
}

/// `x / (1 - exp(-x))` of a number below 1, by the first terms of its series, with a relative error below 10^-5.
fn stretch(x: f64) -> f64 {
    let squared = x * x;
    1.0 + x / 2.0 + squared / 12.0 - squared * squared / 720.0
        + squared * squared * squared / 30_240.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_samples_stand_for() {
        const RATE: u64 = 512 << 10;
        for size in [1, 16, 1000, 100_000, 300_000, RATE - 1] {
            let exact = size as f64 / (1.0 - (-(size as f64) / RATE as f64).exp());
            let told = bytes_of(size, RATE) as f64;
            assert!((told / exact - 1.0).abs() < 1e-5, "{size}: {told} for {exact}");
            assert!((odds(size, RATE) * exact / size as f64 - 1.0).abs() < 1e-5, "{size}");
        }
        assert_eq!((bytes_of(RATE, RATE), odds(RATE, RATE)), (RATE, 1.0));
        assert_eq!(bytes_of(u64::MAX, RATE), u64::MAX);
        assert_eq!((bytes_of(0, 1), bytes_of(0, 0)), (1, 1));
        let sample = Sample { size: 0, rate: RATE, ..Sample::EMPTY };
        assert!(sample.objects() >= RATE as f64 && sample.words().is_empty());
    }
}
