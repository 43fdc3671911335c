//! What the word of a mutex says of its holder: 0 if there is none, else a tag (`sync/holder.rs`) and a bit that
//! is always set.
//!
//! Invariants:
//! 1. What names a holder is odd, so never 0, and below 2^[`BITS`]; it is the same at every call of a thread
//!    in one process.
//! 2. A shared lock is held by processes, whose threads a child cannot know, and which a fork does not take
//!    along: nobody is ever gone, and all holders look the same.

use crate::sync::holder::{self, Holder};
use crate::sync::scope::Scope;
use crate::sys::futex;

pub(super) const BITS: u32 = 28;
pub(super) const MASK: u32 = (1 << BITS) - 1;
const TAG_BITS: u32 = BITS - 1;
const HELD: u32 = 1;

/// What names the calling thread.
#[inline(always)]
pub(super) fn mine<S: Scope>() -> u32 {
    match S::FUTEX {
        futex::Scope::Private => (holder::tag::<TAG_BITS>() << 1) | HELD,
        futex::Scope::Shared => HELD,
    }
}

/// Whether who is named so, if anybody, is a thread that a fork left behind.
pub(super) fn is_gone<S: Scope>(name: u32) -> bool {
    name != 0
        && S::FUTEX == futex::Scope::Private
        && holder::who::<TAG_BITS>(name >> 1) == Holder::Gone
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::{Private, Shared};

    #[test]
    fn who_is_named() {
        let me = mine::<Private>();
        assert!(me == mine::<Private>() && me & HELD != 0 && me >> BITS == 0);
        assert_eq!(mine::<Shared>(), HELD);
        let other = std::thread::spawn(mine::<Private>).join().unwrap();
        assert!(!is_gone::<Private>(0) && !is_gone::<Private>(me) && !is_gone::<Private>(other));
        // The lowest bit of the generation.
        assert!(is_gone::<Private>(other ^ 2));
        assert!(!is_gone::<Shared>(HELD) && !is_gone::<Shared>(other ^ 2));
    }
}
