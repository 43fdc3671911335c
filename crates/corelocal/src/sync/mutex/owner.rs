//! The owner field of a mutex's word: 0 if it is free, else a tag of the thread (`sys/thread/owner_tag.rs`) and a bit
//! that is always set.
//!
//! Invariants:
//! 1. An owner's name is odd, so never 0, and below 2^[`OWNER_BITS`]. It is the same at every call of a thread in one
//!    process.
//! 2. Computing the name takes about thirty instructions, so a thread caches it in a word of its own. A forked child
//!    has a copy of that word, and the fork generation in it shows that it must be computed anew. In a process that
//!    records lock order no thread caches its name, so that each lock takes the slow path; other processes pay
//!    nothing for this.
//! 3. A shared lock names the owning process, so that the copy of a guard in a forked child unlocks nothing. A child
//!    knows nothing about the threads of other processes, which a fork does not affect: such an owner is never gone.

use super::uncontended_unlock;
use super::word::{MASK, OWNER_BITS};
use crate::primitive::global::Ordering;
use crate::sync::machinery::scope::Scope;
use crate::sync::profile::order;
use crate::sys::arch::{self, own_words};
use crate::sys::thread::owner_tag::{self, Holder};
use crate::sys::{forks, futex};

const TAG_BITS: u32 = OWNER_BITS - 1;
const HELD: u32 = 1;
const _: () = assert!(forks::PROCESS_BITS < OWNER_BITS);

/// Returns the name of the calling thread.
#[inline(always)]
pub(super) fn mine<S: Scope>() -> u32 {
    match S::FUTEX {
        futex::Scope::Private => {
            // The cached name is returned before it is known to be valid, which the processor predicts.
            let known = arch::read_own_word(own_words::NAME);
            if is_of_now(known) { known } else { learn() }
        }
        futex::Scope::Shared => (forks::process() << 1) | HELD,
    }
}

/// Returns the cached name; `None` if it must be computed. In a process that records lock order it is never cached.
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

/// Marks the path as unlikely for the compiler.
#[cold]
fn unknown() -> Option<u32> {
    None
}

/// Returns `true` if the word holds the calling thread's name in this process. After 32 forks the generation repeats:
/// no chain of forks without a lock is that long.
#[inline(always)]
fn is_of_now(known: u32) -> bool {
    known & HELD != 0 && owner_tag::generation_of(known >> 1) == owner_tag::generation()
}

#[cold]
#[inline(never)]
fn learn() -> u32 {
    uncontended_unlock::prepare();
    let name = (owner_tag::tag::<TAG_BITS>() << 1) | HELD;
    // Otherwise each lock must take its slow path, which records it (`profile/order/hooks.rs`, 2).
    let is_remembered = order::is_off();
    if let Some(word) = arch::own_word(own_words::NAME).filter(|_| is_remembered) {
        // Relaxed: read only by this thread and its signal handlers, which would write the same.
        word.store(name, Ordering::Relaxed);
    }
    name
}

/// Returns `true` if the owner of this name, if any, is a thread that did not survive a fork.
pub(super) fn is_gone<S: Scope>(name: u32) -> bool {
    name != 0
        && S::FUTEX == futex::Scope::Private
        && owner_tag::who::<TAG_BITS>(name >> 1) == Holder::Gone
}

/// Returns `true` if the lock is a shared one that another process owns, according to this word. A private lock is
/// copied by fork.
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
        assert!(me == mine::<Private>() && me & HELD != 0 && me >> OWNER_BITS == 0);
        let process = mine::<Shared>();
        assert!(process & HELD != 0 && process >> OWNER_BITS == 0);
        assert_eq!(std::thread::spawn(mine::<Shared>).join().unwrap(), process);
        assert!(!is_another_process::<Shared>(process) && is_another_process::<Shared>(HELD));
        let other = std::thread::spawn(mine::<Private>).join().unwrap();
        assert!(!is_gone::<Private>(0) && !is_gone::<Private>(me) && !is_gone::<Private>(other));
        // The lowest bit of the generation.
        assert!(is_gone::<Private>(other ^ 2));
        assert!(!is_gone::<Shared>(HELD) && !is_gone::<Shared>(other ^ 2));
    }
}
