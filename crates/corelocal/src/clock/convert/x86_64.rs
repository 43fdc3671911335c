//! The sum of `convert/segment.rs` for four ticks at once, with AVX2 and FMA: cpus since 2013.
//!
//! A program is compiled for the oldest cpu of its architecture, which has neither, so it finds out when it
//! runs. Others make the sum in integers, one tick after the other, with the same result.
//!
//! # Invariants
//! 1. [`fill`] and [`are_within`] run only on a cpu that has both, under a kernel that saves their registers.
//! 2. Nothing is read or written outside of the slices.

use core::arch::x86_64::*;

use super::segment::nanos;
use crate::clock::ticks::Ticks;
use crate::primitive::global::{AtomicU8, Ordering};

/// The operands of a segment's conversion (`segment.rs`). The rate is odd and below 2^53.
pub(in crate::clock) struct Straight {
    pub(in crate::clock) origin: u64,
    /// The ticks from the origin to the last tick.
    pub(in crate::clock) length: u64,
    pub(in crate::clock) rate: u64,
    pub(in crate::clock) base: u64,
}

/// 0 until the cpu was asked; then one of these. Relaxed: every thread finds the same.
static FOUND: AtomicU8 = AtomicU8::new(0);
const ABSENT: u8 = 1;
const PRESENT: u8 = 2;

/// Returns `true` if this cpu can do it. A load but for the first time.
#[inline]
pub(in crate::clock) fn are_there() -> bool {
    match FOUND.load(Ordering::Relaxed) {
        0 => look(),
        found => found == PRESENT,
    }
}

#[cold]
fn look() -> bool {
    let found = is_supported();
    FOUND.store(if found { PRESENT } else { ABSENT }, Ordering::Relaxed);
    found
}

/// Asks the cpu, and what the kernel told the cpu.
#[allow(unused_unsafe, reason = "some of these are safe in later versions of Rust")]
fn is_supported() -> bool {
    const FMA: u32 = 1 << 12;
    const XSAVE_IN_USE: u32 = 1 << 27;
    const AVX: u32 = 1 << 28;
    const AVX2: u32 = 1 << 5;
    /// The bits of XCR0 for the registers' lower and upper halves: the kernel saves them.
    const SAVED: u64 = 0b110;
    // SAFETY: every cpu of 64 bits has `cpuid`, whose leaf 0 tells the last one.
    let (last, features) = unsafe { (__cpuid(0).eax, __cpuid(1).ecx) };
    let needed = FMA | XSAVE_IN_USE | AVX;
    if last < 7 || features & needed != needed {
        return false;
    }
    // SAFETY: leaf 7 is there; `xgetbv` is, since the kernel has switched it on.
    unsafe { __cpuid_count(7, 0).ebx & AVX2 != 0 && _xgetbv(0) & SAVED == SAVED }
}

/// The number of doubles or integers in a vector.
const LANES: usize = 4;
/// The number of vectors in a round, which makes the loop's own cost small.
const UNROLLED: usize = 4;
const TWO: u64 = 2f64.to_bits();
/// A bound of what [`fill`] returns if all ticks are at most this far behind the origin.
pub(in crate::clock) const FAR: u64 = 1 << 52;

/// Writes each tick's time. Returns the `or` of all times since the base, or something larger if a tick
/// is outside.
///
/// What is written for a tick that is not from the origin to 2^52 behind it means nothing.
///
/// # Safety
/// - Invariant 1.
#[target_feature(enable = "avx2,fma")]
pub(in crate::clock) unsafe fn fill(
    straight: &Straight,
    ticks: &[Ticks],
    times: &mut [u64],
) -> u64 {
    let &Straight { origin, length: until, rate, base } = straight;
    // Exact, both: 53 bits at most. Signed, for which there is an instruction.
    let per_tick = rate as i64 as f64 / (1u64 << 53) as f64;
    let added = ((1 << 53) - rate as i64) as f64 / (1u64 << 52) as f64;
    let length = ticks.len().min(times.len());
    let (from, to) = (ticks.as_ptr(), times.as_mut_ptr());
    // Vectors are stored where they do not lie across two lines of the cache.
    let begin = to.align_offset(size_of::<__m256i>()).min(length);
    let end = length - (length - begin) % (LANES * UNROLLED);
    let mut lanes = [TWO; LANES];
    // SAFETY: (1); vectors are loaded and stored from `begin` to `end`, which is within both slices, and
    // `lanes` is one (2).
    unsafe {
        // Added, not subtracted: an addition can take its other summand from memory.
        let start = _mm256_set1_epi64x(TWO.wrapping_sub(origin) as i64);
        let factor = _mm256_set1_pd(per_tick);
        let summand = _mm256_set1_pd(added);
        let back = _mm256_set1_epi64x(base.wrapping_sub(TWO) as i64);
        let mut any = _mm256_set1_epi64x(TWO as i64);
        for round in (begin..end).step_by(LANES * UNROLLED) {
            for vector in 0..UNROLLED {
                let at = round + vector * LANES;
                let x = _mm256_add_epi64(_mm256_loadu_si256(from.add(at).cast()), start);
                let y = _mm256_fmadd_pd(_mm256_castsi256_pd(x), factor, summand);
                let y = _mm256_castpd_si256(y);
                any = _mm256_or_si256(any, y);
                _mm256_storeu_si256(to.add(at).cast(), _mm256_add_epi64(y, back));
            }
        }
        _mm256_storeu_si256(lanes.as_mut_ptr().cast(), any);
    }
    let mut any = lanes.iter().fold(0, |any, lane| any | lane);
    for at in (0..begin).chain(end..length) {
        let ahead = ticks[at].as_raw().wrapping_sub(origin);
        let elapsed = nanos(ahead, rate);
        any |= if ahead <= until { TWO | elapsed } else { u64::MAX };
        times[at] = base.wrapping_add(elapsed);
    }
    any.wrapping_sub(TWO)
}

/// Returns `true` if no tick is behind the last one, given that [`fill`] found none more than 2^52 behind the origin.
/// It is unsure half of the time for ticks of the last moments before the segment's end.
///
/// # Safety
/// - Invariant 1.
#[target_feature(enable = "avx2,fma")]
pub(in crate::clock) unsafe fn are_within(straight: &Straight, ticks: &[Ticks]) -> bool {
    let &Straight { origin, length, .. } = straight;
    /// The number of independent chains: each instruction waits for the one before in its chain.
    const CHAINS: usize = 8;
    let in_rounds = ticks.len() - ticks.len() % (LANES * CHAINS);
    let from = ticks.as_ptr();
    let mut lanes = [TWO; LANES];
    // SAFETY: (1); vectors are loaded below `in_rounds`, which is within the slice, and `lanes` is one (2).
    unsafe {
        let start = _mm256_set1_epi64x(TWO.wrapping_sub(origin) as i64);
        // As doubles from 2 to 4 they have an instruction for the larger of two.
        let mut largest = [_mm256_set1_pd(2.0); CHAINS];
        for round in (0..in_rounds).step_by(LANES * CHAINS) {
            for (vector, largest) in largest.iter_mut().enumerate() {
                let at = round + vector * LANES;
                let x = _mm256_add_epi64(_mm256_loadu_si256(from.add(at).cast()), start);
                *largest = _mm256_max_pd(*largest, _mm256_castsi256_pd(x));
            }
        }
        let largest = largest.into_iter().fold(_mm256_set1_pd(2.0), |x, y| _mm256_max_pd(x, y));
        _mm256_storeu_si256(lanes.as_mut_ptr().cast(), _mm256_castpd_si256(largest));
    }
    let rest = ticks[in_rounds..].iter().map(|tick| tick.as_raw().wrapping_sub(origin));
    rest.chain(lanes.map(|lane| lane - TWO)).all(|ahead| ahead <= length)
}
