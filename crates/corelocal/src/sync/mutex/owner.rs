//! What the word of a mutex says of its holder: 0 if there is none, else a tag (`sys/owner_tag.rs`) and a bit that
//! is always set.
//!
//! Invariants:
//! 1. What names a holder is odd, so never 0, and below 2^[`BITS`]; it is the same at every call of a thread
//!    in one process.
//! 2. A thread remembers its name, which takes thirty instructions to find out, in a word of its own. A child has
//!    a copy of it; the generation in it tells that it is to be found out anew. In a process that records the order of
//!    its locks no thread remembers it: so each lock takes its slow path, at no cost for others.
//! 3. A shared lock names the process that holds it, so that the copy of a guard in a forked child unlocks nothing. A
//!    child does not know another process's threads, which a fork does not take along: no holder is ever gone.

use super::uncontended_unlock;
use crate::primitive::global::Ordering;
use crate::sync::profile::order;
use crate::sync::scope::Scope;
use crate::sys::arch::{self, own_words};
use crate::sys::owner_tag::{self, Holder};
use crate::sys::{forks, futex};

pub(super) const BITS: u32 = 28;
pub(super) const MASK: u32 = (1 << BITS) - 1;
const TAG_BITS: u32 = BITS - 1;
const HELD: u32 = 1;
const _: () = assert!(forks::PROCESS_BITS < BITS);

/// What names the calling thread.
#[inline(always)]
pub(super) fn mine<S: Scope>() -> u32 {
    match S::FUTEX {
        futex::Scope::Private => {
            // The name is at hand before it is known to be right, which the processor guesses.
            let known = arch::read_own_word(own_words::NAME);
            if is_of_now(known) { known } else { learn() }
        }
        futex::Scope::Shared => (forks::process() << 1) | HELD,
    }
}

/// The same, if that takes no search: a thread of a process that records the order of locks never remembers its name.
#[inline(always)]
pub(super) fn known<S: Scope>() -> Option<u32> {
    match S::FUTEX {
        futex::Scope::Private => {
            let known = arch::read_own_word(own_words::NAME);
            if is_of_now(known) { Some(known) } else { unknown() }
        }
        futex::Scope::Shared => Some(mine::<S>()),
    }
}

/// Nothing; tells the compiler that this is rare.
#[cold]
fn unknown() -> Option<u32> {
    None
}

/// Whether the calling thread has remembered this name, and in this process. One of 32 forks ago would be the
/// same: of a thread no more than that is in it.
#[inline(always)]
fn is_of_now(known: u32) -> bool {
    known & HELD != 0 && owner_tag::generation_of(known >> 1) == owner_tag::generation()
}

#[cold]
#[inline(never)]
fn learn() -> u32 {
    uncontended_unlock::prepare();
    let name = (owner_tag::tag::<TAG_BITS>() << 1) | HELD;
    // Else each lock is to take its slow path, which records it (`profile/order/hooks.rs`, 2).
    let is_remembered = order::is_off();
    if let Some(word) = arch::own_word(own_words::NAME).filter(|_| is_remembered) {
        // Relaxed: for this thread and its signal handlers, which would write the same.
        word.store(name, Ordering::Relaxed);
    }
    name
}

/// Whether who is named so, if anybody, is a thread that a fork left behind.
pub(super) fn is_gone<S: Scope>(name: u32) -> bool {
    name != 0
        && S::FUTEX == futex::Scope::Private
        && owner_tag::who::<TAG_BITS>(name >> 1) == Holder::Gone
}

/// Whether another process holds what this word names the holder of. Of a private lock a child has a copy.
#[inline(always)]
pub(super) fn is_another_process<S: Scope>(name: u32) -> bool {
    S::FUTEX == futex::Scope::Shared && name & MASK != mine::<S>()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::{Private, Shared};

    #[test]
    fn who_is_named() {
        let me = mine::<Private>();
        assert!(me == mine::<Private>() && me & HELD != 0 && me >> BITS == 0);
        let process = mine::<Shared>();
        assert!(process & HELD != 0 && process >> BITS == 0);
        assert_eq!(std::thread::spawn(mine::<Shared>).join().unwrap(), process);
        assert!(!is_another_process::<Shared>(process) && is_another_process::<Shared>(HELD));
        let other = std::thread::spawn(mine::<Private>).join().unwrap();
        assert!(!is_gone::<Private>(0) && !is_gone::<Private>(me) && !is_gone::<Private>(other));
        // The lowest bit of the generation.
        assert!(is_gone::<Private>(other ^ 2));
        assert!(!is_gone::<Shared>(HELD) && !is_gone::<Shared>(other ^ 2));
    }
}
