//! Unpredictable numbers for the debugging modes. Not cryptographic.
//!
//! Invariant: two runs of a program get different numbers, and so does a forked child as soon as its parent's clock
//! has advanced.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::sys::process::environment;

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the finalizer of splitmix64: each bit of the result depends on all bits of the input.
pub(super) const fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// Returns a number of the process, never 0: the same at each call and in forked children.
pub(super) fn secret() -> u64 {
    static SECRET: AtomicU64 = AtomicU64::new(0);
    // Relaxed: all threads that race compute the same number.
    match SECRET.load(Ordering::Relaxed) {
        0 => {
            let fresh = mix(of_the_kernel()) | 1;
            SECRET.store(fresh, Ordering::Relaxed);
            fresh
        }
        known => known,
    }
}

/// Returns the random bytes that the kernel passed to the program.
fn of_the_kernel() -> u64 {
    let at = environment::auxiliary(libc::AT_RANDOM);
    let at = core::ptr::with_exposed_provenance::<[u64; 2]>(at);
    if at.is_null() {
        return STEP;
    }
    // SAFETY: 16 bytes that are never unmapped.
    let [one, other] = unsafe { at.read_unaligned() };
    // Mix both halves: libc derives a secret from each of them, and neither must be derivable from ours.
    one ^ mix(other)
}

/// Returns a number derived from the addresses of the program's mappings: the same at each start if address
/// randomisation is off (`personality(2)`, for example under gdb).
pub(super) fn of_the_layout() -> u64 {
    let [stack, loader] =
        [libc::AT_RANDOM, libc::AT_SYSINFO_EHDR].map(|which| environment::auxiliary(which) as u64);
    // The addresses themselves, not the memory there.
    stack >> 4 ^ mix(loader)
}

/// Returns a different number at each call.
pub(super) fn next() -> u64 {
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    let nth = DRAWN.fetch_add(STEP, Ordering::Relaxed);
    mix(nth ^ secret() ^ time().rotate_left(32))
}

/// Returns the cpu's counter, where it is read.
fn time() -> u64 {
    let (low, high) = crate::sys::arch::counter::unordered();
    u64::from(high) << 32 | u64::from(low)
}

/// `-ln(random / 2^64)`, with 16 fractional bits: exponentially distributed with mean 1 if `random` is uniform.
pub(super) fn nats(random: u64) -> u64 {
    /// 2^16 · ln 2.
    const LN_2: u64 = 45_426;
    (((64 << 16) - log2(random.max(1))) * LN_2) >> 16
}

/// Returns the binary logarithm, with 16 fractional bits.
fn log2(number: u64) -> u64 {
    let whole = u64::from(number.ilog2());
    // 1 ≤ m < 2, with 31 fractional bits. Squaring it yields the next bit of the logarithm.
    let mut m = (number << (63 - whole)) >> 32;
    let mut log = whole;
    for _ in 0..16 {
        m = (m * m) >> 31;
        let bit = m >> 32;
        m >>= bit;
        log = log << 1 | bit;
    }
    log
}

/// Shuffles items.
pub(super) fn shuffle(items: &mut [u64]) {
    let mut random = next();
    for last in (1..items.len()).rev() {
        random = mix(random.wrapping_add(STEP));
        items.swap(last, (random % (last as u64 + 1)) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn logarithms() {
        for number in [1u64, 2, 3, 10, 1000, 1 << 20, 123_456_789, 1 << 63, u64::MAX] {
            let (ours, exact) = (log2(number) as f64 / 65_536.0, (number as f64).log2());
            assert!((ours - exact).abs() < 1e-3, "{number}: {ours} {exact}");
        }
    }

    #[test]
    fn what_is_shuffled_is_all_there() {
        let mut items: Vec<u64> = (0..64).collect();
        shuffle(&mut items);
        assert!(!items.is_sorted());
        items.sort_unstable();
        assert!(items.iter().copied().eq(0..64));
        assert_ne!(next(), next());
        assert!(secret() != 0 && secret() == secret());
    }
}
