//! KVM's page for its guest as a counter: for back-end 2, and for back-end 1 where the kernel goes by it.
//!
//! The page says how the cpu's counter leads to nanoseconds since the guest's boot or so, across migrations
//! to hosts whose counters differ. A kernel whose clock source is kvm-clock takes these nanoseconds for its
//! counter, and the vDSO's data leads from them to the time. Done one after the other, that is two
//! multiplications after the counter is known. [`read_through`] makes one of it: what does not depend on the
//! counter is computed while the cpu still reads it.
//!
//! ```text
//!   n = (counter - at) * m / 2^32 * 2^s + system        KVM's page
//!   t = (fraction + (n - last) * multiplier) / 2^shift  the vDSO's data
//!     = (counter - at) * M + B                          in units of 2^-64 ns
//! ```
//!
//! # Invariants
//! 1. What was read of the page counts if its version was even, and the same after the counter was read, and
//!    the page says that it speaks for all cpus (it is one virtual cpu's page, whichever cpu reads it).
//! 2. `t` is what the vDSO would say, or one nanosecond more: the vDSO drops a fraction in the middle.

use super::page::{KernelPage, Mode};
use crate::clock::Clock;
use crate::clock::counter;
use crate::clock::page::{ReadError, pvclock};
use crate::clock::status::Cause;
use crate::primitive::global::{AtomicU64, Ordering, fence};

/// Returns the time by KVM's page.
///
/// # Errors
/// [`Cause::Unsynchronised`], [`Cause::UpdateStalled`], or [`Cause::UnknownLayout`] for all else.
#[inline(always)]
pub(in crate::clock) fn count(
    page: &pvclock::Page,
    count: impl FnMut() -> u64,
) -> Result<u64, Cause> {
    match page.read(count) {
        Ok(reading) => Ok(reading.nanoseconds),
        Err(ReadError::Unstable) => Err(Cause::Unsynchronised),
        Err(ReadError::Odd | ReadError::Changing) => Err(Cause::UpdateStalled),
        Err(_) => Err(Cause::UnknownLayout),
    }
}

/// Returns the time of `clock` by the vDSO's data and KVM's page; `None` if anything is unusual.
///
/// Each instruction counts: the cpu begins with those after a fence when it is through, so this does not use
/// the page's own reader, which would look at the version twice more.
#[inline(always)]
pub(in crate::clock) fn read_through<const HOW: u8>(
    data: KernelPage,
    page: &pvclock::Page,
    clock: Clock,
) -> Option<u64> {
    let words = words(page);
    let get = |at: usize| words[at].load(Ordering::Relaxed);
    let head = data.head_at_rest(Mode::Pvclock)?;
    // The version is the low half.
    let version = get(0);
    // Partner: KVM's barrier between content and the even version.
    fence(Ordering::Acquire);
    let counter = counter::count::<HOW>();
    let seen = data.look(clock);
    let (at, nanoseconds, rest) = (get(1), get(2), get(3));
    // Partner: KVM's barrier between the odd version and content.
    fence(Ordering::Acquire);
    let is_still = get(0) == version && data.is_still(head);
    let (shift, flags) = ((rest >> 32) as i8, (rest >> 40) as u8);
    let (multiplier, by) = (u64::from(seen.multiplier), seen.shift & 63);
    // M is a fraction of 64 bits: the product of the multipliers, moved so far to the left. Shifts that no
    // page has make this more than any number's zeros.
    let left = (32 + i32::from(shift)).wrapping_sub_unsigned(by) as u32;
    let product = (rest & 0xffff_ffff).wrapping_mul(multiplier);
    let advance = counter.wrapping_sub(at);
    // Kernels give shifts of 20 or more; of 0, the halves below would not fit together.
    let is_usual = flags & pvclock::STABLE != 0 && product.leading_zeros() >= left && by != 0;
    // (1)
    if !is_still || version & 1 != 0 || !is_usual || advance >> 62 != 0 {
        return None;
    }
    // Of a page published long ago this is negative, and large.
    let behind = nanoseconds.wrapping_sub(seen.last) as i64;
    let base = i128::from(seen.fraction) + i128::from(behind) * i128::from(multiplier);
    // Moved to the right by the data's shift, and what falls off as a fraction.
    let (high, low) = ((base >> 64) as u64, base as u64);
    let whole = high << (64 - by) | low >> by;
    let fraction = low << (64 - by);
    let passed =
        u128::from(advance) * u128::from(product.wrapping_shl(left)) + u128::from(fraction);
    Some(seen.seconds.wrapping_add(whole).wrapping_add((passed >> 64) as u64))
}

/// Returns the page as words: version; counter; nanoseconds; multiplier (32 bits), shift and flags (8 bits each).
#[inline(always)]
fn words(page: &pvclock::Page) -> &[AtomicU64; 4] {
    const { assert!(size_of::<pvclock::Page>() == 32 && align_of::<pvclock::Page>() >= 8) };
    // SAFETY: atomics of the same size, of which any bits are a value. On this architecture words and their
    // halves may be loaded beside each other.
    unsafe { &*(&raw const *page).cast() }
}
