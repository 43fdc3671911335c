//! Profiles that are asked for from outside, in a process that was not started for one.
//!
//! ```text
//!   corelocal heap --attach   writes two words into this process's memory ─► ASKED ─┐
//!   a tracer of the probes    has the kernel count it as a consumer ──► consumers ──┴─► wish ── a cold path ──► follow
//! ```
//! A wish is 0 for no profile, or N to have one byte in 2 to the power N - 1 sampled. Cold paths look at it, so it is
//! followed at the process's next refill of a cache or allocation of a large object.
//!
//! # Invariants
//! 1. `ASKED` is one byte, which the kernel copies whole. Any value has a meaning. `ASKED_OF` is written before it.
//! 2. A profile that the program or the environment began is not stopped by a wish that ends.
//! 3. A forked child neither continues nor begins what `ASKED` asked of its parent: `IS_MINE` tells it that the parent had
//!    followed, `ASKED_OF` that the parent was asked. The kernel counts a child's tracers by itself.
//! 4. The thread that holds `SWITCHES` follows a wish; others go on, and find it followed later.

use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use super::{let_go, start_alone};
use crate::alloc::config;
use crate::alloc::core_cache::slots;
use crate::sys::arch::probes;
use crate::sys::{WipeOnFork, process_id};

const R: Ordering = Ordering::Relaxed;

/// What another process asks for.
pub(in crate::alloc) static ASKED: AtomicU8 = AtomicU8::new(NONE);
/// The number of the process that it asks, as that one knows itself.
pub(in crate::alloc) static ASKED_OF: AtomicU32 = AtomicU32::new(0);
/// The wish that the profile of now was started for; `NONE` if it was not started here.
static FOLLOWED: AtomicU8 = AtomicU8::new(NONE);
/// 1 in the process that followed a wish.
// SAFETY: an atomic number, of which zero says that this process followed none.
static IS_MINE: WipeOnFork<AtomicU8> = unsafe { WipeOnFork::new() };

const NONE: u8 = 0;
/// The wish of a tracer: one byte in 512 KiB.
const OF_TRACERS: u8 = wish_of(512 << 10);
/// The wish for the largest rate, 512 GiB.
const MOST: u8 = 40;

/// Returns the wish for one byte in `rate`, or in the next power of two.
pub(in crate::alloc) const fn wish_of(rate: u64) -> u8 {
    let rate = if rate == 0 { 1 } else { rate };
    let power = 64 - (rate - 1).leading_zeros() as u8;
    if power < MOST { power + 1 } else { MOST }
}

/// Follows the wish of now, if it is another one than before. To be called on cold paths, while nothing is held.
#[inline]
pub(in crate::alloc) fn look() {
    if ASKED.load(R) | FOLLOWED.load(R) != NONE || probes::are_consumed() {
        follow();
    }
}

/// Leaves the profile to the program, whose wish it is as well.
pub(super) fn leave() {
    FOLLOWED.store(NONE, R);
}

fn wish() -> u8 {
    match ASKED.load(R) {
        NONE if probes::are_consumed() => OF_TRACERS,
        asked => asked.min(MOST),
    }
}

#[cold]
fn follow() {
    let followed = FOLLOWED.load(R);
    if followed != NONE && IS_MINE.get().is_some_and(|mine| mine.load(R) == 0) {
        // A forked child. (3)
        ASKED.store(NONE, R);
    }
    let wish = wish();
    if wish == followed {
        return;
    }
    let Some(_mine) = slots::SWITCHES.try_lock() else { return };
    if FOLLOWED.load(R) != followed {
        // Another thread was faster, or the program has started a profile of its own since.
        return;
    }
    if followed != NONE && wish == NONE {
        config::stop_profile();
        let_go();
    } else if config::is_profiling() {
        // The rate of the first wish stays; a profile of the program's is none of ours. (2)
        if followed == NONE {
            return;
        }
    } else if is_of_parent() {
        ASKED.store(NONE, R);
        return;
    } else if start_alone(1 << (wish - 1)).is_err() {
        return;
    }
    if let Some(mine) = IS_MINE.get() {
        mine.store(1, R);
    }
    FOLLOWED.store(wish, R);
}

/// Returns `true` if another process was asked: the one that this one was forked from.
fn is_of_parent() -> bool {
    // Acquire: partner is the other process's system call that wrote the number, before the one for the byte.
    ASKED.load(Ordering::Acquire) != NONE && ASKED_OF.load(R) != process_id()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes() {
        for (rate, power) in [(1 << 39, 39), (0, 0), (1, 0), (2, 1), (3, 2), (4096, 12), (4097, 13)]
        {
            assert_eq!(wish_of(rate), power + 1, "{rate}");
        }
        assert_eq!((wish_of(1 << 40), wish_of(u64::MAX)), (MOST, MOST));
        assert_eq!(1_u64 << (OF_TRACERS - 1), 512 << 10);
    }
}
