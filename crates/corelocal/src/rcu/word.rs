//! The word of a domain, and of a guard: the domain's at the guard's beginning.
//!
//! ```text
//!   63    62      61           56  48   47      32   31         0
//!   COLD  FENCED  IN_A_GUARD   entry    generation   offset of the counts
//! ```
//! The offset has the period in one bit, and the lowest bits of the generation above it: see [`Group`].
//! - COLD leads readers to the cold path: in FENCED, while they are tracked, and in a child with guards from before the
//!   fork.
//! - FENCED: readers run full barriers, since membarrier(2) is refused.
//! - IN_A_GUARD and the entry (`tracked.rs`) are in words of guards only, of those that began in COLD. So such a word
//!   differs from the domain's, and the guard ends in the cold path, too.

use crate::percpu::Group;

pub(super) const COLD: u64 = 1 << 63;
pub(super) const FENCED: u64 = 1 << 62;
pub(super) const IN_A_GUARD: u64 = 1 << 61;
const ENTRY_SHIFT: u32 = 48;
const GENERATION_SHIFT: u32 = 32;
pub(super) const PERIOD: u64 = Group::LEN as u64;
/// The number of generations whose counts are kept apart.
const GENERATIONS: u32 = (Group::COUNT / 2) as u32;

/// Returns the first word of a generation.
pub(super) fn first(generation: u32) -> u64 {
    let offset = u64::from(generation % GENERATIONS) * 2 * PERIOD;
    u64::from(generation) << GENERATION_SHIFT | offset
}

/// Returns where its readers are counted.
#[inline(always)]
pub(super) fn group(word: u64) -> Group {
    // SAFETY: words are made by `first` and `with_period`: the period, and a multiple of two groups below all.
    unsafe { Group::at(word as u32 as usize) }
}

pub(super) fn period(word: u64) -> u32 {
    u32::from(word & PERIOD != 0)
}

/// Returns the same word with this period.
pub(super) fn with_period(word: u64, period: u32) -> u64 {
    if period == 0 { word & !PERIOD } else { word | PERIOD }
}

/// Returns `true` if it is set, and not COLD: positive as a signed number.
#[inline(always)]
pub(super) fn is_plain(word: u64) -> bool {
    word as i64 > 0
}

/// Returns `true` if a guard that began with one may end as plainly with the other: they differ in the period at most.
#[inline(always)]
pub(super) fn is_plain_end(began: u64, now: u64) -> bool {
    (now ^ began) & !PERIOD == 0
}

pub(super) fn generation(word: u64) -> u32 {
    (word >> GENERATION_SHIFT) as u32 % (1 << (ENTRY_SHIFT - GENERATION_SHIFT))
}

/// Returns the word of a guard that began in COLD.
pub(super) fn in_a_guard(word: u64, entry: u32) -> u64 {
    word | IN_A_GUARD | u64::from(entry) << ENTRY_SHIFT
}

/// Returns the number of a guard's entry; 0 for none.
#[cfg(feature = "std")]
pub(super) fn entry(word: u64) -> u32 {
    ((word & !(COLD | FENCED | IN_A_GUARD)) >> ENTRY_SHIFT) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_they_are_made_of() {
        for generation in [1, 2, 3, 4, 5, 0xffff] {
            let first = first(generation);
            assert!(is_plain(first) && !is_plain(first | COLD) && !is_plain(0));
            for period in [0, 1] {
                let word = with_period(first, period);
                assert_eq!((self::generation(word), self::period(word)), (generation, period));
                assert!(is_plain_end(first, word) && is_plain_end(word, first));
                let guard = in_a_guard(word, 511);
                assert!(!is_plain_end(guard, word));
                assert_eq!(self::generation(guard | COLD | FENCED), generation);
                #[cfg(feature = "std")]
                assert_eq!((entry(guard | COLD | FENCED), entry(word)), (511, 0));
                let _ = group(guard);
            }
            assert!(!is_plain_end(first, self::first(generation % 0xffff + 1)));
        }
    }
}
